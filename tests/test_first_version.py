"""Model directories that version 0.1 wrote still load, translate, resume and average.

tests/data/version-0.1 has two, of very small models with few updates: `tied` is the paper's kind of model; `untied` has
no shared weights, learned positions, pre-norm layers, a neighborhood and WordPiece. Beside them is what version 0.1
made of four sentences.
"""

import json
import pathlib
import shutil

import numpy as np
import pytest
from keras_transformer.training.average import average_checkpoints
from keras_transformer.training.devices import make_strategy
from keras_transformer.training.trainer import _build_model
from keras_transformer.training.training_state import restore_training_state

from keras_transformer import Translator
from keras_transformer.model_dir import ModelDir, load_weights
from keras_transformer.models import build_transformer
from keras_transformer.rules import ConfigError

VERSION = pathlib.Path(__file__).parent / "data" / "version-0.1"
EXPECTED = json.loads((VERSION / "expected.json").read_text(encoding="utf-8"))


@pytest.fixture(params=["tied", "untied"])
def name(request):
    return request.param


def test_translations_and_scores_are_the_same(name):
    translator = Translator.load(VERSION / name)
    assert translator(EXPECTED["sources"]) == EXPECTED["translations"][name]
    scores = translator.score(EXPECTED["sources"], EXPECTED["targets"])
    np.testing.assert_allclose(scores, EXPECTED["log_probabilities"][name], rtol=1e-5)


def test_the_training_state_is_that_of_the_checkpoint(name):
    model_dir = ModelDir(VERSION / name)
    config = model_dir.read_config()
    model = _build_model(config, make_strategy(), parts_per_device=1)
    progress = restore_training_state(model_dir, model)
    assert (progress.step, progress.scores) == (40, {})
    assert int(model.optimizer.iterations.numpy()) == 40
    # The state numbers its variables, the checkpoint names them: the two must meet in the same weights.
    checkpoint = build_transformer(config.model, dtype="float32")
    load_weights(checkpoint, model_dir.checkpoint_path(40))
    for restored, expected in zip(model.transformer.weights, checkpoint.weights, strict=True):
        np.testing.assert_array_equal(restored.numpy(), expected.numpy(), err_msg=expected.path)


def test_the_last_checkpoints_are_averaged_and_the_best_are_unknown(name, tmp_path):
    copy = ModelDir(shutil.copytree(VERSION / name, tmp_path / name))
    assert average_checkpoints(copy, last=5) == [copy.checkpoint_path(40)]
    with pytest.raises(ConfigError, match="no checkpoints to average whose validation score is known"):
        average_checkpoints(copy, best=1)
