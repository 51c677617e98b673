"""The commands for evaluation: `evaluate`, `score` and `compare`."""

import argparse
import itertools
import json
import os
import pathlib
import time
from typing import TYPE_CHECKING

from ..checks import require, text_not_empty
from ..errors import ConfigError
from ..runtime.packages import tensorflow_backend
from ..runtime.progress import ProgressBar
from ..runtime.standard_streams import write_lines
from .options import Parser, check_outputs, directory, existing_file
from .parallel_text import TEST_TEXT, TRAINING_TEXT
from .trained import (
    glossary_of,
    load_translator,
    log_truncated,
    numbered_blocks,
    read_trained,
    translate_lines,
)

if TYPE_CHECKING:
    from keras_transformer.training.comparison.compare import System
    from keras_transformer.training.comparison.report import Format
    from keras_transformer.training.text.corpus import SentencePairs

    from ..translation import Translator

_FORMATS: dict[str, "Format"] = {".html": "html", ".md": "markdown"}


def _report_path(name: str, path: str) -> str:
    has_format = pathlib.Path(text_not_empty(name, path)).suffix in _FORMATS
    require(has_format, name, f"a path that ends in {' or '.join(_FORMATS)}", path)
    return path


def add_evaluate_options(parser: Parser) -> None:
    parser.example = "--model-dir models/en-de --source test.en --reference test.de"
    parser.add_model_dir()
    TEST_TEXT.add_single_to(parser)
    parser.add_tokenize()
    parser.add_json()
    parser.add_precision()
    parser.add_search()
    parser.add_terms()


def run_evaluate(options: argparse.Namespace) -> None:
    """Translate a file and print BLEU and chrF."""
    TEST_TEXT.check(options, "text")
    from keras_transformer.training.bleu import choose_tokenizer, make_bleu
    from keras_transformer.training.text.corpus import read_text

    trained = read_trained(options.model_dir, options)
    (corpus,) = TEST_TEXT.open(options)
    pairs, _ = read_text([corpus])
    translator = load_translator(trained)
    tokenize = options.tokenize or choose_tokenizer(pairs.target)
    # Report a missing package before translating, which may take minutes.
    make_bleu(tokenize)
    from keras_transformer.training.comparison.compare import MAX_SENTENCES, System, compare
    from keras_transformer.training.evaluate import count_terms, evaluate

    from ..runtime.device import log_device

    log_device()
    name = corpus.shards[0].source_name
    result = evaluate(lambda texts: translate_lines(translator, texts, name), pairs, tokenize)
    trained.model_dir.write_evaluation(
        f"{len(pairs):,} sentences of {os.path.basename(name)}, "
        f"beam size {trained.decoding.beam_size}, length penalty "
        f"{trained.decoding.length_penalty:g}"
        f"{'' if translator.candidates is None else ', shortlist'}"
        f"{'' if trained.decoding.tag is None else f', tag {trained.decoding.tag}'}"
        f"{'' if trained.decoding.terms is None else ', with terms'}",
        {score.text: score.signature for score in (result.bleu, result.chrf)},
    )
    scores = {"bleu": result.bleu, "chrf": result.chrf}
    intervals: dict[str, float] = {}
    if len(pairs) <= MAX_SENTENCES:
        compared = compare([System("", result.translations)], pairs, tokenize).results[0].scores
        intervals = {
            name: score.interval for name, score in zip(scores, compared.values(), strict=True)
        }
    records: dict[str, dict[str, object]] = {}
    lines = []
    for name, score in scores.items():
        records[name] = {**score._asdict(), "interval": intervals.get(name)}
        interval = f" (95% confidence: ± {intervals[name]:.2f})" if name in intervals else ""
        lines += [f"{score.text}{interval}", f"  {score.signature}"]
    if glossary := glossary_of(options):
        (use,) = count_terms(glossary, list(pairs.source), result.translations)
        records["terms"] = use._asdict()
        lines.append(f"terms used: {use}")
    write_lines([json.dumps(records)] if options.json else lines)


def add_score_options(parser: Parser) -> None:
    parser.example = "--model-dir models/en-de --source test.en --target test.de"
    parser.add_model_dir()
    TRAINING_TEXT.add_single_to(parser)
    parser.add_tag()
    parser.add_option(
        "--reverse-model-dir",
        directory,
        "DIR",
        "model directory for the opposite direction; prints dual conditional cross-entropy scores "
        "instead, above 0 and at most 1, which are high if both models find a pair probable",
    )
    parser.add_json()


def run_score(options: argparse.Namespace) -> None:
    """Print the log probability of given translations."""
    TRAINING_TEXT.check(options, "text")
    import numpy as np

    from keras_transformer.training.text.corpus import read_text

    trained = read_trained(options.model_dir, options)
    reverse_trained = None
    if options.reverse_model_dir is not None:
        # --tag applies only to the forward model.
        reverse_trained = read_trained(options.reverse_model_dir, argparse.Namespace())
    (corpus,) = TRAINING_TEXT.open(options)
    (shard,) = corpus.shards
    pairs, _ = read_text([corpus])
    translator = load_translator(trained)
    reverse = None if reverse_trained is None else load_translator(reverse_trained)
    all_values: list[float] = []
    with ProgressBar("scoring", "lines", len(pairs)) as bar:
        for first, block in numbered_blocks(zip(pairs.source, pairs.target, strict=True)):
            sources, targets = zip(*block, strict=True)
            scores = translator.score_tokens(sources, targets)
            log_truncated(translator, np.asarray(scores.source_lengths), first, shard.source_name)
            log_truncated(translator, np.asarray(scores.target_lengths), first, shard.target_name)
            values = np.asarray(scores.log_probs)
            if reverse is not None:
                from ..translation.graph import dual_scores

                values = dual_scores(scores, reverse.score_tokens(targets, sources))
            if options.json:
                all_values += [round(float(value), 4) for value in bar.count(values)]
            else:
                write_lines(f"{value:.4f}" for value in bar.count(values))
    if options.json:
        name = "log_prob" if reverse is None else "dual"
        write_lines([json.dumps({name: all_values})])


def add_compare_options(parser: Parser) -> None:
    parser.example = "--source test.en --reference test.de --model-dir models/a models/b"
    with parser.group(
        "test sets",
        "Use --source and --reference, in the same order, or --pairs. Each file is a test set.",
    ):
        TEST_TEXT.add_to(parser, check=existing_file)
    help = "model directories to translate --source with"
    parser.add_paths("--model-dir", help, check=directory, metavar="DIR")
    help = (
        "translations of --source by any program; for each system, a file for each test set, in "
        "the same order"
    )
    parser.add_paths("--hypotheses", help, check=existing_file)
    help = "paired bootstrap resampling or approximate randomization (default: bootstrap)"
    parser.add_argument(
        "--test", choices=("bootstrap", "randomization"), default="bootstrap", help=help
    )
    parser.add_tokenize()
    parser.add_option(
        "--output", _report_path, "FILE", "also write the report to this .html or .md file"
    )
    parser.add_overwrite()
    parser.add_json()
    parser.add_precision()
    parser.add_search()
    parser.add_terms()
    parser.epilog = (
        "All systems are compared with the first system. Model directories come before files. "
        "For two systems on two test sets: --source val.en test.en --reference val.de test.de "
        "--hypotheses a.val.de "
        "a.test.de b.val.de b.test.de."
    )


def run_compare(options: argparse.Namespace) -> None:
    """Compare translations of several models or files by BLEU and chrF with significance tests, and
    by common errors."""
    model_dirs, hypotheses = options.model_dir or [], options.hypotheses or []
    if not (model_dirs or hypotheses):
        raise ConfigError("nothing to compare: give --model-dir, --hypotheses or both")
    check_outputs(options, [options.output] if options.output else [])
    TEST_TEXT.check(options, "test sets")
    corpora = TEST_TEXT.open(options)
    names_of_tests = [corpus.shards[0].source_name for corpus in corpora]
    for what, names in (("system", [*model_dirs, *hypotheses]), ("test set", names_of_tests)):
        if twice := [name for place, name in enumerate(names) if name in names[:place]]:
            raise ConfigError(f"{what}s must be different; received {twice[0]} twice")
    number = len(corpora)
    if len(hypotheses) % number:
        raise ConfigError(
            "--hypotheses must be given, for each system, a file for each test set: "
            f"a multiple of {number} files; received {len(hypotheses)}"
        )
    from keras_transformer.training.bleu import choose_tokenizer, make_bleu
    from keras_transformer.training.comparison.compare import System, compare, require_comparable
    from keras_transformer.training.comparison.report import write_reports
    from keras_transformer.training.text.corpus import read_text

    from ..model_dir.files import replacing
    from ..text import Shard, read_lines

    glossary = glossary_of(options)
    models = [read_trained(path, options) for path in model_dirs]
    test_sets = {
        name: read_text([corpus])[0] for name, corpus in zip(names_of_tests, corpora, strict=True)
    }
    # Check all systems and test sets before translating, which may take minutes.
    for pairs in test_sets.values():
        require_comparable(pairs)
    files = [
        [
            # Reuse the sources, which may come from a pipe.
            System(
                path,
                [
                    target
                    for _, target in Shard(pairs.source, read_lines(path), source, path).pairs()
                ],
            )
            for (source, pairs), path in zip(
                test_sets.items(), hypotheses[first : first + number], strict=True
            )
        ]
        for first in range(0, len(hypotheses), number)
    ]
    references = itertools.chain.from_iterable(pairs.target for pairs in test_sets.values())
    tokenize = options.tokenize or choose_tokenizer(references)
    make_bleu(tokenize)
    # For each system, its translations of every test set.
    translated = (
        _translated(load_translator(model), str(model.model_dir.path), test_sets)
        for model in models
    )
    systems = [*translated, *files]
    comparisons = {}
    for (source, pairs), compared in zip(
        test_sets.items(), zip(*systems, strict=True), strict=True
    ):
        comparison = compare(compared, pairs, tokenize, options.test)
        if glossary is not None:
            with tensorflow_backend():
                from keras_transformer.training.evaluate import count_terms
            uses = count_terms(
                glossary, list(pairs.source), *(system.translations for system in compared)
            )
            results = [
                result._replace(terms=use)
                for result, use in zip(comparison.results, uses, strict=True)
            ]
            comparison = comparison._replace(results=results)
        comparisons[source] = comparison
    if options.output:
        with replacing(options.output) as temporary:
            report = write_reports(comparisons, _FORMATS[pathlib.Path(options.output).suffix])
            # The report must be UTF-8, but file names may not be.
            temporary.write_text(report, "utf-8", errors="replace")
    write_lines(
        write_reports(comparisons, "json" if options.json else "text").rstrip("\n").split("\n")
    )


def _translated(
    translator: "Translator", name: str, test_sets: "dict[str, SentencePairs]"
) -> "list[System]":
    from keras_transformer.training.comparison.compare import System

    systems = []
    for source, pairs in test_sets.items():
        start = time.perf_counter()
        translations = translate_lines(translator, list(pairs.source), source)
        systems.append(System(name, translations, time.perf_counter() - start))
    return systems
