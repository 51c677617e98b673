"""BLEU and chrF of a translator, by sacreBLEU."""

import sacrebleu


def evaluate(translator, pairs):
    """Translates the sources and scores them against the targets (mixed case, 13a tokenization).

    Args:
        translator: a `Translator`, or any function from a list of texts to a list of texts.
        pairs: `SentencePairs`.

    Returns:
        A dict: `bleu` and `chrf`, each `{"score", "text", "signature"}`, and `translations`.
    """
    translations = translator(pairs.source)
    result = {"translations": translations}
    for name, metric in (("bleu", sacrebleu.metrics.BLEU()), ("chrf", sacrebleu.metrics.CHRF())):
        score = metric.corpus_score(translations, [pairs.target])
        result[name] = {
            "score": score.score,
            "text": str(score),
            "signature": str(metric.get_signature()),
        }
    return result
