"""Those who are measured: each file is a process that prints its report, a JSON object, as its last line."""
