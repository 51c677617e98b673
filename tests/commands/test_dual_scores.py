"""`score --reverse-model-dir`: by the log probabilities that the command prints for each
direction."""

import numpy as np
import pytest
from conftest import sentence_pairs

from keras_transformer import Translator
from keras_transformer.commands.main import main


@pytest.mark.slow
def test_dual_scores_are_those_of_both_directions(
    tiny_model_dir, wordpiece_model_dir, text, capsys
):
    english, german = (list(side) for side in zip(*sentence_pairs()[:10], strict=True))
    german = german[:5] + german[:5]
    files = {"en": text("en", english), "de": text("de", german)}

    def score(model_dir, source, target, *options):
        arguments = (model_dir, "--source", files[source], "--target", files[target], *options)
        main(["score", "--model-dir", *map(str, arguments)])
        return np.array([float(line) for line in capsys.readouterr().out.split()])

    # A model of the opposite direction that has learned nothing: what it says differs.
    actual = score(tiny_model_dir, "en", "de", "--reverse-model-dir", wordpiece_model_dir)
    lengths = [
        Translator.load(path).num_tokens(lines, "target")
        for path, lines in ((tiny_model_dir, german), (wordpiece_model_dir, english))
    ]
    there = -score(tiny_model_dir, "en", "de") / lengths[0]
    back = -score(wordpiece_model_dir, "de", "en") / lengths[1]
    expected = np.exp(-abs(there - back)) * np.sqrt(np.exp(-there) * np.exp(-back))
    np.testing.assert_allclose(actual, expected, atol=1e-4)
