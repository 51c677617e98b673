"""The command `evaluate`."""

import argparse
import json
import os

from ..runtime.progress import ProgressBar
from ..runtime.standard_streams import write_lines
from .lines import log_truncated, numbered_blocks
from .options import InputFile, Parser, add_decoding, add_json, add_model_dir, add_precision_or_auto
from .trained import load_translator, read_trained

SUMMARY = "Print BLEU and chrF of the translations of a file."


def add_options(parser: Parser) -> None:
    """Adds the command's options."""
    add_model_dir(parser)
    parser.add_option("--source", InputFile, metavar="FILE", required=True, help="sentences, one per line")
    parser.add_option("--reference", InputFile, metavar="FILE", required=True, help="their translations")
    add_decoding(parser)
    add_precision_or_auto(parser)
    parser.add_argument(
        "--tokenize",
        choices=("13a", "none", "intl", "char"),
        default="13a",
        help="sacreBLEU's tokenization for BLEU (13a); none for files that are already tokenized",
    )
    add_json(parser)


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
    from keras_transformer.training.text.corpus import read_pairs
    from keras_transformer.training.text.text_files import name_of

    trained = read_trained(options.model_dir, options.beam_size, options.length_penalty)
    pairs = read_pairs(options.source, options.reference)
    translator = load_translator(trained, options.precision, shortlist=not options.no_shortlist)
    from keras_transformer.training.evaluate import evaluate

    from ..model_dir.evaluation_file import write_evaluation

    def translate(texts: list[str]) -> list[str]:
        translations: list[str] = []
        with ProgressBar("translating", "lines", len(texts)) as bar:
            for first, block in numbered_blocks(texts):
                found = translator.translate(block)
                lengths = (each.source_length for each in found)
                log_truncated(lengths, trained.config.model.max_length, first, name_of(options.source))
                translations += [each.hypotheses[0][0] for each in bar.count(found)]
        return translations

    result = evaluate(translate, pairs, options.tokenize)
    write_evaluation(
        trained.model_dir,
        f"{len(pairs):,} sentences of {os.path.basename(name_of(options.source))}, "
        f"beam size {trained.decoding.beam_size}, length penalty {trained.decoding.length_penalty:g}"
        f"{'' if translator.candidates is None else ', shortlist'}",
        {score.text: score.signature for score in (result.bleu, result.chrf)},
    )
    scores = {"bleu": result.bleu, "chrf": result.chrf}
    if options.json:
        write_lines([json.dumps({name: score._asdict() for name, score in scores.items()})])
        return
    write_lines(f"{score.text}\n  {score.signature}" for score in scores.values())
