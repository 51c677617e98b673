"""Imported models compared with Marian itself, whose package, of 600 MB, has an environment of its
own.

python3 -m venv .venv-marian && .venv-marian/bin/pip install 'pymarian>=1.12.42,<1.13'
PATH="$PWD/.venv-marian/bin:$PATH" .venv/bin/python -m pytest tests/pretrained/test_marian.py
"""

import json
import pathlib
import shutil
import subprocess

import numpy as np
import pytest
from session_mode import run_session
from test_pretrained import import_here

from benchmarks.decoding_task import DecodingTask
from benchmarks.processes import contender
from examples.corpus import generate
from keras_transformer import Translator
from keras_transformer.config import DecodingConfig
from keras_transformer.export.servable import export_servable
from keras_transformer.pretrained.marian import find_files

COMMON = """--cpu-threads 1 --type transformer --dim-emb 64 --transformer-heads 4 --enc-depth 2
    --transformer-dim-ffn 128 --mini-batch 64 --workspace 500 --learn-rate 0.003 --lr-warmup 100
    --after-batches 600 --seed 1 --quiet"""
MODELS = {
    "one vocabulary": (["v.spm", "v.spm"], "--dim-vocabs 700 700 --dec-depth 2 "
                                           "--tied-embeddings-all"
                       " --transformer-ffn-activation relu"),
    "two vocabularies": (["s.spm", "t.spm"], "--dim-vocabs 400 450 --dec-depth 1 --tied-embeddings"
                         " --transformer-ffn-activation swish"),
    "pre-norm": (["v.spm", "v.spm"], "--dim-vocabs 700 700 --dec-depth 1 --tied-embeddings-all"
                 " --transformer-preprocess n --transformer-postprocess da "
                 "--transformer-postprocess-top n"),
}  # fmt: skip
PAIRS = generate(5000, seed=6)
TRAINING, TEST = PAIRS[:-1000], PAIRS[-1000:]


def pymarian(command, folder, options, lines=()):
    finished = subprocess.run(
        ["pymarian", command, *options],
        cwd=folder,
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.splitlines()


def write(path, lines):
    path.write_text("".join(f"{line}\n" for line in lines))


@pytest.fixture(scope="module", params=MODELS)
def models(request, tmp_path_factory):
    """The folder of a model that Marian trained, the arguments of Marian's programs, and the model
    directory."""
    folder = tmp_path_factory.mktemp("marian")
    vocabs, options = MODELS[request.param]
    for side, name in enumerate(("en", "de")):
        write(folder / f"train.{name}", [pair[side] for pair in TRAINING])
        write(folder / f"test.{name}", [pair[side] for pair in TEST])
    files = ["--train-sets", "train.en", "train.de", "--vocabs", *vocabs, "--model", "model.npz"]
    pymarian("train", folder, [*files, *COMMON.split(), *options.split()])
    path = import_here(folder, tmp_path_factory.mktemp("imported") / "model")
    return folder, ["-m", "model.npz", "-v", *vocabs, "--cpu-threads", "1", "--quiet"], path


def test_log_probabilities_of_given_pairs_are_marian_s(models):
    folder, options, path = models
    expected = pymarian("score", folder, [*options, "-t", "test.en", "test.de"])
    scores = Translator.load(path).score(*map(list, zip(*TEST)))
    np.testing.assert_allclose(scores, np.array(expected, float), atol=1e-3)


# Not of pre-norm: Marian's own decoder gives its translations other log probabilities there than
# Marian's scorer, which ours are equal to.
@pytest.mark.parametrize("models", ["one vocabulary", "two vocabularies"], indirect=True)
def test_translations_are_marian_s_in_python_and_served(models, tmp_path):
    folder, options, path = models
    sources = [source for source, _ in TEST]
    options = [
        *options,
        "-b",
        "4",
        "--mini-batch",
        "32",
        "--maxi-batch",
        "100",
        "--quiet-translation",
    ]
    expected = pymarian("decode", folder, options, sources)
    translator = Translator.load(
        path, DecodingConfig(4, 0.0, max_extra_tokens=100, forbidden_tokens="unknown")
    )
    results = translator(sources)
    assert sum(ours == theirs for ours, theirs in zip(results, expected, strict=True)) >= 990
    # As the benchmark of decoding has it translate.
    (tmp_path / "task.json").write_text(json.dumps({"sources": sources}))
    python, files = pathlib.Path(shutil.which("pymarian")).with_name("python"), find_files(folder)
    arguments = ("--model", files.model, "--vocabs", *files.vocabularies, "--answers", "Marian")
    contender("marian", tmp_path, *arguments, python=python)()
    answers = DecodingTask(tmp_path).read_answers("Marian")
    assert sum(text == theirs for (text, _), theirs in zip(answers, expected, strict=True)) >= 990
    # In session mode, as TensorFlow Serving runs it.
    ((texts, _),) = run_session(
        export_servable(translator, tmp_path / "servable", signatures=["serving_default"]),
        [[source.encode() for source in sources]],
    )
    assert [text.decode() for text in texts] == results
