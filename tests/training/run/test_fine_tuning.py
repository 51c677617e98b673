"""`train --init-from`: training starts from the weights of a model, on a different text."""

import shutil

import keras
import numpy as np
import pytest
import sentencepiece
from test_training import load_model, pairs, train_here

from keras_transformer.commands.main import main
from keras_transformer.errors import ConfigError
from keras_transformer.model_dir import ModelDir
from keras_transformer.training.recipe import load_recipe
from keras_transformer.training.run import trainer
from keras_transformer.training.run.devices import make_strategy
from keras_transformer.training.run.trainer import train
from keras_transformer.training.text.corpus import SentencePairs

GREEK = SentencePairs(
    [f"Ο σκύλος {i} τρέχει." for i in range(20)], ["Der Hund."] * 20, name="Greek"
)
AS_IN_THE_MODEL = "as in the --init-from model, or be left out; received "
BRIEF = (
    "training.steps=6",
    "training.validate_every=3",
    "training.warmup_steps=2",
    "training.num_buckets=2",
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A briefly trained model with its own depths and decoding settings."""
    model_dir = tmp_path_factory.mktemp("trained") / "model"
    overrides = ("training.steps=30", "training.validate_every=30", "training.warmup_steps=10")
    return train_here(model_dir, *overrides, "model.num_encoder_layers=2", "decoding.beam_size=3")


def fine_tune(trained, model_dir, *overrides, train_pairs=None):
    config = load_recipe("fine-tune", ["training.precision=float32", *BRIEF, *overrides], trained)
    keras.utils.set_random_seed(config.training.seed)
    train(
        config,
        train_pairs or pairs(100, 200),
        pairs(360, 400),
        model_dir,
        make_strategy(),
        init_from=trained,
    )
    return ModelDir(model_dir)


def weights_of(model_dir):
    return {weight.path: weight.numpy() for weight in load_model(model_dir).weights}


@pytest.mark.slow
def test_the_first_weights_and_the_tokenizer_are_those_of_the_model(
    trained, tmp_path, capsys, monkeypatch
):
    runs = []
    monkeypatch.setattr(trainer, "run_loop", lambda run, *arguments: runs.append(run))
    tuned = fine_tune(trained, tmp_path / "tuned")
    expected = load_model(trained).get_weights()
    for array, before in zip(runs[0].model.transformer.get_weights(), expected, strict=True):
        np.testing.assert_array_equal(array, before)
    assert (tuned.path / "tokenizer.model").read_bytes() == (
        trained.path / "tokenizer.model"
    ).read_bytes()
    assert (
        f"training starts with the weights of {trained.weights_path()}" in capsys.readouterr().err
    )


def test_the_configuration_is_the_model_s_except_for_the_recipe_s_training(trained):
    config = load_recipe(
        "fine-tune", ["model.attention_dropout=0.2", "decoding.length_penalty=1.1"], trained
    )
    before = trained.read_config()
    assert (config.model.num_encoder_layers, config.model.d_model) == (2, 32)
    assert (config.model.dropout, config.model.attention_dropout) == (0.1, 0.2)
    assert before.model.dropout == 0
    assert (config.decoding.beam_size, config.decoding.length_penalty) == (3, 1.1)
    assert config.tokenizer == before.tokenizer
    assert config.training == load_recipe("fine-tune").training


@pytest.mark.parametrize(
    "override, message",
    [
        ("model.d_model=64", f"model.d_model must be 32, {AS_IN_THE_MODEL}"),
        ("model.preset=tiny", f"model.num_layers must be 1, {AS_IN_THE_MODEL}"),
        ("model.num_decoder_layers=2", f"model.num_decoder_layers must be None, {AS_IN_THE_MODEL}"),
        ("tokenizer.vocab_size=8000", f"tokenizer.vocab_size must be 500, {AS_IN_THE_MODEL}"),
        (
            "model.dropout=2",
            "model.dropout must be at least 0 and below 1; received model.dropout=2",
        ),
        ("model.d_modle=32", "unknown configuration key 'model.d_modle'; did you mean 'd_model'?"),
        ("decoding.beam=5", "unknown configuration key 'decoding.beam'; did you mean 'beam_size'?"),
    ],
)
def test_what_contradicts_the_model_is_named(override, message, trained):
    with pytest.raises(ConfigError) as error:
        load_recipe("fine-tune", ["training.steps=5", override], trained)
    assert str(error.value).startswith(f"--set {override}: {message}") and "\n" not in str(
        error.value
    )


def test_a_recipe_that_contradicts_the_model_is_named(trained):
    with pytest.raises(
        ConfigError, match=f"^multi30k: model.num_layers must be 1, {AS_IN_THE_MODEL}"
    ):
        load_recipe("multi30k", [], trained)
    # Naming the model's own values is no contradiction.
    load_recipe("fine-tune", ["model.d_model=32", "tokenizer.vocab_size=500"], trained)


@pytest.mark.slow
def test_a_tuning_that_was_stopped_goes_on(trained, tmp_path):
    tuned = fine_tune(trained, tmp_path / "tuned")
    # It ends after its first validation.
    fine_tune(trained, tmp_path / "resumed", "training.steps=3")
    resumed = fine_tune(trained, tmp_path / "resumed")
    for array, expected in zip(
        load_model(resumed).get_weights(), load_model(tuned).get_weights(), strict=True
    ):
        np.testing.assert_array_equal(array, expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    "freeze, frozen, learning",
    [
        ("both", {"embedding", "encoder"}, {"decoder"}),
        ("none", set(), {"embedding", "encoder", "decoder"}),
        ("embeddings", {"embedding"}, {"encoder", "decoder"}),
        ("encoder", {"encoder"}, {"embedding", "decoder"}),
    ],
)
def test_frozen_weights_stay_and_all_others_learn(freeze, frozen, learning, trained, tmp_path):
    overrides = ("model.dropout=0.1", "training.ema=0.5", f"training.freeze={freeze}")
    after = weights_of(fine_tune(trained, tmp_path / "tuned", *overrides))
    before = weights_of(trained)
    assert {path.partition("/")[0] for path in before} == frozen | learning
    changed = {path for path, weight in after.items() if not np.array_equal(weight, before[path])}
    assert changed == {path for path in before if path.partition("/")[0] in learning}


@pytest.mark.slow
def test_a_vocabulary_that_does_not_know_the_text_is_reported(
    trained, tmp_path, capsys, monkeypatch
):
    # It is noticed before the first step.
    monkeypatch.setattr(trainer, "run_loop", lambda *arguments: None)
    fine_tune(trained, tmp_path / "tuned", train_pairs=GREEK)
    warnings = [
        line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: ")
    ]
    processor = sentencepiece.SentencePieceProcessor(
        model_file=str(trained.path / "tokenizer.model")
    )
    pieces = [
        piece
        for line in GREEK.source
        for piece in [*processor.encode(" " + line, out_type=str), "</s>"]
    ]
    share = sum(piece.startswith("<0x") for piece in pieces) / len(pieces)
    # Each letter is two bytes.
    assert share > 0.7
    assert warnings == [
        f"warning: training text: {share:.1%} of the source tokens are unknown to the vocabulary "
        f"or spelled in bytes, "
        "as with another script; a model learns little from them"
    ]


def test_weights_without_a_training_are_not_written_over(trained, tmp_path):
    imported = ModelDir(tmp_path / "imported")
    imported.path.mkdir()
    for path in (trained.config_path, trained.best_path, trained.path / "tokenizer.model"):
        shutil.copy(path, imported.path)
    with pytest.raises(ConfigError) as error:
        fine_tune(trained, imported.path)
    assert str(error.value) == (
        f"{imported}: the directory has trained weights, but no training_state.npz to resume "
        f"from. To continue "
        f"from these weights, train in another --model-dir with --init-from {imported}"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "change, message",
    [
        ("none", "--init-from must be another directory than --model-dir; received --init-from="),
        ("no weights", "no trained weights (neither average.weights.h5 nor best.weights.h5)"),
        ("no configuration", "not a model directory (it has no config.yaml)"),
        ("other sizes", "best.weights.h5: these weights do not fit the model in config.yaml"),
        ("no tokenizer", "tokenizer.model: the tokenizer file is missing"),
        ("damaged", "best.weights.h5: the file is damaged"),
    ],
)
def test_each_mistake_with_the_directory_has_its_line(
    change, message, trained, text, tmp_path, capsys
):
    directory = ModelDir(tmp_path / "copy")
    shutil.copytree(trained.path, directory.path)
    shutil.rmtree(directory.checkpoints_path)
    config = directory.read_config()
    if change == "no weights":
        directory.best_path.unlink()
    elif change == "no configuration":
        directory.config_path.unlink()
    elif change == "other sizes":
        sizes = load_recipe("demo", ["model.d_model=16"]).model
        sections = {"model": sizes, "tokenizer": config.tokenizer}
        directory.write_config(type(config)(**sections).with_vocab_sizes(500, 500))
    elif change == "no tokenizer":
        (directory.path / "tokenizer.model").unlink()
    elif change == "damaged":
        directory.best_path.write_bytes(directory.best_path.read_bytes()[:-1])
    pairs_file = text("text.tsv", [f"{i} dogs run.\t{i} Hunde rennen." for i in range(40)])
    model_dir = directory.path if change == "none" else tmp_path / "tuned"
    options = [
        "--config",
        "fine-tune",
        "--init-from",
        str(directory),
        "--model-dir",
        str(model_dir),
    ]
    with pytest.raises(SystemExit) as stopped:
        main(
            ["train", *options, "--pairs", pairs_file, "--valid-pairs", pairs_file, "--set", *BRIEF]
        )
    # What is logged before, such as that the vocabulary lacks some words, stands above it.
    last = capsys.readouterr().err.splitlines()[-1]
    assert (
        stopped.value.code == 1
        and last.startswith("keras-transformer train: error: ")
        and message in last
    )
    assert change == "none" or not model_dir.exists()
