"""Search options: the same ranges in configurations, on the command line, and in Python."""

import keras
import numpy as np
import pytest

from keras_transformer.config import DecodingConfig
from keras_transformer.decoding import Constraints, beam_search, sample
from keras_transformer.errors import ConfigError
from keras_transformer.models import generate
from keras_transformer.translation import Sampling

TINY = 1e-300
# For each option, its limits, and values outside of them.
OUTSIDE = {
    "beam_size": [("at most 1,000", 1001), ("positive", 0)],
    "length_penalty": [("at most 5", 5.1), ("at least 0 and finite", -TINY)],
    "repetition_penalty": [("at least 0.01", TINY), ("at most 100", 100.1), ("at least 0.01", 0)],
    "no_repeat_ngram_size": [("at most 100", 101), ("at least 0", -1)],
    "temperature": [("positive and finite", 0), ("positive and finite", float("inf"))],
    "top_k": [("at most 1,000,000", 10**30), ("positive", 0)],
    "top_p": [("above 0 and at most 1", 1.1), ("above 0 and at most 1", 0)],
    "min_length": [("at most 1,000,000", 10**9), ("at least 0", -1)],
    "max_extra_tokens": [("at most 1,000,000", 10**9), ("at least 0", -1)],
    "max_new_tokens": [("at most 1,000,000", 10**9), ("positive", 0)],
    "min_new_tokens": [("at most 1,000,000", 10**9), ("at least 0", -1)],
}


def step(token_ids, parents, position, state):
    return keras.ops.zeros((*keras.ops.shape(token_ids), 4)), state


def search(function, **options):
    options = {"max_length": 3, "start_ids": 0, "end_ids": 1, **options}
    return function(step, (), [3], **options)


def configured(**options):
    return DecodingConfig(**options)


def constrained(**options):
    return search(beam_search, constraints=Constraints(**options))


def beam_searched(**options):
    return search(beam_search, **options)


def sampled(**options):
    return search(sample, seed=1, **options)


def generated(**options):
    return generate(None, [[1]], **{"max_new_tokens": 3, **options})


def sampled_translation(**options):
    return Sampling(1, **options).inputs()


INTERFACES = {
    configured: "beam_size length_penalty repetition_penalty no_repeat_ngram_size min_length "
    "max_extra_tokens",
    constrained: "repetition_penalty no_repeat_ngram_size min_length",
    beam_searched: "beam_size length_penalty",
    sampled: "temperature top_k top_p",
    sampled_translation: "temperature top_k top_p",
    generated: "beam_size length_penalty repetition_penalty no_repeat_ngram_size temperature top_k "
    "top_p max_new_tokens min_new_tokens",
}


@pytest.mark.parametrize(
    ("interface", "name", "rule", "value"),
    [
        (interface, name, rule, value)
        for interface, names in INTERFACES.items()
        for name in names.split()
        for rule, value in OUTSIDE[name]
    ],
)
def test_a_value_outside_of_its_range_is_refused(interface, name, rule, value):
    with pytest.raises(ConfigError) as error:
        interface(**{name: value})
    full_name = f"decoding.{name}" if interface is configured else name
    assert str(error.value).startswith(f"{full_name} must be {rule}; received {full_name}=")


@pytest.mark.parametrize("option", ["beam-size", "length-penalty", "temperature", "top-k", "top-p"])
def test_the_command_line_has_the_same_ranges(option, fails):
    for rule, value in OUTSIDE[option.replace("-", "_")]:
        command = ["translate", "--model-dir", "model", f"--{option}={value}"]
        assert f"--{option} must be {rule}; received --{option}=" in fails(*command)


@pytest.mark.parametrize("penalty", [0.01, 0.5, 1.5, 100])
def test_scores_are_finite_at_the_ends_of_the_range(penalty):
    hypotheses = search(beam_search, constraints=Constraints(repetition_penalty=penalty))
    assert np.isfinite(np.asarray(hypotheses.scores)).all()


@pytest.mark.parametrize("temperature", [1e-300, 1e300])
def test_tokens_are_drawn_at_any_temperature(temperature):
    hypotheses = search(sample, seed=1, temperature=temperature, top_p=1e-300)
    assert np.isfinite(np.asarray(hypotheses.scores)).all()
