"""Measures the peak resident memory of a command.

    python -m benchmarks.peak_memory COMMAND ...

Runs the command and prints a report: `value` is its peak resident memory in MB, and `said` holds the lines of its
standard error, each with the second at which it was written. The peak that Linux reports for a command is at least the
memory of the process that starts it; therefore this is a process of its own, and imports little. `cpu_seconds` holds
the processor time that the command had used at each of these lines, which other programs on the machine hardly change.
"""

import json
import os
import resource
import subprocess
import sys
import time


def main() -> None:
    """Runs the command and prints the report; exits with an error if the command does."""
    begin = time.perf_counter()
    process = subprocess.Popen(
        sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
    )
    assert process.stderr
    lines, cpu_seconds = [], []
    for line in process.stderr:
        lines.append((round(time.perf_counter() - begin, 2), line.rstrip()))
        cpu_seconds.append(cpu_seconds_of(process.pid))
    if process.wait():
        sys.exit(lines[-1][1] if lines else f"exit status {process.returncode}")
    seconds = time.perf_counter() - begin
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(json.dumps({"value": peak, "seconds": seconds, "said": lines, "cpu_seconds": cpu_seconds}))


def cpu_seconds_of(process: int) -> float:
    """Returns the processor time of a process so far."""
    with open(f"/proc/{process}/stat") as file:
        # After the name, which is in brackets: the state is the third field, and the times are the 14th and 15th.
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
