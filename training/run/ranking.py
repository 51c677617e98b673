"""The score by which weights are compared on the validation text.

It is minus the perplexity or, with `validate_by=bleu`, BLEU where BLEU can tell. BLEU is the
geometric mean of how many n-grams of 1 to 4 tokens are right. Without 4-grams it is undefined:
phrases of one to three words have none, nor has text without spaces if spaces divide it into
tokens. With few of them it depends on chance: the smoothed BLEU of long nonsense may be higher than
that of right, but short translations. So perplexity ranks

- all weights, if the references of the validation text have too few 4-grams;
- weights whose translations have too few 4-grams of the references. They come behind all weights
  that BLEU ranks, which have some.

Both rules depend on the texts alone, and put all weights in one order.
"""

from keras_transformer.runtime.progress import counted

# About 35 sentences of ten words.
MIN_REFERENCE_4GRAMS = 250
# A tenth of that, so that only weights far behind have fewer where there are enough in references.
MIN_MATCHES = 25


def doubt_about_bleu(num_reference_4grams: int, num_matches: int) -> str:
    """Returns why BLEU does not rank translations; an empty text if it does.

    Args:
        num_reference_4grams: how many 4-grams the references have.
        num_matches: how many 4-grams of the translations are in their references.
    """
    if num_reference_4grams < MIN_REFERENCE_4GRAMS:
        return f"{counted(num_reference_4grams, '4-gram')} in all references"
    if num_matches < MIN_MATCHES:
        return counted(num_matches, "matching 4-gram")
    return ""


def score_of(perplexity: float, bleu: float | None, doubt: str) -> float:
    """Returns the score, which is higher for better weights.

    BLEU is at least 0, and minus the perplexity below it.

    Args:
        bleu: None if perplexity ranks all weights of the run.
        doubt: the result of `doubt_about_bleu`.
    """
    return -perplexity if bleu is None or doubt else bleu


def is_better(score: float, perplexity: float, best_score: float, best_perplexity: float) -> bool:
    """Returns whether weights are better than the best so far; perplexity decides between ties."""
    return (score, -perplexity) > (best_score, -best_perplexity)
