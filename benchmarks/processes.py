"""The processes that contenders run in, and what they report."""

import functools
import importlib.metadata
import json
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# TensorFlow's talk of its CPU kernels would hide the one line that tells of an error, here and in every contender.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


class RunFailed(Exception):
    """A contender did not run; the message says why in one line."""


def contender(module, *arguments, python=sys.executable):
    """A contender of `benchmarks.contenders`, whose process prints its report as its last line."""
    return functools.partial(report, [python, "-m", f"benchmarks.contenders.{module}", *map(str, arguments)])


def report(command, input_path=os.devnull) -> dict:
    """What a process reports: the JSON object in the last line of its standard output."""
    return json.loads(run(command, input_path).splitlines()[-1])


def left_out(reason):
    """A contender that does not run, for a reason that the table gives."""

    def run_once():
        raise RunFailed(f"left out: {reason}")

    return run_once


def run(command, input_path=os.devnull) -> str:
    """Runs a process from the repository's root and returns its standard output.

    Args:
        command: the process' arguments.
        input_path: the file that is its standard input.

    Raises:
        RunFailed: it ended with an error; the message is the last line that it said.
    """
    with open(input_path, "rb") as file:
        process = subprocess.run(
            command, cwd=ROOT, stdin=file, capture_output=True, text=True, errors="replace"
        )
    if process.returncode:
        raise RunFailed(last_words(process.stderr) or f"exit status {process.returncode}")
    return process.stdout


def run_for_first_line(command, input="") -> dict:
    """The report of a process whose value is the time from its start to its first line of output.

    Raises:
        RunFailed: it ended with an error, or said nothing.
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
    process.stdin.write(input)
    process.stdin.close()
    line = process.stdout.readline()
    seconds = time.perf_counter() - begin
    _, said = process.stdout.read(), process.stderr.read()
    if process.wait() or not line:
        raise RunFailed(last_words(said) or f"exit status {process.returncode}")
    return {"value": seconds}


def last_words(said):
    lines = [line for line in said.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def versions(*packages):
    """The installed versions of packages, none of which is imported."""
    return {package: importlib.metadata.version(package) for package in packages}
