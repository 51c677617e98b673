"""Which weights are kept and translate: ranks of checkpoints, and the average against the best."""

import csv
import itertools
import shutil

import keras
import numpy as np
import pytest
from test_training import PAIRS, TEN_STEPS, TINY, load_model, pairs, train_here, weights_of

from keras_transformer.commands.main import main
from keras_transformer.model_dir import ModelDir
from keras_transformer.model_dir.directory import save_weights
from keras_transformer.training.recipe import load_recipe
from keras_transformer.training.run.devices import make_strategy
from keras_transformer.training.run.ranking import doubt_about_bleu, is_better, score_of
from keras_transformer.training.run.selection import average_if_better
from keras_transformer.training.run.state import average_checkpoints
from keras_transformer.training.run.trainer import train
from keras_transformer.training.text.corpus import SentencePairs


def test_bleu_with_few_4grams_does_not_rank():
    assert doubt_about_bleu(249, 249) == "249 4-grams in all references"
    assert doubt_about_bleu(0, 0) == "0 4-grams in all references"
    assert doubt_about_bleu(250, 24) == "24 matching 4-grams"
    assert doubt_about_bleu(250, 1) == "1 matching 4-gram"
    assert doubt_about_bleu(250, 25) == ""


def test_perplexity_ranks_where_bleu_does_not_and_between_equal_bleu():
    # From the worst to the best: perplexity, BLEU, and why BLEU does not rank.
    ordered = [
        (1e6, 4.0, "0 matching 4-grams"),
        (900.0, 0.5, "3 matching 4-grams"),
        (50.0, 0.0, ""),
        (80.0, 20.0, ""),
        (70.0, 20.0, ""),
    ]
    ranks = [(score_of(*each), each[0]) for each in ordered]
    for worse, better in itertools.combinations(ranks, 2):
        assert is_better(*better, *worse) and not is_better(*worse, *better)
    assert not is_better(*ranks[0], *ranks[0])


@pytest.fixture(scope="module")
def phrases(tmp_path_factory):
    """A run ranked by BLEU on a validation text whose targets have one to three words."""
    words = [f"{chr(97 + i)}{chr(97 + j)}" for i in range(8) for j in range(8)]
    sources = [" ".join(words[(i * k) % 64] for k in range(1, 2 + i % 3)) for i in range(300)]
    text = SentencePairs(sources, sources, name="phrases")
    valid = SentencePairs(sources[:40], sources[:40], name="phrases")
    overrides = [
        *("training.steps=12", "training.validate_every=4", "training.validate_by=bleu"),
        *("training.average_last=0", "training.keep_checkpoints=3", "tokenizer.vocab_size=300"),
        *("training.warmup_steps=2", "training.peak_learning_rate=0.01"),
    ]
    model_dir = tmp_path_factory.mktemp("phrases") / "model"
    keras.utils.set_random_seed(1)
    train(load_recipe("demo", [*TINY, *overrides]), text, valid, model_dir, make_strategy())
    return ModelDir(model_dir)


def test_where_bleu_finds_no_4grams_the_checkpoint_with_the_lowest_perplexity_is_kept(phrases):
    with open(phrases.log_path, newline="") as file:
        rows = list(csv.DictReader(file))
    best = min(rows, key=lambda row: float(row["val_perplexity"]))
    assert int(best["step"]) == 12
    model = load_model(phrases)
    for weight, other in zip(
        *(weights_of(model, path) for path in (phrases.checkpoint_path(12), phrases.best_path))
    ):
        np.testing.assert_array_equal(weight, other)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return train_here(tmp_path_factory.mktemp("trained") / "model", *TEN_STEPS)


@pytest.mark.slow
def test_validations_on_another_text_no_longer_count(trained, tmp_path, capsys):
    copy = ModelDir(shutil.copytree(trained.path, tmp_path / "copy"))
    config = load_recipe("demo", [*TINY, *TEN_STEPS, "training.steps=12"])
    # On this text no weights are as good as the best before.
    hard = SentencePairs(["0 1 2"] * 9, ["äöüß ~ # % &"] * 9, name="hard")
    options = dict(allow_changed_text=True)
    train(config, pairs(0, 360), hard, copy, make_strategy(), **options)
    assert "earlier validations no longer count" in capsys.readouterr().err
    assert copy.best_path.read_bytes() == copy.checkpoint_path(12).read_bytes()


@pytest.fixture
def copy(trained, tmp_path):
    return ModelDir(shutil.copytree(trained.path, tmp_path / "copy"))


def spoil(model_dir, *paths):
    """Replaces weights by others that predict nothing."""
    model = load_model(model_dir)
    random = np.random.default_rng(1)
    model.set_weights([9 * random.normal(size=weight.shape) for weight in model.get_weights()])
    for path in paths:
        save_weights(model, path)


def test_the_best_checkpoint_translates_if_the_average_is_worse(copy, capsys):
    average_checkpoints(copy, last=2)
    assert copy.weights_path() == copy.average_path
    spoil(copy, copy.checkpoint_path(8))
    averaged = average_if_better(copy, pairs(360, 400), last=2)
    assert averaged == [copy.checkpoint_path(8), copy.checkpoint_path(10)]
    assert copy.weights_path() == copy.best_path
    assert not list(copy.path.glob("average*"))
    log = capsys.readouterr().err
    assert "best.weights.h5 translates: the best checkpoint has perplexity " in log
    assert "better than the average of the last 2 checkpoints (perplexity " in log


def test_the_average_translates_if_it_is_better_or_the_best_is_damaged(copy, capsys):
    spoil(copy, copy.best_path)
    average_if_better(copy, pairs(360, 400), last=1)
    assert copy.weights_path() == copy.average_path
    log = capsys.readouterr().err
    assert "average.weights.h5 translates: the last checkpoint has perplexity " in log
    assert ", the best checkpoint perplexity " in log
    copy.best_path.write_bytes(b"damaged")
    average_if_better(copy, pairs(360, 400), last=1)
    assert copy.weights_path() == copy.average_path
    assert "it is not compared with the average" in capsys.readouterr().err


def test_the_measure_of_the_best_weights_is_that_of_their_validation(trained, copy, capsys):
    with open(trained.log_path, newline="") as file:
        best = min(float(row["val_perplexity"]) for row in csv.DictReader(file))
    spoil(copy, copy.checkpoint_path(10))
    average_if_better(copy, pairs(360, 400), last=2)
    assert f"the best checkpoint has perplexity {best:.2f}," in capsys.readouterr().err


@pytest.mark.slow
def test_the_command_compares_if_it_is_given_a_validation_text(copy, tmp_path, capsys):
    for name, column in (("val.en", 0), ("val.de", 1)):
        lines = "".join(f"{pair[column]}\n" for pair in PAIRS[360:])
        (tmp_path / name).write_text(lines, encoding="utf-8")
    spoil(copy, copy.checkpoint_path(8))
    text = ["--valid-source", tmp_path / "val.en", "--valid-target", tmp_path / "val.de"]
    command = ["average", "--model-dir", copy.path, "--last", "2"]
    assert main([*map(str, [*command, *text])]) in (0, None)
    assert copy.weights_path() == copy.best_path
    captured = capsys.readouterr()
    assert captured.out == "averaged step-00000008.weights.h5, step-00000010.weights.h5\n"
    assert "best.weights.h5 translates" in captured.err
    # Without it, the average is written as before.
    assert main([*map(str, command)]) in (0, None)
    assert copy.weights_path() == copy.average_path


@pytest.mark.slow
def test_a_run_that_went_on_chooses_as_one_that_was_not_stopped(trained, copy):
    copy.average_path.unlink(missing_ok=True)
    train_here(copy.path, *TEN_STEPS)
    assert copy.weights_path().name == trained.weights_path().name
