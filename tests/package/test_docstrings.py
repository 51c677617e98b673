"""The examples in docstrings run, and return what they show."""

import doctest
import importlib.util
import pathlib
import re

import keras
import numpy as np
import pytest
from conftest import sentence_pairs
from keras import ops

import keras_transformer
from keras_transformer.tokenizers import SentencePieceTokenizer
from keras_transformer.training.batches.vocabulary import train_tokenizer

EXCLUDED = [
    "keras_transformer.translation.translator",  # What it translates depends on the model.
    *([] if importlib.util.find_spec("torch") else ["keras_transformer.interchange.torch_modules"]),
]
# What trains a model.
TRAINING = [
    "keras_transformer.training.run.trainer",
    "keras_transformer.training.synthesis.translated_pairs",
]
ROOT = pathlib.Path(__file__).resolve().parents[2]


def module_names():
    folders = {
        "keras_transformer": "keras_transformer",
        "training": "keras_transformer.training",
        "export": "keras_transformer.export",
    }
    names = [
        ".".join((package, *path.relative_to(ROOT / folder).with_suffix("").parts))
        for folder, package in folders.items()
        for path in sorted((ROOT / folder).rglob("*.py"))
        if path.stem not in ("__main__", "__init__") and ">>>" in path.read_text(encoding="utf-8")
    ]
    return [
        pytest.param(name, marks=[pytest.mark.slow] * (name in TRAINING))
        for name in names
        if name not in EXCLUDED
    ]


class Checker(doctest.OutputChecker):
    """Backends print shapes and numbers differently."""

    def check_output(self, want, got, optionflags):
        return super().check_output(self.plain(want), self.plain(got), optionflags)

    def plain(self, text):
        text = re.sub(r"TensorShape\(\[(.*?)\]\)", r"(\1)", text).replace(",)", ")")
        return " ".join(text.split())


@pytest.fixture(scope="module")
def names(tiny_model_dir):
    """Names that the examples use without importing them."""
    public = {
        name: getattr(keras_transformer, name)
        for name in (*keras_transformer.__all__, "Translator")
    }
    tokenizer = train_tokenizer([text for pair in sentence_pairs() for text in pair], "bpe", 320)
    assert isinstance(tokenizer, SentencePieceTokenizer)
    return {"np": np, "keras": keras, "ops": ops, "tokenizer": tokenizer, **public}


@pytest.mark.parametrize("name", module_names())
def test_examples_run(name, names, tiny_model_dir, tmp_path, monkeypatch):
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "en-de").symlink_to(tiny_model_dir)
    (tmp_path / "train.en").write_text("A dog runs .\nTwo women sit on a bench .\n")
    (tmp_path / "train.de").write_text("Ein Hund rennt .\nZwei Frauen sitzen auf einer Bank .\n")
    (tmp_path / "web.scores").write_text("0.81\n0.03\n")
    monkeypatch.chdir(tmp_path)
    module = importlib.import_module(name)
    output = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    runner = doctest.DocTestRunner(Checker(), verbose=False, optionflags=flags)
    for test in doctest.DocTestFinder(recurse=True).find(
        module, extraglobs={**names, **vars(module)}
    ):
        runner.run(test, out=output.append)
    assert runner.tries > 0
    assert not runner.failures, "".join(output)
