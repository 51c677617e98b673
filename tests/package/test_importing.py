"""How the package is imported, each time in a fresh process: lazily, in any order, from scripts and from packages."""

import ast
import os
import pathlib
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


HEAVY = "{'keras', 'tensorflow', 'jax', 'numpy', 'yaml', 'tensorflow_text'} & set(sys.modules)"


def test_importing_the_package_imports_nothing_heavy():
    code = f"""
import sys
import keras_transformer
print(keras_transformer.__version__, {HEAVY})
assert len(dir(keras_transformer)) > 15 and "Encoder" in keras_transformer.__all__
print({HEAVY})
"""
    assert run_code(code) == f"{keras_transformer.__version__} set()\nset()\n"


def test_the_configuration_needs_nothing_heavy():
    code = f"""
import sys
from keras_transformer import TransformerConfig
print(TransformerConfig(8, 8, d_model=4, num_heads=2).d_ff, {HEAVY})
"""
    assert run_code(code) == "2048 set()\n"


def test_every_public_name_can_be_found():
    assert set(keras_transformer.__all__) == PUBLIC
    assert len(keras_transformer.__all__) == len(PUBLIC)
    assert {*PUBLIC, "Translator"} <= set(dir(keras_transformer))
    for name in [*PUBLIC, "Translator"]:
        value = getattr(keras_transformer, name)
        assert value.__name__ == name and value.__module__.startswith("keras_transformer.")
        # Loaded once: from then on it is a plain attribute.
        assert vars(keras_transformer)[name] is value


def test_dir_lists_names_before_they_are_used():
    code = f"""
import keras_transformer
names = dir(keras_transformer)
assert names == sorted(names)
assert {PUBLIC!r} | {{"Translator", "__version__", "__doc__"}} <= set(names)
assert not {PUBLIC!r} & set(vars(keras_transformer))
"""
    run_code(code)


def test_type_checkers_see_every_public_name():
    tree = ast.parse(pathlib.Path(keras_transformer.__file__).read_text(encoding="utf-8"))
    imports = next(node for node in tree.body if isinstance(node, ast.If)).body
    seen = {alias.asname: f"{node.module}.{alias.name}" for node in imports for alias in node.names}
    assert seen == {name: f"{module}.{name}" for name, module in keras_transformer._MODULES.items()}


@pytest.mark.parametrize("name", ["Encode", "encoder_layer", "_Encoder", ""])
def test_a_name_that_does_not_exist_is_an_attribute_error(name):
    with pytest.raises(AttributeError) as error:
        getattr(keras_transformer, name)
    assert str(error.value) == f"module 'keras_transformer' has no attribute {name!r}"
    assert not hasattr(keras_transformer, name)


def test_a_name_that_does_not_exist_cannot_be_imported():
    with pytest.raises(ImportError, match="cannot import name 'Encode'"):
        from keras_transformer import Encode  # noqa: F401


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


# From scripts and packages.


USE = """
from keras_transformer import EncoderLayer
import keras

print(EncoderLayer.__name__, tuple(EncoderLayer(2, 8)(keras.ops.ones((2, 3, 4))).shape))
"""


@pytest.mark.slow
def test_a_script_named_like_the_command_imports_a_layer(tmp_path):
    (tmp_path / "keras-transformer.py").write_text(USE)
    assert run(tmp_path / "keras-transformer.py", KERAS_BACKEND="jax") == "EncoderLayer (2, 3, 4)\n"


@pytest.mark.slow
def test_a_package_that_is_run_imports_a_layer(tmp_path):
    (tmp_path / "mypkg").mkdir()
    (tmp_path / "mypkg" / "__init__.py").write_text("from keras_transformer import EncoderLayer\n")
    (tmp_path / "mypkg" / "__main__.py").write_text(
        f"from mypkg import EncoderLayer as ours\n{USE}assert EncoderLayer is ours\n"
    )
    assert run("-m", "mypkg", PYTHONPATH=str(tmp_path)) == "EncoderLayer (2, 3, 4)\n"


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


@pytest.mark.slow
@pytest.mark.parametrize(
    "imports", ["import keras_transformer; import keras", pytest.param("import keras", marks=pytest.mark.slow)]
)
def test_else_keras_says_whose_class_it_cannot_find(imports, saved):
    # Keras knows nothing of a package of which nothing was used when it was imported itself.
    code = f"""
import sys
{imports}
try:
    keras.saving.load_model(sys.argv[1])
except TypeError as error:
    assert "Could not locate class 'PositionalEmbedding'" in str(error), error
    assert "keras_transformer>PositionalEmbedding" in str(error), error
    import keras_transformer
    keras_transformer.EncoderLayer
    print(type(keras.saving.load_model(sys.argv[1])).__name__)
"""
    assert run_code(code, saved / "tied.keras", KERAS_BACKEND="jax") == "Functional\n"


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
