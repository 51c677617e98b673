"""Configurations: the paper's sizes, and one clear line for every value that makes no sense."""

import dataclasses

import pytest

from keras_transformer import TransformerConfig
from keras_transformer.config import (
    ConfigError,
    DecodingConfig,
    TokenizerConfig,
    check_keys,
    from_dict,
)

VOCABULARIES = dict(source_vocab_size=100, target_vocab_size=100)


def message_of(function, *args, **kwargs):
    with pytest.raises(ConfigError) as error:
        function(*args, **kwargs)
    message = str(error.value)
    assert "\n" not in message
    return message


def test_presets_have_the_sizes_of_table_3():
    base = TransformerConfig.preset("base", **VOCABULARIES)
    assert base == TransformerConfig(**VOCABULARIES)
    sizes = (base.num_layers, base.d_model, base.d_ff, base.num_heads, base.dropout)
    assert sizes == (6, 512, 2048, 8, 0.1)
    big = TransformerConfig.preset("big", **VOCABULARIES)
    sizes = (big.num_layers, big.d_model, big.d_ff, big.num_heads, big.dropout)
    assert sizes == (6, 1024, 4096, 16, 0.3)
    for config in (base, big):
        assert config.attention_dropout == 0.0 and not config.norm_first
        assert (config.positions, config.activation) == ("sinusoidal", "relu")


def test_a_preset_may_be_changed():
    config = TransformerConfig.preset("tiny", **VOCABULARIES, d_model=64, norm_first=True)
    assert (config.d_model, config.norm_first, config.num_heads) == (64, True, 4)


def test_an_unknown_preset_is_refused():
    assert message_of(TransformerConfig.preset, "huge", **VOCABULARIES) == (
        "model.preset must be one of tiny, base, big; received 'huge'"
    )


def test_a_configuration_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TransformerConfig(**VOCABULARIES).d_model = 3


def test_dictionaries_go_round():
    config = TransformerConfig.preset("tiny", **VOCABULARIES, key_dim=5, neighborhood=9)
    assert from_dict(TransformerConfig, dataclasses.asdict(config), "model") == config


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("num_layer", "did you mean 'num_layers'?"),
        ("dmodel", "did you mean 'd_model'?"),
        ("tie_embedding", "did you mean 'tie_embeddings'?"),
        ("xyzzy", "known keys: source_vocab_size, target_vocab_size, num_layers, d_model,"),
    ],
)
def test_an_unknown_key_names_the_nearest(key, hint):
    for function in (from_dict, lambda cls, values, _: cls.preset("tiny", **values)):
        message = message_of(function, TransformerConfig, {**VOCABULARIES, key: 1}, "model")
        assert message.startswith(f"unknown configuration key 'model.{key}'; {hint}")


def test_keys_at_the_top_are_named_without_a_section():
    message = message_of(check_keys, {"modle": {}}, ["model", "training"])
    assert message == "unknown configuration key 'modle'; did you mean 'model'?"
    message = message_of(check_keys, [1], ["model"])
    assert message == "the configuration must be a mapping; received [1]"
    message = message_of(check_keys, None, ["beam_size"], "decoding")
    assert message == "decoding must be a mapping; received None"


def test_a_missing_key_is_named():
    message = message_of(from_dict, TransformerConfig, {"source_vocab_size": 9}, "model")
    assert message == "model.target_vocab_size is required and was not given"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"d_model": "512"}, "model.d_model must be of type int; received '512'"),
        ({"num_layers": 2.0}, "model.num_layers must be of type int; received 2.0"),
        ({"num_heads": True}, "model.num_heads must be of type int; received True"),
        ({"key_dim": "8"}, "model.key_dim must be of type int or null; received '8'"),
        ({"dropout": None}, "model.dropout must be of type float; received None"),
        ({"norm_first": 1}, "model.norm_first must be of type bool; received 1"),
        ({"activation": 3}, "model.activation must be of type str; received 3"),
        ({"source_vocab_size": 0}, "model.source_vocab_size must be positive; received 0"),
        ({"num_layers": 0}, "model.num_layers must be positive; received 0"),
        ({"d_ff": -1}, "model.d_ff must be positive; received -1"),
        ({"num_heads": 0}, "model.num_heads must be positive; received 0"),
        ({"key_dim": 0}, "model.key_dim must be positive; received 0"),
        ({"value_dim": -3}, "model.value_dim must be positive; received -3"),
        ({"neighborhood": 0}, "model.neighborhood must be positive and odd; received 0"),
        ({"neighborhood": 4}, "model.neighborhood must be positive and odd; received 4"),
        ({"neighborhood": -3}, "model.neighborhood must be positive and odd; received -3"),
        ({"neighborhood": 5.0}, "model.neighborhood must be of type int or null; received 5.0"),
        ({"max_length": 1}, "model.max_length must be at least 2; received 1"),
        ({"d_model": 9, "num_heads": 3}, "model.d_model must be even; received 9"),
        (
            {"d_model": 10, "num_heads": 3},
            "model.d_model must be a multiple of num_heads=3 where key_dim is not given; "
            "received 10",
        ),
        ({"dropout": 1}, "model.dropout must be at least 0 and below 1; received 1.0"),
        (
            {"dropout": float("nan")},
            "model.dropout must be at least 0 and below 1; received nan",
        ),
        (
            {"attention_dropout": -0.5},
            "model.attention_dropout must be at least 0 and below 1; received -0.5",
        ),
        (
            {"positions": "rotary"},
            "model.positions must be one of sinusoidal, learned; received 'rotary'",
        ),
        (
            {"tie_embeddings": True},
            "model.tie_embeddings must be of type str; received True",
        ),
        (
            {"tie_embeddings": "source"},
            "model.tie_embeddings must be one of none, target, all; received 'source'",
        ),
        (
            {"target_vocab_size": 90},
            "model.tie_embeddings must be 'target' or 'none' where the vocabularies differ in size "
            "(100 and 90); received 'all'",
        ),
    ],
)
def test_a_model_value_that_breaks_its_rule_is_named(values, message):
    assert message_of(TransformerConfig, **{**VOCABULARIES, **values}) == message


def test_whole_numbers_pass_for_fractions():
    config = TransformerConfig(**VOCABULARIES, dropout=0)
    assert type(config.dropout) is float


def test_key_dim_frees_d_model_from_the_heads():
    config = TransformerConfig(**VOCABULARIES, d_model=10, num_heads=3, key_dim=4)
    assert config.value_dim is None


@pytest.mark.parametrize(
    ("cls", "section", "values", "message"),
    [
        (
            TokenizerConfig,
            "tokenizer",
            {"kind": "word"},
            "tokenizer.kind must be one of bpe, unigram, wordpiece; received 'word'",
        ),
        (
            TokenizerConfig,
            "tokenizer",
            {"vocab_size": 4},
            "tokenizer.vocab_size must be above 4; received 4",
        ),
        (
            TokenizerConfig,
            "tokenizer",
            {"vocabsize": 4},
            "unknown configuration key 'tokenizer.vocabsize'; did you mean 'vocab_size'?",
        ),
        (
            DecodingConfig,
            "decoding",
            {"beam_size": 0},
            "decoding.beam_size must be positive; received 0",
        ),
        (
            DecodingConfig,
            "decoding",
            {"length_penalty": -1},
            "decoding.length_penalty must be at least 0; received -1.0",
        ),
        (
            DecodingConfig,
            "decoding",
            {"max_extra_tokens": -1},
            "decoding.max_extra_tokens must be at least 0; received -1",
        ),
    ],
)
def test_other_sections_name_theirs(cls, section, values, message):
    assert message_of(from_dict, cls, values, section) == message
