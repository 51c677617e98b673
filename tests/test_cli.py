"""The command line as a user meets it: mistakes end in one clear line, a non-zero exit, and nothing half-written."""

import gzip
import json
import os
import subprocess
import sys
import time

import pytest

from keras_transformer.cli import main

ENGLISH = "the dog runs\na cat sleeps\n"
GERMAN = "der hund rennt\neine katze schläft\n"


@pytest.fixture
def text(tmp_path):
    """Writes files into the test's folder and gives their paths."""

    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


@pytest.fixture
def fails(capsys):
    """Runs a command that must fail, and gives its one line on standard error."""

    def run(*arguments):
        with pytest.raises(SystemExit) as stopped:
            main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        assert stopped.value.code not in (0, None)
        assert captured.out == ""
        lines = [line for line in captured.err.splitlines() if not line.startswith("learning a vocab")]
        assert len(lines) == 1, captured.err
        return lines[0]

    return run


def train_arguments(text, source=ENGLISH, target=GERMAN, **options):
    arguments = {
        "--source": text("train.en", source),
        "--target": text("train.de", target),
        "--valid-source": text("valid.en", ENGLISH),
        "--valid-target": text("valid.de", GERMAN),
        "--config": "demo",
        **options,
    }
    return [part for pair in arguments.items() for part in pair]


@pytest.mark.parametrize(
    "source, target, expected",
    [
        (ENGLISH, "nur eine\n", ["train.en", "train.de", "2", "1"]),
        ("", "", ["train.en", "empty"]),
        (b"the dog\nthe \xff cat\n", "der\ndie\n", ["train.en", "line 2", "UTF-8"]),
    ],
    ids=["different lengths", "empty", "invalid UTF-8"],
)
def test_bad_text_is_named_and_no_model_directory_is_made(
    text, fails, tmp_path, source, target, expected
):
    model_dir = tmp_path / "model"
    message = fails("train", *train_arguments(text, source, target), "--model-dir", model_dir)
    for part in expected:
        assert part in message
    assert not model_dir.exists()


def test_a_vocabulary_larger_than_the_text_supports_is_refused(text, fails, tmp_path):
    model_dir = tmp_path / "model"
    message = fails("train", *train_arguments(text), "--model-dir", model_dir)
    assert "tokenizer.vocab_size must be at most" in message and "2000" in message
    assert not model_dir.exists()


@pytest.mark.parametrize(
    "override, expected",
    [
        ("model.d_modle=64", "unknown configuration key 'model.d_modle'; did you mean 'd_model'?"),
        ("modle.d_model=64", "unknown configuration key 'modle'; did you mean 'model'?"),
        ("model.dropout=1.5", "model.dropout must be at least 0 and below 1; received 1.5"),
        ("model.num_layers=two", "model.num_layers must be of type int; received 'two'"),
        ("training.average_last=9", "training.average_last must be between 0 and keep_checkpoints=3"),
        ("d_model", "--set takes section.key=value; received 'd_model'"),
    ],
)
def test_a_bad_configuration_value_is_named(text, fails, tmp_path, override, expected):
    model_dir = tmp_path / "model"
    message = fails("train", *train_arguments(text), "--model-dir", model_dir, "--set", override)
    assert expected in message
    assert not model_dir.exists()


def test_an_unknown_key_in_a_recipe_is_named_with_the_file(text, fails, tmp_path):
    recipe = text("mine.yaml", "training:\n  step: 5\n")
    message = fails(
        "train", *train_arguments(text, **{"--config": recipe}), "--model-dir", tmp_path / "model"
    )
    assert message.endswith(
        f"{recipe}: unknown configuration key 'training.step'; did you mean 'steps'?"
    )


def test_a_recipe_that_is_not_yaml_is_named_with_its_line(text, fails, tmp_path):
    recipe = text("mine.yaml", "model:\n  d_model: [1\n")
    message = fails(
        "train", *train_arguments(text, **{"--config": recipe}), "--model-dir", tmp_path / "model"
    )
    assert f"{recipe}, line 3: not YAML" in message


def test_an_unknown_recipe_is_answered_with_the_known_ones(text, fails, tmp_path):
    message = fails(
        "train", *train_arguments(text, **{"--config": "multi3k"}), "--model-dir", tmp_path / "model"
    )
    assert "multi3k" in message and "multi30k" in message


def test_train_needs_all_four_files_or_a_data_set(text, fails, tmp_path):
    message = fails("train", "--source", text("a", ENGLISH), "--model-dir", tmp_path / "model")
    assert "--target" in message and "--tfds" in message


@pytest.mark.parametrize("command", ["translate", "evaluate", "score", "average", "export"])
def test_a_directory_that_is_no_model_directory_is_refused(text, fails, tmp_path, command):
    arguments = {
        "evaluate": ["--source", text("a", ENGLISH), "--reference", text("b", GERMAN)],
        "score": ["--source", text("a", ENGLISH), "--target", text("b", GERMAN)],
        "export": ["--output", tmp_path / "servable"],
    }
    message = fails(command, "--model-dir", tmp_path, *arguments.get(command, []))
    assert f"{tmp_path}: not a model directory" in message
    assert not (tmp_path / "servable").exists()


def run_command(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "keras_transformer", *map(str, arguments)],
        capture_output=True,
        **options,
    )


def test_a_mistake_ends_a_real_process_with_one_line_and_code_1(tmp_path):
    result = run_command("translate", "--model-dir", tmp_path, input=b"")
    assert result.returncode == 1
    assert result.stdout == b""
    assert result.stderr.count(b"\n") == 1 and b"Traceback" not in result.stderr


def test_help_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['keras-transformer', '--help']; import keras_transformer.cli as cli\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'tensorflow', 'keras', 'numpy', 'yaml', 'jax'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"
    for command in ("train", "translate", "evaluate", "score", "average", "export"):
        assert command in result.stdout


def test_every_command_has_help(capsys):
    for command in ("train", "translate", "evaluate", "score", "average", "export"):
        with pytest.raises(SystemExit) as stopped:
            main([command, "--help"])
        assert stopped.value.code == 0
        assert f"keras-transformer {command}" in capsys.readouterr().out
