"""The command `evaluate`."""

import argparse
import json
import os

from ..runtime.standard_streams import write_lines
from .lines import translate_lines
from .options import (
    InputFile,
    Parser,
    add_decoding,
    add_json,
    add_model_dir,
    add_precision_or_auto,
    add_terms,
    add_tokenize,
)
from .trained import load_translator, read_glossary, read_trained

SUMMARY = "Print BLEU and chrF of the translations of a file."


def add_options(parser: Parser) -> None:
    """Adds the command's options."""
    add_model_dir(parser)
    parser.add_option("--source", InputFile, metavar="FILE", required=True, help="sentences, one per line")
    parser.add_option("--reference", InputFile, metavar="FILE", required=True, help="their translations")
    add_decoding(parser)
    add_terms(parser)
    add_precision_or_auto(parser)
    add_tokenize(parser)
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
    from keras_transformer.training.text.corpus import read_pairs
    from keras_transformer.training.text.text_files import name_of

    trained = read_trained(
        options.model_dir, options.beam_size, options.length_penalty, options.tag, terms=options.terms
    )
    pairs = read_pairs(options.source, options.reference)
    translator = load_translator(trained, options.precision, shortlist=not options.no_shortlist)
    from keras_transformer.training.comparison.compare import MAX_SENTENCES, System, compare
    from keras_transformer.training.evaluate import evaluate

    name = name_of(options.source)
    max_length = trained.config.model.max_length
    result = evaluate(lambda texts: translate_lines(translator, texts, max_length, name), pairs, options.tokenize)
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
    use = None
    if options.terms is not None:
        from keras_transformer.training.comparison.term_use import count_terms

        (use,) = count_terms(read_glossary(options.terms), list(pairs.source), result.translations)
    if options.json:
        records: dict[str, dict[str, object]] = {
            name: {**score._asdict(), "interval": intervals.get(name)} for name, score in scores.items()
        }
        if use is not None:
            records["terms"] = use._asdict()
        write_lines([json.dumps(records)])
        return
    for name, score in scores.items():
        interval = f" (95% confidence: ± {intervals[name]:.2f})" if name in intervals else ""
        write_lines([f"{score.text}{interval}", f"  {score.signature}"])
    if use is not None:
        write_lines([f"terms used: {use}"])
