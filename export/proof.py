"""Verifies that a new SavedModel returns the same results as its translator."""

import contextlib
import json
import logging
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
import tensorflow as tf

from keras_transformer.checks import shown
from keras_transformer.config.values import SignatureName
from keras_transformer.errors import VerificationError
from keras_transformer.runtime.device import kind_of_device
from keras_transformer.runtime.progress import counted

from .publishing import PROBES
from .session_mode import decoded, encoded
from .signatures import SIGNATURES, Signature

# Models with placeholders keep these spans as they are.
_SPANS = [b"<b>{name}</b>, see https://a.org/b or %s"]
# Adversarial inputs.
_HOSTILE = [
    b"\xff\xc3 \0 a",
    "</s> <pad> <0x0A> ▁␛ >>de<<".encode(),
    ("a" + "\u0301" * 2000).encode(),
]
TEXTS = [*(text.encode() for text in PROBES), *_SPANS, *_HOSTILE]


class _Rounding(NamedTuple):
    """The precision of matrix products on a device."""

    unit: float  # the largest relative error of a product, after its terms are summed
    tolerance: float  # the largest accepted difference between two results


_FLOAT32 = _Rounding(2**-20, 1e-4)
# GPUs multiply float32 numbers in TF32, which has 11 bits. The format bfloat16 has 8 bits.
_TF32 = _Rounding(2**-10, 2**-8)
_BFLOAT16 = _Rounding(2**-7, 2**-6)
# The translator repeats a request at most this many times, with slightly changed weights.
_MAX_NUDGES = 128
# If this many repetitions return texts that no other repetition returns, more repetitions would
# return further texts.
_MANY_UNIQUE = 8
_MAX_SECONDS = 3600
_PROGRAM = pathlib.Path(__file__).with_name("session_mode.py")
_log = logging.getLogger(__name__)


def verify(
    path: pathlib.Path,
    functions: Mapping[SignatureName, Any],
    signatures: Mapping[SignatureName, Signature] = SIGNATURES,
    precision: str = "float32",
    more: Mapping[SignatureName, Sequence[dict[str, tf.Tensor]]] | None = None,
    python: str = sys.executable,
) -> None:
    """Checks that a SavedModel returns the same results as the translator.

    The SavedModel runs in a separate process and in session mode, as in TensorFlow Serving.

    Small differences between numbers are accepted as rounding. Rounding can also change a close
    decision between two tokens or positions. The search then continues differently, and the final
    score can be far from the expected score. The score therefore cannot show whether a different
    text is due to rounding. Instead, the translator repeats the request up to 128 times with some
    of its weights rounded up or down, and each value must match one of the repetitions. If at least
    eight repetitions return a text that no other repetition returns, as happens if a search repeats
    words in a loop, any text and any score are accepted.

    Args:
        functions: The concrete functions that were saved, by signature name. They run the
            translator.
        signatures: Their signatures, by the same names.
        precision: The precision of the translator. Defaults to "float32".
        more: Requests to signatures in addition to `TEXTS`. Defaults to None.
        python: The interpreter of the process, which may have other versions of TensorFlow and
            tensorflow-text. Defaults to the interpreter of this process.

    Raises:
        VerificationError: The SavedModel cannot be loaded, contains an operation that a model
            server does not register, or returns different results than the translator.
    """
    requests = [(name, signatures[name].request(TEXTS)) for name in functions]
    requests += [(name, inputs) for name in functions for inputs in (more or {}).get(name, ())]
    device, served = _run_session(path, requests, python)
    devices = (kind_of_device(), device)
    if precision == "bfloat16":
        rounding = _BFLOAT16
    elif "GPU" in devices:
        rounding = _TF32
    else:
        rounding = _FLOAT32
    compared = (
        f"with a tolerance of {rounding.tolerance:.1g} for {precision} "
        f"(translator: {devices[0]}, SavedModel: {device})"
    )
    num_rounded = 0
    for (name, inputs), answer in zip(requests, served, strict=True):
        expected = _compute(functions[name], inputs)
        for key, values in expected.items():
            received = answer[key]
            if (received.shape, received.dtype) != (values.shape, values.dtype):
                raise VerificationError(
                    f"{name}: {key}: the SavedModel returns {received.dtype} {received.shape}; "
                    f"the translator returns {values.dtype} {values.shape}"
                )
        differs = _differences(answer, expected, rounding)
        num_rounded += sum(int(elements.sum()) for elements in differs.values())
        nudged: list[dict[str, np.ndarray]] = []
        while any(map(np.any, differs.values())) and len(nudged) < _MAX_NUDGES:
            with _nudged(functions[name].variables, rounding.unit, len(nudged)):
                nudged.append(_compute(functions[name], inputs))
            again = _differences(answer, nudged[-1], rounding)
            differs = {key: elements & again[key] for key, elements in differs.items()}
        _leave_out_undecided(differs, nudged)
        for key, elements in differs.items():
            if elements.any():
                difference = _first_difference(elements, answer[key], expected[key])
                raise VerificationError(f"{name}: {key}: {difference}\ncompared {compared}")
    _log.info(f"verified {compared}; {counted(num_rounded, 'value')} differed because of rounding")


def _compute(function: Any, inputs: dict[str, tf.Tensor]) -> dict[str, np.ndarray]:
    return {key: tensor.numpy() for key, tensor in function(**inputs).items()}


def _differences(
    answer: dict[str, np.ndarray], expected: dict[str, np.ndarray], rounding: _Rounding
) -> dict[str, np.ndarray]:
    """Returns masks of the elements of each output that differ from the expected values."""
    tolerance = rounding.tolerance
    differs = {}
    for key, values in expected.items():
        if values.dtype.kind == "f":
            differs[key] = ~np.isclose(answer[key], values, rtol=tolerance, atol=tolerance)
        else:
            differs[key] = np.asarray(answer[key] != values)
    if "position" in differs:
        # If the attention to several positions is equal up to rounding, accept any of them.
        positions = answer["position"]
        attention = expected["attention"]
        places = np.clip(positions, 0, attention.shape[-1] - 1)
        chosen = np.take_along_axis(attention, places[..., None], axis=-1)[..., 0]
        is_greatest = chosen >= attention.max(axis=-1) - 2 * tolerance
        differs["position"] &= ~(is_greatest & (places == positions))
    return differs


def _leave_out_undecided(
    differs: dict[str, np.ndarray], nudged: Sequence[Mapping[str, np.ndarray]]
) -> None:
    """Accepts values that rounding changes again and again, and all numbers of the same texts.

    Accepted values become False in `differs`.
    """
    is_undecided = np.zeros(len(next(iter(differs.values()))), bool)
    is_number = {key: bool(nudged) and nudged[0][key].dtype.kind == "f" for key in differs}
    for key, elements in differs.items():
        if elements.any() and not is_number[key]:
            answers = np.stack([answer[key][elements] for answer in nudged])
            is_often_new = _num_unique(answers) >= _MANY_UNIQUE
            is_undecided[np.nonzero(elements)[0][is_often_new]] = True
            elements[elements] = ~is_often_new
    for key, elements in differs.items():
        elements[is_undecided & is_number[key]] = False


def _num_unique(
    answers: Annotated[np.ndarray, "(answers, n)"],
) -> Annotated[np.ndarray, "int (n,)"]:
    """Returns the number of answers that occur only once, for each element."""
    ordered = np.sort(answers, axis=0)
    changes = np.asarray(ordered[1:] != ordered[:-1], "bool")
    changes = np.pad(changes, [(1, 1), (0, 0)], constant_values=True)
    return np.count_nonzero(changes[1:] & changes[:-1], axis=0)


@contextlib.contextmanager
def _nudged(variables: Sequence[tf.Variable], unit: float, nudge: int) -> Iterator[None]:
    """Makes some weights one unit larger or smaller while the block runs.

    Single weights change, and whole rows and columns of matrices, as if the inputs and outputs of
    their products were rounded. The share of the weights that change grows from nudge to nudge,
    in eight steps from 1/128 to all of them.
    """
    random = np.random.default_rng(nudge)
    share = 2.0 ** (8 * nudge // _MAX_NUDGES - 7)

    def random_units(shape: tuple[int, ...]) -> np.ndarray:
        return random.choice([-1, 0, 1], shape, p=[share / 2, 1 - share, share / 2])

    weights = [variable for variable in variables if variable.dtype.is_floating]
    kept = [variable.numpy() for variable in weights]
    try:
        for variable, values in zip(weights, kept, strict=True):
            units = random_units(values.shape)
            for axis, size in enumerate(values.shape):
                units = units + random_units((size,) + (1,) * (values.ndim - 1 - axis))
            changed = values.astype("float32") * (1 + unit * units)
            variable.assign(changed.astype(values.dtype))
        yield
    finally:
        for variable, values in zip(weights, kept, strict=True):
            variable.assign(values)


def _first_difference(differs: np.ndarray, answer: np.ndarray, expected: np.ndarray) -> str:
    """Describes the first element that differs, in three lines.

    Texts are cut to a few characters around the first byte that differs.
    """
    place = tuple(np.argwhere(differs)[0])
    received = answer[place]
    wanted = expected[place]
    if isinstance(wanted, bytes):
        begin = max(len(os.path.commonprefix([received, wanted])) - 20, 0)  # noqa: RUF071
        received = shown(received[begin : begin + 60].decode(errors="replace"))
        wanted = shown(wanted[begin : begin + 60].decode(errors="replace"))
    return (
        f"{np.count_nonzero(differs)} of {differs.size} values differ by more than rounding, "
        f"the first in text {place[0] + 1}\n"
        f"SavedModel: {received}\n"
        f"translator: {wanted}"
    )


def _run_session(
    path: pathlib.Path, requests: list[tuple[SignatureName, dict[str, tf.Tensor]]], python: str
) -> tuple[str, list[dict[str, np.ndarray]]]:
    """Runs session_mode.py, and returns the kind of device that it used and the results."""
    texts = [
        (name, {key: encoded(tensor) for key, tensor in inputs.items()})
        for name, inputs in requests
    ]
    try:
        finished = subprocess.run(
            # With -P, files in the program's directory cannot shadow other modules.
            [python, "-P", str(_PROGRAM), str(path)],
            input=json.dumps(texts),
            capture_output=True,
            text=True,
            timeout=_MAX_SECONDS,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
        )
    except subprocess.TimeoutExpired:
        raise VerificationError(
            f"the SavedModel has not answered after {_MAX_SECONDS:,} seconds"
        ) from None
    if finished.returncode != 0:
        lines = finished.stderr.strip().splitlines() or [f"exit code {finished.returncode}"]
        raise VerificationError(f"the SavedModel does not run in a session: {lines[-1]}")
    device, answers = json.loads(finished.stdout)
    return device, [{key: decoded(tensor) for key, tensor in answer.items()} for answer in answers]
