"""Tests of the benchmarks: what is counted, the arithmetic of the tables, and what is written. No times."""

import collections
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from benchmarks.model import learn_tokenizer, vocab_size_for
from conftest import sentence_pairs as invented_pairs
from keras_transformer.training.recipe import load_recipe
from keras_transformer.training.text.corpus import SentencePairs
from keras_transformer.training.text.text_files import read_lines, shards_of

from benchmarks import machine, text, training
from benchmarks.comparison import (
    Comparison,
    best_of,
    make_parser,
    measure,
    parse_options,
    print_table,
    publish,
    select,
)
from benchmarks.contenders import matrix_products, stock_keras, train_command
from benchmarks.generated_lines import write_lines, write_shards
from benchmarks.long_corpus import speed
from benchmarks.processes import ROOT, RunFailed, run_for_report, skipped, time_to_first_line
from benchmarks.training_task import prepare
from keras_transformer.config import TransformerConfig
from keras_transformer.errors import ConfigError
from keras_transformer.models import build_transformer

# Tests replace `sys.executable`.
PYTHON = sys.executable
SIZES = dict(num_layers=2, d_model=16, d_ff=24, num_heads=2, dropout=0.1)


def invented_text():
    source, target = zip(*invented_pairs())
    return SentencePairs(list(source), list(target), "invented")


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    folder = tmp_path_factory.mktemp("task")
    pairs = invented_text()
    # At most 9 rows of 30 tokens, so that the last batch is not full.
    return prepare(folder, pairs, pairs, vocab_size=320, sizes=SIZES, tokens_per_batch=270)


@pytest.fixture(scope="module")
def tokenizer():
    return learn_tokenizer(invented_text(), 320)


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


def test_best_of_two_precisions_is_the_higher_median_of_each_contender():
    names = "fast", "slow", "absent"
    float32 = Comparison("float32", "tokens/s", dict.fromkeys(names), "fast")
    bfloat16 = Comparison("bfloat16", "tokens/s", dict.fromkeys(names), "fast")
    float32.reports = {"fast": [{"value": 4}, {"value": 5}, {"value": 90}], "slow": [{"value": 3}]}
    bfloat16.reports = {"fast": [{"value": 6}], "slow": [{"value": 2}]}
    float32.failures = bfloat16.failures = {"absent": "not here"}
    best = best_of([float32, bfloat16], "best")
    assert best.median("fast") == 6 and best.median("slow") == 3
    assert best.ratio("slow") == 2 and best.failures == {"absent": "not here"}


def test_contenders_are_selected_by_name():
    first = Comparison("first", "s", {"one": scripted(), "two": scripted()}, "one")
    second = Comparison("second", "s", {"three": scripted()})
    assert select([first, second], None) == [first, second]
    (selected,) = select([first, second], ["two"])
    assert (selected.title, selected.contenders) == ("first", {"two": first.contenders["two"]})
    with pytest.raises(ConfigError, match="^--only must be one of one; two; three; received --only='four'$"):
        select([first, second], ["one", "four"])


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
    fast, slow, absent = written["comparisons"][0]["contenders"]
    assert fast["median"] == 8500 and [run["value"] for run in fast["reports"]] == [9000, 8000]
    assert slow["ratio"] == pytest.approx(8500 / 3)
    assert absent["failure"] == "skipped: no" and absent["median"] is None and absent["reports"] == []


def test_without_a_reference_there_are_no_ratios(capsys):
    comparison = Comparison("memory", "MB", {"one": scripted(10)})
    measure([comparison], 1)
    print_table(comparison)
    assert "ratio" not in capsys.readouterr().out


def test_report_and_error_of_a_process_are_its_last_lines(tmp_path):
    path = tmp_path / "input"
    path.write_text("21")
    code = "print('hello'); print('{\"value\": %d}' % (2 * int(input())))"
    assert run_for_report([sys.executable, "-c", code], path) == {"value": 42}
    with pytest.raises(RunFailed, match="^ModuleNotFoundError: No module named 'nowhere'$"):
        run_for_report([sys.executable, "-c", "import nowhere"])
    assert time_to_first_line([sys.executable, "-c", "print(input())"], "line\n")["value"] > 0
    with pytest.raises(RunFailed):
        time_to_first_line([sys.executable, "-c", ""])


def test_batches_contain_each_pair_once_and_no_empty_rows(task, tokenizer):
    found = collections.Counter()
    for source, target, labels in task.batches:
        assert len(source) == len(target) == len(labels)
        assert source.any(axis=1).all() and labels.any(axis=1).all()
        # The target is the labels, shifted right by the start token.
        assert (target[:, 0] == tokenizer.start_id).all()
        assert (target[:, 1:] == np.where(labels[:, 1:] == 0, 0, labels[:, :-1])).all()
        found.update(zip(texts_of(tokenizer, source), texts_of(tokenizer, labels)))
    assert found == collections.Counter(zip(invented_text().source, invented_text().target))


def test_target_tokens_are_subwords_and_end_tokens(task, tokenizer):
    subwords = sum(len(tokenizer.tokenize([line]).to_list()[0]) for line in invented_text().target)
    assert task.facts["target_tokens"] == subwords + len(invented_text())
    assert task.facts["target_tokens"] == sum((labels != 0).sum() for _, _, labels in task.batches)
    assert task.make_report(4.0, {})["value"] == task.facts["target_tokens"] / 4
    assert task.facts["steps"] == len(task.batches)
    words = [line.split() for line in (task.path / "ids.de").read_text().splitlines()]
    assert sum(map(len, words)) == subwords
    vocabulary = (task.path / "vocabulary.txt").read_text().split()
    assert {word for line in words for word in line} <= set(vocabulary)
    # OpenNMT-tf adds a token of its own for unknown words.
    assert len(vocabulary) == task.facts["vocab_size"] - 1


def test_recipe_has_the_sizes_of_model_and_batches(task):
    recipe = load_recipe(str(task.path / "recipe.yaml"))
    assert {name: getattr(recipe.model, name) for name in SIZES} == SIZES
    assert recipe.tokenizer.vocab_size == 320 and recipe.training.tokens_per_batch == 270


def texts_of(tokenizer, rows):
    sentences = [[i for i in row if i not in (tokenizer.pad_id, tokenizer.end_id)] for row in rows.tolist()]
    return [text.decode() for text in tokenizer.detokenize(tf.ragged.constant(sentences, tf.int32)).numpy()]


def test_warmup_has_one_batch_of_each_pair_of_lengths(task):
    lengths = [(source.shape[1], target.shape[1]) for source, target, _ in task.warmup_batches()]
    assert len(lengths) == len(set(lengths))
    assert set(lengths) == {(source.shape[1], target.shape[1]) for source, target, _ in task.batches}


def test_stock_model_has_as_many_parameters_as_transformer():
    transformer = build_transformer(TransformerConfig(source_vocab_size=50, target_vocab_size=50, **SIZES))
    stock = stock_keras.build_stock_transformer(50, 64, **SIZES)
    assert stock.count_params() == transformer.count_params()


def test_stock_loss_is_the_mean_over_real_tokens():
    labels, logits = np.array([[1, 0]]), np.log([[[0.2, 0.5, 0.3], [0.9, 0.05, 0.05]]]).astype("float32")
    # The smoothed labels: 0.1 divided among the three tokens, and 0.9 for the label.
    expected = -(0.9 * np.log(0.5) + 0.1 / 3 * np.log(0.2 * 0.5 * 0.3))
    assert float(stock_keras.smoothed_crossentropy(0.1)(labels, logits)) == pytest.approx(expected, rel=1e-5)


def test_matrix_products_of_a_small_model_equal_a_count_by_hand():
    sizes = dict(num_layers=1, d_model=4, d_ff=6, num_heads=2, dropout=0.1)
    products = matrix_products.forward_products(1, 2, 3, 3, 5, sizes)
    encoder = 2 * 4 * 12 + 2 * (2 * 2 * 2) * 2 + 2 * 4 * 4 + 2 * (2 * 4 * 6)
    decoder = 3 * 4 * 12 + 2 * (3 * 2 * 3) * 2 + 3 * 4 * 4
    decoder += 3 * 4 * 4 + 2 * 4 * 8 + 2 * (3 * 2 * 2) * 2 + 3 * 4 * 4 + 2 * (3 * 4 * 6)
    logits = 3 * 4 * 5
    assert matrix_products.count_operations(products) == 6 * (encoder + decoder + logits)
    # Each product is computed three times. With twice the layers, all but the logits are computed twice as often.
    assert len(matrix_products.make_operations(products, "float32")) == 3 * len(products)
    twice = matrix_products.forward_products(1, 2, 3, 3, 5, {**sizes, "num_layers": 2})
    assert len(matrix_products.make_operations(twice, "float32")) == 3 * (2 * len(products) - 1)
    for operation in matrix_products.make_operations(products, "float32"):
        operation()
    assert matrix_products.split_evenly(7, 2) == [3, 4]


LOG = """\
320 tokens, 7,123 parameters, 12 steps
step 170: loss 5.001, validation loss 4.951, perplexity 141.33, accuracy 21.1%, 930 target tokens/s
step 1,340: loss 3.214, validation loss 2.951, BLEU 3.1, perplexity 12.30, 45,230.5 target tokens/s, 1.2 GB
"""


def test_speed_of_the_command_is_that_of_the_step():
    assert train_command.reported_speed(LOG, 170) == 930
    assert train_command.reported_speed(LOG, 1340) == 45230.5
    assert train_command.reported_speed(LOG.replace("1,340", "1340"), 1340) == 45230.5
    assert train_command.reported_speed(LOG, 340) is None
    assert train_command.reported_speed("step 340: loss 3.214\n12 target tokens/s", 340) is None


def run_train_command(task, tmp_path, monkeypatch, code):
    """Runs the contender with a Python interpreter that runs the code regardless of its arguments."""
    interpreter = tmp_path / "python"
    interpreter.write_text(f"#!{PYTHON}\nimport sys\n{code}\n")
    interpreter.chmod(0o755)
    monkeypatch.setattr(sys, "argv", ["train_command", str(task.path)])
    monkeypatch.setattr(sys, "executable", str(interpreter))
    train_command.main()


def test_train_command_reports_the_speed_of_the_second_epoch(task, tmp_path, monkeypatch, capsys):
    steps = task.facts["steps"]
    arguments = f"assert sys.argv[-4:] == ['--set', 'training.steps={2 * steps}', '--set', "
    arguments += f"'training.validate_every={steps}'], sys.argv"
    lines = ["7,123 parameters, 12 steps", f"step {steps}: 50 target tokens/s", f"step {2 * steps}: 80 target tokens/s"]
    run_train_command(task, tmp_path, monkeypatch, f"{arguments}\nsys.stderr.write({chr(10).join(lines)!r})")
    report = json.loads(capsys.readouterr().out)
    assert report["value"] == pytest.approx(80)
    assert report["seconds"] == task.facts["target_tokens"] / 80
    assert report["log"] == lines[:1] and "keras" in report["versions"]
    message = f"did not report its target tokens/s at step {2 * steps}, "
    with pytest.raises(SystemExit, match=message):
        run_train_command(task, tmp_path, monkeypatch, f"sys.stderr.write({lines[1]!r})")
    with pytest.raises(SystemExit, match="^no such thing$"):
        run_train_command(task, tmp_path, monkeypatch, "print('step', file=sys.stderr); sys.exit('no such thing')")


def run_python(code):
    process = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return process.stdout.split("\n")


def test_isa_and_cores_hold_for_all_processes_that_are_started():
    first = min(os.sched_getaffinity(0))
    printed = run_python(
        "import sys\n"
        "from benchmarks.comparison import make_parser, parse_options\n"
        "from benchmarks.machine import machine, restrictions\n"
        "from benchmarks.processes import run\n"
        "sys.argv = ['x', '--json', 'x', '--isa', 'avx2', '--cores', '1']\n"
        "parse_options(make_parser('x', None))\n"
        "print(restrictions(), machine()['isa'], machine()['cores'], sep='; ')\n"
        "code = 'import os; print(os.sched_getaffinity(0), *map(os.environ.get, %r))'\n"
        f"print(run([sys.executable, '-c', code % {list(machine.AVX2_ENVIRONMENT)}]))"
    )
    assert printed[:2] == ["AVX2, 1 core; AVX2; 1", f"{{{first}}} AVX2 0 AVX2 avx2 AVX2"]


def test_wrong_options_are_one_error(monkeypatch, capsys):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5})
    assert machine.restrictions() == "2 cores" and machine.machine()["isa"] is None
    for cores in (0, 3, -1):
        monkeypatch.setattr(sys, "argv", ["x", "--json", "x", f"--cores={cores}"])
        with pytest.raises(SystemExit):
            parse_options(make_parser("x", None))
        expected = "--cores must be from 1 to 2, the number of cores that this process may use; received --cores="
        assert capsys.readouterr().err.splitlines()[-1].endswith(f"error: {expected}{cores}")
    monkeypatch.setattr(sys, "argv", ["x", "--json", "x", "--repeats=0"])
    with pytest.raises(SystemExit):
        parse_options(make_parser("x", None))
    assert capsys.readouterr().err.endswith("error: --repeats must be positive; received --repeats=0\n")
    restricted = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda process, cores: restricted.append((process, cores)))
    machine.restrict(None, 1)
    assert restricted == [(0, [3])]


def test_training_in_bfloat16_is_skipped_with_avx2(monkeypatch):
    for name, value in machine.AVX2_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    # A module that is not there is not run.
    for run_once in training.contenders("nowhere", "bfloat16", None).values():
        with pytest.raises(RunFailed, match="^skipped: "):
            run_once()
    assert machine.restrictions().startswith("AVX2, ")
    # All variables are needed.
    monkeypatch.delenv("CT2_FORCE_CPU_ISA")
    assert not machine.is_limited_to_avx2()


def test_peak_memory_is_that_of_the_command():
    # Memory of this process, which must not be counted.
    here = np.ones(20 * 2**20)
    code = "import sys; held = bytearray(b'x') * (100 * 2**20); print('held', file=sys.stderr)"
    measured = run_for_report([sys.executable, "-m", "benchmarks.peak_memory", sys.executable, "-c", code])
    assert 100 <= measured["value"] < 150 < here.nbytes / 2**20
    assert [line for _, line in measured["said"]] == ["held"]
    assert 0 <= measured["cpu_seconds"][0] <= measured["seconds"] + 0.01


def test_generated_lines_depend_on_number_and_seed(tmp_path):
    lines = write_lines(tmp_path / "a", 3000, seed=1).read_text().splitlines()
    assert len(lines) == 3000 and {len(line.split()) for line in lines} == set(range(4, 21))
    assert write_lines(tmp_path / "b", 3000, seed=1).read_text().splitlines() == lines
    counts = collections.Counter(word for line in lines for word in line.split()).most_common(2)
    # Zipf's law: the second word is half as frequent as the first.
    assert counts[0][1] / counts[1][1] == pytest.approx(2, rel=0.15)


def test_shards_hold_the_lines_in_compressed_files(tmp_path):
    lines = write_lines(tmp_path / "all", 250, seed=1).read_text().splitlines()
    pattern = write_shards(tmp_path, "en", 250, 100, seed=1)
    shards = shards_of(pattern)
    assert [key.partition(".")[0] for key in shards] == ["000", "001", "002"]
    assert [path.rpartition(".")[2] for path in shards.values()] == ["gz", "zst", "gz"]
    assert [line for path in shards.values() for line in read_lines(path)] == lines


def test_the_speed_after_the_first_minute_is_read_from_what_training_says():
    said = [(30.0 * number, f"training: {500 * number:,} of 9,000 steps (5%), loss 9.4") for number in range(6)]
    said = [(0.0, "one pass over the text takes 125 steps"), *said, (200.0, "step 9,000: loss 8.5")]
    report = {"said": said, "cpu_seconds": [second / 2 for second, _ in said]}
    # From the second 90 to the second 150.
    assert speed(report) == pytest.approx({"steps_per_second": 1000 / 60, "steps_per_cpu_second": 1000 / 30})
    assert speed({"said": said[:3], "cpu_seconds": [0, 0, 2]})["steps_per_second"] is None


def test_text_comes_from_a_directory_or_is_generated(tmp_path):
    for stem in text.FILE_NAMES.values():
        text.write_pairs(SentencePairs([f"{stem} one", "two"], ["eins", f"{stem} zwei"], ""), tmp_path / stem)
    assert text.sentence_pairs(tmp_path, "valid").source == ["val one", "two"]
    assert text.sentence_pairs(tmp_path, "test", limit=1).target == ["eins"]
    splits = [text.sentence_pairs(None, split) for split in text.GENERATED_SIZES]
    assert [len(split) for split in splits] == list(text.GENERATED_SIZES.values())
    assert len(set().union(*(split.source for split in splits))) == sum(text.GENERATED_SIZES.values())
    assert vocab_size_for(str(tmp_path)) == 8000


def test_training_command_prepares_measures_and_writes(tmp_path, monkeypatch, capsys):
    def contenders(path, precision, opennmt):
        speeds = {"float32": (9, 3), "bfloat16": (8, 4)}[precision]
        return dict(zip((training.TRAIN_COMMAND, "other"), (scripted(speed) for speed in speeds)))

    monkeypatch.setattr(training, "contenders", contenders)
    path = tmp_path / "training.json"
    arguments = ["--pairs", "1500", "--repeats", "1", "--json", str(path)]
    monkeypatch.setattr(sys, "argv", ["training", *arguments])
    training.main()
    printed = capsys.readouterr().out
    assert "1,500 sentence pairs" in printed and "each in its best precision" in printed
    written = json.loads(path.read_text())
    ratios = [comparison["contenders"][1]["ratio"] for comparison in written["comparisons"]]
    assert ratios == [3, 2, 9 / 4] and written["settings"]["vocab_size"] == 2000
    monkeypatch.setattr(sys, "argv", ["training", *arguments, "--only", "nobody"])
    with pytest.raises(SystemExit):
        training.main()
