"""The machine and the terminal that a program runs on."""
