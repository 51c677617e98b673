"""BPE-dropout: different subwords for the same text, reproducible from the seed."""

import ast

import pytest
import tensorflow as tf
from fresh_process import run_python
from test_batches import rows_of

from examples.corpus import generate
from keras_transformer.errors import ConfigError
from keras_transformer.tokenizers import SentencePieceTokenizer, TokenizerPair
from keras_transformer.tokenizers.text_codec import TextCodec
from keras_transformer.training.batches.augmentation import SubwordDropout
from keras_transformer.training.batches.encoded_pairs import Epochs, encode
from keras_transformer.training.batches.vocabulary import train_tokenizer
from keras_transformer.training.recipe import load_recipe
from keras_transformer.training.text.corpus import SentencePairs

TEXTS = [source for source, _ in generate(300, seed=5)] + [
    "",
    " two  spaces",
    "an emoji 😀 and a ▁",
]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, "bpe", 500)


def test_the_text_comes_back_from_other_subwords(tokenizer):
    rows = SubwordDropout(tokenizer, 0.2, seed=1).tokenize(TEXTS)
    assert [text.decode() for text in tokenizer.detokenize(rows).numpy()] == TEXTS
    plain = tokenizer.tokenize(TEXTS)
    assert rows.flat_values.shape[0] > 1.2 * plain.flat_values.shape[0]


def test_at_rate_0_nothing_changes(tokenizer):
    rows = SubwordDropout(tokenizer, 0.0, seed=1).tokenize(TEXTS)
    assert rows.to_list() == tokenizer.tokenize(TEXTS).to_list()


def test_at_rate_1_no_merge_is_made(tokenizer):
    (row,) = SubwordDropout(tokenizer, 1.0, seed=1).tokenize(["a dog"]).to_list()
    assert "".join(tokenizer.pieces(row)) == "▁a▁dog" and len(row) == 6


def test_each_call_cuts_anew_and_a_seed_repeats(tokenizer):
    sampler = SubwordDropout(tokenizer, 0.2, seed=1)
    first, second = sampler.tokenize(TEXTS).to_list(), sampler.tokenize(TEXTS).to_list()
    assert first != second
    again = SubwordDropout(tokenizer, 0.2, seed=1)
    assert [again.tokenize(TEXTS).to_list() for _ in range(2)] == [first, second]
    assert SubwordDropout(tokenizer, 0.2, seed=2).tokenize(TEXTS).to_list() != first


ONE_LINE = """
import sys
from keras_transformer.tokenizers import SentencePieceTokenizer
from keras_transformer.training.batches.augmentation import SubwordDropout

for _ in range(2):
    sampler = SubwordDropout(SentencePieceTokenizer.load(sys.argv[1]), 0.5, seed=1)
    print([sampler.tokenize(["A dog runs through the park."]).to_list() for _ in range(10)])
"""


@pytest.mark.slow
def test_a_seed_repeats_in_another_process(tokenizer, tmp_path):
    tokenizer.save(tmp_path / "tokenizer.model")
    lines = run_python("-c", ONE_LINE, tmp_path / "tokenizer.model").splitlines()
    assert len(lines) == 2 and len(set(lines)) == 1
    segments = ast.literal_eval(lines[0])
    assert len(set(map(str, segments))) > 3
    sampler = SubwordDropout(SentencePieceTokenizer.load(tmp_path / "tokenizer.model"), 0.5, seed=1)
    assert [
        sampler.tokenize(["A dog runs through the park."]).to_list() for _ in range(10)
    ] == segments


def test_only_bpe_has_merges_to_leave_out():
    changes = ["training.subword_dropout=0.1", "tokenizer.kind=unigram"]
    with pytest.raises(
        ConfigError, match="subword_dropout must be 0 if tokenizer.kind=unigram; received"
    ):
        load_recipe("demo", changes)
    assert load_recipe("demo", changes[:1]).training.subword_dropout == 0.1


def test_a_text_that_is_read_three_times_is_segmented_in_three_ways(tokenizer, tmp_path):
    pairs = SentencePairs(*map(list, zip(*generate(20, seed=6))), name="x")
    codec = TextCodec(TokenizerPair(*[SubwordDropout(tokenizer, 0.2, seed=1)] * 2), 256)
    encoded = encode(Epochs(pairs, 3), codec, tmp_path / "ids")
    assert len(encoded) == 60
    sampler = SubwordDropout(tokenizer, 0.2, seed=1)
    # Sources and targets take turns.
    sides = [
        sampler.tokenize(side).to_list() for _ in range(3) for side in (pairs.source, pairs.target)
    ]
    for name, times in (("source", sides[::2]), ("target", sides[1::2])):
        rows = [[*row, tokenizer.end_id] for rows in times for row in rows]
        assert encoded.token_ids(name, 0).numpy().tolist() == sum(rows, [])
    assert sides[0] != sides[2] != sides[4]


def test_a_pair_that_passes_several_times_in_an_epoch_is_segmented_anew(tokenizer, tmp_path):
    text = generate(20, seed=6)
    pairs = SentencePairs(*map(list, zip(*text)), name="x", weights=((5, 3), (15, 1)))
    codec = TextCodec(TokenizerPair(*[SubwordDropout(tokenizer, 0.2, seed=1)] * 2), 256)
    encoded = encode(Epochs(pairs, 2), codec, tmp_path / "ids")
    assert len(encoded) == 2 * (3 * 5 + 15) and encoded.fingerprint["lines"] == 3 * 5 + 15
    rows = rows_of(encoded, "source")
    texts = [text.decode() for text in tokenizer.detokenize(tf.ragged.constant(rows)).numpy()]
    assert texts[:16] == [source for source, _ in text[:5] for _ in range(3)] + [text[5][0]]
    segmentations = [tuple(row) for row in rows]
    assert all(len(set(segmentations[begin : begin + 3])) > 1 for begin in range(0, 15, 3))
