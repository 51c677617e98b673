"""Guided alignment: the links of an encoded text, the loss by hand, and a head that learns to
align."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from conftest import sentence_pairs

from keras_transformer.config import TrainingConfig, TransformerConfig
from keras_transformer.models import build_transformer
from keras_transformer.models.transformer import GUIDED_HEAD
from keras_transformer.tokenizers import TokenizerPair
from keras_transformer.tokenizers.text_codec import TextCodec
from keras_transformer.training.alignment.shortlist import attention_links, write_links
from keras_transformer.training.batches.encoded_pairs import Epochs, align_encoded, encode
from keras_transformer.training.batches.pipeline import (
    plan_batches,
    training_dataset,
    validation_dataset,
)
from keras_transformer.training.batches.vocabulary import train_tokenizer
from keras_transformer.training.step.crossentropy import alignment_loss
from keras_transformer.training.step.model import TrainingStep
from keras_transformer.training.step.optimizer import Adam
from keras_transformer.training.text.corpus import SentencePairs
from keras_transformer.translation import Translator


def test_the_loss_is_the_crossentropy_of_linked_tokens():
    attention = tf.constant(
        [[[0.5, 0.3, 0.2], [0.1, 0.2, 0.7]], [[1.0, 0.0, 0.0], [0.25, 0.75, 0.0]]]
    )
    links = tf.constant([[2, 0], [0, 1]])
    np.testing.assert_allclose(
        alignment_loss(attention, links), -np.log(0.3) - np.log(0.25), rtol=1e-6
    )
    assert float(alignment_loss(attention, tf.zeros_like(links))) == 0
    # No attention at all: a finite loss.
    assert np.isfinite(alignment_loss(attention, tf.constant([[0, 0], [3, 0]])))


@pytest.fixture(scope="module")
def linked(tmp_path_factory):
    source, target = map(list, zip(*sentence_pairs()))
    tokenizer = train_tokenizer([*source, *target], "bpe", 328)
    pairs = SentencePairs(source, target, "text")
    folder = tmp_path_factory.mktemp("links")
    return tokenizer, align_encoded(
        encode(Epochs(pairs), TextCodec(TokenizerPair(tokenizer, tokenizer), 64), folder / "ids")
    )


def test_links_are_those_of_model_1_and_come_in_batches(linked):
    tokenizer, pairs = linked
    source, target, links = (np.split(each, ends) for each, ends in (
        (np.asarray(pairs.token_ids("source", 0)), np.cumsum(pairs.lengths("source", 0))[:-1]),
        (np.asarray(pairs.token_ids("target", 0)), np.cumsum(pairs.lengths("target", 0))[:-1]),
        (np.asarray(pairs.links(0)), np.cumsum(pairs.lengths("target", 0))[:-1]),
    ))  # fmt: skip
    alignments = set()
    for own_source, own_target, own in zip(source, target, links):
        assert own.max() < len(own_source) and own[-1] == 0
        alignments |= {(tokenizer.pieces([own_source[place - 1]])[0], tokenizer.pieces([token])[0])
                  for token, place in zip(own_target, own) if place}  # fmt: skip
    pieces = {(one.lstrip("▁"), other.lstrip("▁")) for one, other in alignments}
    assert {("An", "An"), ("Zo", "Zo")} <= pieces
    plan = plan_batches(pairs, tokens_per_batch=400)
    by_row = {
        (tuple(one), tuple(other)): tuple(own) for one, other, own in zip(source, target, links)
    }
    for dataset in (
        training_dataset(plan, seed=1, start_id=2).take(3),
        validation_dataset(plan, start_id=2).take(3),
    ):
        for inputs, labels in dataset.as_numpy_iterator():
            assert inputs["links"].shape == labels.shape
            for one, other, own in zip(inputs["source"], labels, inputs["links"]):
                length = np.count_nonzero(other)
                key = tuple(one[one != 0]), tuple(other[:length])
                assert by_row[key] == tuple(own[:length]) and not own[length:].any()


def training_model(weight, parts=1, **settings):
    config = TransformerConfig(
        328, 328, num_layers=1, d_model=16, d_ff=16, num_heads=2, dropout=0.0
    )
    keras.utils.set_random_seed(1)
    transformer = build_transformer(config, dtype="float32")
    optimizer = Adam(0.01)
    optimizer.build(transformer.trainable_variables)
    training = TrainingConfig(
        label_smoothing=0.0, guided_alignment=weight, precision="float32", **settings
    )
    return TrainingStep(transformer, optimizer, training, parts)


@pytest.mark.slow
def test_the_step_adds_the_loss_for_each_target_token_and_the_head_learns(linked):
    _, pairs = linked
    dataset = (
        validation_dataset(plan_batches(pairs, tokens_per_batch=2000), start_id=2)
        .take(1)
        .cache()
        .repeat()
    )
    batches = iter(dataset)
    inputs, labels = next(batches)
    num_tokens = np.count_nonzero(labels)

    def guidance(model):
        _, _, scores = model.transformer.hidden_states(inputs, return_attention_scores=True)
        return float(alignment_loss(scores[-1][:, GUIDED_HEAD], inputs["links"]))

    plain, guided = training_model(0.0), training_model(0.5, parts=2)
    before = guidance(guided)
    plain_loss = plain.update(batches).loss
    # Also in two parts, of different numbers of tokens.
    assert guided.update(batches).loss == pytest.approx(
        plain_loss + 0.5 * before / num_tokens, rel=1e-5
    )
    for _ in range(60):
        guided.update(batches)
    assert guidance(guided) < 0.3 * before


@pytest.mark.slow
def test_a_translator_aligns_with_the_head_that_learned_it(tiny_model_dir):
    mean = Translator.load(tiny_model_dir)
    guided = Translator(mean.model, mean.tokenizers, mean.decoding, is_guided=True)
    (by_head,), (by_mean,) = (
        translator.align(["Anna sees a tree."], ["Anna sieht."]) for translator in (guided, mean)
    )
    rows = [
        np.array(mean.tokenizers.source.tokenize([text]).to_list())
        for text in ("Anna sees a tree.", "Anna sieht.")
    ]
    inputs = {
        "source": np.pad(rows[0], [(0, 0), (0, 1)], constant_values=3),
        "target": np.pad(rows[1], [(0, 0), (1, 0)], constant_values=2),
    }
    _, _, scores = mean.model.hidden_states(inputs, return_attention_scores=True)
    np.testing.assert_allclose(by_head.attention, scores[-1][0, GUIDED_HEAD], atol=1e-5)
    assert np.abs(by_head.attention - by_mean.attention).max() > 1e-3


@pytest.mark.slow
def test_links_are_written_by_the_head(tiny_model_dir, tmp_path):
    plain = Translator.load(tiny_model_dir)
    translator = Translator(plain.model, plain.tokenizers, plain.decoding, is_guided=True)
    sources, targets = ["Anna sees a tree.", "", "the dog"], ["Anna sieht.", "Anna", "der Hund"]
    pairs = SentencePairs(sources, targets, "text")
    write_links(tmp_path / "links", len(pairs), attention_links(translator, pairs))
    lines = (tmp_path / "links").read_text().splitlines()
    for line, alignment in zip(lines, translator.align(sources, targets), strict=True):
        links = [tuple(map(int, link.split("-"))) for link in line.split()]
        end = len(alignment.source) - 1
        assert links == [
            (source, target)
            for target, source in enumerate(alignment.positions[:-1])
            if source < end
        ]
