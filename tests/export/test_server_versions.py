"""The same SavedModels in session mode with several releases of TensorFlow; see `make test-servers`."""

import json
import os
import pathlib
import subprocess

import pytest
import tensorflow as tf
from keras_transformer.export import servable
from keras_transformer.export.requests import TEXTS, verify
from keras_transformer.export.servable import export_servable
from keras_transformer.export.signatures import SIGNATURES
from test_a_thousand_sentences import C_PROCESS, assert_same, decoded
from test_shortlist import random_shortlist

from keras_transformer.config import DecodingConfig
from keras_transformer.config.values import SignatureName
from keras_transformer.translation import Translator

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
ENVIRONMENTS = sorted(path.parent for path in CHECKOUT.glob(".venv-servers-*/installed"))


# Of servables whose graphs have operations that others lack, the signatures in which these are.
SEARCHES: tuple[SignatureName, ...] = ("translate_with_prefix", "translate_document")


def translator_and_signatures(name, model_dirs):
    tiny = model_dirs["tiny"]
    if name == "shortlist":
        plain = Translator.load(tiny)
        shortlist = random_shortlist(plain.tokenizers.target.vocab_size)
        return Translator(plain.model, plain.tokenizers, plain.decoding, shortlist=shortlist), SEARCHES
    if name == "int8":
        return Translator.load(tiny, precision="int8"), SEARCHES
    if name == "placeholders":
        return Translator.load(tiny, DecodingConfig(placeholders=True, keep=["Anna"])), (*SEARCHES, "score")
    return Translator.load(model_dirs[name]), tuple(SIGNATURES)


@pytest.fixture(scope="module", params=["tiny", "wordpiece", "shortlist", "int8", "placeholders"])
def saved_and_functions(request, model_dirs, tmp_path_factory):
    """The path of a SavedModel, and the functions that were saved."""
    seen = []
    translator, signatures = translator_and_signatures(request.param, model_dirs)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(servable, "verify", lambda path, functions, precision: seen.append(functions))
        path = export_servable(translator, tmp_path_factory.mktemp(request.param), signatures=signatures)
    return path, seen[0]


@pytest.mark.slow
@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=lambda path: path.name)
def test_every_signature_is_answered_alike(saved_and_functions, environment):
    python = str(environment / "bin" / "python")
    version = "from importlib.metadata import version as v; print(v('tensorflow'), v('tensorflow-text'))"
    print(subprocess.check_output([python, "-c", version], text=True))
    verify(*saved_and_functions, python=python)


@pytest.mark.slow
@pytest.mark.parametrize("environment", ENVIRONMENTS, ids=lambda path: path.name)
def test_every_signature_is_answered_alike_by_the_c_api(saved_and_functions, environment):
    path, functions = saved_and_functions
    texts = [text.decode(errors="replace") for text in TEXTS]
    requests = [(name, SIGNATURES[name].example(texts)) for name in functions]
    finished = subprocess.run(
        [str(environment / "bin" / "python"), "-c", C_PROCESS, str(path), str(CHECKOUT)],
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )
    assert finished.returncode == 0, finished.stderr
    for line, (name, inputs) in zip(finished.stdout.splitlines(), requests, strict=True):
        tensors = {key: tf.constant(inputs[key], spec.dtype) for key, spec in SIGNATURES[name].inputs.items()}
        expected = functions[name](**tensors)
        assert_same(json.loads(line), decoded({key: tensor.numpy() for key, tensor in expected.items()}))
