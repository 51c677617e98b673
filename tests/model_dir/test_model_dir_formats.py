"""Model directories that earlier releases wrote still load, translate, export, average and resume.

tests/data has three, of very small models with few updates, and beside them what was made of four sentences then.
version-0.1 is the first format: `tied` is the paper's kind of model; `untied` has no shared weights, learned positions,
pre-norm layers, a neighborhood and WordPiece. format-2 has `averaged`, trained in float16 with a moving average, and
holds what is written now to its names: of files, of settings, and in the training state. A later format gets a folder
of its own; these stay as they are.
"""

import dataclasses
import json
import pathlib
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
import yaml
from keras_transformer.export.servable import export_servable
from keras_transformer.training.recipe import load_recipe
from keras_transformer.training.run.checkpoints import average_checkpoints
from keras_transformer.training.run.devices import Workers, make_strategy
from keras_transformer.training.run.state import read_progress, restore_training_state
from keras_transformer.training.run.trainer import train
from keras_transformer.training.step.model import build_training_model
from keras_transformer.training.text.corpus import SentencePairs

from examples.corpus import generate
from keras_transformer import Translator
from keras_transformer.config import Config, TransformerConfig
from keras_transformer.errors import ConfigError
from keras_transformer.model_dir.config_file import read_config, write_config
from keras_transformer.model_dir.directory import ModelDir, load_weights
from keras_transformer.models import build_transformer

DATA = pathlib.Path(__file__).parent / "data"


WRITTEN = ("version-0.1/tied", "version-0.1/untied", "format-2/averaged")


@pytest.fixture(params=WRITTEN)
def written(request):
    return ModelDir(DATA / request.param)


# What takes long, quickly with the oldest format and the most unusual model.
one_quickly = pytest.mark.parametrize(
    "written",
    ["version-0.1/untied", *(pytest.param(name, marks=pytest.mark.slow) for name in (WRITTEN[0], WRITTEN[2]))],
    indirect=True,
)


@pytest.fixture
def expected(written):
    text = (written.path.parent / "expected.json").read_text(encoding="utf-8")
    return {
        name: value[written.path.name] if isinstance(value, dict) else value for name, value in json.loads(text).items()
    }


def last_step(model_dir):
    return max(model_dir.checkpoints())


def test_translations_and_scores_are_the_same(written, expected):
    translator = Translator.load(written.path)
    assert translator(expected["sources"]) == expected["translations"]
    scores = translator.score(expected["sources"], expected["targets"])
    np.testing.assert_allclose(scores, expected["log_probabilities"], rtol=1e-5)


def test_every_value_of_the_configuration_is_read(written):
    with open(written.config_path, encoding="utf-8") as file:
        sections = yaml.safe_load(file)
    assert sections.pop("format_version", 1) == (1 if "0.1" in str(written) else 2)
    config = written.read_config()
    for name, section in sections.items():
        assert section == {key: getattr(getattr(config, name), key) for key in section}


def test_the_training_state_is_that_of_the_checkpoint(written):
    config = written.read_config()
    model = build_training_model(config.model, config.training, make_strategy())
    progress = restore_training_state(written, model, Workers(model.strategy))
    assert progress.step == last_step(written) == int(model.optimizer.iterations.numpy())
    # The state numbers its variables, the checkpoint names them: the two must meet in the same weights.
    checkpoint = build_transformer(config.model, dtype="float32")
    load_weights(checkpoint, written.checkpoint_path(progress.step))
    for restored, saved in zip(model.validated.weights, checkpoint.weights, strict=True):
        np.testing.assert_array_equal(restored.numpy(), saved.numpy(), err_msg=saved.path)
    if model.loss_scale is not None:
        scale, good_steps, skipped_steps = (variable.numpy() for variable in model.loss_scale.variables)
        assert (scale, good_steps + skipped_steps) == (64, progress.step)


@one_quickly
def test_training_goes_on(written, tmp_path):
    model_dir = ModelDir(shutil.copytree(written.path, tmp_path / "copy"))
    step, before = last_step(written), written.read_config()
    text = SentencePairs(*map(list, zip(*generate(60, seed=3))), name="text")
    training = dataclasses.replace(before.training, steps=step + 2, validate_every=1)
    keras.utils.set_random_seed(1)
    train(
        dataclasses.replace(before, training=training), text, text, model_dir, make_strategy(), allow_changed_text=True
    )
    progress = read_progress(model_dir)
    assert progress.step == step + 2 == last_step(model_dir) and progress.rows[-1]["step"] == step + 2
    assert model_dir.config_path.read_text().startswith("format_version: 2\n")
    assert len(Translator.load(model_dir.path)(["I sleep."])) == 1


@pytest.mark.slow
def test_the_export_translates_the_same(written, expected, tmp_path):
    path = export_servable(Translator.load(written.path), tmp_path / "servable", signatures=["serving_default"])
    answer = tf.saved_model.load(str(path)).signatures["serving_default"](text=tf.constant(expected["sources"]))
    assert [text.decode() for text in answer["text"].numpy()] == expected["translations"]


def test_the_last_checkpoints_are_averaged(written, tmp_path):
    copy = ModelDir(shutil.copytree(written.path, tmp_path / "copy"))
    last = copy.checkpoint_path(last_step(copy))
    assert average_checkpoints(copy, last=5) == [last]
    if "0.1" in str(written):
        with pytest.raises(ConfigError, match="no checkpoints to average whose validation score is known"):
            average_checkpoints(copy, best=1)
    else:
        assert average_checkpoints(copy, best=1) == [last]


CONFIG = Config(TransformerConfig.preset("tiny", source_vocab_size=100, target_vocab_size=100))


def with_version(path, line):
    write_config(path, CONFIG)
    version, rest = path.read_text().split("\n", 1)
    assert version == "format_version: 2"
    path.write_text(line + rest)
    return path


def test_without_a_version_it_is_the_first(tmp_path):
    assert read_config(with_version(tmp_path / "config.yaml", "")) == CONFIG
    assert read_config(with_version(tmp_path / "config.yaml", "format_version: 1\n")) == CONFIG


@pytest.mark.parametrize(
    "version, message",
    [
        # What else a later release writes does not matter.
        (
            "3\nnew: 1",
            "the model directory has format version 3, and this release knows versions up to 2; upgrade keras3-",
        ),
        ("two", "format_version must be of type int; received format_version='two'"),
        ("0", "format_version must be positive; received format_version=0"),
        ("", "format_version must be of type int; received format_version=None"),
    ],
)
def test_another_version_is_refused_in_one_line(tmp_path, version, message):
    path = with_version(tmp_path / "config.yaml", f"format_version: {version}\n")
    with pytest.raises(ConfigError) as error:
        Translator.load(tmp_path)
    assert str(error.value).startswith(f"{path}: {message}") and "\n" not in str(error.value)


def test_the_version_is_not_a_setting(tmp_path):
    with pytest.raises(
        ConfigError,
        match="^--set format_version=3: --set must be given SECTION.KEY=VALUE; received 'format_version=3'$",
    ):
        load_recipe("demo", ["format_version=3"])
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("format_version: 2\n")
    with pytest.raises(
        ConfigError, match="recipe.yaml: unknown configuration key 'format_version'; known keys: [^\n]*$"
    ):
        load_recipe(recipe)
