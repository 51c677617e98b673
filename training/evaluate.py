"""BLEU and chrF of a translator, by sacreBLEU."""

import sacrebleu


def evaluate(translator, pairs, tokenize="13a"):
    """Translates the sources and scores them against the targets, in mixed case.

    Args:
        translator: a `Translator`, or any function from a list of texts to a list of texts.
        pairs: `SentencePairs`.
        tokenize: sacreBLEU's tokenization for BLEU; "none" for text that is tokenized already.

    Returns:
        A dict: `bleu` and `chrf`, each `{"score", "text", "signature"}`, and `translations`.
    """
    translations = translator(list(pairs.source))
    result = {"translations": translations}
    for name, metric in (("bleu", sacrebleu.metrics.BLEU(tokenize=tokenize, force=tokenize == "none")), ("chrf", sacrebleu.metrics.CHRF())):
        score = metric.corpus_score(translations, [list(pairs.target)])
        result[name] = {
            "score": score.score,
            "text": str(score),
            "signature": str(metric.get_signature()),
        }
    return result
