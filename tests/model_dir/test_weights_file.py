"""Files of weights from elsewhere: what they claim is compared with the model before it is read."""

import resource

import h5py
import numpy as np
import pytest

from keras_transformer import TransformerConfig, build_transformer
from keras_transformer.errors import InvalidFileError
from keras_transformer.model_dir.directory import load_weights, save_weights
from keras_transformer.model_dir.files import checksum_path

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
