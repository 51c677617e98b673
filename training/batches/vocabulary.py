"""Learns subword vocabularies from text."""

import collections
import io
import itertools
import logging
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import cast, get_args

import sentencepiece

# tensorflow_text has no public names for these two. The WordPiece tests fail if a release moves
# them.
from tensorflow_text.python.ops.bert_tokenizer import BasicTokenizer
from tensorflow_text.tools.wordpiece_vocab import wordpiece_tokenizer_learner_lib as wordpiece

from keras_transformer.checks import one_of, positive_int
from keras_transformer.config import TokenizerConfig
from keras_transformer.config.sections import LearnedTokenizerKind
from keras_transformer.errors import ConfigError
from keras_transformer.runtime.progress import ProgressBar
from keras_transformer.scripts import count_scripts, main_script
from keras_transformer.tokenizers import (
    SentencePieceTokenizer,
    Tokenizer,
    TokenizerPair,
    WordPieceTokenizer,
)
from keras_transformer.tokenizers.normalization import NormalForm, normalize_text
from keras_transformer.tokenizers.sentencepiece import prepare_line
from keras_transformer.tokenizers.terms import NUM_TERM_PIECES
from keras_transformer.tokenizers.tokenizer import NUM_PLACEHOLDERS

from ..text.corpus import SentencePairs

_log = logging.getLogger(__name__)

# A larger sample changes a vocabulary very little, but costs memory and time.
MAX_LINES = 2_000_000
MAX_LINE_BYTES = 65_536
# This many lines are enough to find the scripts of a text.
_MAX_LINES_OF_SCRIPTS = 10_000
_LARGE_SCRIPTS = ("Hani", "Hira", "Kana", "Hang")


def train_tokenizer(
    lines: Iterable[str],
    kind: LearnedTokenizerKind,
    vocab_size: int,
    tags: Sequence[str] = (),
    terms: bool = False,
    normalization: NormalForm = "none",
) -> Tokenizer:
    """Learns a subword vocabulary from text.

    The same lines in the same order produce the same tokenizer. If there are more than two million
    lines, a random sample of two million is used. SentencePiece skips lines of more than 65,536
    bytes.

    Args:
        lines: Sentences without line ends, in both languages if they share the vocabulary.
        kind: "bpe" or "unigram" (SentencePiece), or "wordpiece".
        vocab_size: Number of ids, including the four special tokens, tags, eight placeholders and
            the tokens for terms. WordPiece chooses tokens by a threshold on their frequency. Its
            vocabulary may be up to 5% smaller, or smaller still if no threshold yields a closer
            size.
        tags: Special tokens in addition to the four of every vocabulary. Defaults to no tags.
        terms: Whether to add three tokens for terms and their translations. Defaults to False.
        normalization: Normal form to which texts are converted first: "nfc", "nfkc" or "none".
            Defaults to "none".

    Raises:
        ConfigError: An argument breaks its rule, there is no text, or `vocab_size` is too small for
            the alphabet of the text or too large for the text. The message contains the limit.

    Example:
        >>> train_tokenizer(["the dog runs", "the cat runs"], "bpe", vocab_size=283).vocab_size
        283
    """
    one_of("kind", kind, get_args(LearnedTokenizerKind))
    vocab_size = positive_int("vocab_size", vocab_size)
    texts = (normalize_text(line, normalization) for line in lines)
    sample = sample_lines((text for text in texts if text.strip()), MAX_LINES)
    if not sample:
        raise ConfigError("the training text must have a line that is not empty")
    num_learned = vocab_size - _num_reserved(terms)
    if kind == "wordpiece":
        return _train_wordpiece(sample, num_learned, tags, terms, normalization)
    return _train_sentencepiece(sample, kind, num_learned, tags, terms, normalization)


def learn_tokenizers(
    pairs: SentencePairs,
    config: TokenizerConfig,
    terms: bool = False,
    normalization: NormalForm = "none",
) -> TokenizerPair:
    """Learns one vocabulary for both languages, or one for each language.

    The source vocabulary contains the tags.

    Args:
        terms: Whether the source vocabulary contains the tokens for terms. Defaults to False.
        normalization: Normal form to which texts are converted first: "nfc", "nfkc" or "none".
            Defaults to "none".

    Raises:
        ConfigError: `vocab_size` does not fit the text.
    """
    one_of("tokenizer.kind", config.kind, get_args(LearnedTokenizerKind))
    kind = cast(LearnedTokenizerKind, config.kind)
    if config.shared:
        texts: dict[str, Iterable[str]] = {
            "vocabulary": itertools.chain(pairs.source, pairs.target)
        }
    else:
        texts = {"vocabulary of the source": pairs.source, "vocabulary of the target": pairs.target}
    scripts = [
        main_script(itertools.islice(side, _MAX_LINES_OF_SCRIPTS))
        for side in (pairs.source, pairs.target)
    ]
    if config.shared and len(set(scripts)) > 1:
        _log.info(
            "source and target are in different scripts: a vocabulary for each may translate "
            "better, with --set tokenizer.shared=false --set model.tie_embeddings=target"
        )
    tags = list(dict.fromkeys(tag for _, tag in pairs.tags if tag))
    tokenizers: list[Tokenizer] = []
    for name, lines in texts.items():
        with ProgressBar(f"learning a {name} of {config.vocab_size:,} tokens"):
            reserved = ([], False) if tokenizers else (tags, terms)
            tokenizers.append(
                train_tokenizer(lines, kind, config.vocab_size, *reserved, normalization)
            )
        _log.info(f"{name}: {tokenizers[-1].vocab_size:,} tokens")
    return TokenizerPair(tokenizers[0], tokenizers[-1])


def sample_lines(lines: Iterable[str], size: int) -> list[str]:
    """Returns `size` lines, drawn at random without replacement, or all lines if there are fewer.

    Reads the lines once and keeps `size` of them in memory (reservoir sampling, Vitter's algorithm
    R). The seed is fixed.
    """
    lines = iter(lines)
    sample = list(itertools.islice(lines, size))
    rng = random.Random(0)
    for index, line in enumerate(lines, start=size):
        slot = rng.randrange(index + 1)
        if slot < size:
            sample[slot] = line
    return sample


def _coverage(lines: Sequence[str]) -> float:
    """Returns the share of a text's characters that must be in the vocabulary.

    The share is lower for Chinese, Japanese and Korean, because they have thousands of characters,
    and rare characters would fill the vocabulary.
    """
    scripts = count_scripts(lines[:: max(len(lines) // _MAX_LINES_OF_SCRIPTS, 1)])
    share = sum(scripts[script] for script in _LARGE_SCRIPTS) / max(scripts.total(), 1)
    return 0.9995 if share > 0.1 else 0.9999


def _alphabet(counts: Mapping[str, int], lines: Sequence[str]) -> int:
    """Returns how many of the most frequent characters are needed to reach `_coverage`.

    `counts` contains the number of occurrences of each word.
    """
    characters: collections.Counter[str] = collections.Counter()
    for word, count in counts.items():
        for character in word:
            characters[character] += count
    covered = itertools.accumulate(count for _, count in characters.most_common())
    needed = _coverage(lines) * characters.total()
    return next(number for number, total in enumerate(covered, start=1) if total >= needed)


def _num_reserved(terms: bool) -> int:
    return NUM_PLACEHOLDERS + (NUM_TERM_PIECES if terms else 0)


def _train_sentencepiece(
    lines: list[str],
    kind: str,
    vocab_size: int,
    tags: Sequence[str],
    terms: bool,
    normalization: NormalForm,
) -> SentencePieceTokenizer:
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=map(prepare_line, lines),
            model_writer=model,
            model_type=kind,
            # If the special tokens fit, SentencePiece's error message states how many tokens the
            # alphabet needs.
            vocab_size=max(vocab_size, 4 + len(tags)),
            hard_vocab_limit=False,
            # Byte tokens spell characters that are not in the alphabet.
            character_coverage=_coverage(lines),
            byte_fallback=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            add_dummy_prefix=False,
            # Skip longer lines, because the training time of unigram grows with the square of the
            # length of a line.
            max_sentence_length=MAX_LINE_BYTES,
            pad_id=SentencePieceTokenizer.pad_id,
            unk_id=SentencePieceTokenizer.unk_id,
            bos_id=SentencePieceTokenizer.start_id,
            eos_id=SentencePieceTokenizer.end_id,
            # Control symbols never match text, unlike user-defined symbols.
            control_symbols=list(tags),
            minloglevel=2,
        )
    except RuntimeError as error:
        too_small = re.search(r"smaller than required_chars\. -?\d+ vs (\d+)", str(error))
        if too_small:
            raise _wrong_size(vocab_size, int(too_small[1]), terms) from None
        raise ConfigError(
            f"no vocabulary can be learned from the training text: {str(error).strip()}"
        ) from None
    tokenizer = SentencePieceTokenizer.with_placeholders(model.getvalue(), terms, normalization)
    num_learned = tokenizer.vocab_size - _num_reserved(terms)
    if num_learned < vocab_size:
        raise _wrong_size(vocab_size, num_learned, terms)
    return tokenizer


def _train_wordpiece(
    lines: list[str],
    vocab_size: int,
    tags: Sequence[str],
    terms: bool,
    normalization: NormalForm,
) -> WordPieceTokenizer:
    # Split words like the FastBertTokenizer of WordPieceTokenizer.
    split = BasicTokenizer(lower_case=False)
    counts: collections.Counter[str] = collections.Counter()
    for start in range(0, len(lines), 10_000):
        words = split.tokenize(lines[start : start + 10_000]).flat_values.numpy()
        counts.update(word.decode() for word in words)
    if not counts:
        raise ConfigError("the training text must have a word")

    special = [*WordPieceTokenizer.special_pieces, *tags]
    max_characters = max(1000, min(_alphabet(counts, lines), (vocab_size - len(special)) // 2))
    num_characters = min(len(set().union(*counts)), max_characters)
    # Each character needs a token for the start of a word and a token for inside a word.
    if vocab_size < len(special) + 2 * num_characters:
        raise _wrong_size(vocab_size, len(special) + 2 * num_characters, terms)

    def learn(threshold: int) -> list[str]:
        return wordpiece.learn(
            counts,
            vocab_size,
            special,
            lower_thresh=threshold,
            upper_thresh=threshold,
            max_unique_chars=max_characters,
        )

    # Search for the lowest threshold in (low, high] whose vocabulary fits. A vocabulary that is 5%
    # too small is good enough, because a trial takes seconds. Every word that reaches the threshold
    # becomes a token, so a threshold that vocab_size words reach is too low.
    low = counts.most_common(vocab_size)[-1][1] if len(counts) >= vocab_size else 0
    high = low + 1
    while len(vocabulary := learn(high)) > vocab_size:
        low, high = high, 2 * high
    while high - low > 1 and len(vocabulary) < 0.95 * vocab_size:
        middle = (low + high) // 2
        candidate = learn(middle)
        if len(candidate) > vocab_size:
            low = middle
        else:
            high, vocabulary = middle, candidate
    if high == 1 and len(vocabulary) < vocab_size:
        raise _wrong_size(vocab_size, len(vocabulary), terms)
    term_pieces = WordPieceTokenizer.term_pieces if terms else ()
    pieces = [*vocabulary, *term_pieces, *WordPieceTokenizer.placeholder_pieces]
    return WordPieceTokenizer(pieces, normalization)


def _wrong_size(vocab_size: int, limit: int, terms: bool) -> ConfigError:
    """Returns the error for a vocabulary that is too small or too large for the text.

    Neither `vocab_size` nor `limit` includes the reserved tokens.
    """
    received = vocab_size + _num_reserved(terms)
    limit += _num_reserved(terms)
    if limit > received:
        rule = f"at least {limit} for the alphabet of this text"
    else:
        rule = f"at most {limit} for this text"
    return ConfigError(
        f"tokenizer.vocab_size must be {rule}; received tokenizer.vocab_size={received}"
    )
