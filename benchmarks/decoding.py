"""Decoding speed beside the peers': sentences per second of a trained model, text to text.

    python -m benchmarks.decoding --model-dir models/en-de --data multi30k --opennmt opennmt/bin/python \\
        --json decoding.json

The test text, the longest sentence first, is sent in requests of 32, after a warm-up that sends all of them once. One
request is sent when the one before is answered, or as many at once as there are cores. The last table's requests are
every 5th sentence by itself.

    SavedModel             what `keras-transformer export` writes (contenders/saved_model.py)
    CTranslate2            the same weights, the same search settings (contenders/ctranslate2.py)
    MarianMT               `generate` of Hugging Face's model of the same size (contenders/marianmt.py)
    OpenNMT-tf             `infer` with a model of the same size (contenders/opennmt_tf_infer.py)
    whole prefix again     the same weights, nothing kept between steps, one sentence at a time, every 20th sentence
                           (contenders/whole_prefix.py)

The two without our weights are made to take as many steps as our translations have tokens. OpenNMT-tf needs an
environment of its own, see `benchmarks.training`.
"""

import functools
import os
import tempfile

import ctranslate2

from benchmarks.comparison import Comparison, parser, publish, take_turns
from benchmarks.decoding_task import BEAM_SIZE, agreement, prepare
from benchmarks.processes import contender, left_out
from benchmarks.text import add_data_option, sentence_pairs
from keras_transformer.translator import Translator

# From each precision of a SavedModel to what loads its translator; the last is the fastest.
PRECISIONS = {name: functools.partial(Translator.load, precision=name) for name in ("float32", "bfloat16")}
# Those of CTranslate2 whose speed may be its best.
COMPUTE_TYPES = ("float32", "int16", "int8", "bfloat16")
OURS, THEIRS = "SavedModel", "CTranslate2"


def comparisons(task_path, model_dir, opennmt):
    """All tables, none measured yet.

    Args:
        task_path: directory of a `DecodingTask`.
        model_dir: of the same model.
        opennmt: the Python of OpenNMT-tf's environment, or None.
    """
    cores = len(os.sched_getaffinity(0))

    def engine(name, module, *arguments):
        """An engine that is sent one request at a time, or several."""
        contenders = {name: contender(module, task_path, *arguments)}
        if cores > 1:
            contenders[f"{name}, {cores} at once"] = contender(module, task_path, *arguments, "--at-once", cores)
        return contenders

    def naive(beam_size):
        sentences = ("--request-size", 1, "--every", 20)
        return contender("whole_prefix", task_path, "--model-dir", model_dir, "--beam-size", beam_size, *sentences)

    def latency(module, threads):
        run = contender(module, task_path, "--request-size", 1, "--every", 5, "--threads", threads)
        return lambda: in_milliseconds(run())

    if opennmt is None:
        opennmt_tf = left_out("give --opennmt, the Python of an environment that has it")
    else:
        opennmt_tf = contender("opennmt_tf_infer", task_path, python=opennmt)
    float32 = {
        **engine(OURS, "saved_model", "--answers", OURS),
        **engine(THEIRS, "ctranslate2", "--answers", THEIRS),
        "MarianMT": contender("marianmt", task_path),
        "OpenNMT-tf": opennmt_tf,
        "whole prefix again, greedy": naive(1),
        f"whole prefix again, beam {BEAM_SIZE}": naive(BEAM_SIZE),
    }
    precisions = {}
    for precision in PRECISIONS:
        precisions |= engine(f"{OURS}, {precision}", "saved_model", "--precision", precision)
    for compute_type in COMPUTE_TYPES:
        if compute_type in ctranslate2.get_supported_compute_types("cpu"):
            precisions |= engine(f"{THEIRS}, {compute_type}", "ctranslate2", "--compute-type", compute_type)
    greedy = engine(OURS, "saved_model", "--beam-size", 1) | engine(THEIRS, "ctranslate2", "--beam-size", 1)
    single = {
        f"{name}, {threads} threads" if threads > 1 else name: latency(module, threads)
        for name, module in ((OURS, "saved_model"), (THEIRS, "ctranslate2"))
        for threads in sorted({1, cores})
    }
    best = f"{OURS}, {list(PRECISIONS)[-1]}"
    searched = f"beam {BEAM_SIZE}, batch 32"
    return [
        Comparison(f"decoding, float32, {searched}", "sentences/s", float32, OURS),
        Comparison(f"decoding, best precision, {searched}", "sentences/s", precisions, best),
        Comparison("decoding, float32, greedy, batch 32", "sentences/s", greedy, OURS),
        Comparison(f"decoding, float32, beam {BEAM_SIZE}, batch 1", "ms a sentence, less is better", single, OURS),
    ]


def in_milliseconds(report):
    """The report of a contender, its value the time of a sentence."""
    return {**report, "value": 1000 / report["value"]}


def agreement_lines(found):
    yield f"{found['equal']:,} of {found['sentences']:,} translations of {OURS} and {THEIRS} are equal"
    if found["equal"]:
        yield f"    their log probabilities differ by {found['score_difference']:.1e} at most"
    for ours, theirs in found["others"]:
        yield f"    another translation: log probability {ours:.4f} against {theirs:.4f}"


def bleu_lines(comparison, num_sentences):
    """BLEU of those who translated the whole text with trained weights."""
    for name, (report, *_) in comparison.reports.items():
        if "bleu" in report and report["sentences"] == num_sentences:
            yield f"BLEU {report['bleu']:.2f}: {comparison.title}: {name}"


def main():
    options_parser = parser("benchmarks.decoding", __doc__.splitlines()[0])
    options_parser.add_argument("--model-dir", metavar="DIR", required=True, help="of a trained model")
    add_data_option(options_parser)
    options_parser.add_argument("--sentences", type=int, metavar="N", help="translate the first N alone")
    options_parser.add_argument("--opennmt", metavar="PYTHON", help="the Python of an environment with OpenNMT-tf")
    options_parser.add_argument(
        "--only", action="append", metavar="NAME", help="measure this contender alone; may be given often"
    )
    options = options_parser.parse_args()
    with tempfile.TemporaryDirectory() as path:
        tables = comparisons(path, options.model_dir, options.opennmt)
        entered = {name for table in tables for name in table.contenders}
        if unknown := set(options.only or ()).difference(entered):
            options_parser.error(f"--only {unknown.pop()}: none of {'; '.join(sorted(entered))}")
        for table in tables:
            table.contenders = {
                name: run for name, run in table.contenders.items() if name in (options.only or entered)
            }
        tables = [table for table in tables if table.contenders]
        try:
            pairs = sentence_pairs(options.data, "test", options.sentences)
            task = prepare(path, options.model_dir, pairs, PRECISIONS)
        except ValueError as error:
            options_parser.error(error)
        take_turns(tables, options.repeats)
        answers = [task.read_answers(name) for name in (OURS, THEIRS)]
        facts = task.facts
    found = None if None in answers else agreement(*answers)
    settings = {name: facts[name] for name in ("sizes", "vocab_size", "max_length", "num_steps")}
    data = options.data or "embedded corpus"
    publish(options.json, tables, data=data, sentences=len(pairs), **settings, agreement=found)
    print()
    for table in tables:
        for line in bleu_lines(table, len(pairs)):
            print(line)
    if found:
        print(*agreement_lines(found), sep="\n")


if __name__ == "__main__":
    main()
