"""The JSON schema of recipes, by another program's validator, beside what reading a recipe says."""

import contextlib
import dataclasses
import json
import pathlib
import typing

import jsonschema
import pytest
import yaml
from keras_transformer.training.recipe import load_recipe, read_recipe, recipe_names, recipe_of
from keras_transformer.training.recipe_schema import recipe_schema

from keras_transformer.config.mappings import from_dict, section_of
from keras_transformer.config.sections import SECTIONS
from keras_transformer.config.yaml_file import read_sections
from keras_transformer.errors import ConfigError
from keras_transformer.rules import check

FILE = pathlib.Path(__file__).parents[2] / "docs" / "recipe.schema.json"
VALIDATOR = jsonschema.Draft7Validator(recipe_schema())


def test_the_file_is_that_of_today():
    assert json.loads(FILE.read_text(encoding="utf-8")) == recipe_schema(), "run the module's command again"


def test_it_is_a_schema():
    jsonschema.Draft7Validator.check_schema(VALIDATOR.schema)


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_validates(name):
    VALIDATOR.validate(read_recipe(name))
    VALIDATOR.validate(yaml.safe_load(recipe_of(load_recipe(name))))


def test_every_key_is_explained_as_in_the_reference():
    model = VALIDATOR.schema["properties"]["model"]["properties"]
    assert model["d_ff"]["description"].startswith("Width inside the feed-forward networks; at most 1,000,000.")
    annotated = read_recipe("annotated")
    for name, section in VALIDATOR.schema["properties"].items():
        keys = {key: schema["default"] for key, schema in section["properties"].items() if key != "preset"}
        assert keys == annotated[name]
        assert all(len(schema["description"]) > 10 for schema in section["properties"].values())


@pytest.mark.parametrize(
    "is_right, text",
    [
        *((True, text) for text in ("", "model:", "model: {preset: big, dropout: 0}", "data: {weights: [1, 0.5]}")),
        (True, "training: {steps: 1e5, peak_learning_rate: 5e-4, clip_norm: null}"),
        *((True, text) for text in ("data: {tags: [null, <bt>, '>>de<<']}", "decoding: {tag: <bt>}")),
        *((False, text) for text in ("modle: {}", "model: {d_modle: 256}", "model: {source_vocab_size: 100}")),
        *((False, text) for text in ("model: {preset: huge}", "model: {activation: rellu}", "data: {tags: [<s>]}")),
        *((False, text) for text in ("data: {tags: [de, <bt>]}", "decoding: {tag: <0x41>}", "- model")),
    ],
)
def test_the_schema_and_the_reader_of_recipes_say_the_same(is_right, text, tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    with contextlib.nullcontext() if is_right else pytest.raises(ConfigError):
        load_recipe(path)
    values = read_sections(path) if is_right else yaml.safe_load(text)
    assert VALIDATOR.is_valid(values) == is_right


VALUES = [
    *(None, True, False, "relu", "bpe", "none", "both", "cosine", "auto", "rms", "all", "x", ""),
    *(-1, 0, 1, 2, 3, 4, 5, 1000, 1001, 100_000, 100_001, 1_000_000, 1_000_001, 2**32 - 1, 2**32),
    *(-0.5, 0.5, 0.999, 1.5, 999.5, 1000.5),
    *([], [1], [0.001, 1000], [0.0009], [1001], [True], ["x"], [None], {}, {"x": 1}),
]
FIELDS = [(name, field) for name, section in SECTIONS.items() for field in dataclasses.fields(section)]


@pytest.mark.parametrize("section, field", FIELDS, ids=[f"{section}.{field.name}" for section, field in FIELDS])
def test_the_rules_of_single_values_are_those_of_the_configuration(section, field):
    if field.name in ("source_vocab_size", "target_vocab_size"):
        assert field.name not in VALIDATOR.schema["properties"][section]["properties"]
        return
    for value in VALUES:
        # Names of scripts are not in the schema.
        if not (field.name.endswith("_script") and isinstance(value, str)):
            assert VALIDATOR.is_valid({section: {field.name: value}}) == obeys(section, field.name, value), value


def obeys(section, name, value):
    annotation = typing.get_type_hints(SECTIONS[section], include_extras=True)[name]
    try:
        if dataclasses.is_dataclass(annotation):
            from_dict(annotation, section_of({name: value}, name), name)
        check(name, value, annotation)
    except ConfigError:
        return False
    return True
