"""The command `check-data`."""

import argparse
import json

from ..runtime.standard_streams import write_lines
from .options import Parser, add_json
from .text import add_text_options, check_text_options, held_out, train_corpora, valid_corpora

SUMMARY = "Print how long the sentences of a text are and what filters leave out."


def add_options(parser: Parser) -> None:
    """Adds the command's options."""
    add_text_options(parser)
    add_json(parser)
    parser.epilog = (
        "The filters are those of the configuration's data section, such as --set data.max_length_ratio=4; if none is "
        "on, the report shows what recommended values would leave out."
    )


def run(options: argparse.Namespace) -> None:
    """Runs the command."""
    check_text_options(options)
    from keras_transformer.training.recipe import load_recipe
    from keras_transformer.training.text.check_data import check_data, report_lines

    data = load_recipe(options.config, options.set).data
    reports = {"training": check_data(train_corpora(options), data, held_out(options))}
    if corpora := valid_corpora(options):
        reports["validation"] = check_data(corpora)
    if options.json:
        write_lines([json.dumps(reports)])
        return
    write_lines(line for name, report in reports.items() for line in report_lines(name, report))
