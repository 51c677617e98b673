"""Training as a user runs it: devices agree, a killed run goes on, checkpoints are what they say."""

import csv
import dataclasses
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from keras_transformer import Translator
from keras_transformer.rules import ConfigError
from keras_transformer.model_dir import ModelDir
from keras_transformer.training import trainer
from keras_transformer.training.average import average_checkpoints
from keras_transformer.training.corpus import SentencePairs
from keras_transformer.training.devices import mirrored_strategy
from keras_transformer.training.embedded_corpus import generate
from keras_transformer.training.evaluate import evaluate
from keras_transformer.training.recipe import load_recipe, recipe_names
from keras_transformer.training.trainer import intervals, learning_rate, train

PAIRS = generate(400, seed=3)
TINY = [
    "model.d_model=32",
    "model.d_ff=64",
    "model.num_heads=2",
    "model.num_layers=1",
    "tokenizer.vocab_size=500",
    "training.tokens_per_batch=500",
    "training.num_buckets=3",
    "training.precision=float32",
]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    directory = tmp_path_factory.mktemp("text")
    for name, pairs in (("train", PAIRS[:360]), ("valid", PAIRS[360:])):
        for side, language in enumerate(("en", "de")):
            lines = "".join(pair[side] + "\n" for pair in pairs)
            (directory / f"{name}.{language}").write_text(lines, encoding="utf-8")
    return directory


def command(files, model_dir, *overrides, devices=None):
    sets = [part for override in (*TINY, *overrides) for part in ("--set", override)]
    return [
        *(sys.executable, "-m", "keras_transformer", "train", "--config", "demo"),
        *("--source", files / "train.en", "--target", files / "train.de"),
        *("--valid-source", files / "valid.en", "--valid-target", files / "valid.de"),
        *("--model-dir", model_dir, *sets),
        *(("--devices", str(devices)) if devices else ()),
    ]


def pairs(begin, end):
    return SentencePairs(*map(list, zip(*PAIRS[begin:end])), name=f"{begin} to {end}")


def train_here(model_dir, *overrides):
    recipe = load_recipe("demo", [*TINY, *overrides])
    train(recipe, pairs(0, 360), pairs(360, 400), model_dir, mirrored_strategy())
    return ModelDir(model_dir)


def logged(model_dir, column):
    with open(model_dir.log_path, newline="") as file:
        return [float(row[column]) for row in csv.DictReader(file)]


def test_two_devices_train_to_the_losses_of_one(files, tmp_path):
    overrides = (
        *("training.steps=20", "training.validate_every=1", "model.dropout=0.0"),
        *("training.clip_norm=0.5", "training.average_last=0"),
        *("training.warmup_steps=20", "training.peak_learning_rate=0.01"),
    )
    for devices in (1, 2):
        result = subprocess.run(
            command(files, tmp_path / str(devices), *overrides, devices=devices),
            capture_output=True,
            text=True,
        )
        assert result.returncode == 0, result.stderr
        assert f"{devices} device(s)" in result.stderr
        assert result.stdout == ""
    one, two = (logged(ModelDir(tmp_path / name), "loss") for name in "12")
    assert len(one) == len(two) == 20
    np.testing.assert_allclose(two, one, rtol=1e-4)
    assert one[-1] < one[0]
    unclipped = train_here(tmp_path / "unclipped", *overrides, "training.clip_norm=null")
    # The norm was low enough to matter.
    assert abs(logged(unclipped, "loss")[-1] - one[-1]) > 1e-3 * one[-1]


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_that_comes_along_loads_by_its_name(name):
    recipe = load_recipe(name, ["training.seed=7"])
    assert recipe.training.seed == 7
    assert recipe.model.target_vocab_size == recipe.tokenizer.vocab_size


def test_the_paper_recipes_have_the_sizes_of_table_3():
    base, big = (load_recipe(f"wmt14-en-de-{name}") for name in ("base", "big"))
    sizes = ("num_layers", "d_model", "d_ff", "num_heads", "dropout")
    assert [getattr(base.model, size) for size in sizes] == [6, 512, 2048, 8, 0.1]
    assert [getattr(big.model, size) for size in sizes] == [6, 1024, 4096, 16, 0.3]
    assert (base.training.steps, big.training.steps) == (100_000, 300_000)
    assert (base.training.average_last, big.training.average_last) == (5, 20)


def test_intervals_worked_out_by_hand():
    assert intervals(0, 12, 4) == [(4, 0, 3)]
    assert intervals(8, 12, 4) == [(4, 2, 3)]
    assert intervals(0, 3, 4) == [(3, 0, 1)]
    # A run that ended at 5 goes on: to 8, then at 12 and 16, then to 18.
    assert intervals(5, 18, 4) == [(3, 1, 2), (4, 2, 4), (2, 4, 5)]
    assert intervals(5, 7, 4) == [(2, 1, 2)]
    assert intervals(18, 18, 4) == []


def test_a_killed_run_goes_on_from_its_last_checkpoint(files, tmp_path):
    overrides = ("training.steps=60", "training.validate_every=20", "training.average_last=2")
    arguments = command(files, tmp_path / "model", *overrides)
    model_dir = ModelDir(tmp_path / "model")
    running = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 240
    while not model_dir.training_state_path.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    # The steps of the second interval have begun; nothing of them has been saved.
    time.sleep(0.05)
    running.send_signal(signal.SIGKILL)
    assert running.wait() == -signal.SIGKILL
    saved = [path.name for path in model_dir.checkpoints()]
    assert saved and saved[-1] < "step-00000060"

    again = subprocess.run(arguments, capture_output=True, text=True)
    assert again.returncode == 0, again.stderr
    assert "going on after step 20" in again.stderr or "going on after step 40" in again.stderr
    assert "learning a vocabulary" not in again.stderr
    assert model_dir.checkpoints()[-1].name == "step-00000060.weights.h5"
    assert not list(model_dir.path.rglob(".writing-*-config.yaml"))
    # The killed run left its token ids behind; this one took them away, and its own.
    assert not list(model_dir.path.glob(".token-ids-*"))
    translations = Translator.load(model_dir.path)([PAIRS[0][0], ""])
    assert isinstance(translations[0], str) and translations[1] == ""


def test_text_that_cannot_be_trained_on_leaves_no_folder(tmp_path):
    with pytest.raises(ValueError, match="no sentence pair is left of the 360"):
        train_here(tmp_path / "model", "model.max_length=2")
    assert not (tmp_path / "model").exists()


def test_a_resumed_run_ends_with_the_weights_of_an_uninterrupted_one(tmp_path):
    overrides = ("training.validate_every=3", "training.average_last=0")
    straight = train_here(tmp_path / "straight", *overrides, "training.steps=8")
    train_here(tmp_path / "resumed", *overrides, "training.steps=3")
    resumed = train_here(tmp_path / "resumed", *overrides, "training.steps=8")
    last = [directory.checkpoints()[-1] for directory in (straight, resumed)]
    assert [path.name for path in last] == ["step-00000008.weights.h5"] * 2
    model = straight.load_model()
    weights = []
    for path in last:
        model.load_weights(path)
        weights.append([weight.copy() for weight in model.get_weights()])
    for one, other in zip(*weights):
        np.testing.assert_array_equal(one, other)
    assert logged(resumed, "loss") == logged(straight, "loss")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train_here(
        tmp_path_factory.mktemp("trained") / "model",
        *("training.steps=10", "training.validate_every=2", "training.keep_checkpoints=3"),
        "training.average_last=2",
    )


def test_a_batch_in_parts_trains_to_the_losses_of_a_whole_one(tmp_path, monkeypatch):
    overrides = (
        *("training.steps=6", "training.validate_every=1", "training.average_last=0"),
        *("training.clip_norm=0.5", "model.dropout=0.0", "training.consistency=3"),
    )

    def losses(accumulate_steps, parts_at_once):
        monkeypatch.setattr(trainer, "parts_at_once", lambda strategy: parts_at_once)
        name = f"{accumulate_steps}-{parts_at_once}"
        trained = train_here(
            tmp_path / name, *overrides, f"training.accumulate_steps={accumulate_steps}"
        )
        return [logged(trained, column) for column in ("loss", "val_loss", "val_perplexity", "val_accuracy")]

    whole = losses(1, 1)
    # Fifty are more than a batch has rows.
    for parts in ((3, 1), (1, 3), (2, 2), (1, 50)):
        np.testing.assert_allclose(losses(*parts), whole, rtol=1e-5)


def test_the_cores_of_a_cpu_are_shared_among_the_parts_of_a_large_batch():
    code = (
        "import os; os.cpu_count = lambda: 8\n"
        "from keras_transformer.cores import share_cores\n"
        "from keras_transformer.training import devices\n"
        "import tensorflow as tf, sys\n"
        "share_cores(int(sys.argv[1]))\n"
        "strategy = devices.mirrored_strategy(2)\n"
        "print(devices.parts_at_once(strategy), tf.config.threading.get_intra_op_parallelism_threads())"
    )

    def shared(parts):
        run = subprocess.run([sys.executable, "-c", code, str(parts)], capture_output=True, text=True)
        return run.stdout.split()

    # Each of two devices cuts its rows in two, and so two of eight cores are for each part.
    assert shared(4) == ["2", "2"]
    assert shared(100) == ["4", "1"]
    # TensorFlow's own way: all of them for every operation.
    assert shared(1) == ["1", "0"]


def test_one_program_trains_on_all_shapes_and_is_made_once(tmp_path, capsys):
    train_here(tmp_path / "model", "training.steps=40", "training.validate_every=10", "training.num_buckets=6")
    said = capsys.readouterr().err
    assert "in 6 shapes" in said
    assert "1 training program(s) for 6 shapes" in said.splitlines()


def test_two_passes_differ_by_their_dropout_alone(tmp_path):
    overrides = ("training.steps=4", "training.validate_every=1", "training.average_last=0")
    losses = {
        (dropout, consistency): logged(
            train_here(
                tmp_path / f"{dropout}-{consistency}",
                *(*overrides, f"model.dropout={dropout}", f"training.consistency={consistency}"),
            ),
            "loss",
        )
        for dropout, consistency in ((0.0, 0.0), (0.0, 5.0), (0.3, 5.0))
    }
    np.testing.assert_allclose(losses[0.0, 5.0], losses[0.0, 0.0], rtol=1e-5)
    assert losses[0.3, 5.0][0] > losses[0.0, 0.0][0] + 0.1


@pytest.fixture(scope="module")
def ranked_by_bleu(tmp_path_factory):
    return train_here(
        tmp_path_factory.mktemp("ranked") / "model",
        *("training.steps=40", "training.validate_every=5", "training.keep_checkpoints=1"),
        *("training.validate_by=bleu", "training.average_last=0", "training.average_best=2"),
        *("training.patience=3", "training.warmup_steps=5", "training.peak_learning_rate=0.01"),
    )


def test_the_best_checkpoints_stay_and_are_averaged(ranked_by_bleu):
    bleu = dict(zip(logged(ranked_by_bleu, "step"), logged(ranked_by_bleu, "val_bleu")))
    best = sorted(bleu, key=bleu.get, reverse=True)[:2]
    standing = [int(path.name[5:13]) for path in ranked_by_bleu.checkpoints()]
    assert standing == sorted({*best, max(bleu)})
    model = ranked_by_bleu.load_model()
    average = [weight.copy() for weight in model.get_weights()]
    total = [np.zeros_like(weight) for weight in average]
    for step in best:
        model.load_weights(ranked_by_bleu.checkpoint_path(int(step)))
        total = [sum_ + weight / 2 for sum_, weight in zip(total, model.get_weights())]
    for mean, weight in zip(total, average):
        np.testing.assert_allclose(weight, mean, rtol=0, atol=1e-7)


def test_the_logged_bleu_is_that_of_the_greedy_translations(ranked_by_bleu):
    config, tokenizer_config, decoding, _ = ranked_by_bleu.read_config()
    translator = Translator.load(ranked_by_bleu.path, dataclasses.replace(decoding, beam_size=1))
    for path, step in zip(ranked_by_bleu.checkpoints(), (int(p.name[5:13]) for p in ranked_by_bleu.checkpoints())):
        translator.model.load_weights(path)
        row = logged(ranked_by_bleu, "step").index(step)
        expected = evaluate(translator, pairs(360, 400))["bleu"]["score"]
        assert logged(ranked_by_bleu, "val_bleu")[row] == pytest.approx(expected)


def test_training_ends_after_so_many_validations_without_a_better_one(tmp_path, capsys):
    overrides = (
        *("training.steps=40", "training.validate_every=2", "training.average_last=0"),
        # So high a rate that nothing gets better for long.
        *("training.patience=2", "training.warmup_steps=1", "training.peak_learning_rate=3.0"),
    )
    model_dir = train_here(tmp_path / "model", *overrides)
    perplexities = logged(model_dir, "val_perplexity")
    best = int(np.argmin(perplexities))
    assert len(perplexities) == best + 1 + 2 < 20
    assert "2 validations without a better one" in capsys.readouterr().err
    before = model_dir.training_state_path.read_bytes()
    train_here(tmp_path / "model", *overrides)
    assert "training ended already" in capsys.readouterr().err
    assert model_dir.training_state_path.read_bytes() == before


def test_the_peak_learning_rate_is_reached_when_the_warmup_ends():
    changes = ["training.peak_learning_rate=0.004", "training.warmup_steps=20"]
    schedule = learning_rate(128, load_recipe("demo", changes).training)
    rates = [float(schedule(step)) for step in range(100)]
    assert max(rates) == pytest.approx(0.004) and int(np.argmax(rates)) == 19
    assert rates[79] == pytest.approx(0.004 * (20 / 80) ** 0.5)
    cosine = learning_rate(
        128, load_recipe("demo", [*changes, "training.decay=cosine", "training.steps=100"]).training
    )
    rates = [float(cosine(step)) for step in range(101)]
    assert max(rates) == pytest.approx(0.004) and int(np.argmax(rates)) == 20
    assert rates[10] == pytest.approx(0.002) and rates[60] == pytest.approx(0.002)
    assert rates[100] == pytest.approx(0.0, abs=1e-9)
    paper = learning_rate(512, load_recipe("wmt14-en-de-base").training)
    assert float(paper(3999)) == pytest.approx(512**-0.5 * 4000**-0.5)


def test_the_last_checkpoints_stay(trained):
    names = [path.name for path in trained.checkpoints()]
    assert names == [f"step-{step:08d}.weights.h5" for step in (6, 8, 10)]


def test_the_average_is_the_mean_of_the_last_checkpoints_and_translates(trained):
    assert trained.weights_path() == trained.average_path
    model = trained.load_model()
    average = [weight.copy() for weight in model.get_weights()]
    total = [np.zeros_like(weight) for weight in average]
    for path in trained.checkpoints()[-2:]:
        model.load_weights(path)
        total = [sum_ + weight / 2 for sum_, weight in zip(total, model.get_weights())]
    for mean, weight in zip(total, average):
        np.testing.assert_allclose(weight, mean, rtol=0, atol=1e-7)


def test_the_best_weights_are_those_of_the_lowest_validation_perplexity(trained):
    perplexities = logged(trained, "val_perplexity")
    best = 2 * (1 + int(np.argmin(perplexities)))
    assert best in (6, 8, 10)  # whose checkpoints still stand
    model = trained.load_model()
    model.load_weights(trained.checkpoint_path(best))
    expected = [weight.copy() for weight in model.get_weights()]
    model.load_weights(trained.best_path)
    for weight, other in zip(model.get_weights(), expected):
        np.testing.assert_array_equal(weight, other)


def test_a_finished_run_started_again_only_averages(trained, capsys):
    before = trained.training_state_path.read_bytes()
    train_here(
        trained.path,
        *("training.steps=10", "training.validate_every=2", "training.keep_checkpoints=3"),
        "training.average_last=2",
    )
    assert "training ended already, after step 10" in capsys.readouterr().err
    assert trained.training_state_path.read_bytes() == before


def test_another_model_is_not_trained_into_the_directory(trained):
    with pytest.raises(ConfigError, match="model.d_model=32; received 64"):
        train_here(trained.path, "model.d_model=64")
    with pytest.raises(ConfigError, match="training.validate_by=perplexity; received bleu"):
        train_here(trained.path, "training.validate_by=bleu")


def test_average_needs_checkpoints_and_a_positive_number(trained, tmp_path):
    with pytest.raises(ConfigError, match="last must be positive; received 0"):
        average_checkpoints(trained, last=0)
    config = trained.read_config()
    empty = ModelDir(tmp_path)
    empty.write_config(*config[:3], load_recipe("demo", TINY).training)
    with pytest.raises(ConfigError, match="no checkpoints to average"):
        average_checkpoints(empty, last=1)


def test_damaged_weights_are_named(trained, tmp_path):
    broken = ModelDir(shutil.copytree(trained.path, tmp_path / "broken"))
    broken.average_path.write_bytes(broken.average_path.read_bytes()[:1000])
    with pytest.raises(ConfigError, match="average.weights.h5"):
        broken.load_model()


def test_evaluate_gives_sacrebleu_figures_with_signatures():
    text = pairs(0, 40)
    perfect = evaluate(lambda sources: list(text.target), text)
    assert perfect["bleu"]["score"] == pytest.approx(100) and perfect["chrf"]["score"] == pytest.approx(100)
    assert "case:mixed" in perfect["bleu"]["signature"] and "tok:13a" in perfect["bleu"]["signature"]
    lower = evaluate(lambda sources: [target.lower() for target in text.target], text)
    assert lower["bleu"]["score"] < 90
