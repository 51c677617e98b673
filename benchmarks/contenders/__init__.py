"""The contenders: programs whose last line of output is a report."""
