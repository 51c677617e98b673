"""A second start finds the tokens of the first, and trains to the same weights."""

import resource
import shutil

import pytest
from test_training import command, files, pairs, train_here  # noqa: F401
from training_runs import differences, leftovers

from keras_transformer.commands.main import main
from keras_transformer.errors import ConfigError
from keras_transformer.model_dir import ModelDir
from keras_transformer.training.run import trainer

OVERRIDES = (
    *("training.steps=4", "training.validate_every=2", "training.average_last=0"),
    *("training.warmup_steps=2", "training.decay=inverse_sqrt", "model.dropout=0.1"),
)
RANDOM = ("tokenizer.kind=bpe", "training.subword_dropout=0.2", "training.subword_samples=2")
RANDOM += ("data.augment.lower_case=0.3", "data.terms=0.2", "training.guided_alignment=0.1")


@pytest.fixture
def tokenized(monkeypatch):
    """The names of the texts that are tokenized."""
    names = []
    for name in ("encode_training", "encode_validation"):
        encode = getattr(trainer, name)

        def count(*arguments, name=name, encode=encode):
            names.append(name)
            return encode(*arguments)

        monkeypatch.setattr(trainer, name, count)
    return names


def entries(model_dir):
    return sorted(path.name for path in model_dir.tokens_path.iterdir())


def test_a_second_start_does_not_tokenize_again(tmp_path, tokenized, capsys):
    model_dir = train_here(tmp_path / "model", *OVERRIDES, "training.steps=2")
    assert tokenized == ["encode_training", "encode_validation"]
    assert "tokenized before" not in capsys.readouterr().err
    kept = entries(model_dir)
    train_here(model_dir.path, *OVERRIDES, "training.steps=2", "training.tokens_per_batch=400")
    assert len(tokenized) == 2 and entries(model_dir) == kept and leftovers(model_dir.path) == []
    said = capsys.readouterr().err
    for line in (
        f"360 to 400: tokenized before, in {model_dir.tokens_path}/",
        "training text: 360 sentence pairs\n",
        "validation text: 40 sentence pairs\n",
        "training has already ended, after step 2\n",
    ):
        assert line in said


@pytest.mark.slow
def test_a_training_with_the_tokens_of_another_has_the_same_weights(tmp_path, tokenized):
    shared = tmp_path / "shared"
    first, second = (
        train_here(tmp_path / name, *OVERRIDES, *RANDOM, token_cache=shared)
        for name in ("first", "second")
    )
    assert tokenized == ["encode_training", "encode_validation"]
    assert len(list(shared.iterdir())) == 2
    without = train_here(tmp_path / "without", *OVERRIDES, *RANDOM, token_cache=False)
    assert len(tokenized) == 4
    for other in (second, without):
        assert differences(first.path, other.path) == []
        assert leftovers(other.path) == [] and not other.tokens_path.exists()


@pytest.mark.slow
def test_a_resumed_training_uses_its_tokens_and_has_the_same_weights(tmp_path, tokenized):
    whole = train_here(tmp_path / "whole", *OVERRIDES)
    stopped = train_here(tmp_path / "stopped", *OVERRIDES, "training.steps=2")
    assert len(tokenized) == 4
    train_here(stopped.path, *OVERRIDES)
    assert len(tokenized) == 4 and len(entries(stopped)) == 2
    assert differences(stopped.path, whole.path) == [] and leftovers(stopped.path) == []


@pytest.mark.slow
def test_another_text_replaces_the_tokens_only_if_it_is_allowed(tmp_path, tokenized):
    model_dir = train_here(tmp_path / "model", *OVERRIDES, "training.steps=2")
    kept = entries(model_dir)
    other = pairs(0, 350)
    with pytest.raises(ConfigError, match="this training run started with another text"):
        train_here(model_dir.path, *OVERRIDES, text=other)
    assert entries(model_dir) == kept
    train_here(model_dir.path, *OVERRIDES, text=other, allow_changed_text=True)
    assert len(entries(model_dir)) == 2 and len({*kept, *entries(model_dir)}) == 3
    assert tokenized.count("encode_validation") == 1


@pytest.mark.slow
def test_tokens_of_a_model_directory_may_be_moved_with_it_or_removed(tmp_path, tokenized):
    model_dir = train_here(tmp_path / "model", *OVERRIDES, "training.steps=2")
    moved = ModelDir(shutil.move(model_dir.path, tmp_path / "moved"))
    train_here(moved.path, *OVERRIDES, "training.steps=3")
    assert len(tokenized) == 2
    shutil.rmtree(moved.tokens_path)
    train_here(moved.path, *OVERRIDES)
    assert len(tokenized) == 4 and len(entries(moved)) == 2


def test_a_full_disk_ends_a_start_in_one_line(
    files,  # noqa: F811
    tmp_path,
    limit_file_sizes,
    capsys,
):
    arguments = [str(part) for part in command(files, tmp_path / "model", *OVERRIDES)[3:]]
    with pytest.raises(SystemExit) as ended:
        limit_file_sizes(2000)
        main(arguments)
    limit_file_sizes(resource.RLIM_INFINITY)
    assert ended.value.code == 1
    line = capsys.readouterr().err.splitlines()[-1]
    place = tmp_path / "model" / "tokens"
    assert line.startswith(f"keras-transformer train: error: {place}/")
    assert line.endswith(": File too large") and ".writing-" not in line
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    "options, message",
    [
        (["--token-cache", ""], "--token-cache must be a text that is not empty"),
        (["--token-cache", "FILE"], "--token-cache must be a directory; received "),
        (["--token-cache", "FILE/x"], "--token-cache must be a directory that can be written to; "),
        (["--token-cache", "NUL"], "--token-cache must be "),
        (
            ["--token-cache", "tokens", "--no-token-cache"],
            "give either --token-cache or --no-token-cache",
        ),
    ],
)
def test_a_place_that_makes_no_sense_ends_in_one_line(
    options,
    message,
    files,  # noqa: F811
    tmp_path,
    capsys,
):
    names = {"FILE": str(files / "train.en"), "FILE/x": str(files / "train.en" / "x"), "NUL": "a\0"}
    arguments = [str(part) for part in command(files, tmp_path / "model")[3:]]
    with pytest.raises(SystemExit) as ended:
        main([*arguments, *(names.get(option, option) for option in options)])
    assert ended.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not (tmp_path / "model").exists()


def test_the_options_choose_where_tokens_are_kept(
    files,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    chosen = []
    monkeypatch.setattr(trainer, "train", lambda *_, token_cache, **__: chosen.append(token_cache))
    arguments = [str(part) for part in command(files, tmp_path / "model")[3:]]
    place = str(tmp_path / "tokens")
    for options in ([], ["--token-cache", place], ["--no-token-cache"]):
        main([*arguments, *options])
    assert chosen == [True, place, False]
