"""Checks: what each accepts, and its message for everything else; and the fields that name them."""

import dataclasses
import fractions
import functools
import math

import numpy as np
import pytest

from keras_transformer import checks
from keras_transformer.config.values import REQUIRED, check_fields, checked, tag
from keras_transformer.errors import ConfigError

NAN, INFINITY = math.nan, math.inf
KINDS = ("bpe", "unigram")
LIST = "a list of one or more values"

# A check, values that it lets through, and values that it refuses, with the rule that each breaks.
CASES = {
    "integer": (
        checks.integer,
        [0, -7, 10**30, np.int8(-7)],
        [(value, "of type int") for value in (True, 0.0, "0", None, np.False_)],
    ),
    "integer within limits": (
        functools.partial(checks.integer, at_least=5, at_most=1000),
        [5, 6, 1000, np.int64(5)],
        [(4, "at least 5"), (1001, "at most 1,000"), (5.0, "of type int"), (None, "of type int")],
    ),
    "integer or None": (
        functools.partial(checks.integer, optional=True),
        [None, 1],
        [(value, "of type int or null") for value in (False, "8", 8.0)],
    ),
    "positive_int": (
        checks.positive_int,
        [1, 2, 10**30, np.int64(3), np.uint8(1)],
        [
            *((value, "positive") for value in (0, -1, np.int32(0))),
            *(
                (value, "of type int")
                for value in (None, True, False, 1.0, "1", NAN, [1], np.float32(1), np.True_)
            ),
        ],
    ),
    "positive_int or None": (
        functools.partial(checks.positive_int, at_most=9, optional=True),
        [None, 1, 9],
        [(0, "positive"), (10, "at most 9"), (True, "of type int or null")],
    ),
    "non_negative_int": (
        functools.partial(checks.non_negative_int, at_most=1000),
        [0, 1, 1000, np.int64(0)],
        [
            (-1, "at least 0"),
            (1001, "at most 1,000"),
            *((value, "of type int") for value in (0.0, None, False)),
        ],
    ),
    "number": (
        checks.number,
        [0.0, -7, NAN, INFINITY, np.float16(1)],
        [(value, "of type float") for value in (True, "0", None, 1j)],
    ),
    "number within limits": (
        functools.partial(checks.number, at_least=0.001, at_most=1000),
        [0.001, 1, 1000, np.float32(2)],
        [
            *((value, "at least 0.001") for value in (0, 1e-300, 0.00099, NAN, -INFINITY)),
            *((value, "at most 1,000") for value in (1001, INFINITY)),
        ],
    ),
    "finite_number": (
        functools.partial(checks.finite_number, optional=True),
        [None, 0, -1e300, np.float32(2)],
        [
            *((value, "finite") for value in (NAN, INFINITY, -INFINITY, 10**400)),
            ("1", "of type float or null"),
        ],
    ),
    "finite_number of at least 1": (
        functools.partial(checks.finite_number, at_least=1),
        [1, 1.5],
        [(0.5, "at least 1"), (NAN, "at least 1"), (INFINITY, "finite")],
    ),
    "positive_float": (
        functools.partial(checks.positive_float, at_most=5),
        [1e-300, 1, 2.5, 5, np.float64(3)],
        [
            *(
                (value, "positive and finite")
                for value in (0, 0.0, -1e-9, NAN, INFINITY, -INFINITY, 10**400)
            ),
            (5.1, "at most 5"),
            *((value, "of type float") for value in (None, "1", True)),
        ],
    ),
    "non_negative_float": (
        functools.partial(checks.non_negative_float, optional=True),
        [None, 0, 0.0, 5, 1e300],
        [
            *((value, "at least 0 and finite") for value in (-1e-9, -1, NAN, INFINITY)),
            *((value, "of type float or null") for value in ("1", False)),
        ],
    ),
    "rate": (
        checks.rate,
        [0, 0.0, 0.5, 0.999, np.float32(0.25), np.int64(0), fractions.Fraction(1, 2)],
        [
            *(
                (value, "at least 0 and below 1")
                for value in (1, 1.0, 1.5, -0.1, NAN, INFINITY, -INFINITY, np.float32("nan"))
            ),
            *((value, "of type float") for value in (None, "0.5", True, False, 1j, np.False_)),
        ],
    ),
    "probability": (
        checks.probability,
        [0, 0.5, 1],
        [*((value, "at least 0 and at most 1") for value in (-0.1, 1.1, NAN))],
    ),
    "fraction": (
        checks.fraction,
        [1e-9, 0.5, 1],
        [*((value, "above 0 and at most 1") for value in (0, 1.1, NAN))],
    ),
    "boolean": (
        checks.boolean,
        [True, False],
        [(value, "of type bool") for value in (0, 1, None, "true", 1.0)],
    ),
    "boolean or None": (
        functools.partial(checks.boolean, optional=True),
        [None, True],
        [(0, "of type bool or null")],
    ),
    "one_of": (
        functools.partial(checks.one_of, choices=KINDS),
        ["bpe", "unigram"],
        [(value, "one of bpe, unigram") for value in ("BPE", "", None, 0, ["bpe"], b"bpe")],
    ),
    "one_of or None": (
        functools.partial(checks.one_of, choices=KINDS, optional=True),
        [None, "bpe"],
        [("none", "one of bpe, unigram")],
    ),
    "text": (
        checks.text,
        ["", "relu", np.str_("relu"), "caf\udce9"],
        [
            *((value, "of type str") for value in (None, 1, b"relu", ["relu"])),
            *((value, "Unicode text without NUL characters") for value in ("a\0", "\ud800")),
        ],
    ),
    "utf_8": (
        checks.utf_8,
        ["", "café", "\ufffe"],
        [("caf\udce9", "valid UTF-8"), ("\0", "Unicode text without NUL characters")],
    ),
    "text_not_empty": (
        functools.partial(checks.text_not_empty, optional=True),
        [None, " ", "relu"],
        [("", "a text that is not empty"), (1, "of type str or null")],
    ),
    "text_not_blank": (
        checks.text_not_blank,
        ["relu", " relu "],
        [*((value, "a text that is not blank") for value in ("", " \n")), (None, "of type str")],
    ),
    "picture_path": (
        checks.picture_path,
        ["a.png", "a/b.SVG", "a.pdf", ".html"],
        [("a.jpg", "a file ending in .png, .svg, .pdf or .html"), (1, "of type str")],
    ),
    "list_of": (
        functools.partial(checks.list_of, item=checks.positive_int),
        [[1], [2, 3]],
        [(value, LIST) for value in ([], 1, "1", (1,), None)],
    ),
    "list_of texts, or None": (
        functools.partial(
            checks.list_of, item=functools.partial(checks.text, optional=True), optional=True
        ),
        [None, ["a", None]],
        [([], LIST)],
    ),
    "tag": (
        tag,
        ["<bt>", ">>de<<"],
        [
            *((value, "a tag such as <bt> or >>de<<") for value in ("", "bt", "<pad>", "<bt> ")),
            (None, "of type str"),
        ],
    ),
}


def passing():
    return [
        pytest.param(CASES[name][0], value, id=f"{name}-{str(value)[:40]!r}")
        for name in CASES
        for value in CASES[name][1]
    ]


def refused():
    return [
        pytest.param(CASES[name][0], value, rule, id=f"{name}-{str(value)[:40]!r}")
        for name in CASES
        for value, rule in CASES[name][2]
    ]


def assert_refused(function, message):
    with pytest.raises(ConfigError) as error:
        function()
    assert str(error.value) == message


@pytest.mark.parametrize(("check", "value"), passing())
def test_a_value_that_obeys_its_rule_is_returned(check, value):
    received = check("width", value)
    assert received == value or math.isnan(value)
    # NumPy's integers become ints where the check is for integers.
    if getattr(check, "func", check) in (checks.integer, checks.positive_int):
        assert type(received) in (int, type(None))


@pytest.mark.parametrize(("check", "value", "rule"), refused())
def test_a_value_that_breaks_its_rule_is_refused(check, value, rule):
    # NumPy's integers are shown as ints.
    shown = checks.shown(checks.plain(value))
    assert_refused(lambda: check("width", value), f"width must be {rule}; received width={shown}")


def test_an_item_of_a_list_that_breaks_its_rule_is_named():
    assert_refused(
        lambda: checks.list_of("sizes", [1, 0], checks.positive_int),
        "sizes[1] must be positive; received sizes[1]=0",
    )


# The former name of a sliding window.


# Fields.


@dataclasses.dataclass(frozen=True)
class Section:
    size: int = checked(REQUIRED, checks.positive_int)
    rate: float = checked(0, checks.rate)
    scale: float | None = checked(2, checks.positive_float, at_most=8, optional=True)
    weight: float | None = checked(None, checks.number, optional=True)
    kind: str = checked("bpe", checks.one_of, choices=KINDS)
    flag: bool = checked(False, checks.boolean)
    anything: object = 3

    def __post_init__(self):
        check_fields(self, "section")


def test_fields_that_obey_their_rules_pass_and_integers_become_floats_where_the_type_says_so():
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
    assert type(Section(np.int64(4)).size) is int and type(Section(4, np.float32(0)).rate) is float
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'size'"):
        Section()


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        (dict(size=0), "positive"),
        (dict(size=2**63), "at most 9,223,372,036,854,775,807"),
        (dict(rate=1), "at least 0 and below 1"),
        (dict(scale="2"), "of type float or null"),
        (dict(scale=9), "at most 8"),
        (dict(weight="heavy"), "of type float or null"),
        (dict(kind="word"), "one of bpe, unigram"),
        (dict(flag=1), "of type bool"),
    ],
)
def test_a_field_that_breaks_its_rule_is_named_with_its_section(changes, rule):
    ((name, value),) = changes.items()
    message = f"section.{name} must be {rule}; received section.{name}={value!r}"
    assert_refused(lambda: Section(**{"size": 4, **changes}), message)
