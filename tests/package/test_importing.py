"""How the package is imported, in fresh processes: lazily, and in any order."""

import pytest
from fresh_process import run_python

import keras_transformer

PUBLIC = {
    *("Decoder", "DecoderLayer", "Encoder", "EncoderLayer", "FeedForward", "MultiHeadAttention"),
    *("PositionalEmbedding", "PositionalEncoding", "Residual", "TiedProjection"),
    *("AlibiPositions", "NewPositions", "PositionScheme", "RotaryPositions", "T5Positions"),
    *("LanguageModel", "Transformer", "TransformerConfig", "build_transformer"),
    *("generate", "stream_tokens"),
    *("from_keras", "from_keras_hub", "from_torch", "to_keras", "to_keras_hub", "to_torch"),
    *("MaskedAccuracy", "MaskedLabelSmoothedCrossentropy", "Perplexity", "WarmupInverseSqrt"),
}
# One is a base class, the others are no classes of Keras.
NOT_SAVED = {"NewPositions", "PositionScheme", "TransformerConfig"}
JAX = {"KERAS_BACKEND": "jax"}


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
    assert run_python("-c", code) == "set()\n"


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
    names, shape = run_python("-c", STAR, env=JAX).splitlines()
    assert names == repr(sorted(PUBLIC))
    assert shape == "(2, 3, 4)"


WITHOUT_LINUX = """
import builtins, os, signal, sys
import keras
import numpy as np
keras.ops.zeros(())  # What the backend itself needs is its own affair.

for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for name in ("fork", "sched_getaffinity", "sysconf"):
    delattr(os, name)
signal.signal = None
open_file = builtins.open

def open_no_proc(file, *args, **kwargs):
    assert not str(file).startswith("/proc"), file
    return open_file(file, *args, **kwargs)

builtins.open = open_no_proc
from keras_transformer import *

token_ids = keras.Input((None,), dtype="int32")
embedding = PositionalEmbedding(9, 8)
model = keras.Model(token_ids, TiedProjection(embedding)(Decoder(1, 2, 16)(embedding(token_ids))))
schedule = keras.optimizers.Adam(WarmupInverseSqrt(8))
model.compile(schedule, MaskedLabelSmoothedCrossentropy(), metrics=[MaskedAccuracy(), Perplexity()])
model.fit(np.ones((2, 3), "int32"), np.ones((2, 3), "int32"), verbose=0)
sizes = dict(num_layers=1, d_model=8, d_ff=16, num_heads=2)
transformer = build_transformer(TransformerConfig(9, 9, **sizes))
for beam_size in (1, 2):
    options = dict(max_new_tokens=2, beam_size=beam_size)
    print(generate(transformer, [[1]], [[3, 4]], **options).token_ids.shape)
"""


@pytest.mark.slow
def test_layers_model_loss_and_search_need_nothing_of_linux():
    assert run_python("-c", WITHOUT_LINUX, env=JAX) == "(1, 2)\n(1, 2)\n"


# Registered, so that saved models load without custom objects.


@pytest.mark.slow
@pytest.mark.parametrize(
    "imports",
    [
        "import keras; import keras_transformer",
        "import keras; import keras_transformer.config",
        # The line for those who import Keras later.
        "import keras_transformer, keras; from keras_transformer import Transformer",
        "import keras_transformer; keras_transformer.EncoderLayer",
    ],
)
def test_every_class_that_may_be_saved_is_registered(imports):
    names = sorted(name for name in PUBLIC - NOT_SAVED if name[0].isupper())
    code = f"""
{imports}
import keras
for name in {names}:
    cls = keras.saving.get_registered_object("keras_transformer>" + name)
    assert keras.saving.get_registered_name(cls) == "keras_transformer>" + name
    assert getattr(keras_transformer, name) is cls
"""
    run_python("-c", code, env=JAX)
