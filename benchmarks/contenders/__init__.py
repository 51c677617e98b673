"""The programs that are measured. Each module is run as a process whose last line of output is its
report, in JSON."""
