import keras
import layer_checks
import pytest

import keras_transformer

every_layer = pytest.mark.parametrize("name", layer_checks.LAYERS)


def test_every_public_layer_is_checked():
    public = {
        name
        for name in keras_transformer.__all__
        if isinstance(getattr(keras_transformer, name), type)
        and issubclass(getattr(keras_transformer, name), keras.layers.Layer)
        and not issubclass(getattr(keras_transformer, name), keras.Model)
    }
    assert public == set(layer_checks.LAYERS)


@every_layer
def test_arguments_are_attributes_and_config_keys(name):
    layer_checks.check_arguments_are_attributes_and_config_keys(name)


@every_layer
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_a_model_with_the_layer_trains_is_saved_and_loads(name, dtype, tmp_path):
    model = layer_checks.check_fit(name, dtype, jit_compile=False)
    layer_checks.check_save_and_load(model, tmp_path / "model.keras")


@every_layer
def test_the_layer_trains_compiled_by_xla(name):
    layer_checks.check_fit(name, "float32", jit_compile=True)
