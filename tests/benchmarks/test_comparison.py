"""Tests of the benchmarks: what is counted, the arithmetic of the tables, and what is written. No
times."""

import collections
import json
import math
import os
import sys

import numpy as np
import pytest
import tensorflow as tf
from conftest import sentence_pairs as invented_pairs
from fresh_process import run_python

from benchmarks import long_corpus, machine, memory, scaling, startup, text, training
from benchmarks.command import settings_of
from benchmarks.comparison import Comparison, measure, publish
from benchmarks.contenders import matrix_products, stock_keras
from benchmarks.processes import ROOT, RunFailed, run_for_report, skipped
from benchmarks.training_task import prepare
from keras_transformer.config import TransformerConfig
from keras_transformer.models import build_transformer
from keras_transformer.training.batches.vocabulary import train_tokenizer
from keras_transformer.training.text.corpus import SentencePairs

SIZES = dict(num_layers=2, d_model=16, d_ff=24, num_heads=2, dropout=0.1)


def invented_text():
    source, target = zip(*invented_pairs())
    return SentencePairs(list(source), list(target), "invented")


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    folder = tmp_path_factory.mktemp("task")
    pairs = invented_text()
    # At most 9 rows of 30 tokens, so that the last batch is not full.
    settings = {**settings_of(SIZES, 320, steps=1), "training.tokens_per_batch": 270}
    return prepare(folder, pairs, pairs, settings)


@pytest.fixture(scope="module")
def tokenizer():
    pairs = invented_text()
    return train_tokenizer([*pairs.source, *pairs.target], "bpe", 320)


def scripted(*values, calls=None, name=None):
    """Returns a contender that reports one of the values in each run."""
    remaining = iter(values)

    def run_once():
        if calls is not None:
            calls.append(name)
        return {"value": next(remaining), "versions": {"package": "1.2"}}

    return run_once


def test_contenders_take_turns_and_one_that_fails_is_not_run_again():
    calls = []
    comparison = Comparison(
        "speed",
        "tokens/s",
        {
            "fast": scripted(300, 100, 200, calls=calls, name="fast"),
            "absent": skipped("not installed"),
            "slow": scripted(50, 70, 60, calls=calls, name="slow"),
        },
        reference="fast",
    )
    measure([comparison], 3)
    assert calls == ["fast", "slow"] * 3
    assert comparison.failures == {"absent": "skipped: not installed"}
    assert comparison.median("fast") == 200 and comparison.median("slow") == 60
    assert comparison.ratio("slow") == pytest.approx(200 / 60) and comparison.ratio("fast") == 1
    assert comparison.median("absent") is None and comparison.ratio("absent") is None


def test_table_and_json_file_contain_all_measurements(tmp_path, capsys):
    contenders = {"fast": scripted(9000, 8000), "slow": scripted(2.5, 3.5), "absent": skipped("no")}
    comparison = Comparison("speed", "tokens/s", contenders, "fast")
    measure([comparison], 2)
    publish(tmp_path / "speed.json", [comparison], pairs=7)
    table = capsys.readouterr().out
    assert f"speed: tokens/s, median of 2, {machine.restrictions()}\n" in table
    rows = {line.split()[0]: line.split()[1:] for line in table.splitlines() if line.strip()}
    assert rows["fast"] == ["8,500", "8,000", "9,000", "1.00", "package", "1.2"]
    assert rows["slow"] == ["3", "2.5", "3.5", "2833.33", "package", "1.2"]
    assert rows["absent"] == ["skipped:", "no"]
    written = json.loads((tmp_path / "speed.json").read_text())
    assert written["settings"] == {"pairs": 7} and written["machine"] == machine.machine()
    (written,) = written["comparisons"]
    assert [run["value"] for run in written["reports"]["fast"]] == [9000, 8000]
    assert written["failures"] == {"absent": "skipped: no"} and list(written["reports"]) == [
        "fast",
        "slow",
    ]


def test_report_and_error_of_a_process_are_its_last_lines(tmp_path):
    path = tmp_path / "input"
    path.write_text("21")
    code = "print('hello'); print('{\"value\": %d}' % (2 * int(input())))"
    assert run_for_report([sys.executable, "-c", code], path) == {"value": 42}
    with pytest.raises(RunFailed, match="^ModuleNotFoundError: No module named 'nowhere'$"):
        run_for_report([sys.executable, "-c", "import nowhere"])
    assert (
        startup.time_to_first_line([sys.executable, "-c", "print(input())"], "line\n")["value"] > 0
    )
    with pytest.raises(RunFailed, match="^exit status 0$"):
        startup.time_to_first_line([sys.executable, "-c", ""])


def test_batches_contain_each_pair_once_and_no_empty_rows(task, tokenizer):
    texts = collections.Counter()
    for source, target, labels in task.batches:
        assert len(source) == len(target) == len(labels)
        assert source.any(axis=1).all() and labels.any(axis=1).all()
        # The target is the labels, shifted right by the start token.
        assert (target[:, 0] == tokenizer.start_id).all()
        assert (target[:, 1:] == np.where(labels[:, 1:] == 0, 0, labels[:, :-1])).all()
        texts.update(zip(texts_of(tokenizer, source), texts_of(tokenizer, labels)))
    assert texts == collections.Counter(zip(invented_text().source, invented_text().target))


def test_target_tokens_are_subwords_and_end_tokens(task, tokenizer):
    subwords = sum(len(tokenizer.tokenize([line]).to_list()[0]) for line in invented_text().target)
    assert task.facts["target_tokens"] == subwords + len(invented_text())
    assert task.facts["target_tokens"] == sum((labels != 0).sum() for _, _, labels in task.batches)
    assert task.make_report(4.0, {})["value"] == task.facts["target_tokens"] / 4
    assert task.facts["steps"] == len(task.batches)


def texts_of(tokenizer, rows):
    sentences = [
        [i for i in row if i not in (tokenizer.pad_id, tokenizer.end_id)] for row in rows.tolist()
    ]
    return [
        text.decode()
        for text in tokenizer.detokenize(tf.ragged.constant(sentences, tf.int32)).numpy()
    ]


def test_stock_model_has_as_many_parameters_as_transformer():
    transformer = build_transformer(
        TransformerConfig(source_vocab_size=50, target_vocab_size=50, **SIZES)
    )
    stock = stock_keras.build_stock_transformer(50, 64, **SIZES)
    assert stock.count_params() == transformer.count_params()


def test_stock_loss_is_the_mean_over_real_tokens():
    labels, logits = (
        np.array([[1, 0]]),
        np.log([[[0.2, 0.5, 0.3], [0.9, 0.05, 0.05]]]).astype("float32"),
    )
    # The smoothed labels: 0.1 divided among the three tokens, and 0.9 for the label.
    expected = -(0.9 * np.log(0.5) + 0.1 / 3 * np.log(0.2 * 0.5 * 0.3))
    assert float(stock_keras.smoothed_crossentropy(0.1)(labels, logits)) == pytest.approx(
        expected, rel=1e-5
    )


def test_matrix_products_of_a_small_model_equal_a_count_by_hand():
    sizes = dict(num_layers=1, d_model=4, d_ff=6, num_heads=2, dropout=0.1)
    products = matrix_products.forward_products(1, 2, 3, 3, 5, sizes)
    encoder = 2 * 4 * 12 + 2 * (2 * 2 * 2) * 2 + 2 * 4 * 4 + 2 * (2 * 4 * 6)
    decoder = 3 * 4 * 12 + 2 * (3 * 2 * 3) * 2 + 3 * 4 * 4
    decoder += 3 * 4 * 4 + 2 * 4 * 8 + 2 * (3 * 2 * 2) * 2 + 3 * 4 * 4 + 2 * (3 * 4 * 6)
    logits = 3 * 4 * 5
    assert (
        sum(p.repeats * math.prod(p.stack) * p.m * p.k * p.n for p in products)
        == encoder + decoder + logits
    )
    # Each product is computed three times. With twice the layers, all but the logits are computed
    # twice as often.
    assert len(matrix_products.make_operations(products, "float32")) == 3 * len(products)
    twice = matrix_products.forward_products(1, 2, 3, 3, 5, {**sizes, "num_layers": 2})
    assert len(matrix_products.make_operations(twice, "float32")) == 3 * (2 * len(products) - 1)
    for operation in matrix_products.make_operations(products, "float32"):
        operation()
    assert matrix_products.split_evenly(7, 2) == [3, 4]


@pytest.mark.slow
def test_isa_and_cores_hold_for_all_processes_that_are_started():
    first = min(os.sched_getaffinity(0))
    code = (
        "import sys\n"
        "from benchmarks.comparison import make_parser, parse_options\n"
        "from benchmarks.machine import machine, restrictions\n"
        "from benchmarks.processes import run_for_report\n"
        "sys.argv = ['x', '--json', 'x', '--isa', 'avx2', '--cores', '1']\n"
        "parse_options(make_parser('x', None))\n"
        "print(restrictions(), machine()['isa'], machine()['cores'], sep='; ')\n"
        "code = 'import json, os; print(json.dumps([*os.sched_getaffinity(0), "
        "*map(os.environ.get, %r)]))'\n"
        f"print(*run_for_report([sys.executable, '-c', code % {list(machine.AVX2_ENVIRONMENT)}]))"
    )
    printed = run_python("-c", code, cwd=ROOT).split("\n")
    assert printed[:2] == ["AVX2, 1 core; AVX2; 1", f"{first} AVX2 0 AVX2 avx2 AVX2"]


def test_peak_memory_is_that_of_the_command():
    # Memory of this process, which must not be counted.
    here = np.ones(20 * 2**20)
    code = "import sys; held = bytearray(b'x') * (100 * 2**20)"
    measured = run_for_report(
        [sys.executable, "-m", "benchmarks.peak_memory", sys.executable, "-c", code]
    )
    assert 100 <= measured["value"] < 150 < here.nbytes / 2**20


def run_command(module, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", [module.__name__, *map(str, arguments)])
    module.main()


def reports_of(path):
    """Each table of a JSON file: the values by contender."""
    tables = json.loads(path.read_text())["comparisons"]
    assert [table["failures"] for table in tables] == [{}] * len(tables)
    return {
        table["title"]: {
            name: [run["value"] for run in runs] for name, runs in table["reports"].items()
        }
        for table in tables
    }


@pytest.fixture
def tiny_sizes(monkeypatch):
    """The benchmarks of a tiny model and little text."""
    monkeypatch.setattr(text, "sentence_pairs", lambda data, split, limit=None: invented_text())
    for module in (training, memory, startup):
        monkeypatch.setattr(module, "SIZES", {**SIZES, "num_layers": 1})
        monkeypatch.setattr(module, "sentence_pairs", text.sentence_pairs)
        monkeypatch.setattr(module, "vocab_size_for", lambda data: 320)
    single = SentencePairs(["Anna sees a tree."], ["Anna"], "one")
    monkeypatch.setattr(startup, "sentence_pairs", lambda *arguments: single)


@pytest.mark.long
def test_training_runs(tiny_sizes, tmp_path, monkeypatch, capsys):
    all_contenders = training.contenders
    # Without PyTorch, which is not installed for the tests.
    chosen = (training.TRAIN_COMMAND, "stock Keras", "matrix products, by core")
    monkeypatch.setattr(training, "PRECISIONS", ("float32",))
    monkeypatch.setattr(
        training,
        "contenders",
        lambda *arguments: {name: all_contenders(*arguments)[name] for name in chosen},
    )
    run_command(training, monkeypatch, "--repeats", 1, "--json", tmp_path / "training.json")
    (values,) = reports_of(tmp_path / "training.json").values()
    assert list(values) == list(chosen) and all(runs[0] > 0 for runs in values.values())
    assert f"{len(invented_text())} sentence pairs" in capsys.readouterr().out


@pytest.mark.long
def test_startup_runs(tiny_sizes, tmp_path, monkeypatch, capsys):
    run_command(startup, monkeypatch, "--repeats", 1, "--json", tmp_path / "startup.json")
    values = reports_of(tmp_path / "startup.json")["start-up"]
    assert list(values) == [startup.HELP, startup.IMPORT_TENSORFLOW, startup.FIRST_TRANSLATION]
    more = values[startup.FIRST_TRANSLATION][0] - values[startup.IMPORT_TENSORFLOW][0]
    assert f"takes {more:.1f} s more than importing TensorFlow" in capsys.readouterr().out


@pytest.mark.long
def test_memory_runs(tiny_sizes, tmp_path, monkeypatch):
    run_command(memory, monkeypatch, "--steps", 2, "--json", tmp_path / "memory.json")
    values = reports_of(tmp_path / "memory.json")["peak memory"]
    imported, trained, translated = (runs[0] for runs in values.values())
    # Both import TensorFlow, too.
    assert 100 < imported < min(trained, translated)


@pytest.mark.long
def test_long_corpus_runs(tmp_path, monkeypatch):
    monkeypatch.setattr(long_corpus, "NUM_VALID_PAIRS", 5)
    monkeypatch.setattr(long_corpus, "VOCAB_SIZE", 400)
    run_command(
        long_corpus,
        monkeypatch,
        "--pairs",
        300,
        600,
        "--steps",
        1,
        "--json",
        tmp_path / "long_corpus.json",
    )
    tables = reports_of(tmp_path / "long_corpus.json")
    assert [list(values) for values in tables.values()] == [["300 pairs", "600 pairs"]] * 2


@pytest.mark.long
def test_scaling_runs(tmp_path, monkeypatch):
    sizes = ("--workers", 1, 2, "--rows", 2, "--steps", 1, "--repeats", 1)
    run_command(scaling, monkeypatch, *sizes, "--json", tmp_path / "scaling.json")
    assert list(reports_of(tmp_path / "scaling.json")["training step"]) == [
        "workers: 1",
        "workers: 2",
    ]


def test_scaling_gives_the_tokens_of_a_batch_by_the_seconds_of_a_step(
    tmp_path, monkeypatch, capsys
):
    reports = {
        1: {"value": 900, "sum": 0, "versions": {}},
        2: {"value": 600, "sum": 50, "versions": {}},
    }
    monkeypatch.setattr(scaling, "measure_workers", lambda number, rows, steps: reports[number])
    run_command(
        scaling, monkeypatch, "--workers", 1, 2, "--rows", 64, "--json", tmp_path / "scaling.json"
    )
    *_, last = capsys.readouterr().out.splitlines()
    # 64 rows of 30 tokens.
    assert last == "workers: 2: 3,200 target tokens/s; adding up gradients takes 50 ms"
