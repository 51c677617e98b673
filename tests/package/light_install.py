"""Layers, model and search where pip has installed Keras and one backend only; `make test-jax` and
`test-torch` run it.

`make test-keras` runs the first ones with each release of Keras.

Each process begins anew, outside the checkout.
"""

import importlib.util
import pathlib
import re
import subprocess
import sys

import pytest
from fresh_process import run_python

README = pathlib.Path(__file__).parents[2] / "README.md"
BACKENDS = [name for name in ("tensorflow", "jax", "torch") if importlib.util.find_spec(name)]
COMMAND = pathlib.Path(sys.executable).with_name("keras-transformer")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("light")


def run(folder, *arguments):
    return subprocess.run([*map(str, arguments)], cwd=folder, capture_output=True, text=True)


def test_pip_has_installed_keras_and_one_backend():
    assert BACKENDS in (["jax"], ["torch"])
    for name in ("tensorflow_text", "yaml", "matplotlib", "sentencepiece"):
        assert importlib.util.find_spec(name) is None, name


def example():
    """The README's first code, a model with layers."""
    return re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)[1]


TRAIN_LAYERS = """
import numpy as np

token_ids = np.random.default_rng(0).integers(1, 8000, (64, 12))
token_ids[::2, 3] = 7
token_ids[1::3, 8:] = 0
labels = (token_ids == 7).any(axis=1).astype("int32")  # Whether token 7 is among them.
keras.utils.set_random_seed(0)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(3e-3), loss)
losses = model.fit(token_ids, labels, epochs=20, verbose=0).history["loss"]
assert losses[-1] < 0.1 < 0.5 < losses[0], losses
model.save("layers.keras")
np.savez("layers.npz", token_ids=token_ids, logits=keras.ops.convert_to_numpy(model(token_ids)))
"""
LOAD_LAYERS = """
import keras
import keras_transformer
import numpy as np

saved = np.load("layers.npz")
model = keras.saving.load_model("layers.keras")
logits = keras.ops.convert_to_numpy(model(saved["token_ids"]))
np.testing.assert_allclose(logits, saved["logits"], rtol=1e-5, atol=1e-6)
"""


def test_the_layers_train_are_saved_and_load(folder):
    run_python("-c", example() + TRAIN_LAYERS, cwd=folder)
    run_python("-c", LOAD_LAYERS, cwd=folder)


TRAIN_TRANSFORMER = """
import keras
import numpy as np
from keras_transformer import MaskedAccuracy, MaskedLabelSmoothedCrossentropy, TransformerConfig
from keras_transformer import WarmupInverseSqrt, build_transformer

# The target is the source backwards; 1 starts and 2 ends it.
source = np.random.default_rng(0).integers(3, 10, (256, 5))
labels = np.pad(source[:, ::-1], ((0, 0), (0, 1)), constant_values=2)
target = np.pad(labels[:, :-1], ((0, 0), (1, 0)), constant_values=1)
keras.utils.set_random_seed(0)
sizes = dict(num_layers=1, d_model=32, d_ff=64, num_heads=2)
model = build_transformer(TransformerConfig(10, 10, **sizes, dropout=0.0))
model.compile(
    keras.optimizers.Adam(WarmupInverseSqrt(d_model=32, warmup_steps=60, scale=0.5)),
    MaskedLabelSmoothedCrossentropy(0.1),
    metrics=[MaskedAccuracy()],
)
history = model.fit({"source": source, "target": target}, labels, epochs=40, verbose=0).history
assert history["masked_accuracy"][-1] > 0.99, history["masked_accuracy"]
model.save("transformer.keras")
"""
SEARCH = """
import keras
import keras_transformer
import numpy as np
from keras_transformer.decoding import beam_search, greedy_search

model = keras.saving.load_model("transformer.keras")
assert type(model.optimizer._learning_rate) is keras_transformer.WarmupInverseSqrt
source = np.array([[3, 5, 4, 9, 8], [6, 6, 7, 3, 4]])
limits = dict(max_length=6, start_ids=1, end_ids=2)
for search, beam_size in ((greedy_search, 1), (beam_search, 4)):
    arguments = dict(limits, beam_size=4) if beam_size == 4 else limits
    hypotheses = search(*model.start_decoding(source, beam_size, max_length=6), [6, 6], **arguments)
    print(keras.ops.convert_to_numpy(hypotheses.token_ids)[:, 0].tolist())
"""


def test_a_transformer_trains_is_saved_loads_and_is_searched(folder):
    run_python("-c", TRAIN_TRANSFORMER, cwd=folder)
    backwards = [[8, 9, 4, 5, 3, 2], [4, 3, 7, 6, 6, 2]]
    assert run_python("-c", SEARCH, cwd=folder) == f"{backwards}\n" * 2


@pytest.mark.parametrize("name", ["Translator", "model_dir", "tokenizers", "translation"])
def test_what_translates_names_the_extra(name, folder):
    finished = run(folder, sys.executable, "-c", f"from keras_transformer import {name}")
    assert finished.returncode == 1
    assert re.fullmatch(
        r"keras_transformer\.errors\.MissingPackageError: this needs the package \w+, which is "
        r"not installed: in your clone of the repository, run pip install -e '\.\[translation\]'",
        finished.stderr.splitlines()[-1],
    )


@pytest.mark.parametrize("options", [["--help"], ["--version"], ["train", "--help"]])
def test_the_command_answers_without_the_extra(options, folder):
    finished = run(folder, COMMAND, *options)
    assert (finished.returncode, finished.stderr) == (0, "")
    assert "keras-transformer" in finished.stdout


@pytest.mark.parametrize(
    "options",
    [
        ["train", "--source", "a", "--target", "b", "--valid-size", "1", "--model-dir", "m"],
        ["check-data", "--source", "a", "--target", "b"],
        ["translate", "--model-dir", "m"],
        ["evaluate", "--model-dir", "m", "--source", "a", "--reference", "b"],
        ["score", "--model-dir", "m", "--source", "a", "--target", "b"],
        ["average", "--model-dir", "m"],
        ["export", "--model-dir", "m", "--output", "o"],
        ["import", "--from", ".", "--model-dir", "m"],
        ["plot", "--model-dir", "m", "--text", "a", "--output", "a.png"],
        ["plot", "--model-dir", "m", "--output", "a.png"],
        ["serve", "--model-dir", "m"],
    ],
    ids=lambda options: options[0],
)
def test_a_command_names_the_extra_in_one_line(options, folder):
    # What an option names is looked for first.
    for name in "ab":
        (folder / name).touch()
    finished = run(folder, COMMAND, *options)
    assert (finished.returncode, finished.stdout) == (1, "")
    assert re.fullmatch(
        f"keras-transformer {options[0]}: error: this needs the package .+, which is not "
        r"installed: in your clone of the repository, run pip install -e '\.\[translation\]'\n",
        finished.stderr,
    )
