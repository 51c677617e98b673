"""sacreBLEU's BLEU, with the tokenizer that fits the script of the references. Without
TensorFlow."""

import functools
import itertools
import logging
from collections.abc import Iterable
from typing import Any

import regex
import sacrebleu

from keras_transformer.checks import one_of
from keras_transformer.config.values import BLEU_TOKENIZERS
from keras_transformer.errors import ConfigError, MissingPackageError
from keras_transformer.runtime.packages import how_to_install
from keras_transformer.scripts import NAMES, main_script

_log = logging.getLogger(__name__)

# For all other scripts: 13a.
_TOKENIZERS_OF_SCRIPTS = {
    "Hani": "zh",
    "Jpan": "ja-mecab",
    "Hang": "ko-mecab",
    "Thai": "char",
    "Laoo": "char",
    "Khmr": "char",
    "Mymr": "char",
    "Tibt": "char",
}
# The extras of setup.cfg with the packages of tokenizers.
_EXTRAS = {"ja-mecab": "ja", "ko-mecab": "ko"}
# They tell the script of a text; a text may have millions of lines.
_LINES_TO_READ = 10_000
# Tokens without a letter or digit are punctuation.
_WORD = regex.compile(r"[\p{L}\p{M}\p{N}]")


def choose_tokenizer(
    references: Iterable[str], tokenize: str | None = None, name: str = "the reference"
) -> str:
    """Returns the name of sacreBLEU's tokenizer for references.

    Args:
        references: iterable of str. Their first 10,000 are looked at.
        tokenize: str or None. The name that a user has chosen. Defaults to None: the script of the
            references decides. Unless that is 13a, one line of the log says so. `char` takes the
            place of a tokenizer whose package is missing.
        name: str. How messages call the references.

    Raises:
        ConfigError: The name is unknown, or the tokenizer that a user has chosen cannot be loaded.
        MissingPackageError: The tokenizer that a user has chosen needs a package.

    Example:
        >>> choose_tokenizer(["狗在跑。"]), choose_tokenizer(["Der Hund läuft."])
        ('zh', '13a')
    """
    if tokenize is not None:
        tokenizer_of(tokenize)
        return tokenize
    script = main_script(itertools.islice(references, _LINES_TO_READ))
    tokenize = _TOKENIZERS_OF_SCRIPTS.get(script or "", "13a")
    if tokenize == "13a":
        return tokenize
    written = "Japanese" if script == "Jpan" else NAMES[script or ""]
    reason = f"because {name} is in {written} script"
    try:
        tokenizer_of(tokenize)
    except MissingPackageError:
        install = how_to_install(_EXTRAS[tokenize])
        _log.info(
            f"BLEU counts characters (tokenizer char), {reason} and {tokenize} is not installed: "
            f"{install}"
        )
        return "char"
    _log.info(f"BLEU uses sacreBLEU's tokenizer {tokenize}, {reason}")
    return tokenize


@functools.cache
def tokenizer_of(tokenize: str) -> Any:
    """Returns sacreBLEU's tokenizer of this name, a function from a text to its tokens with spaces
    between them.

    Raises:
        ConfigError: The name is unknown, or sacreBLEU cannot load or download the tokenizer.
        MissingPackageError: It needs a package.
    """
    one_of("tokenize", tokenize, BLEU_TOKENIZERS)
    try:
        return sacrebleu.metrics.BLEU(tokenize=tokenize).tokenizer
    except (Exception, SystemExit) as error:
        if tokenize in _EXTRAS and isinstance(error, (RuntimeError, ImportError, AssertionError)):
            raise MissingPackageError(
                f"the tokenizer {tokenize} needs packages that are not installed: "
                f"{how_to_install(_EXTRAS[tokenize])}"
            ) from None
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ConfigError(
            f"sacreBLEU cannot load the tokenizer {tokenize}: {lines[0]}. It downloads a file to "
            "the folder models in ~/.sacrebleu (or $SACREBLEU) once: connect this computer to the "
            "Internet, copy that folder from another computer, or choose another tokenizer"
        ) from None


def bleu_metric(tokenize: str, effective_order: bool = False) -> sacrebleu.metrics.BLEU:
    """Returns sacreBLEU's BLEU with a tokenizer, in mixed case.

    Args:
        tokenize: str. A name of `keras_transformer.config.values.BLEU_TOKENIZERS`; "none" is for
            text that is tokenized already.
        effective_order: bool. Counts the n-grams that a short sentence has, for scores of
            sentences. Defaults to False.
    """
    tokenizer_of(tokenize)
    return sacrebleu.metrics.BLEU(
        tokenize=tokenize, force=tokenize == "none", effective_order=effective_order
    )


def words_of(text: str, tokenize: str) -> list[str]:
    """Returns the tokens of a text that are not punctuation."""
    return [token for token in tokenizer_of(tokenize)(text).split() if _WORD.search(token)]
