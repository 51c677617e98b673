"""Runs contenders as processes and reads their reports."""

import functools
import importlib.metadata
import json
import os
import pathlib
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

# The result of one run: `value`, the `versions` of the packages, and anything else worth keeping.
Report = dict[str, Any]
# Runs a contender once.
Contender = Callable[[], Report]

ROOT = pathlib.Path(__file__).resolve().parent.parent


class RunFailed(Exception):
    """A contender could not be run; the message gives the reason in one line."""


def contender(
    module: str, *arguments: object, python: str = sys.executable, **environment: str
) -> Contender:
    """Returns a contender that runs a module of `benchmarks.contenders` as a process.

    Args:
        module: str. Name of the module.
        arguments: the command-line arguments; converted to str.
        python: str. The Python interpreter to run it with. Defaults to the current one.
        environment: str. Environment variables that differ from this process'.
    """
    changes = [f"{name}={value}" for name, value in environment.items()]
    program = [python, "-m", f"benchmarks.contenders.{module}"]
    command = ["env", *changes, *program, *map(str, arguments)]
    return functools.partial(run_for_report, command)


def skipped(reason: str) -> Contender:
    """Returns a contender that is not run; the table shows the reason instead."""

    def fail() -> Report:
        raise RunFailed(f"skipped: {reason}")

    return fail


def run_for_report(
    command: Sequence[object], input_path: str | os.PathLike[str] = os.devnull
) -> Report:
    """Runs a process in the root of the repository, and returns its report.

    The report is the last line of its standard output, in JSON.

    Raises:
        RunFailed: The process exited with an error; the message is the last line of its standard
            error.
    """
    with open(input_path, "rb") as file:
        process = subprocess.run(
            list(map(str, command)),
            cwd=ROOT,
            stdin=file,
            capture_output=True,
            text=True,
            errors="replace",
        )
    if process.returncode:
        raise RunFailed(last_line(process.stderr) or f"exit status {process.returncode}")
    return json.loads(last_line(process.stdout))


def last_line(text: str) -> str:
    """Returns the last line that is not blank, stripped; "" if there is none."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def versions(*packages: str) -> dict[str, str]:
    """Returns the installed versions of packages, without importing them."""
    return {package: importlib.metadata.version(package) for package in packages}


def free_addresses(number: int) -> list[str]:
    """Returns addresses of this machine at which no process listens."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    addresses = [f"127.0.0.1:{server.getsockname()[1]}" for server in sockets]
    for server in sockets:
        server.close()
    return addresses
