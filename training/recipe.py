"""Loads recipes: training configurations from YAML files and from values on the command line."""

import contextlib
import dataclasses
import inspect
import os
import pathlib
import re
from collections.abc import Iterator, Sequence
from typing import Any

from keras_transformer.checks import one_of, require, shown
from keras_transformer.config import Config, TokenizerConfig, TransformerConfig
from keras_transformer.config.model import PRESETS
from keras_transformer.config.origins import is_about_keys, keys_named, places_in
from keras_transformer.config.sections import SECTIONS
from keras_transformer.config.values import check_keys, from_dict, section_of
from keras_transformer.config.yaml_file import parse_value, read_sections, yaml_of
from keras_transformer.errors import ConfigError, naming_source
from keras_transformer.model_dir import ModelDir

# Fine-tuning may change these options of the model.
_RATES = ("dropout", "attention_dropout", "activation_dropout")
# These sizes are determined by the section `tokenizer`.
VOCAB_SIZES = ("source_vocab_size", "target_vocab_size")
# Values as read from YAML, before any check.
Sections = dict[str, Any]

_SUFFIXES = (".yaml", ".yml")
# The sections that are taken from the model that training starts from.
_TAKEN_OVER = ("model", "tokenizer", "decoding")
_RECIPES = pathlib.Path(__file__).resolve().parent / "recipes"
_TABLE3 = _RECIPES / "table3.yaml"


def load_recipe(
    recipe: str | os.PathLike[str] | None = None,
    overrides: Sequence[str] = (),
    init_from: ModelDir | None = None,
) -> Config:
    """Loads a recipe.

    A recipe contains only values that differ from the defaults. Its `model` section may name a
    `preset`. It does not contain vocabulary sizes, because the tokenizer determines them.

    Args:
        recipe: str or path. A YAML file, or the name of a recipe in the package. Defaults to None,
            which means the paper's base model.
        overrides: list of str. Each string is "SECTION.KEY=VALUE", with the value in YAML, and
            replaces a value of the recipe.
        init_from: ModelDir or None. The model that training starts from. Its sections `model`,
            `tokenizer` and `decoding` and its `data.normalize` replace the defaults. You may change
            only the dropout rates and `decoding`. Defaults to None, which means a new model.

    Raises:
        ConfigError: The file cannot be read, a key is unknown, or a value is invalid. The
            message names the file or the override that contains the error.
    """
    initial = None if init_from is None else init_from.read_config()
    with naming_origins(recipe, overrides, init_from):
        sections = {} if recipe is None else read_recipe(recipe)
        for override in overrides:
            _set(sections, override)
        config = _resolve(sections, initial)
    given = [f"{recipe}"] if recipe is not None else []
    with naming_source(", ".join([*given, *map(_shown, overrides)])):
        # Raise an error if the configuration is too long to be read from a model directory.
        recipe_of(config)
    return config


@contextlib.contextmanager
def naming_origins(
    recipe: str | os.PathLike[str] | None,
    overrides: Sequence[str] = (),
    init_from: ModelDir | None = None,
) -> Iterator[None]:
    """Adds the origin of each value to the message of a ConfigError about configuration keys.

    The arguments are the same as for `load_recipe`.
    """
    try:
        yield
    except ConfigError as error:
        message = str(error)
        if not is_about_keys(message):
            raise
        raise ConfigError(_with_origins(message, recipe, overrides, init_from)) from None


def _with_origins(
    message: str,
    recipe: str | os.PathLike[str] | None,
    overrides: Sequence[str],
    init_from: ModelDir | None,
) -> str:
    places = _places(recipe, overrides)
    keys = keys_named(message)
    given = [places[key] for key in keys if key in places]
    if init_from is not None:
        taken_over = places_in(init_from.config_path)
        of_model = [key for key in keys if key.partition(".")[0] in _TAKEN_OVER]
        given += [taken_over[key] for key in of_model if key in taken_over and key not in places]
    if keys[0] in SECTIONS:
        # The message is about the whole section.
        given += [place for key, place in places.items() if key.startswith(f"{keys[0]}.")]
    elif keys[0] not in places and init_from is None and "; received " in message:
        message += ", the default"
    return ": ".join([*([", ".join(dict.fromkeys(given))] if given else []), message])


def _places(recipe: str | os.PathLike[str] | None, overrides: Sequence[str]) -> dict[str, str]:
    """Returns the origin of each key: a line of the recipe, or an override."""
    places: dict[str, str] = {}
    sections: Sections = {}
    if recipe is not None:
        # If the file can no longer be read, keep the original message.
        with contextlib.suppress(ConfigError):
            sections = read_recipe(recipe)
        for section, values in sections.items():
            keys = values if isinstance(values, dict) else {}
            places |= {f"{section}.{key}": f"{recipe}" for key in keys}
        if pathlib.Path(recipe).suffix in _SUFFIXES:
            places |= places_in(recipe)
    preset = section_of(sections, "model")
    preset = preset.get("preset") if isinstance(preset, dict) else None
    for override in overrides:
        key, _, value = override.partition("=")
        places = {name: at for name, at in places.items() if not name.startswith(f"{key}.")}
        values = parse_value(value)
        if key == "model.preset":
            preset = values
        inner = values if isinstance(values, dict) else {}
        given = [key, *(f"{key}.{name}" for name in inner)]
        places |= dict.fromkeys(given, _shown(override))
        # The override also sets a mapping that the recipe lacks, such as data.augment.
        places.setdefault(key.rpartition(".")[0], _shown(override))
    for name in PRESETS.get(str(preset), ()):
        places.setdefault(f"model.{name}", places["model.preset"])
    return places


def _shown(override: str) -> str:
    # Show the override on one line, without quotes.
    return f"--set {shown(override)[1:-1]}"


def recipe_of(config: Config) -> str:
    """Returns a recipe with every key, as YAML that `load_recipe` can read."""
    sections = dataclasses.asdict(config)
    for name in VOCAB_SIZES:
        del sections["model"][name]
    return yaml_of(sections)


def annotated_recipe_of(config: Config) -> str:
    """Returns `recipe_of(config)` with the first sentence about each key as a comment above it."""
    lines = [
        "# All keys of a recipe. Your own recipe needs only the keys that differ from defaults.",
        "# The section model may begin with preset: tiny, base or big.",
    ]
    for field in dataclasses.fields(config):
        section = getattr(config, field.name)
        sentences = _first_sentences(type(section))
        lines += ["", f"{field.name}:"]
        for name, value in dataclasses.asdict(section).items():
            if field.name == "model" and name in VOCAB_SIZES:
                continue
            lines.append(f"  # {sentences[name]}")
            lines += [f"  {line}" for line in yaml_of({name: value}).splitlines()]
    return "\n".join(lines) + "\n"


def _first_sentences(section: type) -> dict[str, str]:
    """Returns the first sentence about each argument in the docstring of a section."""
    _, _, arguments = inspect.cleandoc(section.__doc__ or "").partition("\nArgs:\n")
    entries = re.findall(r"^    (\w+): (.*(?:\n     +.*)*)", arguments, re.MULTILINE)
    texts = {name: " ".join(text.split()) for name, text in entries}
    # The type comes first: "steps: int. Number of training steps. Each step ..."
    return {
        name: re.sub(r"^[^.]*\. (.*?\.)(?= [A-Z]|$).*", r"\1", text) for name, text in texts.items()
    }


def recipe_names() -> list[str]:
    """Returns the names of the package's recipes, such as "multi30k" and "table3/A-h1"."""
    names = {path.stem for path in _RECIPES.glob("*.yaml")} - {_TABLE3.stem}
    rows = read_sections(_TABLE3).keys() - {"all"}
    return sorted([*names, *(f"{_TABLE3.stem}/{row}" for row in rows)])


def read_recipe(recipe: str | os.PathLike[str]) -> Sections:
    """Returns the unchecked sections of a YAML file, or of the package's recipe with this name."""
    path = pathlib.Path(recipe)
    if path.suffix in _SUFFIXES:
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
    """Replaces a value in sections. Error messages begin with the override."""
    with naming_source(_shown(override)):
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
        values[name] = parse_value(value)


def _resolve(sections: Sections, initial: Config | None) -> Config:
    """Completes the model section and checks all sections."""
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
    """Returns the configuration of a training run that starts from an existing model."""
    completed = dict(sections)
    for section in _TAKEN_OVER:
        given = section_of(sections, section)
        values = dataclasses.asdict(getattr(initial, section))
        check_keys(given, values, section)
        for name, value in given.items():
            if section != "decoding" and name not in _RATES and value != values[name]:
                raise ConfigError(
                    f"{section}.{name} must be {values[name]!r}, as in the --init-from model, "
                    f"or be left out; received {section}.{name}={shown(value)}"
                )
        completed[section] = {**values, **given}
    data = dict(section_of(sections, "data"))
    normalization = initial.data.normalization
    if data.get("normalize") not in (None, normalization):
        raise ConfigError(
            f"data.normalize must be {normalization!r}, as in the --init-from model, or "
            f"be left out; received data.normalize={shown(data['normalize'])}"
        )
    completed["data"] = {**data, "normalize": normalization}
    return from_dict(Config, completed)
