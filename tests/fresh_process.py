"""Python in processes of its own, for tests of what is imported, of other backends and of what
needs no package."""

import os
import subprocess
import sys


def run_python(*arguments, python=sys.executable, env=None, stderr=subprocess.PIPE, **options):
    """Runs Python with arguments, and with variables beside those of the environment; returns what
    it prints.

    What it logs is among it with `stderr=subprocess.STDOUT`.
    """
    finished = subprocess.run(
        [str(python), *map(str, arguments)],
        # JAX compiles faster.
        env={**os.environ, "XLA_FLAGS": "--xla_backend_optimization_level=0", **(env or {})},
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        **options,
    )
    assert finished.returncode == 0, f"{finished.stdout}{finished.stderr}"
    return finished.stdout
