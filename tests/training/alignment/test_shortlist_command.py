"""The command `align`, and `train` with `decoding.shortlist`: what they write, and how they resume."""

import pathlib
import shutil

import pytest
from conftest import sentence_pairs

from keras_transformer.commands.main import main
from keras_transformer.model_dir import ModelDir
from keras_transformer.model_dir.shortlist_file import read_shortlist
from keras_transformer.tokenizers import load_tokenizer


@pytest.fixture
def arguments(tiny_model_dir, tmp_path):
    """The command's arguments, for a copy of the model directory and the text that its model knows."""
    directory = shutil.copytree(tiny_model_dir, tmp_path / "model")
    given = ["align", "--model-dir", str(directory)]
    for name, side in zip(("source", "target"), zip(*sentence_pairs())):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in side))
        given += [f"--{name}", str(tmp_path / name)]
    return given


def read(arguments):
    model_dir = ModelDir(arguments[2])
    tokenizer = load_tokenizer(model_dir.path)
    sizes = [tokenizer.vocab_size] * 2
    return read_shortlist(model_dir.shortlist_path, *sizes, [tokenizer.file_content]), tokenizer


def translate(capsys, arguments, *options):
    path = pathlib.Path(arguments[4])
    with open(path) as file, pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr("sys.stdin", file)
        main(["translate", "--model-dir", arguments[2], "--n-best", "1", *options])
    return capsys.readouterr().out.splitlines()
