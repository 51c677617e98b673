"""The log: a Python program decides what it sees; the command shows all of it."""

import os
import shutil
import subprocess
import sys

import pytest
from fresh_process import run_python

LOAD = """
import logging, sys
from keras_transformer.runtime.standard_streams import silenced
with silenced():
    from keras_transformer import Translator
print(Translator.load(sys.argv[1])(["Anna sees a tree."]))
logging.getLogger("keras_transformer").setLevel(logging.ERROR)
Translator.load(sys.argv[1])
"""


@pytest.fixture
def damaged_model_dir(tiny_model_dir, tmp_path):
    """A model directory whose best weights are damaged, and that has a checkpoint."""
    path = tmp_path / "model"
    shutil.copytree(tiny_model_dir, path)
    (path / "checkpoints").mkdir()
    (path / "best.weights.h5").rename(path / "checkpoints" / "step-00000001.weights.h5")
    (path / "best.weights.h5").write_bytes(b"not HDF5")
    return path


def said_by(*arguments, **options):
    """The lines that a separate process writes to standard error, without TensorFlow's own log."""
    env = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    result = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=env, **options
    )
    assert result.returncode == 0, result.stderr
    assert "Anna hat einen Baum, sieht!" in result.stdout
    return result.stderr.splitlines()


def is_warning(line, model_dir):
    start = f"{model_dir}/best.weights.h5: the file cannot be read"
    return line.startswith(start) and line.endswith("; step-00000001.weights.h5 is used instead")


@pytest.mark.slow
def test_a_python_program_sees_warnings_and_can_turn_them_off(damaged_model_dir):
    # It loads the model twice.
    (line,) = said_by("-c", LOAD, damaged_model_dir)
    assert is_warning(line, damaged_model_dir)


@pytest.mark.slow
def test_a_python_program_formats_the_log_as_its_own():
    code = """
import logging
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s %(message)s")
from keras_transformer.training.text.corpus import read_text
from keras_transformer.training.text.filters import HeldOut
from keras_transformer.text import open_corpora
from keras_transformer.config import DataConfig
read_text(open_corpora(pairs=["-"]), DataConfig(), HeldOut(size=1))
"""
    line = "INFO keras_transformer.training.text.corpus held out 1 sentence pair to validate on"
    piped = {"input": "a\tb\nc\td\n", "stderr": subprocess.STDOUT}
    assert line in run_python("-c", code, **piped).splitlines()
    quiet = code.replace("level=logging.INFO, ", "")
    assert "held out" not in run_python("-c", quiet, **piped)


@pytest.mark.slow
def test_the_command_shows_warnings_and_what_it_does(damaged_model_dir):
    command = ("-m", "keras_transformer", "translate", "--model-dir", damaged_model_dir)
    precision, warning, end = said_by(*command, input="Anna sees a tree.\n")
    assert precision.startswith("precision: ")
    assert is_warning(warning.removeprefix("warning: "), damaged_model_dir) and warning.startswith(
        "warning: "
    )
    assert end == "translated 1 line"
