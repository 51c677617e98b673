"""How the package is imported, in fresh processes: lazily, and in any order before a saved model is loaded."""

import os
import subprocess
import sys

import keras
import numpy as np
import pytest

import keras_transformer
from keras_transformer import (
    EncoderLayer,
    MaskedAccuracy,
    MaskedLabelSmoothedCrossentropy,
    PositionalEmbedding,
    TiedProjection,
    TransformerConfig,
    WarmupInverseSqrt,
    build_transformer,
)

PUBLIC = {
    *("Decoder", "DecoderLayer", "Encoder", "EncoderLayer", "FeedForward", "MultiHeadAttention"),
    *("PositionalEmbedding", "PositionalEncoding", "TiedProjection"),
    *("Transformer", "TransformerConfig", "build_transformer", "generate"),
    *("from_keras", "from_keras_hub", "from_torch", "to_keras", "to_keras_hub", "to_torch"),
    *("MaskedAccuracy", "MaskedLabelSmoothedCrossentropy", "Perplexity", "WarmupInverseSqrt"),
}
TOKEN_IDS = np.array([[5, 3, 8, 0], [1, 4, 2, 9]])


def run(*arguments, **environment):
    """Returns the output of a fresh Python process."""
    finished = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, "XLA_FLAGS": "--xla_backend_optimization_level=0", **environment},  # JAX compiles faster.
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def run_code(code, *arguments, **environment):
    return run("-c", code, *arguments, **environment)


# Lazily.


def test_the_package_its_names_and_the_configuration_need_nothing_heavy():
    code = f"""
import sys
import keras_transformer
names = dir(keras_transformer)
assert names == sorted(names)
assert {PUBLIC!r} | {{"Translator", "__version__", "__doc__"}} <= set(names)
assert not {PUBLIC!r} & set(vars(keras_transformer))
assert keras_transformer.TransformerConfig(8, 8, d_model=4, num_heads=2).d_ff == 2048
print({{'keras', 'tensorflow', 'jax', 'numpy', 'yaml', 'tensorflow_text'}} & set(sys.modules))
"""
    assert run_code(code) == "set()\n"


def test_every_public_name_can_be_found():
    assert set(keras_transformer.__all__) == PUBLIC
    assert len(keras_transformer.__all__) == len(PUBLIC)
    assert {*PUBLIC, "Translator"} <= set(dir(keras_transformer))
    for name in [*PUBLIC, "Translator"]:
        value = getattr(keras_transformer, name)
        assert value.__name__ == name and value.__module__.startswith("keras_transformer.")
        # Loaded once: from then on it is a plain attribute.
        assert vars(keras_transformer)[name] is value


@pytest.mark.parametrize("name", ["Encode", "encoder_layer", "_Encoder", ""])
def test_a_name_that_does_not_exist_is_an_attribute_error(name):
    with pytest.raises(AttributeError) as error:
        getattr(keras_transformer, name)
    assert str(error.value) == f"module 'keras_transformer' has no attribute {name!r}"
    assert not hasattr(keras_transformer, name)


STAR = """
import sys
sys.modules["tensorflow"] = None  # From here on an import of TensorFlow fails.
from keras_transformer import *
names = {name for name in globals() if not name.startswith("__")} - {"sys"}
import keras
assert keras.backend.backend() == "jax"
print(sorted(names))
print(tuple(EncoderLayer(2, 8)(keras.ops.ones((2, 3, 4))).shape))
"""


@pytest.mark.slow
def test_a_star_imports_all_but_the_translator_on_jax_without_tensorflow():
    names, shape = run_code(STAR, KERAS_BACKEND="jax").splitlines()
    assert names == repr(sorted(PUBLIC))
    assert shape == "(2, 3, 4)"


def test_the_translator_is_what_needs_tensorflow():
    code = """
import sys
sys.modules["tensorflow"] = None
import keras_transformer
try:
    keras_transformer.Translator
except ImportError as error:
    print(error.name)
"""
    assert run_code(code, KERAS_BACKEND="jax") == "tensorflow\n"


# Saved models load without custom objects.


def tied_model():
    token_ids = keras.Input((None,), dtype="int32")
    embedding = PositionalEmbedding(10, 8)
    hidden = EncoderLayer(num_heads=2, d_ff=12)(embedding(token_ids))
    return keras.Model(token_ids, TiedProjection(embedding)(hidden))


def transformer():
    config = TransformerConfig(10, 10, num_layers=1, d_model=8, d_ff=12, num_heads=2)
    model = build_transformer(config)
    model.compile(
        keras.optimizers.Adam(WarmupInverseSqrt(d_model=8, warmup_steps=7, scale=0.5)),
        MaskedLabelSmoothedCrossentropy(0.2),
        metrics=[MaskedAccuracy()],
        run_eagerly=True,  # One step here, and one where it is loaded, are not worth a graph.
    )
    model.fit({"source": TOKEN_IDS, "target": TOKEN_IDS}, TOKEN_IDS, verbose=0)
    return model


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder of two models, and what they compute."""
    folder = tmp_path_factory.mktemp("saved")
    tied, whole = tied_model(), transformer()
    tied.save(folder / "tied.keras")
    whole.save(folder / "transformer.keras")
    np.savez(
        folder / "expected.npz",
        token_ids=TOKEN_IDS,
        tied=keras.ops.convert_to_numpy(tied(TOKEN_IDS)),
        transformer=keras.ops.convert_to_numpy(whole({"source": TOKEN_IDS, "target": TOKEN_IDS})),
    )
    return folder


LOAD = """
import pathlib
import sys

import numpy as np

folder = pathlib.Path(sys.argv[1])
expected = np.load(folder / "expected.npz")
token_ids = expected["token_ids"]

tied = keras.saving.load_model(folder / "tied.keras")
# Another backend than the one that saved it rounds in its own way.
error = 0.0 if keras.backend.backend() == "tensorflow" else 1e-5
np.testing.assert_allclose(keras.ops.convert_to_numpy(tied(token_ids)), expected["tied"], rtol=error, atol=error)
assert [type(layer).__name__ for layer in tied.layers[1:]] == ["PositionalEmbedding", "EncoderLayer", "TiedProjection"]
assert tied.layers[3].embedding is tied.layers[1]

whole = keras.saving.load_model(folder / "transformer.keras")
inputs = {"source": token_ids, "target": token_ids}
logits = keras.ops.convert_to_numpy(whole(inputs))
np.testing.assert_allclose(logits, expected["transformer"], rtol=error, atol=error)
# Compiled as it was, and one update on.
import keras_transformer
assert type(whole) is keras_transformer.Transformer
assert type(whole.loss) is keras_transformer.MaskedLabelSmoothedCrossentropy and whole.loss.label_smoothing == 0.2
schedule = whole.optimizer._learning_rate
assert type(schedule) is keras_transformer.WarmupInverseSqrt
assert schedule.get_config() == {"d_model": 8, "warmup_steps": 7, "scale": 0.5}
assert int(whole.optimizer.iterations) == 1
logs = whole.evaluate(inputs, token_ids, verbose=0, return_dict=True)
assert set(logs) == {"loss", "masked_accuracy"}
whole.fit(inputs, token_ids, verbose=0)
assert int(whole.optimizer.iterations) == 2
"""


@pytest.mark.parametrize(
    ("imports", "backend"),
    [
        ("import keras; import keras_transformer", "tensorflow"),
        pytest.param("import keras; import keras_transformer", "jax", marks=pytest.mark.slow),
        pytest.param(
            *("import keras_transformer; import keras; keras_transformer.TiedProjection", "tensorflow"),
            marks=pytest.mark.slow,
        ),
        pytest.param("from keras_transformer import Perplexity; import keras", "jax", marks=pytest.mark.slow),
        pytest.param("import keras; import keras_transformer.masks", "jax", marks=pytest.mark.slow),
    ],
)
def test_saved_models_load_without_custom_objects(imports, backend, saved):
    run_code(f"{imports}\n{LOAD}", saved, KERAS_BACKEND=backend)


@pytest.mark.parametrize(
    "imports",
    [
        "import keras_transformer; keras_transformer.EncoderLayer",
        pytest.param("import keras; import keras_transformer", marks=pytest.mark.slow),
    ],
)
def test_every_class_that_may_be_saved_is_registered(imports):
    names = sorted(name for name in PUBLIC - {"TransformerConfig"} if name[0].isupper())
    code = f"""
{imports}
import keras
for name in {names}:
    cls = keras.saving.get_registered_object("keras_transformer>" + name)
    assert keras.saving.get_registered_name(cls) == "keras_transformer>" + name
    assert getattr(keras_transformer, name) is cls
"""
    run_code(code, KERAS_BACKEND="jax")
