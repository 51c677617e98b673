"""The documentation's table of arguments holds every argument of the layers that it compares."""

import inspect
import pathlib
import re

import keras
import keras_hub
import pytest

import keras_transformer as kt

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "layers-idioms.md"
# The classes of each column; where a cell has a semicolon, a part is of one class.
COLUMNS = (
    (keras.layers.MultiHeadAttention,),
    (keras_hub.layers.TransformerEncoder, keras_hub.layers.TransformerDecoder),
    (kt.MultiHeadAttention,),
    (kt.EncoderLayer, kt.DecoderLayer),
)


def cells_of(column):
    table = PAGE.read_text(encoding="utf-8").partition("\n## Arguments\n")[2]
    rows = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")]
    assert len(rows) > 25
    return [row[column + 1] for row in rows[2:]]


def names_of(layer):
    """The arguments of the constructor and of `call`."""
    parameters = {**inspect.signature(layer).parameters, **inspect.signature(layer.call).parameters}
    return parameters.keys() - {"self", "kwargs"}


@pytest.mark.parametrize("column", range(4))
def test_the_table_names_every_argument(column):
    for place, layer in enumerate(COLUMNS[column]):
        parts = [cell.split(";") for cell in cells_of(column)]
        named = {name for part in parts for name in re.findall("`(.+?)`", part[place if len(part) > 1 else 0])}
        methods = named & {"init_cache", "attend", "step"}
        assert all(callable(getattr(layer, method)) for method in methods)
        # Every layer of Keras has a regularizer of its output, whether its signature names it or not.
        assert named - methods == names_of(layer) | {"activity_regularizer"}
