"""The JSON schema of recipes, by which editors complete keys, explain them, and mark mistakes.

python -m keras_transformer.training.recipe_schema > recipe.schema.json
"""

import dataclasses
import inspect
import json
import re
import types
import typing
from typing import TYPE_CHECKING, Annotated, Literal

from keras_transformer.config.mappings import inner_sections
from keras_transformer.config.model import PRESETS
from keras_transformer.config.sections import SECTIONS
from keras_transformer.rules import Rule

from .recipe import VOCAB_SIZES

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Schema = dict[str, object]

_TYPES = {bool: "boolean", float: "number", int: "integer", str: "string"}
# Of an argument in a docstring: its name, and what is said after its type.
_ARGUMENT = re.compile(
    r"^    (\w+): (?:(?:bool|float|int|list of (?:float|str)|dict|str)(?: or None)?\. )?(.*(?:\n     .*)*)",
    re.MULTILINE,
)


def recipe_schema() -> Schema:
    """Returns the JSON schema, draft 7, of what `load_recipe` reads.

    It says everything that is said of single values. Rules about several values are not in it.
    """
    sections = {name: _section_schema(section) for name, section in SECTIONS.items()}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "A recipe: a configuration for training a translator",
        **_mapping_schema(sections),
    }


def _section_schema(section: type["DataclassInstance"]) -> Schema:
    documentation = inspect.getdoc(section) or ""
    annotations = typing.get_type_hints(section, include_extras=True)
    descriptions = {name: " ".join(text.split()) for name, text in _ARGUMENT.findall(documentation)}
    inner = {name: _section_schema(inner_section) for name, inner_section in inner_sections(section).items()}
    keys: dict[str, Schema] = {}
    for field in dataclasses.fields(section):
        if field.name in inner:
            keys[field.name] = {
                **inner[field.name],
                "default": dataclasses.asdict(inner_sections(section)[field.name]()),
            }
        elif field.name not in VOCAB_SIZES:
            keys[field.name] = {
                "description": descriptions[field.name],
                "default": field.default,
                **_value_schema(annotations[field.name]),
            }
    if section is SECTIONS["model"]:
        preset: Schema = {"description": "The sizes from which the other keys differ.", "default": "base"}
        keys = {"preset": {**preset, "enum": [*PRESETS]}, **keys}
    return {"description": documentation.partition("\n")[0], **_mapping_schema(keys)}


def _mapping_schema(keys: dict[str, Schema]) -> Schema:
    # One without keys is null in YAML.
    return {"type": ["object", "null"], "properties": keys, "additionalProperties": False}


def _value_schema(annotation: object) -> Schema:
    arguments = typing.get_args(annotation)
    match typing.get_origin(annotation):
        case typing.Union | types.UnionType:
            return {"anyOf": [_value_schema(option) for option in arguments]}
        case origin if origin is Annotated:
            rules = (item.schema for item in arguments[1:] if isinstance(item, Rule))
            return {key: value for part in (_value_schema(arguments[0]), *rules) for key, value in part.items()}
        case origin if origin is Literal:
            return {"enum": [*arguments]}
        case origin if origin is list:
            return {"type": "array", "items": _value_schema(arguments[0]), "minItems": 1}
        case origin if origin is dict:
            return {"type": "object"}
    return {"type": "null" if annotation is types.NoneType else _TYPES[typing.cast(type, annotation)]}


if __name__ == "__main__":
    print(json.dumps(recipe_schema(), indent=2, ensure_ascii=False))
