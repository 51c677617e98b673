"""Training and translation read the same tokens, whatever the text."""

import pytest
import tensorflow as tf
from test_batches import rows_of

from keras_transformer.config import DecodingConfig, TransformerConfig
from keras_transformer.models import build_transformer
from keras_transformer.tokenizers import TokenizerPair
from keras_transformer.tokenizers.placeholders import SpanFinder
from keras_transformer.tokenizers.terms import Glossary
from keras_transformer.tokenizers.text_codec import TextCodec
from keras_transformer.training.batches.encoded_pairs import Epochs, encode
from keras_transformer.training.batches.vocabulary import train_tokenizer
from keras_transformer.training.text.corpus import SentencePairs
from keras_transformer.translation import Translator

MAX_LENGTH = 60
SIZES = {"bpe": 340, "unigram": 333, "wordpiece": 140}
LINES = [
    "A dog runs to the tree.",
    "Ein Hund rennt zum Baum.",
    "{term} >>de<< \ufdd1 \ufdd0k % < [PH1] 🙂",
] * 3
GLOSSARY = {"dog": "Hund", "the tree": "der Baum"}
PAIRS = [
    ("A dog runs to the tree.", "Ein Hund rennt zum Baum."),
    ("see {a} and {b}", "siehe {b} und {a}"),
    ("{a} {a} %s dog", "<i> {a} %s {a} {a}"),
    (" ".join(f"{{{i}}}" for i in range(9)), "{8} {0}"),
    ("<b>dog</b> https://a.org/b, a@b.de", "https://a.org/b <b>Hund</b>"),
    ("no {span}", "here"),
    ("\ufdd0k{a}\ufdd0 \ufdd0o \ufdd1\ufdd3dog\ufdd1\ufdd3", "\ufdd1\ufdd2 {a}"),
    ("{term} dog {translation} {ph1} [PH1]", "[TERM] {/term}"),
    ("  a  \t dog\0 ", " \u2581\u241b_ \u241b. "),
    (">>de<< <s></s><pad>", "🙂 Zoë’s\u2028dog"),
    ("dog", "x" * 40),
    ("y" * (MAX_LENGTH - 4), "a"),
]
LEFT_OUT = [("", "a"), ("a", ""), ("dog " * MAX_LENGTH, "a"), ("a", "Hund " * MAX_LENGTH)]


class EveryTerm:
    """In the place of `TermAnnotation`, writes beside terms what the glossary does."""

    def annotate(self, sources, targets):
        return [text.decode() for text in Glossary(GLOSSARY).annotate(tf.constant(sources)).numpy()]


def filled(token_ids):
    return [[token_id for token_id in row.tolist() if token_id] for row in token_ids.numpy()]


@pytest.mark.parametrize(
    "decoding",
    [
        pytest.param({}, marks=pytest.mark.slow),
        {"placeholders": True, "tag": ">>de<<", "terms": GLOSSARY},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", SIZES)
def test_training_and_translation_read_the_same_tokens(tmp_path, kind, decoding):
    tokenizer = train_tokenizer(
        [*LINES, *sum(PAIRS, ())], kind, SIZES[kind], [">>de<<"], terms=True
    )
    tag = decoding.get("tag", "")
    text = SentencePairs(*zip(*PAIRS, *LEFT_OUT), "x", tags=((len(PAIRS) + len(LEFT_OUT), tag),))
    spans, terms = (SpanFinder(), EveryTerm()) if decoding else (None, None)
    codec = TextCodec(
        TokenizerPair(tokenizer, tokenizer), MAX_LENGTH, spans, are_annotated=terms is not None
    )
    encoded = encode(Epochs(text, terms=terms), codec, tmp_path / "ids")
    sizes = dict(num_layers=1, d_model=8, d_ff=8, num_heads=1, max_length=MAX_LENGTH)
    model = build_transformer(
        TransformerConfig(tokenizer.vocab_size, tokenizer.vocab_size, **sizes)
    )
    translator = Translator(model, tokenizer, DecodingConfig(**decoding))
    sources, targets = zip(*PAIRS)
    read = translator.graph.align(tf.constant(sources), tf.constant(targets))
    assert rows_of(encoded, "source") == filled(read.source.token_ids)
    assert rows_of(encoded, "target") == filled(read.target.token_ids)
    assert (encoded.num_empty, encoded.num_too_long) == (2, 2)
    placeholders = [i - tokenizer.placeholder_ids.start for i in rows_of(encoded, "target")[1]]
    assert [number for number in placeholders if number >= 0] == ([1, 0] if decoding else [])
    # A source alone has a placeholder for each span, whether or not the target has it: the first
    # two have the same.
    alone = [row[row > 0].tolist() for row in translator.token_ids(sources)]
    assert alone[:2] == rows_of(encoded, "source")[:2]
