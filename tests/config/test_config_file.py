"""YAML files and `--set`: what is read as a number, and hostile text that is rejected immediately,
in one line."""

import dataclasses
import inspect
import pathlib
import re
import time

import pytest
import yaml

from keras_transformer.config import Config, TokenizerConfig, TransformerConfig
from keras_transformer.config.sections import SECTIONS
from keras_transformer.config.yaml_file import parse_value, read_sections
from keras_transformer.errors import ConfigError
from keras_transformer.model_dir import ModelDir
from keras_transformer.training.recipe import load_recipe

NINES = "".join(
    f"{name}: &{name} [{', '.join(['*' + before] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi")
)
MERGES = NINES.replace("[", "{<<: [").replace("]", "]}")


@pytest.fixture
def refused(tmp_path):
    """Loads a recipe that must be rejected, and returns the message without the path, and without
    the line of a value."""

    def load(text, *overrides):
        path = tmp_path / "recipe.yaml"
        path.write_text(text, encoding="utf-8", errors="surrogatepass")
        with pytest.raises(ConfigError) as error:
            load_recipe(path, overrides)
        message = str(error.value)
        assert "\n" not in message and len(message) < 1000
        message = message.removeprefix(str(path))
        return re.sub(r"^(, line \d+)?: (?!cannot be read)", "", message)

    return load


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(
            "a: &a [x, x]\n" + NINES,
            "line 2: ... (an alias may stand for a single value only)",
            id="laughs",
        ),
        pytest.param(
            "a: &a {x: 1}\n" + MERGES,
            "line 2: ... (an alias may stand for a single value only)",
            id="merges",
        ),
        pytest.param(
            "&a [*a]", "line 1: ... (an alias may stand for a single value only)", id="endless"
        ),
        pytest.param("[" * 5000, "line 1: ... (nested deeper than 10 levels)", id="brackets"),
        pytest.param("{a: " * 4000, "line 1: ... (nested deeper than 10 levels)", id="braces"),
        pytest.param("- " * 5000, "line 1: ... (nested deeper than 10 levels)", id="dashes"),
        pytest.param(
            "\n".join(" " * i + "a:" for i in range(150)),
            "line 10: ... (nested deeper",
            id="indents",
        ),
        pytest.param("#" * 20_001, "... (longer than 20,000 characters)", id="long"),
        pytest.param(
            "a: " + "1" * 5000,
            "... (a number or the code of a character is too large)",
            id="digits",
        ),
        pytest.param(
            'a: "\\Uffffffff"',
            "... (a number or the code of a character is too large)",
            id="character",
        ),
        pytest.param("a: \x07", "... (the character 0x7 is not allowed)", id="control"),
        pytest.param(
            "model: {d_ff: 1, d_ff: 2}", "line 1: ... (the key 'd_ff' is given twice)", id="twice"
        ),
        pytest.param("a: 1\n---\nb: 2", "line 2: ... (but found another document)", id="documents"),
        pytest.param("? [a]\n: 1", "line 1: ... (found unhashable key)", id="key"),
        pytest.param(
            "a: !!python/object/apply:os.system [exit]", "line 1: ... (the tag", id="call"
        ),
        pytest.param("a: !!python/name:os.system", "line 1: ... (the tag", id="name"),
        pytest.param("a: !!python/tuple [1]", "line 1: ... (the tag", id="tuple"),
        pytest.param("a: !!timestamp x", "line 1: ... (the tag", id="timestamp"),
        pytest.param("a: !mine 1", "line 1: ... (the tag '!mine' is not allowed)", id="own tag"),
    ],
)
def test_hostile_text_is_refused_at_once(refused, text, problem):
    # Of the processor, which other processes do not change: without a limit it takes minutes, or
    # all memory.
    begin = time.process_time()
    message = refused(text)
    assert time.process_time() - begin < 30
    assert problem.replace("...", "cannot be read as YAML") in message


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            # However narrow: each takes a quarter of a second to build.
            "model: {num_layers: 1001, d_model: 2, d_ff: 1, num_heads: 1}",
            "model.num_layers must be at most 1,000; received model.num_layers=1001",
        ),
        (
            "model: {num_encoder_layers: 1001, d_model: 2, d_ff: 1, num_heads: 1}",
            "model.num_encoder_layers must be at most 1,000; received",
        ),
        (
            "model: {num_decoder_layers: 1001, d_model: 2, d_ff: 1, num_heads: 1}",
            "model.num_decoder_layers must be at most 1,000; received",
        ),
        (
            "model: {d_ff: 100000000000}",
            "the sizes in the section model must result in at most 10,000,000,000 parameters; they "
            "result in",
        ),
        (
            "model: {d_ff: %s}" % ("1" * 400),
            "model.d_ff must be at most 9,223,372,036,854,775,807; received",
        ),
        (
            "decoding: {no_repeat_ngram_size: 101}",
            "decoding.no_repeat_ngram_size must be at most 100; received",
        ),
        (
            "tokenizer: {vocab_size: 1000000000}",
            "tokenizer.vocab_size must be at most 1,000,000; received tokenizer.vocab_size=",
        ),
        (
            "decoding: {beam_size: 1000000}",
            "decoding.beam_size must be at most 1,000; received decoding.beam_size=1000000",
        ),
        ("training: {seed: 4294967296}", "training.seed must be at most 4,294,967,295; received"),
        (
            "training: {clip_norm: .inf}",
            "training.clip_norm must be positive and finite; received training.clip_norm=inf",
        ),
        (
            "training: {consistency: 1e999}",
            "training.consistency must be at least 0 and finite; received",
        ),
        (
            "training: {peak_learning_rate: .nan}",
            "training.peak_learning_rate must be positive and finite; received",
        ),
        (
            "training: {peak_learning_rate: %s}" % ("1" * 400),
            "training.peak_learning_rate must be positive and finite",
        ),
        (
            "decoding: {length_penalty: -.inf}",
            "decoding.length_penalty must be at least 0 and finite; received",
        ),
        (
            "model: {num_layers: 1000, d_model: 100000, d_ff: 1000000}",
            "the sizes in the section model must result in at most 10,000,000,000 parameters; they "
            "result in 520,0",
        ),
    ],
)
def test_absurd_sizes_are_refused(refused, text, problem):
    assert refused(text).startswith(problem)


def test_every_field_has_a_check_whose_limits_its_description_states():
    for section, cls in SECTIONS.items():
        texts = re.findall(
            r"^ {4}(\w+): (.*?)(?=\n {4}\w|\n\n)", inspect.getdoc(cls), re.DOTALL | re.MULTILINE
        )
        descriptions = {name: " ".join(text.split()) for name, text in texts}
        for field in dataclasses.fields(cls):
            if field.name == "augment":
                continue
            limits = field.metadata["check"].keywords
            if "at_most" in limits:
                stated = rf"\b(at most|to) {limits['at_most']:,}\b(?!,\d)"
                assert re.search(stated, descriptions[field.name], re.IGNORECASE), field.name
            for choice in limits.get("choices", ()):
                assert f'"{choice}"' in descriptions[field.name], f"{section}.{field.name}"


@pytest.mark.parametrize(
    "empty", ["", "model:", "training: ~", "training:\nmodel: {}\n", "# nothing"]
)
def test_an_empty_section_is_its_defaults(tmp_path, empty):
    path = tmp_path / "recipe.yaml"
    path.write_text(empty)
    assert load_recipe(path) == load_recipe()
    assert load_recipe(path, ["training.steps=5"]).training.steps == 5


@pytest.mark.parametrize("value", ["5", "0", "false", "''", "[]", "[1]", "text"])
@pytest.mark.parametrize("section", ["model", "tokenizer", "decoding", "training"])
def test_a_scalar_or_list_where_a_mapping_belongs_is_refused(refused, section, value):
    assert refused(f"{section}: {value}") == (
        f"{section} must be a mapping; received {section}={yaml.safe_load(value)!r}"
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5e-4", 0.0005),
        ("1e3", 1000),
        ("-2E+2", -200),
        ("1.0e3", 1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("6.02e23", 6.02e23),
        ("1_000", 1000),
        ("010", 10),
        ("-7", -7),
        ("1:30", "1:30"),
        ("0x10", "0x10"),
        ("1e", "1e"),
        ("e3", "e3"),
        ("2001-12-31", "2001-12-31"),
        ("'5e-4'", "5e-4"),
        ("true", True),
        ("null", None),
        ("", None),
        ("relu", "relu"),
    ],
)
def test_values_are_read_as_people_mean_them(tmp_path, text, value):
    received = parse_value(text)
    assert received == value and type(received) is type(value)
    path = tmp_path / "recipe.yaml"
    path.write_text(f"a: {text}")
    assert read_sections(path) == {"a": value}


def test_a_whole_number_may_be_in_scientific_notation():
    training = load_recipe(None, ["training.steps=2e5", "training.clip_norm=1e1"]).training
    assert training.steps == 200_000 and type(training.steps) is int
    assert training.clip_norm == 10 and type(training.clip_norm) is float


def test_an_alias_may_stand_for_a_number(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text("model: {d_model: &width 64, d_ff: *width}")
    assert load_recipe(path).model.d_ff == 64


def test_a_file_that_never_ends_is_refused(tmp_path):
    path = tmp_path / "recipe.yaml"
    path.symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match="longer than 20,000 characters"):
        load_recipe(path)


@pytest.mark.parametrize(
    ("text", "overrides", "blamed"),
    [
        ("model: {dropout: 2}", ["training.steps=5"], "model.dropout must be"),
        (
            "model: {dropout: 2}",
            ["model.dropout=3"],
            "--set model.dropout=3: model.dropout must be",
        ),
        (
            "model: {dropout: 0.1}",
            ["model.dropout=[1", "training.steps=5"],
            "--set model.dropout=[1: the value cannot",
        ),
        (
            "",
            ["model.d_model=100", "training.steps=5"],
            "--set model.d_model=100: model.d_model must be a multiple",
        ),
        ("model: {activation: training.steps}", ["training.steps=5"], "model.activation must be"),
        (
            "training: {steps: -1}",
            ["training.steps=5", "training.seed=-1"],
            "--set training.seed=-1: training.seed",
        ),
        (
            "",
            ["model.dropout=2", "model.dropout=2"],
            "--set model.dropout=2: model.dropout",
        ),
        (
            "training: []",
            ["training.steps=5"],
            "--set training.steps=5: training must be a mapping",
        ),
        (
            "model: {d_mode: 2}",
            ["model.d_model=64"],
            "unknown configuration key 'model.d_mode'; did you mean 'd_model'",
        ),
        ("data: {terms: 2}", ["decoding.terms={a: b}"], "data.terms must be"),
        (
            "",
            ["data.augment={typos: 2}", "training.steps=5"],
            "--set data.augment={typos: 2}: data.augment.typos must",
        ),
        (
            "",
            ["model.preset=big", "model.num_heads=7", "training.seed=5"],
            "--set model.preset=big, --set model.num_heads=7: model.d_model must be a multiple of",
        ),
        (
            "",
            ["model.(=1", "training.steps=5"],
            "--set model.(=1: unknown configuration key 'model.('",
        ),
        (
            "",
            ["decoding.beam_size=\n\n0"],
            "--set decoding.beam_size=\\n\\n0: decoding.beam_size must be positive",
        ),
        ("", ["x"], "--set x: --set must be given SECTION.KEY=VALUE; received 'x'"),
    ],
)
def test_the_file_or_the_override_is_blamed_where_the_value_came_from(
    refused, text, overrides, blamed
):
    assert refused(text, *overrides).startswith(blamed)


RECIPE = """\
model:
  preset: tiny
  num_heads: 4

training:
  average_last: 3
  subword_dropout: 0.1
data: {augment: {
  upper_case: 0.6}}
"""


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            "training.keep_checkpoints=2",
            "LINE 6, --set training.keep_checkpoints=2: training.average_last must be at most "
            "keep_checkpoints=2; received training.average_last=3",
        ),
        (
            "model.d_model=30",
            "--set model.d_model=30, LINE 3: model.d_model must be a multiple of num_heads=4 "
            "unless key_dim is given; received model.d_model=30",
        ),
        (
            "model.num_heads=3",
            "LINE 2, --set model.num_heads=3: model.d_model must be a multiple of num_heads=3 "
            "unless key_dim is given; received model.d_model=128",
        ),
        (
            "training.average_last=6",
            "--set training.average_last=6: training.average_last must be at most "
            "keep_checkpoints=5; received training.average_last=6",
        ),
        (
            "tokenizer.shared=false",
            "--set tokenizer.shared=false: model.tie_embeddings must be 'target' or 'none' if "
            "tokenizer.shared=False; received model.tie_embeddings='all', the default",
        ),
        (
            "tokenizer.kind=unigram",
            "LINE 7, --set tokenizer.kind=unigram: training.subword_dropout must be 0 if "
            "tokenizer.kind=unigram; received training.subword_dropout=0.1",
        ),
        (
            "data.augment.lower_case=1",
            "LINE 9, --set data.augment.lower_case=1: data.augment.upper_case + title_case + "
            "lower_case must be at most 1; received data.augment.upper_case + title_case + "
            "lower_case=1.6",
        ),
        (
            "data.augment={lower_case: 2}",
            "--set data.augment={lower_case: 2}: data.augment.lower_case must be at least 0 and "
            "at most 1; received data.augment.lower_case=2",
        ),
        (
            "training.steps.x=3",
            "--set training.steps.x=3: training.steps must be of type int; received "
            "training.steps={'x': 3}",
        ),
        (
            "model.d_model=1000000",
            "LINE 1, LINE 2, LINE 3, --set model.d_model=1000000: the sizes in the section model "
            "must result in at most 10,000,000,000 parameters; they result in 48,012,144,002,048",
        ),
    ],
)
def test_a_message_says_where_each_value_came_from(tmp_path, overrides, message):
    path = tmp_path / "recipe.yaml"
    path.write_text(RECIPE)
    with pytest.raises(ConfigError) as error:
        load_recipe(path, [overrides])
    assert str(error.value) == message.replace("LINE", f"{path}, line")


def test_a_message_says_that_a_value_is_that_of_the_model_to_start_from(tmp_path):
    model_dir = ModelDir(tmp_path)
    model_dir.write_config(
        Config(TransformerConfig(9, 9, sliding_window=5), TokenizerConfig("unigram"))
    )
    with pytest.raises(ConfigError) as error:
        load_recipe(None, ["training.guided_alignment=0.1"], model_dir)
    assert str(error.value) == (
        f"--set training.guided_alignment=0.1, {tmp_path}/config.yaml, line 23: "
        "training.guided_alignment must be 0 if model.sliding_window=5; received training.guided_alignment=0.1"
    )
    with pytest.raises(ConfigError) as error:
        load_recipe(None, ["decoding.keep=[a]"], model_dir)
    assert str(error.value) == (
        f"--set decoding.keep=[a], {tmp_path}/config.yaml, line 44: decoding.keep needs "
        "decoding.placeholders=true"
    )


def test_recipes_of_the_package_are_read_as_ever():
    paths = [
        *(pathlib.Path(__file__).resolve().parents[2] / "training" / "recipes").rglob("*.yaml")
    ]
    assert paths
    for path in paths:
        assert read_sections(path) == (yaml.safe_load(path.read_text()) or {})
