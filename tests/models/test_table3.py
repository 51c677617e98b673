"""Every row of the paper's Table 3: a recipe with the row's values and size, which trains, saves,
loads and exports."""

import csv
import shutil

import keras
import numpy as np
import pytest

from keras_transformer import Translator, build_transformer
from keras_transformer.export.servable import export_servable
from keras_transformer.model_dir import ModelDir
from keras_transformer.training.recipe import load_recipe, recipe_names
from keras_transformer.training.run.devices import make_strategy
from keras_transformer.training.run.trainer import train
from keras_transformer.training.text.corpus import SentencePairs

COLUMNS = (
    "N",
    "d_model",
    "d_ff",
    "h",
    "d_k",
    "d_v",
    "P_drop",
    "smoothing",
    "positions",
    "steps",
    "millions",
)
BASE = dict(zip(COLUMNS, (6, 512, 2048, 8, 64, 64, 0.1, 0.1, "sinusoidal", 100_000, 65)))
# What each row changes. Rows without a size of their own in the paper have base's.
ROWS = {
    "base": {},
    "A-h1": {"h": 1, "d_k": 512, "d_v": 512},
    "A-h4": {"h": 4, "d_k": 128, "d_v": 128},
    "A-h16": {"h": 16, "d_k": 32, "d_v": 32},
    "A-h32": {"h": 32, "d_k": 16, "d_v": 16},
    "B-dk16": {"d_k": 16, "millions": 58},
    "B-dk32": {"d_k": 32, "millions": 60},
    "C-N2": {"N": 2, "millions": 36},
    "C-N4": {"N": 4, "millions": 50},
    "C-N8": {"N": 8, "millions": 80},
    "C-dmodel256": {"d_model": 256, "d_k": 32, "d_v": 32, "millions": 28},
    "C-dmodel1024": {"d_model": 1024, "d_k": 128, "d_v": 128, "millions": 168},
    "C-dff1024": {"d_ff": 1024, "millions": 53},
    "C-dff4096": {"d_ff": 4096, "millions": 90},
    "D-dropout0.0": {"P_drop": 0.0},
    "D-dropout0.2": {"P_drop": 0.2},
    "D-smoothing0.0": {"smoothing": 0.0},
    "D-smoothing0.2": {"smoothing": 0.2},
    "E-learned-positions": {"positions": "learned"},
    "big": {
        "d_model": 1024,
        "d_ff": 4096,
        "h": 16,
        "P_drop": 0.3,
        "steps": 300_000,
        "millions": 213,
    },
}
PAIRS = SentencePairs(
    ["a red bird", "two birds sing"], ["ein roter Vogel", "zwei Vögel singen"], name="birds"
)


@pytest.fixture
def folder(tmp_path):
    """A folder that is deleted after the test; pytest would keep the weights of all rows, which are
    gigabytes."""
    yield tmp_path
    shutil.rmtree(tmp_path)


every_row = pytest.mark.parametrize("row", ROWS)


def test_every_row_has_a_recipe_and_every_recipe_a_row():
    assert {name for name in recipe_names() if name.startswith("table3/")} == {
        f"table3/{row}" for row in ROWS
    }


@every_row
def test_a_recipe_has_the_values_of_its_row(row):
    recipe = load_recipe(f"table3/{row}")
    model, training = recipe.model, recipe.training
    key_dim = model.key_dim or model.d_model // model.num_heads
    expected = {**BASE, **ROWS[row]}
    del expected["millions"]
    assert expected == {
        "N": model.num_layers,
        "d_model": model.d_model,
        "d_ff": model.d_ff,
        "h": model.num_heads,
        "d_k": key_dim,
        "d_v": model.value_dim or key_dim,
        "P_drop": model.dropout,
        "smoothing": training.label_smoothing,
        "positions": model.positions,
        "steps": training.steps,
    }
    assert (recipe.tokenizer.vocab_size, training.tokens_per_batch, training.warmup_steps) == (
        37_000,
        25_000,
        4000,
    )
    assert training.average_last == training.average_best == 0  # section 6.2
    assert (recipe.decoding.beam_size, recipe.decoding.length_penalty) == (4, 0.6)


@pytest.mark.parametrize(
    "row", [name if name == "base" else pytest.param(name, marks=pytest.mark.slow) for name in ROWS]
)
def test_the_number_of_parameters_is_within_7_percent_of_the_table(row):
    # The shapes of the weights are enough: without their values, which would be up to 900 MB.
    with keras.StatelessScope(initialize_variables=False):
        count = build_transformer(load_recipe(f"table3/{row}").model).count_params()
    # Or Keras would make up for the values later.
    keras.backend.clear_session()
    assert count / 1e6 == pytest.approx({**BASE, **ROWS[row]}["millions"], rel=0.07)


@pytest.mark.slow
@every_row
def test_a_row_trains_a_step_saves_loads_and_exports(row, folder):
    recipe = load_recipe(f"table3/{row}")
    # All is the row's own but the vocabulary, the lengths, and N: a quarter of the layers, here one
    # or two. To trace all of them would take ten minutes.
    num_layers = max(recipe.model.num_layers // 4, 1)
    small = load_recipe(
        f"table3/{row}",
        [
            *(f"model.num_layers={num_layers}", "model.max_length=32", "tokenizer.vocab_size=300"),
            *("training.steps=1", "training.validate_every=1"),
        ],
    )
    train(small, PAIRS, PAIRS, folder / "model", make_strategy())
    model_dir = ModelDir(folder / "model")
    with open(model_dir.log_path, newline="") as file:
        (log,) = csv.DictReader(file)
    assert np.isfinite(float(log["loss"]))

    translator = Translator.load(model_dir.path)
    assert translator.model.config == small.model
    # Each begins at 0: the step went through every sublayer of every layer.
    shifts = [weight for weight in translator.model.weights if weight.path.endswith("/beta")]
    assert len(shifts) == 5 * num_layers and all(np.any(shift.numpy()) for shift in shifts)

    # The export ends with an error if the SavedModel's translations are not the translator's.
    assert (
        export_servable(translator, folder / "servable", signatures=["serving_default"]).name == "1"
    )
