"""Applies small faults to a copy of the code, one at a time, and runs the tests that catch them.

    .venv/bin/python -m tests.mutants.run                # all faults of mutants.yaml: a quarter of an hour
    .venv/bin/python -m tests.mutants.run L01 S03        # some of them

If tests are removed or merged, this shows whether the others still catch each fault. A fault whose test has gone
names another one in mutants.yaml. `tests/package/test_mutants.py` checks that the table fits the code.

Each run is a fork of a process that has imported TensorFlow and Keras, which would take longer than most tests.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import yaml

ROOT = pathlib.Path(__file__).parents[2]
SECONDS = 300


def read_mutants():
    """Returns the faults: dicts with "id", "area", "fault", "file", "old" and "new" text, and "tests"."""
    return yaml.safe_load(pathlib.Path(__file__).with_name("mutants.yaml").read_text("utf-8"))


def copy_code(folder):
    """Copies all files of the checkout that Git knows. Links stay links."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        copy = folder / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).exists():
            shutil.copy2(ROOT / name, copy, follow_symlinks=False)


class SameModels:
    """A plugin of pytest: tests use the models that the unchanged code trained."""

    def pytest_plugin_registered(self, plugin):
        if not hasattr(plugin, "made_once"):
            return
        made_once, digest = plugin.made_once, plugin.digest_of_code

        def made(name, make, factory):
            plugin.digest_of_code = (lambda: "unchanged") if name == "models" else digest
            try:
                return made_once(name, make, factory)
            finally:
                plugin.digest_of_code = digest

        plugin.made_once = made


def run_tests(folder, tests):
    """Returns pytest's exit code, or a negative number if it was stopped after `SECONDS`."""
    child = os.fork()
    if child == 0:
        code = 70
        try:
            os.setsid()
            log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.chdir(folder)
            os.environ["PYTHONPATH"] = str(folder)
            sys.path.insert(0, str(folder))
            import pytest

            arguments = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
            code = int(pytest.main(arguments, plugins=[SameModels()]))
        finally:
            os._exit(code)
    limit = time.monotonic() + SECONDS
    while True:
        finished, status = os.waitpid(child, os.WNOHANG)
        if finished:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > limit:
            os.killpg(child, signal.SIGKILL)
            limit = float("inf")
        time.sleep(0.05)


def main():
    mutants = [
        mutant for mutant in read_mutants() if not sys.argv[1:] or mutant["id"] in sys.argv[1:]
    ]
    # These run no operation, so that a fork can use them. The package is imported in each fork.
    import keras  # noqa: F401
    import tensorflow  # noqa: F401

    survivors = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        copy_code(folder)
        unchanged = sorted({test for mutant in mutants for test in mutant["tests"]})
        if run_tests(folder, unchanged):
            sys.exit(f"tests fail without any fault:\n{(folder / 'log').read_text()[-2000:]}")
        for mutant in mutants:
            path = folder / mutant["file"]
            text = path.read_text("utf-8")
            path.write_text(text.replace(mutant["old"], mutant["new"]), "utf-8")
            # Otherwise, Python may take compiled code of the same second.
            os.utime(path, (time.time(), time.time() + len(survivors) + 2))
            # A crash or an endless loop shows the fault, too.
            is_caught = run_tests(folder, mutant["tests"]) != 0
            path.write_text(text, "utf-8")
            if not is_caught:
                survivors.append(mutant["id"])
            print(
                f"{mutant['id']} {'caught' if is_caught else 'NOT CAUGHT'}: {mutant['fault']}",
                flush=True,
            )
    print(f"{len(mutants) - len(survivors)} of {len(mutants)} faults were caught")
    sys.exit(1 if survivors else 0)


if __name__ == "__main__":
    main()
