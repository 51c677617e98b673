"""Training text with placeholders: what is on both sides of a pair becomes the same one."""

import numpy as np
import pytest
from keras_transformer.training.batches.encoded_pairs import encode
from keras_transformer.training.batches.vocabulary import train_tokenizer
from keras_transformer.training.text.corpus import SentencePairs

from keras_transformer.tokenizers import TokenizerPair
from keras_transformer.tokenizers.placeholders import SpanFinder

SOURCE = ["see {a} and {b}", "see %s", "see it"]
TARGET = ["siehe {b} und {a}", "siehe <b>", "siehe es"]


@pytest.mark.parametrize("spans, expected", [(None, 0), (SpanFinder(), 2)])
def test_both_sides_have_the_same_placeholders(tmp_path, spans, expected):
    tokenizer = train_tokenizer([*SOURCE, *TARGET], "bpe", 290)
    pairs = SentencePairs(SOURCE, TARGET, "text")
    encoded = encode(pairs, TokenizerPair(tokenizer, tokenizer), 40, tmp_path / "ids", spans=spans)
    sides = [np.asarray(encoded.token_ids(side, 0)).astype(int) for side in ("source", "target")]
    source, target = (
        [i - tokenizer.placeholder_ids.start for i in side if i in tokenizer.placeholder_ids] for side in sides
    )
    assert source == [*range(expected)] and target == source[::-1]
