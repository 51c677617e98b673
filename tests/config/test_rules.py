"""Rules as annotations: what each accepts, and its message for everything else."""

import dataclasses
import fractions
import math
import pydoc
from collections.abc import Callable
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from keras_transformer.config.values import check_fields
from keras_transformer.errors import ConfigError
from keras_transformer.rules import (
    Count,
    EvenSize,
    NonNegative,
    OddSize,
    Positive,
    Rate,
    Rule,
    Size,
    at_least,
    check,
    check_attributes,
    checked,
)

NAN, INFINITY = math.nan, math.inf
Kind = Literal["bpe", "unigram"]

# An annotation, values that it lets through, and values that it refuses, with the rule that each
# breaks.
CASES = {
    "Size": (
        Size,
        [1, 2, 10**30, np.int64(3), np.uint8(1)],
        [
            *((value, "positive") for value in (0, -1, np.int32(0))),
            *(
                (value, "of type int")
                for value in (None, True, False, 1.0, "1", NAN, [1], np.float32(1), np.True_)
            ),
        ],
    ),
    "EvenSize": (
        EvenSize,
        [2, 4, np.int64(6)],
        [
            *((value, "positive and even") for value in (0, 1, 3, -2)),
            *((value, "of type int") for value in (2.0, None, "2", True)),
        ],
    ),
    "OddSize": (
        OddSize,
        [1, 3, np.int64(5)],
        [
            *((value, "positive and odd") for value in (0, 2, -1)),
            *((value, "of type int") for value in (3.0, None, True)),
        ],
    ),
    "Count": (
        Count,
        [0, 1, np.int64(0)],
        [(-1, "at least 0"), (0.0, "of type int"), (None, "of type int"), (False, "of type int")],
    ),
    "Rate": (
        Rate,
        [0, 0.0, 0.5, 0.999, np.float32(0.25), np.int64(0), fractions.Fraction(1, 2)],
        [
            *(
                (value, "at least 0 and below 1")
                for value in (1, 1.0, 1.5, -0.1, NAN, INFINITY, -INFINITY)
            ),
            (np.float32("nan"), "at least 0 and below 1"),
            *((value, "of type float") for value in (None, "0.5", True, False, 1j, np.False_)),
        ],
    ),
    "Positive": (
        Positive,
        [1e-300, 1, 2.5, np.float64(3)],
        [
            *(
                (value, "positive and finite")
                for value in (0, 0.0, -1e-9, NAN, INFINITY, -INFINITY)
            ),
            *((value, "of type float") for value in (None, "1", True)),
        ],
    ),
    "NonNegative": (
        NonNegative,
        [0, 0.0, 5, 1e300],
        [
            *((value, "at least 0 and finite") for value in (-1e-9, -1, NAN, INFINITY)),
            *((value, "of type float") for value in (None, "1", False)),
        ],
    ),
    "at_least": (
        Annotated[int, at_least(5)],
        [5, 6],
        [(4, "at least 5"), (-5, "at least 5"), (5.0, "of type int"), (None, "of type int")],
    ),
    "two rules": (
        Annotated[int, at_least(2), Rule("below 4", lambda value: value < 4)],
        [2, 3],
        [(1, "at least 2"), (4, "below 4"), ("3", "of type int")],
    ),
    "int": (
        int,
        [0, -7, np.int8(-7)],
        [(value, "of type int") for value in (True, 0.0, "0", None, np.False_)],
    ),
    "float": (
        float,
        [0.0, -7, NAN, INFINITY, np.float16(1)],
        [(value, "of type float") for value in (True, "0", None, 1j)],
    ),
    "bool": (bool, [True, False], [(value, "of type bool") for value in (0, 1, None, "true", 1.0)]),
    "str": (
        str,
        ["", "relu", np.str_("relu")],
        [(value, "of type str") for value in (None, 1, b"relu", ["relu"])],
    ),
    "Literal": (
        Kind,
        ["bpe", "unigram"],
        [(value, "one of bpe, unigram") for value in ("BPE", "", None, 0, ["bpe"], b"bpe")],
    ),
    "Size or None": (
        Size | None,
        [None, 1],
        [(0, "positive"), *((value, "of type int or null") for value in (False, "8", 8.0))],
    ),
    "Rate or None": (
        Rate | None,
        [None, 0.5],
        [(NAN, "at least 0 and below 1"), (True, "of type float or null")],
    ),
    "bool or None": (bool | None, [None, True], [(0, "of type bool or null")]),
    "Literal or None": (Kind | None, [None, "bpe"], [("none", "one of bpe, unigram")]),
    "list": (
        list[Size | None],
        [[1], [2, None]],
        [(value, "a list of one or more values") for value in ([], 1, "1")],
    ),
}
NOT_CHECKED = [Any, object, dict, int | str, int | str | None, Callable[[int], int], "a name", Rule]


def passing():
    return [
        pytest.param(CASES[name][0], value, id=f"{name}-{value!r}")
        for name in CASES
        for value in CASES[name][1]
    ]


def refused():
    return [
        pytest.param(CASES[name][0], value, rule, id=f"{name}-{value!r}")
        for name in CASES
        for value, rule in CASES[name][2]
    ]


def assert_refused(function, message):
    with pytest.raises(ConfigError) as error:
        function()
    assert str(error.value) == message


@pytest.mark.parametrize(("annotation", "value"), passing())
def test_a_value_that_obeys_its_rule_passes(annotation, value):
    check("width", value, annotation)


@pytest.mark.parametrize(("annotation", "value", "rule"), refused())
def test_a_value_that_breaks_its_rule_is_refused(annotation, value, rule):
    assert_refused(
        lambda: check("width", value, annotation), f"width must be {rule}; received width={value!r}"
    )


@pytest.mark.parametrize("annotation", NOT_CHECKED, ids=str)
@pytest.mark.parametrize("value", [None, 0, True, NAN, "text", [1]], ids=repr)
def test_other_annotations_are_not_checked(annotation, value):
    check("width", value, annotation)


def test_an_item_of_a_list_that_breaks_its_rule_is_named():
    assert_refused(
        lambda: check("sizes", [1, 0], list[Size]), "sizes[1] must be positive; received sizes[1]=0"
    )


# Fields.


@dataclasses.dataclass(frozen=True)
class Section:
    size: Size
    rate: Rate = 0
    scale: Positive | None = 2
    weight: float | None = None
    kind: Kind = "bpe"
    flag: bool = False
    anything: Any = 3

    def __post_init__(self):
        check_fields(self, "section")


def test_fields_that_obey_their_rules_pass_and_integers_become_floats_where_the_rule_says_so():
    section = Section(4, weight=7)
    assert (section.rate, section.scale, section.weight) == (0.0, 2.0, 7.0)
    assert [type(value) for value in dataclasses.astuple(section)] == [
        int,
        float,
        float,
        float,
        str,
        bool,
        int,
    ]
    assert Section(4, scale=None).scale is None
    assert Section(4, rate=0.25, anything=None) == Section(size=4, rate=0.25, anything=None)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        (dict(size=0), "positive"),
        (dict(rate=1), "at least 0 and below 1"),
        (dict(scale="2"), "of type float or null"),
        (dict(weight="heavy"), "of type float or null"),
        (dict(kind="word"), "one of bpe, unigram"),
        (dict(flag=1), "of type bool"),
    ],
)
def test_a_field_that_breaks_its_rule_is_named_with_its_section(changes, rule):
    ((name, value),) = changes.items()
    message = f"section.{name} must be {rule}; received section.{name}={value!r}"
    assert_refused(lambda: Section(**{"size": 4, **changes}), message)


# Arguments.


@checked
def function(
    size: Size,
    rate: Rate = 0.5,
    *others: Any,
    width: Size | None = None,
    plain=1,
    kind: "Kind" = "bpe",
    **kwargs: Size,
) -> list[Any]:
    """What it does."""
    return [size, rate, others, width, plain, kind, kwargs]


def test_arguments_that_obey_their_rules_arrive_as_they_were_given():
    assert function(3) == [3, 0.5, (), None, 1, "bpe", {}]
    assert function(3, 0, 7, 8, width=2, plain="x", kind="unigram", more="a") == [
        *(3, 0, (7, 8), 2, "x", "unigram"),
        {"more": "a"},  # Further keyword arguments belong to somebody else.
    ]
    assert type(function(size=3, rate=0)[1]) is int


def test_integers_of_numpy_arrive_as_ints():
    size, rate, others, width, *_ = function(
        np.int64(3), np.float32(0.5), np.int64(1), width=np.uint8(2)
    )
    assert [type(value) for value in (size, rate, *others, width)] == [
        int,
        np.float32,
        np.int64,
        int,
    ]


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((0,), {}, "size must be positive; received size=0"),
        ((), {"size": "3"}, "size must be of type int; received size='3'"),
        ((3, True), {}, "rate must be of type float; received rate=True"),
        ((3,), {"rate": NAN}, "rate must be at least 0 and below 1; received rate=nan"),
        ((3,), {"width": 2.0}, "width must be of type int or null; received width=2.0"),
        ((3,), {"kind": "word"}, "kind must be one of bpe, unigram; received kind='word'"),
    ],
)
def test_an_argument_that_breaks_its_rule_is_refused_however_it_is_given(args, kwargs, message):
    assert_refused(lambda: function(*args, **kwargs), message)


def test_help_shows_rules_in_words():
    assert "Annotated[int, Rule(text='positive')]" in pydoc.plain(pydoc.render_doc(function))


# Attributes.


class Layer:
    def __init__(
        self,
        size: Size,
        rate: Rate = 0.5,
        *,
        kind: "Kind" = "bpe",
        activation: str | Callable = "relu",
        plain=1,
        **kwargs,
    ) -> None:
        self.size = size
        self.rate = rate
        self.kind = kind
        self.activation = len  # Not what was given; it has no rule.
        check_attributes(self, Layer)


class WiderLayer(Layer):
    def __init__(self, width: Size, rate: Size = 0, **kwargs: Size) -> None:
        super().__init__(2 * width, **kwargs)
        self.rate = rate


def test_an_attribute_that_breaks_the_rule_of_its_argument_is_refused():
    assert_refused(lambda: Layer(0, kind="word"), "size must be positive; received size=0")


def test_arguments_of_a_subclass_are_its_own_affair():
    layer = Layer(3, 0, kind="unigram", plain="x", more="a")
    assert (layer.size, layer.rate, type(layer.rate), layer.kind, layer.activation) == (
        3,
        0,
        int,
        "unigram",
        len,
    )
    # Its `width` is not even an attribute, and its `rate` breaks the rule that it gave it.
    assert (WiderLayer(2).size, WiderLayer(2, rate=-1).rate) == (4, -1)
    assert_refused(lambda: WiderLayer(-1), "size must be positive; received size=-2")
