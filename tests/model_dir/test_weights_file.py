"""Files of weights from elsewhere: what they claim is compared with the model before it is read."""

import dataclasses
import resource
import time

import h5py
import numpy as np
import pytest

from keras_transformer import TransformerConfig, build_transformer
from keras_transformer.config import Config, TokenizerConfig
from keras_transformer.errors import InvalidFileError
from keras_transformer.model_dir import ModelDir
from keras_transformer.model_dir.directory import load_weights, save_weights
from keras_transformer.model_dir.files import checksum_path
from keras_transformer.training.run.state import average_checkpoints

CONFIG = TransformerConfig(9, 9, num_layers=1, d_model=4, d_ff=4, num_heads=1)
FIT, DAMAGED = "these weights do not fit the model in config.yaml", "the file is damaged"
CLAIMS = {
    "petabytes": (dict(shape=(2**50,), dtype="f4"), FIT),
    "petabytes in chunks": (dict(shape=(2**50,), dtype="f4", chunks=(1024,)), FIT),
    "a chunk of a gigabyte": (
        dict(shape=(9, 4), dtype="f4", chunks=(2**14, 2**14), maxshape=(None, None), compression="gzip"), DAMAGED
    ),
    "records of a gigabyte": (dict(shape=(9, 4), dtype="S1000000000"), DAMAGED),
    "texts": (dict(shape=(9, 4), dtype=h5py.string_dtype()), DAMAGED),
    "complex numbers": (dict(shape=(9, 4), dtype="c16"), DAMAGED),
    "nothing": (dict(data=h5py.Empty("f4")), DAMAGED),
}  # fmt: skip


@pytest.fixture(scope="module")
def model():
    return build_transformer(CONFIG, dtype="float32")


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_claim_is_refused_in_one_line_without_memory_for_it(claim, model, tmp_path):
    path = tmp_path / "best.weights.h5"
    save_weights(model, path)
    checksum_path(path).unlink()
    content, message = CLAIMS[claim]
    with h5py.File(path, "r+") as file:
        (name,) = [path for path in shapes(file) if "embedding" in path]
        del file[name]
        file.create_dataset(name, **content)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InvalidFileError) as error:
        load_weights(model, path)
    assert str(error.value).startswith(f"{path}: {message}") and "\n" not in str(error.value)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def shapes(file):
    shape_of = {}
    file.visititems(
        lambda name, item: (
            shape_of.update({name: item.shape}) if isinstance(item, h5py.Dataset) else None
        )
    )
    return shape_of


def odd_file(path, kind):
    """Makes a file of weights odd in one way."""
    with h5py.File(path, "r+") as file:
        (name,) = [path for path in shapes(file) if "embedding" in path]
        if kind == "no layers":
            del file["layers"]
        elif kind == "layers is an array":
            del file["layers"]
            file["layers"] = np.zeros(3)
        elif kind == "layers is a link to another file":
            del file["layers"]
            file["layers"] = h5py.ExternalLink("/dev/zero", "/layers")
        elif kind == "groups in groups":
            group = file["layers"]
            for _ in range(5000):
                group = group.create_group("a")
        elif kind == "a group in itself":
            file["layers/again"] = file["layers"]
        elif kind == "a type instead of an array":
            del file[name]
            file[name] = np.dtype("f4")
        elif kind == "an array of another file":
            shape = file[name].shape
            del file[name]
            layout = h5py.VirtualLayout(shape, "f4")
            layout[:] = h5py.VirtualSource("other.h5", "x", shape)
            file.create_virtual_dataset(name, layout)
        elif kind == "an array instead of a group":
            parent = name.rpartition("/")[0]
            del file[parent]
            file[parent] = np.zeros((9, 4), "f4")
        elif kind == "an attribute of another type":
            file[name].attrs["dtype"] = np.zeros((3, 3))


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        ("no layers", FIT),
        ("layers is an array", FIT),
        ("layers is a link to another file", "the file is damaged (layers is a link)"),
        ("groups in groups", "the file is damaged (groups are nested deeper than 20 levels)"),
        ("a group in itself", "the file is damaged (layers/again has two names)"),
        ("a type instead of an array", DAMAGED),
        ("an array of another file", DAMAGED),
        ("an array instead of a group", DAMAGED),
        ("an attribute of another type", DAMAGED),
    ],
)
def test_an_odd_file_is_refused_in_one_line(kind, problem, model, tmp_path):
    path = tmp_path / "best.weights.h5"
    save_weights(model, path)
    checksum_path(path).unlink()
    odd_file(path, kind)
    begin = time.process_time()
    with pytest.raises(InvalidFileError) as error:
        load_weights(model, path)
    assert str(error.value).startswith(f"{path}: {problem}") and "\n" not in str(error.value)
    # h5py's own walk took cubic time in the depth.
    assert time.process_time() - begin < 10


def test_more_layers_than_the_file_has_are_noticed_before_the_model_is_built(model, tmp_path):
    model_dir = ModelDir(tmp_path)
    save_weights(model, model_dir.best_path)
    deep = dataclasses.replace(CONFIG, num_layers=1000)
    begin = time.process_time()
    message = f"best.weights.h5: {FIT}: the file has 348 numbers, the model 312,036$"
    with pytest.raises(InvalidFileError, match=message):
        model_dir.load_model(deep)
    checkpoint = model_dir.checkpoint_path(1)
    save_weights(model, checkpoint)
    model_dir.write_config(Config(deep, TokenizerConfig(vocab_size=9)))
    with pytest.raises(InvalidFileError, match=f"{checkpoint.name}: {FIT}"):
        average_checkpoints(model_dir)
    assert time.process_time() - begin < 10


def test_a_file_that_was_compressed_is_read(model, tmp_path):
    path, packed = tmp_path / "a.weights.h5", tmp_path / "b.weights.h5"
    save_weights(model, path)
    with h5py.File(path) as source, h5py.File(packed, "w") as target:
        source.copy(source["layers"], target, "layers")
        source.copy(source["vars"], target, "vars")
        for name in shapes(source):
            values = source[name][()]
            del target[name]
            target.create_dataset(name, data=values, compression="gzip")
    expected = model.get_weights()
    for variable in model.weights:
        variable.assign(variable * 0)
    load_weights(model, packed)
    for received, values in zip(model.get_weights(), expected, strict=True):
        np.testing.assert_array_equal(received, values)
