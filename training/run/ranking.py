"""Computes the score that ranks weights on the validation text.

The score is the negative perplexity or, with `validate_by=bleu`, BLEU if the texts contain enough
4-grams. BLEU is the geometric mean of the precisions of n-grams with 1 to 4 tokens. It is undefined
for texts without 4-grams, such as phrases of one to three words, or text without spaces if the
tokenizer splits at spaces. With few 4-grams, BLEU depends on chance: the smoothed BLEU of long
nonsense may be higher than the BLEU of short, correct translations. Perplexity therefore ranks

- all weights, if the references of the validation text have too few 4-grams;
- weights whose translations share too few 4-grams with the references. They rank below all weights
that BLEU ranks.

Both rules depend only on the texts, and together they rank all weights in a single order.
"""

from keras_transformer.runtime.progress import counted

# The number of 4-grams in about 35 sentences of ten words.
MIN_REFERENCE_4GRAMS = 250
# A tenth of MIN_REFERENCE_4GRAMS. If the references have enough 4-grams, only weights that are far
# behind have fewer matches.
MIN_MATCHES = 25


def doubt_about_bleu(num_reference_4grams: int, num_matches: int) -> str:
    """Returns the reason why BLEU cannot rank translations, or an empty string if it can.

    Args:
        num_reference_4grams: Number of 4-grams in the references.
        num_matches: Number of 4-grams in the translations that are also in their references.
    """
    if num_reference_4grams < MIN_REFERENCE_4GRAMS:
        return f"{counted(num_reference_4grams, '4-gram')} in all references"
    if num_matches < MIN_MATCHES:
        return counted(num_matches, "matching 4-gram")
    return ""


def score_of(perplexity: float, bleu: float | None, doubt: str) -> float:
    """Returns the score of weights. Better weights have a higher score.

    BLEU is at least 0, and the negative perplexity is below 0.

    Args:
        bleu: The BLEU score, or None if perplexity ranks all weights of the run.
        doubt: The result of `doubt_about_bleu`.
    """
    return -perplexity if bleu is None or doubt else bleu


def is_better(score: float, perplexity: float, best_score: float, best_perplexity: float) -> bool:
    """Returns whether weights are better than the best so far. Perplexity breaks ties."""
    return (score, -perplexity) > (best_score, -best_perplexity)
