"""Recipes as people read and write them."""

import dataclasses
import re

import pytest

from keras_transformer.commands.main import main
from keras_transformer.config import DecodingConfig
from keras_transformer.errors import ConfigError
from keras_transformer.model_dir import ModelDir
from keras_transformer.training.recipe import (
    annotated_recipe_of,
    load_recipe,
    recipe_names,
    recipe_of,
)


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_that_was_written_out_is_the_same(name, tmp_path):
    config = load_recipe(name, ["training.seed=7"])
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe_of(config), encoding="utf-8")
    assert load_recipe(path) == config


def test_print_config_explains_every_key_in_a_comment_above_it(tmp_path):
    config = load_recipe("multi30k", ["data.augment.typos=0.1"])
    text = annotated_recipe_of(config)
    lines = text.splitlines()
    assert lines[lines.index("  steps: 10000") - 1] == "  # Number of training steps."
    keys = [line for line in lines if re.match(r"  \w", line)]
    comments = [line for line in lines if line.startswith("  # ") and line.endswith(".")]
    assert len(keys) == len(comments)
    (tmp_path / "recipe.yaml").write_text(text, "utf-8")
    assert load_recipe(tmp_path / "recipe.yaml") == config


def test_text_that_looks_like_something_else_stays_text(tmp_path):
    terms = [
        "1e3",
        "08",
        "5.",
        ".inf",
        "1_000",
        "true",
        "null",
        "~",
        "on",
        "1:30",
        "2001-12-31",
        "=",
        "<<",
        "#1",
    ]
    terms += ["- a", "a\u2028b\x85c", "день 🐻"]
    config = dataclasses.replace(
        load_recipe(), decoding=DecodingConfig(placeholders=True, keep=terms)
    )
    path = tmp_path / "recipe.yaml"
    path.write_text(recipe_of(config), encoding="utf-8")
    assert load_recipe(path) == config and "- день 🐻\n" in recipe_of(config)
    model_dir = ModelDir(tmp_path)
    model_dir.write_config(config)
    assert model_dir.read_config() == config


def test_a_configuration_that_a_model_directory_could_not_hold_is_refused():
    with pytest.raises(
        ConfigError,
        match=r"^--set .*: the configuration must have at most 20,000 characters in YAML; ",
    ):
        load_recipe(None, ["decoding.placeholders=true", f"decoding.keep={['день'] * 2400}"])


@pytest.mark.parametrize("model_dir", [[], ["--model-dir", "model"]])
def test_print_config_prints_the_recipe_and_does_nothing_else(
    model_dir, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    main(["train", *model_dir, "--config", "multi30k", "--set", "model.d_ff=96", "--print-config"])
    printed = capsys.readouterr().out
    assert (
        printed == annotated_recipe_of(load_recipe("multi30k", ["model.d_ff=96"]))
        and "d_ff: 96\n" in printed
    )
    assert not [*tmp_path.iterdir()]


def test_training_needs_a_model_directory(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--config", "multi30k"])
    assert capsys.readouterr().err == "keras-transformer train: error: --model-dir must be given\n"


def test_a_mistake_is_found_when_a_recipe_is_printed(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["train", "--model-dir", str(tmp_path), "--set", "model.d_model=7", "--print-config"])
    assert (
        "--set model.d_model=7: model.d_model must be positive and even" in capsys.readouterr().err
    )
