"""The commands `evaluate`, which scores a model, and `score`, which scores translations by a model."""

import argparse
import json
import os

from ..runtime.progress import ProgressBar
from ..runtime.standard_streams import write_lines
from .options import Directory, InputFile, Parser
from .trained import glossary_of, load_translator, log_truncated, numbered_blocks, read_trained, translate_lines


def add_evaluate_options(parser: Parser) -> None:
    parser.example = "--model-dir models/en-de --source test.en --reference test.de"
    parser.add_model_dir()
    parser.add_option("--source", InputFile, "FILE", "sentences, one per line", required=True)
    parser.add_option("--reference", InputFile, "FILE", "their translations", required=True)
    parser.add_tokenize()
    parser.add_json()
    parser.add_precision_or_auto()
    parser.add_search()
    parser.add_terms()


def run_evaluate(options: argparse.Namespace) -> None:
    """Print BLEU and chrF of the translations of a file."""
    from keras_transformer.training.text.corpus import read_pairs
    from keras_transformer.training.text.text_files import name_of

    trained = read_trained(options.model_dir, options)
    pairs = read_pairs(options.source, options.reference)
    translator = load_translator(trained)
    from keras_transformer.training.comparison.compare import MAX_SENTENCES, System, compare
    from keras_transformer.training.evaluate import evaluate

    from ..runtime.device import log_device

    log_device()
    name = name_of(options.source)
    result = evaluate(lambda texts: translate_lines(translator, texts, name), pairs, options.tokenize)
    trained.model_dir.write_evaluation(
        f"{len(pairs):,} sentences of {os.path.basename(name)}, "
        f"beam size {trained.decoding.beam_size}, length penalty {trained.decoding.length_penalty:g}"
        f"{'' if translator.candidates is None else ', shortlist'}"
        f"{'' if trained.decoding.tag is None else f', tag {trained.decoding.tag}'}"
        f"{'' if trained.decoding.terms is None else ', with terms'}",
        {score.text: score.signature for score in (result.bleu, result.chrf)},
    )
    scores = {"bleu": result.bleu, "chrf": result.chrf}
    intervals: dict[str, float] = {}
    if len(pairs) <= MAX_SENTENCES:
        compared = compare([System("", result.translations)], pairs, options.tokenize).results[0].scores
        intervals = {name: score.interval for name, score in zip(scores, compared.values(), strict=True)}
    records: dict[str, dict[str, object]] = {}
    lines = []
    for name, score in scores.items():
        records[name] = {**score._asdict(), "interval": intervals.get(name)}
        interval = f" (95% confidence: ± {intervals[name]:.2f})" if name in intervals else ""
        lines += [f"{score.text}{interval}", f"  {score.signature}"]
    if glossary := glossary_of(options):
        from keras_transformer.training.evaluate import count_terms

        (use,) = count_terms(glossary, list(pairs.source), result.translations)
        records["terms"] = use._asdict()
        lines.append(f"terms used: {use}")
    write_lines([json.dumps(records)] if options.json else lines)


def add_score_options(parser: Parser) -> None:
    parser.example = "--model-dir models/en-de --source test.en --target test.de"
    parser.add_model_dir()
    parser.add_option("--source", InputFile, "FILE", "sentences, one per line", required=True)
    parser.add_option("--target", InputFile, "FILE", "their translations", required=True)
    parser.add_tag()
    parser.add_option(
        "--reverse-model-dir",
        Directory,
        "DIR",
        "a model of the opposite direction: print instead how well both models agree that the pair is a "
        "translation, by dual conditional cross-entropy; above 0 and at most 1",
    )


def run_score(options: argparse.Namespace) -> None:
    """Print the log probability of each given translation."""
    import numpy as np

    from keras_transformer.training.text.corpus import read_pairs
    from keras_transformer.training.text.text_files import name_of

    trained = read_trained(options.model_dir, options)
    reverse_trained = None
    if options.reverse_model_dir is not None:
        # --tag is for the other direction.
        reverse_trained = read_trained(options.reverse_model_dir, argparse.Namespace())
    pairs = read_pairs(options.source, options.target)
    translator = load_translator(trained)
    reverse = None if reverse_trained is None else load_translator(reverse_trained)
    with ProgressBar("scoring", "lines", len(pairs)) as bar:
        for first, block in numbered_blocks(zip(pairs.source, pairs.target, strict=True)):
            sources, targets = zip(*block, strict=True)
            scores = translator.score_tokens(sources, targets)
            log_truncated(translator, np.asarray(scores.source_lengths), first, name_of(options.source))
            log_truncated(translator, np.asarray(scores.target_lengths), first, name_of(options.target))
            values = np.asarray(scores.log_probs)
            if reverse is not None:
                from ..translation.results import dual_scores

                values = dual_scores(scores, reverse.score_tokens(targets, sources))
            write_lines(f"{value:.4f}" for value in bar.count(values))
