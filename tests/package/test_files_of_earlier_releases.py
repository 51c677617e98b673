"""Files of earlier releases load without custom objects and compute the same; runs resume.

Each `.keras` file has an `.npz` beside it, with inputs and the outputs of the release that wrote
it:

    inputs.NAME          an input of the model
    labels               what it is trained on, if it is compiled
    outputs.N            its outputs, in order
    training_outputs.N   its outputs with training=True, first after loading, if its dropout has a
                         seed
    evaluation.N         the loss and the metrics of `evaluate`, if it is compiled
    update.N             the loss and the metrics of one more update, which `train_on_batch` returns
    updated_outputs.N    its outputs after that update, which show the state of the optimizer, too
"""

import json
import pathlib
import shutil

import keras
import numpy as np
import pytest
from fresh_process import run_python

from examples.corpus import generate
from keras_transformer import TransformerConfig, build_transformer

DATA = pathlib.Path(__file__).parents[1] / "data" / "earlier_releases"
# Of the stopped run, whose release called the sliding window a neighborhood.
SETTINGS = [
    "model.num_layers=1",
    "model.d_model=8",
    "model.d_ff=12",
    "model.num_heads=2",
    "model.dropout=0.1",
    "model.neighborhood=5",
    "model.positions=t5",
    "model.query_key_norm=true",
    "model.max_length=64",
    "tokenizer.vocab_size=360",
    "training.precision=float32",
    "training.tokens_per_batch=400",
    "training.num_buckets=2",
    "training.warmup_steps=4",
    "training.peak_learning_rate=0.01",
    "training.decay=inverse_sqrt",
    "training.keep_checkpoints=1",
    "training.average_last=1",
    "training.validate_every=3",
]
NAMES = sorted(path.stem for path in DATA.glob("*.keras"))

# Computes the outputs of all files in a folder, and writes them, or the failure, to another one.
COMPUTE = """
import pathlib, sys, traceback

import keras, keras_transformer
import numpy as np


def compute(path):
    model = keras.saving.load_model(path)
    with np.load(path.with_suffix(".npz")) as given:
        inputs = {name.removeprefix("inputs."): given[name] for name in given if name.startswith("inputs.")}
        labels = given["labels"] if "labels" in given else None
    # The input of a Sequential has no name.
    inputs = inputs.get("", inputs)
    results = {"training_outputs": model(inputs, training=True), "outputs": model(inputs)}
    if labels is not None:
        results["evaluation"] = model.evaluate(inputs, labels, verbose=0)
        results["update"] = model.train_on_batch(inputs, labels)
        results["updated_outputs"] = model(inputs)
    arrays = {}
    for kind, values in results.items():
        for i, value in enumerate(values if isinstance(values, (list, tuple)) else [values]):
            arrays[f"{kind}.{i}"] = keras.ops.convert_to_numpy(keras.ops.cast(value, "float32"))
    return arrays


folder, results = map(pathlib.Path, sys.argv[1:])
for path in sorted(folder.glob("*.keras")):
    try:
        np.savez(results / f"{path.stem}.npz", **compute(path))
    except Exception:
        (results / f"{path.stem}.txt").write_text(traceback.format_exc())
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The folder with the outputs of a process that imported only Keras and the package."""
    folder = tmp_path_factory.mktemp("results")
    run_python("-c", COMPUTE, DATA, folder)
    return folder


def assert_equal(name, expected, computed, kinds):
    """Compares the expected arrays of some kinds, and returns how many there are."""
    # bfloat16 has 8 bits, and backends round at other places.
    tolerance = 3e-2 if name.startswith("bfloat16") else 1e-5
    keys = [key for key in expected if key.startswith(kinds)]
    for key in keys:
        np.testing.assert_allclose(
            computed[key], expected[key], rtol=tolerance, atol=tolerance, err_msg=key
        )
    return len(keys)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_keras_file_loads_and_computes_the_same(name, results):
    failure = results / f"{name}.txt"
    assert not failure.exists(), failure.read_text()
    kinds = ("outputs", "evaluation", "update")
    with np.load(DATA / f"{name}.npz") as expected, np.load(results / f"{name}.npz") as computed:
        assert assert_equal(name, expected, computed, kinds) > 0


@pytest.mark.slow
@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="another backend draws other numbers"
)
def test_dropout_with_a_seed_draws_the_same_numbers(results):
    compared = 0
    for name in NAMES:
        with (
            np.load(DATA / f"{name}.npz") as expected,
            np.load(results / f"{name}.npz") as computed,
        ):
            compared += assert_equal(name, expected, computed, ("training_outputs",))
    assert compared > 0


@pytest.mark.parametrize(
    "name", sorted(path.name.removesuffix(".weights.h5") for path in DATA.glob("*.weights.h5"))
)
def test_weights_load_into_a_model_of_the_same_configuration(name):
    config = json.loads((DATA / f"{name}.weights.json").read_text())
    model = build_transformer(TransformerConfig(**config))
    model.load_weights(DATA / f"{name}.weights.h5")
    with np.load(DATA / f"{name}.weights.npz") as given:
        outputs = model({key: given[f"inputs.{key}"] for key in ("source", "target")})
        np.testing.assert_allclose(
            keras.ops.convert_to_numpy(outputs), given["outputs.0"], rtol=1e-5, atol=1e-5
        )


def weights_of(state):
    """All floating-point arrays of a training state: weights, moments, averages."""
    return {name: state[name] for name in state if state[name].dtype.kind == "f"}


@pytest.mark.slow
@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="training needs TensorFlow")
def test_a_stopped_run_resumes_as_if_it_had_not_stopped(tmp_path):
    # The state stores variables by number: another order of creation would swap equal shapes.
    pairs = generate(160, seed=5)
    for side, language in enumerate(("en", "de")):
        for name, part in (("train", pairs[:120]), ("valid", pairs[140:])):
            lines = "".join(f"{pair[side]}\n" for pair in part)
            (tmp_path / f"{name}.{language}").write_text(lines, encoding="utf-8")
    model_dir = tmp_path / "model"
    shutil.copytree(DATA / "stopped_run", model_dir)
    with np.load(model_dir / "training_state.npz") as state:
        start = weights_of(state)
    run_python(
        *("-m", "keras_transformer", "train", "--model-dir", model_dir),
        *("--source", tmp_path / "train.en", "--target", tmp_path / "train.de"),
        *("--valid-source", tmp_path / "valid.en", "--valid-target", tmp_path / "valid.de"),
        *("--set", *SETTINGS, "training.steps=6"),
    )
    with np.load(model_dir / "training_state.npz") as state:
        resumed = weights_of(state)
    with np.load(DATA / "stopped_run_after_6_updates.npz") as state:
        expected = weights_of(state)
    assert resumed.keys() == expected.keys()
    names = [name for name in expected if expected[name].shape == start[name].shape]

    def distance(left, right):
        return np.sqrt(sum(np.sum((left[name] - right[name]) ** 2.0) for name in names))

    # Other processors round otherwise, and Adam takes large steps for gradients near zero.
    assert distance(resumed, expected) < 0.02 * distance(expected, start)
