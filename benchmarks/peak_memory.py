"""The most memory that a command held at once.

    python -m benchmarks.peak_memory COMMAND …

Runs the command and prints a report: the value is its peak of resident memory in MB, and `said` holds every line of
its standard error with the second at which it came. This has a process of its own because Linux counts for a command
what the process that started it held before: this one is small, since it imports nothing.
"""

import json
import resource
import subprocess
import sys
import time


def main():
    begin = time.perf_counter()
    process = subprocess.Popen(
        sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
    )
    said = [(round(time.perf_counter() - begin, 2), line.rstrip()) for line in process.stderr]
    if process.wait():
        sys.exit(said[-1][1] if said else f"exit status {process.returncode}")
    seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(json.dumps({"value": peak, "seconds": seconds, "said": said}))


main()
