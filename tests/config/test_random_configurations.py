"""Random configurations from files and `--set`: each is valid or rejected in one line."""

import dataclasses
import math

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from keras_transformer.config import Config
from keras_transformer.config.model import MAX_PARAMETERS, PRESETS
from keras_transformer.config.sections import SECTIONS
from keras_transformer.config.values import from_dict
from keras_transformer.errors import ConfigError
from keras_transformer.training.recipe import load_recipe

FIELDS = {
    section: [field.name for field in dataclasses.fields(cls)] for section, cls in SECTIONS.items()
}
KEYS = [f"{section}.{name}" for section, names in FIELDS.items() for name in names] + [
    "model.preset"
]

NUMBERS = st.one_of(
    st.integers(-2, 40),
    st.sampled_from(
        [
            0,
            1,
            2,
            8,
            64,
            512,
            10**3,
            10**6,
            10**9,
            2**31,
            2**32,
            2**63,
            10**18,
            10**40,
            -(10**30),
            10**400,
        ]
    ),
    st.integers(),
    st.floats(),
    st.floats(0, 1),
)
WORDS = st.sampled_from(
    [
        *(
            "relu",
            "gelu",
            "glu",
            "bpe",
            "unigram",
            "wordpiece",
            "none",
            "all",
            "target",
            "learned",
            "sinusoidal",
        ),
        *("rotary", "alibi", "t5", "layer", "rms"),
        *(
            "cosine",
            "inverse_sqrt",
            "auto",
            "float32",
            "bfloat16",
            "bleu",
            "perplexity",
            "yes",
            "off",
            *PRESETS,
        ),
    ]
)
SCALARS = st.one_of(
    NUMBERS,
    st.none(),
    st.booleans(),
    WORDS,
    st.text(max_size=20),
    st.binary(max_size=5),
    st.dates(),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=5) | NUMBERS, inner, max_size=3)
    ),
    max_leaves=6,
)


def mappings(section):
    names = st.sampled_from(FIELDS[section] + (["preset"] if section == "model" else []))
    return st.dictionaries(names, VALUES, max_size=4) | VALUES


SECTION_VALUES = st.fixed_dictionaries(
    {}, optional={section: mappings(section) for section in SECTIONS}
)
# As YAML writes them, and any text, with what is special in YAML more often than by chance.
DOCUMENTS = st.one_of(
    st.one_of(SECTION_VALUES, VALUES).map(lambda values: yaml.dump(values, allow_unicode=True)),
    SECTION_VALUES.map(lambda values: yaml.dump(values, default_flow_style=True)),
    st.text(),
    st.lists(
        st.sampled_from(
            [
                *(
                    "model",
                    "training",
                    "d_model",
                    "steps",
                    ": ",
                    ":",
                    "\n",
                    "  ",
                    "- ",
                    "{",
                    "}",
                    "[",
                    "]",
                    ",",
                ),
                *(
                    "&a ",
                    "*a",
                    "!!int ",
                    "!",
                    "<<",
                    "? ",
                    "| ",
                    "> ",
                    "'",
                    '"',
                    "#",
                    "%",
                    "---",
                    "...",
                    "\t",
                    "\ufeff",
                ),
                *(
                    "\\U",
                    "5e-4",
                    "1e999",
                    "0" * 5000,
                    ".inf",
                    "~",
                    "=",
                    "@",
                    "`",
                    "\x00",
                    "\ud800",
                    "\u2028",
                ),
                *("2001-99-99", "1:30", "é"),
            ]
        ),
        max_size=25,
    ).map("".join),
)
OVERRIDES = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(KEYS), VALUES).map(
            lambda pair: (
                f"{pair[0]}={yaml.dump(pair[1], default_flow_style=True).removesuffix('...' + chr(10)).strip()}"
            )
        ),
        st.tuples(st.sampled_from(KEYS), st.text(max_size=20)).map("=".join),
        st.text(max_size=20),
    ),
    max_size=3,
)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    return tmp_path_factory.mktemp("recipes") / "recipe.yaml"


def assert_valid(config):
    """What a valid configuration is, said again: all values finite and of their types, and a model
    that may fit."""
    for name, section in SECTIONS.items():
        values = dataclasses.asdict(getattr(config, name))
        for value in [*values.pop("augment", {}).values(), *values.values()]:
            for number in value if type(value) is list else [value]:
                assert number is None or type(number) in (int, float, bool, str)
                assert not isinstance(number, float) or math.isfinite(number)
                assert type(number) is not int or 0 <= number < 2**63
        assert from_dict(section, dataclasses.asdict(getattr(config, name)), name) == getattr(
            config, name
        )
    assert config.model.num_parameters <= MAX_PARAMETERS
    # Written and read again, as a model directory does.
    text = yaml.safe_dump(dataclasses.asdict(config), sort_keys=False)
    assert from_dict(Config, yaml.safe_load(text)) == config


HEALTH = dict(
    deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=True
)


@pytest.mark.slow
@settings(max_examples=2000, **HEALTH)
@given(DOCUMENTS, OVERRIDES)
@example("model: {num_layers: 0x" + "f" * 5000 + "}", [])
@example("", ["model.d_model=" + "1" * 5000])
def test_random_configurations_are_valid_or_refused_in_one_line(recipe, document, overrides):
    recipe.write_bytes(document.encode("utf-8", "surrogatepass"))
    try:
        config = load_recipe(recipe, overrides)
    except ConfigError as error:
        message = str(error)
        assert message and len(message.splitlines()) == 1 and len(message) < 3000
        return
    assert_valid(config)


# Small enough to train a step in seconds.
SMALL = {
    "model.num_layers": st.integers(1, 2),
    "model.d_model": st.sampled_from([8, 12, 16]),
    "model.d_ff": st.integers(1, 20),
    "model.num_heads": st.integers(1, 4),
    "model.key_dim": st.none() | st.integers(1, 9),
    "model.value_dim": st.none() | st.integers(1, 9),
    "model.dropout": st.floats(0, 0.9),
    "model.attention_dropout": st.floats(0, 0.9),
    "model.activation_dropout": st.floats(0, 0.9),
    "model.activation": st.sampled_from(
        ["relu", "gelu", "softmax", "mish", "sparsemax", "linear", "exponential"]
    ),
    "model.norm_first": st.booleans(),
    "model.positions": st.sampled_from(
        ["sinusoidal", "tensor2tensor", "learned", "rotary", "alibi", "t5"]
    ),
    "model.tie_embeddings": st.sampled_from(["none", "target", "all"]),
    "model.attention_bias": st.booleans(),
    "model.logits_bias": st.booleans(),
    "model.feed_forward_bias": st.booleans(),
    "model.normalization": st.sampled_from(["layer", "rms"]),
    "model.gated": st.booleans(),
    "model.num_key_value_heads": st.none() | st.integers(1, 4),
    "model.query_key_norm": st.booleans(),
    "model.num_decoder_layers": st.none() | st.integers(1, 2),
    "model.sliding_window": st.none() | st.integers(1, 20),
    "model.max_length": st.integers(20, 200),
    "tokenizer.kind": st.sampled_from(["bpe", "unigram"]),
    "tokenizer.shared": st.booleans(),
    "decoding.forbidden_tokens": st.sampled_from(["none", "special", "unknown"]),
    "decoding.beam_size": st.integers(1, 1000),
    "decoding.no_repeat_ngram_size": st.integers(0, 100),
    "decoding.repetition_penalty": st.floats(0.01, 100),
    "decoding.min_length": st.integers(0, 1_000_000),
    "training.tokens_per_batch": st.integers(100, 2000),
    "training.num_buckets": st.integers(1, 1000),
    "training.warmup_steps": st.integers(1, 2**63 - 1),
    "training.peak_learning_rate": st.none() | st.floats(1e-9, 0.01),
    "training.decay": st.sampled_from(["inverse_sqrt", "cosine"]),
    "training.label_smoothing": st.floats(0, 0.9),
    "training.consistency": st.sampled_from([0.0, 0.5, 5.0]),
    "training.clip_norm": st.none() | st.floats(1e-3, 1e30),
    "training.accumulate_steps": st.integers(1, 4),
    "training.precision": st.sampled_from(["auto", "float32", "bfloat16"]),
    "training.validate_every": st.integers(1, 2**63 - 1),
    "training.seed": st.integers(0, 2**32 - 1),
}


@pytest.mark.slow
@settings(max_examples=10, **HEALTH)
@given(st.fixed_dictionaries({}, optional=SMALL))
def test_what_is_accepted_trains_a_step(tmp_path_factory, changes):
    import keras

    from examples.corpus import generate
    from keras_transformer.training.run.devices import make_strategy
    from keras_transformer.training.run.trainer import train
    from keras_transformer.training.text.corpus import SentencePairs

    fixed = {
        "training.steps": 1,
        "training.average_last": 0,
        "tokenizer.vocab_size": 400,
        "training.num_buckets": 2,
    }
    small = {
        "model.num_layers": 1,
        "model.d_model": 16,
        "model.d_ff": 16,
        "model.num_heads": 2,
        "model.max_length": 64,
    }
    overrides = [
        f"{name}={yaml.safe_dump(value).split()[0]}"
        for name, value in {**small, **changes, **fixed}.items()
    ]
    try:
        config = load_recipe(None, overrides)
    except ConfigError:
        return
    if config.model.num_parameters > 10_000_000:
        return
    keras.utils.set_random_seed(config.training.seed)
    pairs = SentencePairs(*map(list, zip(*generate(200, seed=3))), name="invented")
    model_dir = tmp_path_factory.mktemp("trained") / "model"
    train(config, pairs, pairs, model_dir, make_strategy())
    assert (model_dir / "best.weights.h5").exists()
    keras.backend.clear_session()
