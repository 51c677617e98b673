"""Settings of Keras and TensorFlow that are for other programs change nothing in a command."""

import json
import os
import pathlib
import subprocess
import sys
import threading

import pytest
from command_line import GERMAN, run_command, train_arguments
from conftest import sentence_pairs


@pytest.fixture
def foreign_settings(tmp_path):
    """Environment variables as a user of another backend may have them."""
    settings = {
        "backend": "torch",
        "floatx": "float16",
        "image_data_format": "channels_first",
        "epsilon": 0.1,
    }
    (tmp_path / "keras").mkdir()
    (tmp_path / "keras" / "keras.json").write_text(json.dumps(settings))
    limits = {"KERAS_MAX_EPOCHS": "1", "KERAS_MAX_STEPS_PER_EPOCH": "1"}
    return {**os.environ, "KERAS_BACKEND": "jax", "KERAS_HOME": str(tmp_path / "keras"), **limits}


@pytest.mark.slow
@pytest.mark.parametrize("settings", ["[]", '{"floatx": "float128"}', "{", '{"backend": "numpy"}'])
def test_settings_of_keras_that_make_no_sense_harm_no_command(
    tiny_model_dir, known_pairs, foreign_settings, settings
):
    pathlib.Path(foreign_settings["KERAS_HOME"], "keras.json").write_text(settings)
    arguments = [part for pair in known_pairs.items() for part in pair]
    result = run_command(
        "evaluate", "--model-dir", tiny_model_dir, *arguments, env=foreign_settings
    )
    assert b"BLEU = 100.00" in result.stdout, result.stderr


@pytest.mark.slow
def test_train_needs_none_of_the_users_settings_of_keras(text, tmp_path, foreign_settings):
    pairs = sentence_pairs()
    english, german = ("".join(f"{pair[side]}\n" for pair in pairs) for side in (0, 1))
    arguments = train_arguments(text, english, german, **{"--valid-target": text("v.de", GERMAN)})
    small = (
        "tokenizer.vocab_size=320",
        "training.steps=4",
        "training.validate_every=2",
        "model.num_layers=1",
    )
    result = run_command(
        "train", *arguments, "--model-dir", tmp_path / "m", "--set", *small, env=foreign_settings
    )
    assert result.returncode == 0, result.stderr
    assert b"step 2:" in result.stderr and b"step 4:" in result.stderr


@pytest.mark.parametrize(("given", "expected"), [(None, "1"), ("0", "0")])
def test_train_turns_on_onednn_unless_the_user_says_otherwise(
    text, fails, tmp_path, monkeypatch, given, expected
):
    name = "TF_ENABLE_ONEDNN_OPTS"
    # Set first, so that the test leaves the variable as it was.
    monkeypatch.setenv(name, given or "")
    if given is None:
        del os.environ[name]
    fails(
        "train",
        *train_arguments(text),
        "--model-dir",
        tmp_path / "model",
        "--set",
        "model.dropout=2",
    )
    assert os.environ[name] == expected


@pytest.mark.slow
def test_translate_answers_a_writer_that_waits(tiny_model_dir, foreign_settings):
    arguments = [
        sys.executable,
        "-m",
        "keras_transformer",
        "translate",
        "--model-dir",
        str(tiny_model_dir),
    ]
    # Standard error is closed, and Keras is set up for other programs, which changes nothing.
    command = ["sh", "-c", 'exec "$@" 2>&-', "sh", *arguments]
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with subprocess.Popen(command, env=foreign_settings, **pipes) as process:
        watchdog = threading.Timer(600, process.kill)
        watchdog.start()
        for line, answer in (
            (b"Anna sees a tree.\n", b"Anna hat einen Baum, sieht!\n"),
            (b"\r\n", b"\n"),
            ("Zoë sees a tree.\r\n".encode(), "Zoë hat einen Baum, sieht!\n".encode()),
        ):
            process.stdin.write(line)
            process.stdin.flush()
            assert process.stdout.readline() == answer
        process.stdin.write(b"Anna sees a tree.")
        process.stdin.close()
        assert process.stdout.read() == b"Anna hat einen Baum, sieht!\n"
        watchdog.cancel()
    assert process.returncode == 0
