"""BLEU from sacreBLEU, with a tokenizer that fits the script of the references."""

import itertools
import logging
from collections.abc import Iterable, Sequence
from typing import Any

import sacrebleu

from keras_transformer.checks import one_of
from keras_transformer.config.values import BLEU_TOKENIZERS
from keras_transformer.errors import ConfigError
from keras_transformer.scripts import UNSPACED, main_script

_log = logging.getLogger(__name__)

# The tokenizer and the language of each script.
_TOKENIZERS_OF_SCRIPTS = {
    "Hani": ("zh", "Chinese"),
    "Jpan": ("ja-mecab", "Japanese"),
    "Hang": ("ko-mecab", "Korean"),
}
_MAX_TEXTS = 10_000
_PACKAGES = {"ja-mecab": "sacrebleu[ja]", "ko-mecab": "sacrebleu[ko]"}


def choose_tokenizer(references: Iterable[str]) -> str:
    """Returns sacreBLEU's tokenizer for the script of the references, and logs the choice.

    The tokenizer is "zh" for Chinese, "ja-mecab" for Japanese, "ko-mecab" for Korean, and "char"
    for Thai, Lao, Khmer, Burmese and Tibetan. For all other languages, it is "13a". If the package
    of a tokenizer is missing, "char" is used instead.
    """
    script = main_script(itertools.islice(references, _MAX_TEXTS))
    if script not in UNSPACED and script not in _TOKENIZERS_OF_SCRIPTS:
        _log.info("BLEU counts words (tokenizer 13a)")
        return "13a"
    if script not in _TOKENIZERS_OF_SCRIPTS:
        _log.info("BLEU counts characters (tokenizer char): the references do not separate words")
        return "char"
    tokenizer, language = _TOKENIZERS_OF_SCRIPTS[script]
    try:
        make_bleu(tokenizer)
    except ConfigError:
        _log.info(
            f"BLEU counts characters (tokenizer char): the references are {language}; to count "
            f"words (tokenizer {tokenizer}): pip install '{_PACKAGES[tokenizer]}'"
        )
        return "char"
    _log.info(f"BLEU uses the tokenizer {tokenizer}: the references are {language}")
    return tokenizer


def make_bleu(tokenizer: str, **options: Any) -> sacrebleu.metrics.BLEU:
    """Returns sacreBLEU's BLEU metric with a tokenizer.

    Args:
        tokenizer: str. One of `BLEU_TOKENIZERS`. Use "none" for texts that are already tokenized.
        **options: Other arguments of sacreBLEU's `BLEU`.

    Raises:
        ConfigError: The tokenizer does not exist, or its package or model is missing.
    """
    one_of("tokenize", tokenizer, BLEU_TOKENIZERS)
    try:
        return sacrebleu.metrics.BLEU(tokenize=tokenizer, force=tokenizer == "none", **options)
    # If a package is missing, sacreBLEU raises a RuntimeError or an ImportError. If it cannot
    # download a model, it raises an OSError or ends the process.
    except (RuntimeError, ImportError) as error:
        if tokenizer not in _PACKAGES:
            raise
        raise ConfigError(
            f"the tokenizer {tokenizer} needs a package: pip install '{_PACKAGES[tokenizer]}'"
        ) from error
    except (OSError, SystemExit) as error:
        raise ConfigError(
            f"sacreBLEU cannot download the model of the tokenizer {tokenizer} ({error})"
        ) from error


def words_of(text: str, bleu: sacrebleu.metrics.BLEU) -> Sequence[str]:
    """Returns the words or characters of a text that a BLEU metric counts."""
    return bleu.tokenizer(text.rstrip()).split()
