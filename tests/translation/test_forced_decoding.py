"""What a translator says of given translations and beginnings, against NumPy and direct calls of
the model."""

import numpy as np
import pytest
import tensorflow as tf
from conftest import sentence_pairs
from test_translator import LONG, greedy_ids, next_log_probs, texts_of, token_ids

from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.errors import ConfigError
from keras_transformer.models import build_transformer
from keras_transformer.translation import Translator

SOURCES, TARGETS = (list(side) for side in zip(*sentence_pairs()[::9]))


@pytest.fixture(scope="module")
def greedy(tiny_model_dir):
    return Translator.load(tiny_model_dir, DecodingConfig(beam_size=1, max_extra_tokens=10))


@pytest.fixture(scope="module")
def deep(greedy):
    """A translator with three untrained layers."""
    size = greedy.tokenizers.target.vocab_size
    config = TransformerConfig(
        size, size, num_layers=3, d_model=16, d_ff=16, num_heads=2, max_length=64
    )
    return Translator(
        build_transformer(config, dtype="float32"), greedy.tokenizers, DecodingConfig()
    )


@pytest.mark.slow
def test_a_translation_continues_its_prefix_with_the_most_probable_tokens(greedy):
    prefixes = [
        "",
        "Anna",
        "der Hund hat",
        "Zoë malt 🙂",
        "Anna hat einen Baum, sieht!",
        "meine",
        "",
    ]
    sources = SOURCES[:6] + [" "]
    limits = greedy.num_tokens(sources) + 10
    expected = [greedy_ids(greedy, *row) for row in zip(sources[:6], limits, prefixes)]
    actual = [result.hypotheses[0] for result in greedy.translate(sources, prefixes=prefixes)]
    assert [text for text, _ in actual] == [*texts_of(greedy, expected), ""]
    assert all(text.startswith(prefix) for (text, _), prefix in zip(actual, prefixes))
    # The score is that of the tokens after the prefix.
    source_ids, prefix_ids = token_ids(greedy, sources[2]), token_ids(greedy, prefixes[2])[:-1]
    log_probs = next_log_probs(greedy, source_ids, expected[2][:-1])
    score = sum(log_probs[i, expected[2][i]] for i in range(len(prefix_ids), len(expected[2])))
    assert actual[2][1] == pytest.approx(score, rel=1e-4)


@pytest.mark.slow
def test_the_score_of_a_translation_with_a_prefix_is_that_of_the_rest(tiny_model_dir):
    beam = Translator.load(tiny_model_dir, DecodingConfig(beam_size=2, length_penalty=0.0))
    ((text, score),) = beam.translate(SOURCES[2:3], prefixes=[TARGETS[2][:12]])[0].hypotheses
    log_probs = beam.score_tokens(SOURCES[2:3], [text]).token_log_probs[0]
    rest = log_probs[len(token_ids(beam, TARGETS[2][:12].rstrip())) - 1 :]
    assert text == TARGETS[2] and score == pytest.approx(rest.sum(), rel=1e-4, abs=1e-5)


@pytest.mark.slow
def test_empty_prefixes_change_nothing_and_long_ones_stay_as_they_are(greedy, tiny_model_dir):
    beam = Translator.load(tiny_model_dir)
    for translator in (greedy, beam):
        without, actual = (
            translator.translate(SOURCES),
            translator.translate(SOURCES, prefixes=[""] * len(SOURCES)),
        )
        assert [a.hypotheses[0][0] for a in actual] == [b.hypotheses[0][0] for b in without]
        scores = [[row.hypotheses[0][1] for row in rows] for rows in (actual, without)]
        np.testing.assert_allclose(*scores, rtol=1e-5)
    ((text, score),) = beam.translate(["Anna"], prefixes=[LONG])[0].hypotheses
    assert LONG.startswith(text) and len(text) > 50 and score == 0
    n_best = beam.translate(SOURCES[:2], 4, prefixes=["der", ""])
    assert (
        all(text.startswith("der") for text, _ in n_best[0].hypotheses)
        and len(n_best[1].hypotheses) == 4
    )


@pytest.mark.slow
def test_max_lengths_limit_a_translation_with_its_prefix(greedy):
    sources, prefixes = tf.constant(SOURCES[:4]), tf.constant(["", "Anna hat", "", "Anna"])
    actual = greedy.graph.search(sources, prefixes=prefixes, max_lengths=tf.constant([3, 6, 0, 1]))
    prefix_lengths = [len(token_ids(greedy, prefix)) - 1 for prefix in ("", "Anna hat", "", "Anna")]
    lengths = prefix_lengths + np.count_nonzero(actual.token_ids.numpy()[:, 0], axis=1)
    whole = np.count_nonzero(greedy.graph.search(sources).token_ids.numpy()[:, 0], axis=1)
    # The last prefix has more tokens than its limit.
    assert lengths.tolist() == [3, 6, whole[2], len(token_ids(greedy, "Anna")) - 1]


def test_the_log_probability_of_each_token_is_numpys(greedy):
    pairs = [*zip(SOURCES[:3], TARGETS[1:4]), ("", ""), ("a", "🙂!"), (LONG, "Zoë"), ("Zoë", LONG)]
    scores = greedy.score_tokens(*zip(*pairs))
    for (source, target), row, total in zip(pairs, scores.token_log_probs, scores.log_probs):
        ids = token_ids(greedy, target)
        log_probs = next_log_probs(greedy, token_ids(greedy, source), ids[:-1])
        expected = log_probs[np.arange(len(ids)), ids]
        np.testing.assert_allclose(row[: len(ids)], expected, rtol=1e-4, atol=1e-5)
        assert not row[len(ids) :].any() and total == pytest.approx(row.sum(), rel=1e-5)


@pytest.mark.parametrize(
    "layer", [-1, *(pytest.param(layer, marks=pytest.mark.slow) for layer in (0, 1, 2))]
)
def test_an_alignment_is_the_attention_of_a_layer_in_a_call_of_the_decoder(deep, layer):
    actual = deep.align(SOURCES[:5], TARGETS[5:0:-1], layer)
    for source, target, alignment in zip(SOURCES, TARGETS[5:0:-1], actual):
        source_ids, labels = token_ids(deep, source), token_ids(deep, target)
        encoded, mask = deep.model.encode(np.array([source_ids]))
        embedded = deep.model.target_embedding(
            np.array([[deep.tokenizers.target.start_id, *labels[:-1]]])
        )
        _, _, scores = deep.model.decoder(
            embedded, encoded, source_mask=mask, return_attention_scores=True
        )
        expected = np.asarray(scores[layer])[0].mean(axis=0)
        np.testing.assert_allclose(alignment.attention, expected, atol=1e-5)
        np.testing.assert_allclose(alignment.attention.sum(axis=1), 1, rtol=1e-5)
        assert alignment.positions == alignment.attention.argmax(axis=1).tolist()
        assert alignment.source == deep.tokenizers.source.pieces(source_ids)
        assert alignment.target == deep.tokenizers.target.pieces(labels)


def test_a_layer_that_the_model_has_not_is_refused(deep):
    with pytest.raises(ConfigError, match="layer must be from -3 to 2; received layer=3"):
        deep.align(["a"], ["b"], 3)
