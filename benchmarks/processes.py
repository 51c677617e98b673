"""Runs contenders as processes and reads their reports."""

import functools
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

# What one run measured: `value`, the `versions` of the packages, and whatever else is worth keeping.
Report = dict[str, Any]
# Runs a contender once.
Contender = Callable[[], Report]

ROOT = pathlib.Path(__file__).resolve().parent.parent
# TensorFlow's log about CPU kernels would hide error messages, here and in the processes of the contenders.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


class RunFailed(Exception):
    """A contender could not be run; the message gives the reason in one line."""


def contender(module: str, *arguments: object, python: str = sys.executable, **environment: str) -> Contender:
    """Returns a contender that runs a module of `benchmarks.contenders` as a process.

    Args:
        module: str. Name of the module.
        arguments: the command-line arguments; converted to str.
        python: str. The Python interpreter to run it with. Defaults to the current one.
        environment: str. Environment variables that differ from this process'.
    """
    changes = [f"{name}={value}" for name, value in environment.items()]
    command = ["env", *changes, python, "-m", f"benchmarks.contenders.{module}", *map(str, arguments)]
    return functools.partial(run_for_report, command)


def opennmt_contender(module: str, *arguments: object, python: str | None) -> Contender:
    """Returns a contender that runs in OpenNMT-tf's own environment, or is skipped if there is none.

    Args:
        module: str. Name of the module.
        arguments: the command-line arguments; converted to str.
        python: str or None. The Python interpreter of the environment.
    """
    if python is None:
        return skipped("requires --opennmt, the Python interpreter of an environment with OpenNMT-tf")
    return contender(module, *arguments, python=python)


def skipped(reason: str) -> Contender:
    """Returns a contender that is not run; the table shows the reason instead."""

    def fail() -> Report:
        raise RunFailed(f"skipped: {reason}")

    return fail


def run_for_report(command: Sequence[str], input_path: str | os.PathLike[str] = os.devnull) -> Report:
    """Runs a process whose last line of standard output is its report, as a JSON object.

    Args:
        command: list of str.
        input_path: str or path of the file to use as standard input. Defaults to an empty one.

    Raises:
        RunFailed: The process exited with an error.
    """
    return json.loads(run(command, input_path).splitlines()[-1])


def run(command: Sequence[str], input_path: str | os.PathLike[str] = os.devnull) -> str:
    """Runs a process in the root of the repository and returns its standard output.

    Args:
        command: list of str.
        input_path: str or path of the file to use as standard input. Defaults to an empty one.

    Raises:
        RunFailed: The process exited with an error; the message is the last line of its standard error.
    """
    with open(input_path, "rb") as file:
        process = subprocess.run(command, cwd=ROOT, stdin=file, capture_output=True, text=True, errors="replace")
    if process.returncode:
        raise RunFailed(last_line(process.stderr) or f"exit status {process.returncode}")
    return process.stdout


def time_to_first_line(command: Sequence[str], input: str = "") -> Report:
    """Measures the time from the start of a process to its first line of output, in seconds.

    Args:
        command: list of str.
        input: str. The standard input. Defaults to "".

    Returns:
        The report, without versions.

    Raises:
        RunFailed: The process exited with an error, or printed nothing.
    """
    begin = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    assert process.stdin and process.stdout and process.stderr
    process.stdin.write(input)
    process.stdin.close()
    line = process.stdout.readline()
    seconds = time.perf_counter() - begin
    process.stdout.read()
    errors = process.stderr.read()
    if process.wait() or not line:
        raise RunFailed(last_line(errors) or f"exit status {process.returncode}")
    return {"value": seconds}


def last_line(text: str) -> str:
    """Returns the last line that is not blank, stripped; "" if there is none."""
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def versions(*packages: str) -> dict[str, str]:
    """Returns the installed versions of packages, without importing them."""
    return {package: importlib.metadata.version(package) for package in packages}
