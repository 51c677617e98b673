"""Compares systems by sacreBLEU's scores, significance tests and errors in translations."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import sacrebleu
from sacrebleu.significance import PairedTest

from keras_transformer.errors import ConfigError

from ..bleu import choose_tokenizer, make_bleu, words_of
from ..text.corpus import SentencePairs

if TYPE_CHECKING:
    # At run time, this import would load TensorFlow.
    from ..evaluate import TermUse

Test = Literal["bootstrap", "randomization"]
_TESTS = {"bootstrap": "bs", "randomization": "ar"}
# sacreBLEU keeps all resampled sentences in memory, which takes about 100 kB per sentence.
MAX_SENTENCES = 10_000
_SIGNIFICANT = 0.05
# The maximum lengths of the repetitions to look for.
_MOST_WORDS, _MOST_CHARACTERS = 4, 8
_IN_A_WORD = re.compile(r"\w")
_NUMBER = re.compile(r"\d+")
# SentencePiece and WordPiece write unknown tokens like this.
_UNKNOWN = ("⁇", "[UNK]")


class System(NamedTuple):
    """A system and its translations of a test set.

    Attributes:
        name: str. The name of the system.
        translations: list of str. The translation of each sentence of the test set.
        seconds: float or None. Time that the translation took.
    """

    name: str
    translations: list[str]
    seconds: float | None = None


class Score(NamedTuple):
    """A corpus score of a system."""

    score: float
    interval: float  # half the width of the 95% confidence interval, by bootstrap resampling
    gain: float  # difference from the first system's score
    # Probability of a difference at least this large if the system is no different from the first.
    # None for the first system, and for systems with the same translations as the first.
    p_value: float | None

    @property
    def is_significant(self) -> bool:
        return self.p_value is not None and self.p_value < _SIGNIFICANT


class Faults(NamedTuple):
    """Shares of translations with errors, from 0 to 1. `lost_numbers` is a share of numbers."""

    # The translation repeats one to four words in a row, and the reference does not. In languages
    # without spaces, it repeats one or two characters three times, or three to eight characters
    # twice.
    repetitions: float
    copies: float  # the translation equals the source, but the reference does not
    unknown: float  # the translation contains unknown tokens
    lost_numbers: float  # numbers in source and reference that the translation lacks


class Result(NamedTuple):
    """The scores and errors of a system."""

    name: str
    # Whether its translations equal the first system's. None for the first system.
    equals_first: bool | None
    scores: dict[str, Score]  # by metric, "BLEU" and "chrF2"
    brevity_penalty: float  # BLEU's factor for translations that are too short
    length_ratio: float  # length of the translations divided by the references' length
    faults: Faults
    sentences_per_second: float | None
    terms: "TermUse | None" = None  # how often glossary terms are used; None without a glossary


class Difference(NamedTuple):
    """A sentence that two systems translate differently."""

    number: int  # the line, from 1
    source: str
    reference: str
    first: str  # the translation of the first system
    other: str
    gain: float  # chrF of `other` minus chrF of `first`


class LowScore(NamedTuple):
    """A sentence whose translation has a low chrF."""

    number: int  # the line, from 1
    source: str
    reference: str
    translation: str
    score: float  # the chrF of the translation


class Comparison(NamedTuple):
    """The results of all systems.

    Attributes:
        results: list of Result. The result of each system.
        signatures: sacreBLEU's signature of each metric, by name.
        differences: For each system except the first, the sentences whose chrF differs most from
            the first system's. Better translations come first, then worse translations.
        low_scores: For each system, the sentences with the lowest chrF, the lowest first.
    """

    results: list[Result]
    signatures: dict[str, str]
    differences: dict[str, list[Difference]]
    low_scores: dict[str, list[LowScore]]


def require_comparable(pairs: SentencePairs) -> None:
    """Raises a ConfigError if a test set has more than 10,000 sentences."""
    if len(pairs) > MAX_SENTENCES:
        raise ConfigError(
            f"{pairs.name}: a test set must have at most {MAX_SENTENCES:,} sentences; "
            f"received {len(pairs):,}"
        )


def compare(
    systems: Sequence[System],
    pairs: SentencePairs,
    tokenize: str | None = None,
    test: Test = "bootstrap",
    num_differences: int = 5,
    num_low_scores: int = 5,
) -> Comparison:
    """Compares systems with the first system. Scores are case-sensitive.

    Args:
        systems: At least one `System`, with different names.
        pairs: SentencePairs. The test set, with references.
        tokenize: str or None. sacreBLEU's tokenizer for BLEU, one of `BLEU_TOKENIZERS`. Use "none"
            for text that is already tokenized. Defaults to None, which chooses the tokenizer for
            the script of the references.
        test: "bootstrap" for paired bootstrap resampling with 1,000 samples (Koehn 2004), or
            "randomization" for approximate randomization with 10,000 trials (Riezler and Maxwell
            2005). Both tests are from sacreBLEU. Defaults to "bootstrap".
        num_differences: int. Number of better and of worse translations to show for each system.
            Defaults to 5.
        num_low_scores: int. Number of sentences with the lowest chrF to show for each system.
            Defaults to 5.

    Raises:
        ConfigError: The test set has more than 10,000 sentences, the tokenizer does not exist, or
            its package or model is missing.

    Example:
        >>> pairs = SentencePairs(["hello"], ["hallo"], "greetings")
        >>> compare([System("a", ["hallo"]), System("b", ["hallo"])], pairs).results[1].equals_first
        True
    """
    require_comparable(pairs)
    sources = list(pairs.source)
    references = list(pairs.target)
    bleu = make_bleu(tokenize or choose_tokenizer(references))
    metrics: dict[str, Any] = {"BLEU": bleu, "chrF2": sacrebleu.metrics.CHRF()}
    # Both tests compute confidence intervals from 1,000 samples.
    signatures, table = PairedTest(
        [(system.name, system.translations) for system in systems],
        metrics,
        [references],
        test_type=_TESTS[test],
        n_ar_confidence=-1 if test == "bootstrap" else 1000,
    )()
    first = systems[0]
    results = []
    for place, system in enumerate(systems):
        is_equal = system.translations == first.translations
        scores = {
            name: _compared(column[place], column[0], is_equal)
            for name, column in table.items()
            if name != "System"
        }
        corpus = bleu.corpus_score(system.translations, [references])
        results.append(
            Result(
                system.name,
                is_equal if place else None,
                scores,
                corpus.bp,
                corpus.sys_len / max(corpus.ref_len, 1),
                count_faults(sources, references, system.translations, bleu),
                len(references) / system.seconds if system.seconds else None,
            )
        )
    signature_texts = {name: str(signature) for name, signature in signatures.items()}
    differences = {
        system.name: _differences(sources, references, first, system, num_differences)
        for system in systems[1:]
    }
    low_scores = {
        system.name: _low_scores(sources, references, system.translations, num_low_scores)
        for system in systems
    }
    return Comparison(results, signature_texts, differences, low_scores)


def _compared(result: Any, first: Any, is_equal: bool) -> Score:
    """Returns sacreBLEU's result for a system, compared with the first system's."""
    gain = result.score - first.score
    # If the scores are equal in all samples, sacreBLEU's p-value is the lowest possible value.
    p_value = result.p_value if gain else 1.0
    return Score(result.score, float(result.ci), gain, None if is_equal else p_value)


def _differences(
    sources: list[str], references: list[str], first: System, other: System, number: int
) -> list[Difference]:
    metric = sacrebleu.metrics.CHRF()
    differences = []
    lines = zip(sources, references, first.translations, other.translations, strict=True)
    for line, (source, reference, before, after) in enumerate(lines, start=1):
        if before != after:
            score_before = metric.sentence_score(before, [reference]).score
            score_after = metric.sentence_score(after, [reference]).score
            gain = score_after - score_before
            differences.append(Difference(line, source, reference, before, after, gain))
    differences.sort(key=lambda difference: -difference.gain)
    better = [difference for difference in differences if difference.gain > 0][:number]
    worse = [difference for difference in differences[::-1] if difference.gain < 0][:number]
    return better + worse


def _low_scores(
    sources: list[str], references: list[str], translations: list[str], number: int
) -> list[LowScore]:
    metric = sacrebleu.metrics.CHRF()
    scored = []
    lines = zip(sources, references, translations, strict=True)
    for line, (source, reference, translation) in enumerate(lines, start=1):
        if translation != reference:
            score = metric.sentence_score(translation, [reference]).score
            scored.append(LowScore(line, source, reference, translation, score))
    scored.sort(key=lambda sentence: sentence.score)
    return scored[:number]


def count_faults(
    sources: list[str],
    references: list[str],
    translations: list[str],
    bleu: sacrebleu.metrics.BLEU,
) -> Faults:
    """Returns the shares of translations with errors.

    Repetitions are sequences of the tokens that `bleu` counts.

    Example:
        >>> translations = ["ein Hund, ein Hund", "hello"]
        >>> count_faults(["2 dogs", "hello"], ["2 Hunde", "hallo"], translations, make_bleu("13a"))
        Faults(repetitions=0.5, copies=0.5, unknown=0.0, lost_numbers=1.0)
    """
    repetitions = copies = unknown = lost = expected = 0
    for source, reference, translation in zip(sources, references, translations, strict=True):
        repetitions += _repeats(translation, bleu) and not _repeats(reference, bleu)
        copies += translation.strip() == source.strip() != reference.strip()
        unknown += any(token in translation for token in _UNKNOWN)
        numbers = Counter(_NUMBER.findall(source)) & Counter(_NUMBER.findall(reference))
        expected += numbers.total()
        lost += (numbers - Counter(_NUMBER.findall(translation))).total()
    number = max(len(translations), 1)
    return Faults(repetitions / number, copies / number, unknown / number, lost / max(expected, 1))


def _repeats(text: str, bleu: sacrebleu.metrics.BLEU) -> bool:
    """Returns whether words, or characters of a script without spaces, are repeated in a row.

    One or two characters must occur three times, because doubled characters, such as 谢谢, are
    words in many languages.
    """
    units = [unit for unit in words_of(text.casefold(), bleu) if _IN_A_WORD.search(unit)]
    are_words = bleu.tokenizer.signature() not in ("zh", "char")
    for size in range(1, (_MOST_WORDS if are_words else _MOST_CHARACTERS) + 1):
        for place in range(len(units) - 2 * size + 1):
            stretch = units[place : place + size]
            times = 2 if are_words or len("".join(stretch)) > 2 else 3
            if units[place : place + times * size] == times * stretch:
                return True
    return False
