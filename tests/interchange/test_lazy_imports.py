"""Conversions import no other library until they make one of its layers."""

import sys

import pytest
from fresh_process import run_python

from keras_transformer import EncoderLayer
from keras_transformer.errors import ConfigError, MissingPackageError
from keras_transformer.interchange import from_keras_hub, from_torch, to_keras_hub, to_torch

CODE = """
import sys
import keras, numpy
from keras_transformer import from_keras, from_keras_hub, from_torch, to_keras, to_keras_hub, to_torch

stock = keras.layers.MultiHeadAttention(2, 4)
stock.build((None, None, 8), (None, None, 8))
to_keras(from_keras(stock))
for convert in (from_keras_hub, from_torch):
    try:
        convert(stock)
    except ValueError:
        pass
print({"torch", "keras_hub"} & set(sys.modules))
"""


@pytest.mark.slow
def test_neither_pytorch_nor_keras_hub_is_imported():
    assert run_python("-c", CODE) == "set()\n"


def test_what_is_not_installed_is_one_line(monkeypatch):
    layer = EncoderLayer(num_heads=2, d_ff=12, dropout=0.0, attention_bias=True)
    layer.build((None, None, 8))
    for name, distribution, convert in (
        ("torch", "torch", to_torch),
        ("keras_hub", "keras-hub", to_keras_hub),
    ):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(MissingPackageError) as error:
            convert(layer)
        message = (
            f"this needs the package {name}, which is not installed: pip install {distribution}"
        )
        assert str(error.value) == message and error.value.name == name


def test_what_is_of_another_library_is_one_line(monkeypatch):
    for name, convert in (("torch", from_torch), ("keras_hub", from_keras_hub)):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(
            ConfigError, match=f"^(module|layer) must be .*{name}.*; received ellipsis$"
        ):
            convert(...)
