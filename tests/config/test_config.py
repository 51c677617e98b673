"""Configurations: the paper's sizes, and a clear one-line error for every invalid value."""

import dataclasses

import keras
import numpy as np
import pytest

from keras_transformer import TransformerConfig, build_transformer
from keras_transformer.config import (
    Config,
    DataConfig,
    DecodingConfig,
    TokenizerConfig,
    TrainingConfig,
)
from keras_transformer.config.model import ACTIVATIONS, MAX_PARAMETERS
from keras_transformer.config.sections import SECTIONS
from keras_transformer.config.values import check_keys, from_dict
from keras_transformer.errors import ConfigError
from keras_transformer.model_dir import ModelDir

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
    config = TransformerConfig.preset("tiny", **VOCABULARIES, d_model=64, norm_first=True)
    assert (config.d_model, config.norm_first, config.num_heads) == (64, True, 4)


def test_an_unknown_preset_is_refused():
    assert message_of(TransformerConfig.preset, "huge", **VOCABULARIES) == (
        "model.preset must be one of tiny, base, big; received model.preset='huge'"
    )


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("num_layer", "did you mean 'num_layers'?"),
        ("dmodel", "did you mean 'd_model'?"),
        ("tie_embedding", "did you mean 'tie_embeddings'?"),
        (
            "xyzzy",
            "known keys: source_vocab_size, target_vocab_size, num_layers, num_encoder_layers,",
        ),
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
    assert message == "decoding must be a mapping; received decoding=None"


def test_a_missing_key_is_named():
    message = message_of(from_dict, TransformerConfig, {"source_vocab_size": 9}, "model")
    assert message == "model.target_vocab_size is required"


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"d_model": "512"}, "of type int"),
        ({"norm_first": 1}, "of type bool"),
        ({"activation": 3}, "of type str"),
        ({"source_vocab_size": 0}, "positive"),
        ({"num_layers": 0}, "positive"),
        ({"num_encoder_layers": 0}, "positive"),
        ({"num_decoder_layers": True}, "of type int or null"),
        ({"epsilon": 1e6}, "at most 1"),
        ({"d_ff": -1}, "positive"),
        ({"num_heads": 0}, "positive"),
        ({"key_dim": 0}, "positive"),
        ({"value_dim": -3}, "positive"),
        ({"sliding_window": 0}, "positive"),
        ({"sliding_window": 1_000_001}, "at most 1,000,000"),
        ({"max_length": 1}, "at least 2"),
        ({"d_model": 9, "num_heads": 3}, "positive and even"),
        ({"d_model": 10, "num_heads": 3}, "a multiple of num_heads=3 unless key_dim is given"),
        ({"dropout": 1}, "at least 0 and below 1"),
        ({"attention_dropout": -0.5}, "at least 0 and below 1"),
        ({"positions": "relative"}, "one of sinusoidal, tensor2tensor, learned, rotary, alibi, t5"),
        ({"num_key_value_heads": 3, "num_heads": 8}, "a divisor of num_heads=8"),
        ({"key_dim": 5, "positions": "rotary"}, "even if positions='rotary'"),
        ({"normalization": "batch"}, "one of layer, rms"),
        ({"tie_embeddings": True}, "one of none, target, all"),
        ({"tie_embeddings": "source"}, "one of none, target, all"),
        (
            {"tie_embeddings": "all", "target_vocab_size": 90},
            "'target' or 'none' if the vocabularies differ in size (100 and 90)",
        ),
    ],
)
def test_a_model_value_that_breaks_its_rule_is_named(values, rule):
    """The first value is the one that breaks its rule."""
    name, value = next(iter(values.items()))
    message = message_of(TransformerConfig, **{**VOCABULARIES, **values})
    assert message == f"model.{name} must be {rule}; received model.{name}={value!r}"


def test_the_key_dim_that_follows_from_d_model_is_named():
    message = message_of(
        TransformerConfig, **VOCABULARIES, positions="rotary", d_model=12, num_heads=4
    )
    assert message == "model.key_dim must be even if positions='rotary'; received model.key_dim=3"


LIST = "a list of one or more values"
SCRIPT = "the name of a Unicode script, such as Latin, or several with commas"


@pytest.mark.parametrize(
    ("section", "values", "rule"),
    [
        ("tokenizer", {"kind": "word"}, "one of bpe, unigram, wordpiece, sentencepiece"),
        ("tokenizer", {"vocab_size": 4}, "at least 5"),
        ("decoding", {"forbidden_tokens": "all"}, "one of none, special, unknown"),
        ("decoding", {"repetition_penalty": 0}, "at least 0.01"),
        ("decoding", {"no_repeat_ngram_size": -1}, "at least 0"),
        ("decoding", {"max_extra_tokens": -1}, "at least 0"),
        ("decoding", {"beam_size": 0}, "positive"),
        ("decoding", {"length_penalty": -1}, "at least 0 and finite"),
        ("training", {"peak_learning_rate": 0}, "positive and finite"),
        ("training", {"decay": "linear"}, "one of inverse_sqrt, cosine, constant"),
        ("training", {"average_last": 6}, "at most keep_checkpoints=5"),
        ("training", {"average_last": 5, "average_best": 2}, "0 if average_best=2"),
        *(
            ("data", {"weights": [weight]}, "at least 0.001")
            for weight in (0, 1e-300, 0.00099, float("nan"))
        ),
        *(("data", {"weights": [weight]}, "at most 1,000") for weight in (1001, float("inf"))),
        ("data", {"weights": [True]}, "of type float"),
        ("data", {"weights": 2}, LIST),
        ("data", {"weights": []}, LIST),
        ("data", {"target_script": "Japanese"}, SCRIPT),
        ("data", {"source_script": "Latin}|."}, SCRIPT),
        ("data", {"max_length_ratio": 0.5}, "at least 1"),
        ("data", {"min_characters": 9, "max_characters": 8}, "at most max_characters=8"),
    ],
)
def test_a_value_of_another_section_that_breaks_its_rule_is_named(section, values, rule):
    """The first value is the one that breaks its rule."""
    name, value = next(iter(values.items()))
    message = message_of(from_dict, SECTIONS[section], values, section)
    if isinstance(value, list) and value:
        name, value = f"{name}[0]", value[0]
    assert message == f"{section}.{name} must be {rule}; received {section}.{name}={value!r}"


MODEL = TransformerConfig.preset("tiny", **VOCABULARIES, key_dim=5, sliding_window=5)


def test_a_whole_configuration_is_read_as_it_was_written(tmp_path):
    config = Config(
        MODEL,
        TokenizerConfig("unigram", 100),
        DecodingConfig(2, 1.0),
        TrainingConfig(clip_norm=0.5),
    )
    config = dataclasses.replace(
        config, data=DataConfig(weights=[2, 0.5], source_script="Latin", remove_copies=True)
    )
    ModelDir(tmp_path).write_config(config)
    assert ModelDir(tmp_path).read_config() == config
    assert [path.name for path in tmp_path.iterdir()] == ["config.yaml"]


def test_numbers_of_numpy_are_written_as_others(tmp_path):
    model = TransformerConfig(
        np.int64(100), np.int32(100), key_dim=np.int16(4), dropout=np.float32(0.25)
    )
    config = Config(model, training=TrainingConfig(steps=np.int64(5), clip_norm=np.float64(2)))
    ModelDir(tmp_path).write_config(config)
    assert ModelDir(tmp_path).read_config() == config


def test_an_empty_or_missing_section_has_its_defaults(tmp_path):
    content = "format_version: 2\nmodel: {source_vocab_size: 9, target_vocab_size: 9}\ntraining:\n"
    (tmp_path / "config.yaml").write_text(content)
    assert ModelDir(tmp_path).read_config() == Config(
        TransformerConfig(source_vocab_size=9, target_vocab_size=9)
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("format_version: 2\nmodel: 5", ", line 2: model must be a mapping; received model=5"),
        ("[1]", ": the file must hold a mapping; received list"),
        (
            "format_version: 2\nmodle: {}",
            ", line 2: unknown configuration key 'modle'; did you mean 'model'?",
        ),
        ("format_version: 2\ndecoding: {beam_size: 0}", ": model.source_vocab_size is required"),
    ],
)
def test_a_file_with_a_mistake_is_named(tmp_path, text, message):
    path = tmp_path / "config.yaml"
    path.write_text(text)
    assert message_of(ModelDir(tmp_path).read_config) == f"{path}{message}"


# The former name of the sliding window, r = 2w - 1.


def test_separate_vocabularies_have_separate_embeddings():
    message = message_of(Config, MODEL, TokenizerConfig("bpe", 100, shared=False))
    assert message == (
        "model.tie_embeddings must be 'target' or 'none' if tokenizer.shared=False; received "
        "model.tie_embeddings='all'"
    )
    config = Config(
        dataclasses.replace(MODEL, tie_embeddings="target"),
        TokenizerConfig("bpe", 100, shared=False),
    )
    sizes = config.with_vocab_sizes(90, 80).model
    assert (sizes.source_vocab_size, sizes.target_vocab_size) == (90, 80)


def test_values_of_different_sections_must_fit_each_other():
    message = message_of(
        Config,
        MODEL,
        TokenizerConfig("wordpiece", 100),
        training=TrainingConfig(subword_dropout=0.1),
    )
    assert message == (
        "training.subword_dropout must be 0 if tokenizer.kind=wordpiece; received "
        "training.subword_dropout=0.1"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        dict(tie_embeddings="target", norm_first=True, key_dim=5, value_dim=3),
        dict(tie_embeddings="none", positions="learned", max_length=30, source_vocab_size=90),
        dict(attention_bias=True, key_dim=5, value_dim=3, logits_bias=True),
        dict(num_encoder_layers=2, num_decoder_layers=1, num_layers=9),
        dict(feed_forward_bias=False, gated=True, positions="rotary"),
        dict(normalization="rms", norm_first=True, query_key_norm=True, key_dim=5, value_dim=3),
        dict(num_key_value_heads=2, key_dim=5, value_dim=3, attention_bias=True, positions="alibi"),
        dict(
            num_key_value_heads=1,
            num_encoder_layers=3,
            query_key_norm=True,
            tie_embeddings="target",
            positions="t5",
        ),
    ],
)
def test_the_number_of_parameters_is_that_of_the_model(changes):
    config = TransformerConfig.preset(
        "tiny", **{**VOCABULARIES, "d_model": 16, "d_ff": 24, **changes}
    )
    assert config.num_parameters == build_transformer(config).count_params()


def test_more_parameters_than_fit_a_machine_are_refused():
    largest = TransformerConfig(**VOCABULARIES, num_layers=600, d_model=1024, d_ff=800)
    assert 9e9 < largest.num_parameters <= MAX_PARAMETERS
    message = message_of(dataclasses.replace, largest, d_ff=10_000)
    assert message.startswith(
        "the sizes in the section model must result in at most 10,000,000,000 parameters; they "
        "result in "
    )


def test_an_activation_is_one_of_keras_that_keeps_the_width():
    def keeps_width(name):
        try:
            return keras.activations.get(name)(keras.ops.ones((2, 4))).shape == (2, 4)
        except (TypeError, ValueError):  # It needs arguments, or is none.
            return False

    names = {*dir(keras.activations), *ACTIVATIONS} - {"get", "serialize", "deserialize"}
    names = {name for name in names if not name.startswith("_")}
    assert {name for name in names if keeps_width(name)} == ACTIVATIONS
    assert not keeps_width("rleu") and not keeps_width("glu")
