"""The scores in a model directory: only those of its weights, and nothing that stops an export."""

import json

import pytest

from keras_transformer.model_dir import ModelDir
from keras_transformer.model_dir.evaluation_file import read_evaluation, write_evaluation


@pytest.fixture
def model_dir(tmp_path):
    (tmp_path / "best.weights.h5").write_bytes(b"weights")
    return ModelDir(tmp_path)


def test_scores_are_those_of_the_weights(model_dir):
    assert read_evaluation(model_dir) == []
    write_evaluation(model_dir, "12 sentences of test.en", {"BLEU = 41.0": "tok:13a", "chrF2 = 65.1": "nc:6"})
    expected = ["BLEU = 41.0 (tok:13a), 12 sentences of test.en", "chrF2 = 65.1 (nc:6), 12 sentences of test.en"]
    assert read_evaluation(model_dir) == expected
    # An average takes the place of the best weights.
    (model_dir.path / "average.weights.h5").write_bytes(b"other weights")
    assert read_evaluation(model_dir) == []
    (model_dir.path / "average.weights.h5").write_bytes(b"weights")
    assert read_evaluation(model_dir) == expected


@pytest.mark.parametrize("content", ["", "[]", "{", "{}", json.dumps({"weights_sha256": None})])
def test_another_file_of_that_name_has_no_scores(model_dir, content):
    model_dir.evaluation_path.write_text(content)
    assert read_evaluation(model_dir) == []


def test_scores_that_cannot_be_written_are_a_warning(model_dir, capsys):
    model_dir.evaluation_path.mkdir()
    write_evaluation(model_dir, "test.en", {"BLEU = 41.0": "tok:13a"})
    assert "model cards will not show the scores" in capsys.readouterr().err
