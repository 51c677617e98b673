"""A recipe: a configuration for training, from a YAML file and from values given one by one."""

import dataclasses
import os
import pathlib
import re
from collections.abc import Sequence
from typing import Any

from keras_transformer.checks import one_of, require, shown, with_sliding_window
from keras_transformer.config import Config, TokenizerConfig, TransformerConfig
from keras_transformer.config.model import PRESETS
from keras_transformer.config.sections import SECTIONS
from keras_transformer.config.values import check_keys, from_dict, section_of
from keras_transformer.config.yaml_file import naming_source, parse_value, read_sections, yaml_of
from keras_transformer.errors import ConfigError
from keras_transformer.model_dir import ModelDir

# What may be changed in a model whose weights are taken over.
_RATES = ("dropout", "attention_dropout", "activation_dropout")
# They follow from the section `tokenizer`.
VOCAB_SIZES = ("source_vocab_size", "target_vocab_size")
# As YAML gives them, not checked yet.
Sections = dict[str, Any]

_RECIPES = pathlib.Path(__file__).resolve().parent / "recipes"
_TABLE3 = _RECIPES / "table3.yaml"


def load_recipe(
    recipe: str | os.PathLike[str] | None = None,
    overrides: Sequence[str] = (),
    init_from: ModelDir | None = None,
) -> Config:
    """Loads a recipe.

    A recipe contains only what differs from the defaults. Its `model` section may name a `preset`,
    and has no vocabulary sizes, which are those of the tokenizer.

    Args:
        recipe: str or path of a YAML file, or the name of a recipe of the package. Defaults to
            None: the paper's base model.
        overrides: list of strings "SECTION.KEY=VALUE", with the value in YAML, which replace values
            of the recipe.
        init_from: ModelDir or None. The model that training starts from. Its sections `model`,
            `tokenizer` and `decoding` and its `data.normalize` replace the defaults; only the rates
            of dropout and `decoding` may be changed. Defaults to None: a new model.

    Raises:
        ConfigError: The file cannot be read, a key is unknown, or a value breaks its rule. The
            message names the file or the override at fault.
    """
    initial = None if init_from is None else init_from.read_config()
    sections = {} if recipe is None else read_recipe(recipe)
    if isinstance(sections.get("model"), dict):
        with naming_source(recipe):
            sections["model"] = with_sliding_window(sections["model"], "model.")
    for override in overrides:
        with naming_source(_shown(override)):
            _set(sections, override)
    try:
        config = _resolve(sections, initial)
        # A model directory could not be read if its configuration were too long.
        recipe_of(config)
        return config
    except ConfigError as error:
        message = str(error)
    # The override whose key the rule names is at fault; behind the semicolon are other keys, or the
    # value.
    rule = message.partition(";")[0]
    at_fault = [override for override in overrides if _is_named(override, rule)]
    if not at_fault and recipe is None:
        at_fault = list(overrides)
    raise ConfigError(f"{', '.join(map(_shown, at_fault)) or recipe}: {message}")


def _is_named(override: str, rule: str) -> bool:
    """Returns whether a rule names the key of an override, or a key that its preset sets.

    The rule may name the key with its section or without it.
    """
    key, _, value = override.partition("=")
    section, _, name = key.rpartition(".")
    names = "|".join(
        map(re.escape, [name, *PRESETS.get(value, ())] if name == "preset" else [name])
    )
    return re.search(rf"(?<![\w.])({re.escape(section)}\.)?({names})(?!\w)", rule) is not None


def _shown(override: str) -> str:
    # Show the override on one line, without quotes.
    return f"--set {shown(override)[1:-1]}"


def recipe_of(config: Config) -> str:
    """Returns the YAML of a recipe with every key, which `load_recipe` reads."""
    sections = dataclasses.asdict(config)
    for name in VOCAB_SIZES:
        del sections["model"][name]
    return yaml_of(sections)


def recipe_names() -> list[str]:
    """Returns the names of the recipes of the package, such as "multi30k" and "table3/A-h1"."""
    names = {path.stem for path in _RECIPES.glob("*.yaml")} - {_TABLE3.stem}
    rows = read_sections(_TABLE3).keys() - {"all"}
    return sorted([*names, *(f"{_TABLE3.stem}/{row}" for row in rows)])


def read_recipe(recipe: str | os.PathLike[str]) -> Sections:
    """Returns the unchecked sections of a YAML file, or of the package's recipe with this name."""
    path = pathlib.Path(recipe)
    if path.suffix in (".yaml", ".yml"):
        return read_sections(path)
    name = os.fspath(recipe)
    if name not in recipe_names():
        raise ConfigError(
            f"--config must be a .yaml file or one of {', '.join(recipe_names())}; "
            f"received --config={name!r}"
        )
    table, _, row = name.rpartition("/")
    if not table:
        return read_sections(_RECIPES / f"{name}.yaml")
    rows = read_sections(_TABLE3)
    shared, sections = rows["all"], rows[row]
    return {
        section: section_of(shared, section) | section_of(sections, section)
        for section in {**shared, **sections}
    }


def _set(sections: Sections, override: str) -> None:
    key, equals, value = override.partition("=")
    section, dot, name = key.partition(".")
    if not (equals and dot and name):
        raise ConfigError(f"--set must be given SECTION.KEY=VALUE; received {shown(override)}")
    check_keys({section: None}, SECTIONS)
    *path, name = key.split(".")
    values = sections
    for depth, section in enumerate(path, start=1):
        inner = section_of(values, section)
        require(isinstance(inner, dict), ".".join(path[:depth]), "a mapping", inner)
        values[section] = dict(inner)
        values = values[section]
    given = {name: parse_value(value)}
    values |= with_sliding_window(given, "model.") if path == ["model"] else given


def _resolve(sections: Sections, initial: Config | None) -> Config:
    """Completes the model's section, and checks everything."""
    check_keys(sections, SECTIONS)
    model = section_of(sections, "model")
    check_keys(
        model, ["preset", *(field.name for field in dataclasses.fields(TransformerConfig))], "model"
    )
    for name in VOCAB_SIZES:
        if name in model:
            raise ConfigError(f"model.{name} follows from tokenizer.vocab_size; set that instead")
    if "preset" in model:
        one_of("model.preset", model["preset"], tuple(PRESETS))
    changes = {name: value for name, value in model.items() if name != "preset"}
    if initial is not None:
        return _continued(
            initial, {**sections, "model": {**PRESETS.get(model.get("preset"), {}), **changes}}
        )
    tokenizer = from_dict(TokenizerConfig, section_of(sections, "tokenizer"), "tokenizer")
    sizes = {"source_vocab_size": tokenizer.vocab_size, "target_vocab_size": tokenizer.vocab_size}
    return from_dict(
        Config, {**sections, "model": {**sizes, **PRESETS[model.get("preset", "base")], **changes}}
    )


def _continued(initial: Config, sections: Sections) -> Config:
    """The configuration of a training run that starts from an existing model."""
    completed = dict(sections)
    for section in ("model", "tokenizer", "decoding"):
        given = section_of(sections, section)
        values = dataclasses.asdict(getattr(initial, section))
        check_keys(given, values, section)
        for name, value in given.items():
            if section != "decoding" and name not in _RATES and value != values[name]:
                raise ConfigError(
                    f"{section}.{name} must be {values[name]!r}, as in the model that --init-from "
                    f"names, or be left out; received {section}.{name}={shown(value)}"
                )
        completed[section] = {**values, **given}
    data = dict(section_of(sections, "data"))
    normalization = initial.data.normalization
    if data.get("normalize") not in (None, normalization):
        raise ConfigError(
            f"data.normalize must be {normalization!r}, as in the model that --init-from names, or "
            f"be left out; received data.normalize={shown(data['normalize'])}"
        )
    completed["data"] = {**data, "normalize": normalization}
    return from_dict(Config, completed)
