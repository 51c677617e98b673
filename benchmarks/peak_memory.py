"""Measures the peak resident memory of a command.

    python -m benchmarks.peak_memory COMMAND ...

Runs the command and prints a report: `value` is its peak resident memory in MB, `seconds` the time
that it took. The peak that Linux reports for a command is at least the memory of the process that
starts it; therefore this is a process of its own, and imports little.
"""

import json
import resource
import subprocess
import sys
import time


def main() -> None:
    """Runs the command and prints the report; exits with an error if the command does."""
    begin = time.perf_counter()
    process = subprocess.run(
        sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
    )
    seconds = time.perf_counter() - begin
    if process.returncode:
        sys.exit(process.stderr or f"exit status {process.returncode}")
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(json.dumps({"value": peak, "seconds": seconds}))


if __name__ == "__main__":
    main()
