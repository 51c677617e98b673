"""The proof of an export: the SavedModel returns what the translator returns, up to rounding.

Rounding can change a close decision of a search, and then all later tokens. So the translator's
graph searches too, and computes by how much its closest decision fell, the margin of the search:

1. If the margin of a text is greater than any rounding, both searches must find the same tokens.
   The other texts are undecided, and are counted.
2. The translator's graph follows the tokens that the SavedModel found for all texts. Their scores,
   and all other outputs that it computes from them, must be the outputs of the SavedModel.

A signature without a search has only outputs to compare.
"""

import json
import logging
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from keras_transformer.checks import shown
from keras_transformer.config.values import SignatureName
from keras_transformer.errors import VerificationError
from keras_transformer.runtime.device import kind_of_device
from keras_transformer.runtime.progress import counted
from keras_transformer.translation import Translator
from keras_transformer.translation.graph import TranslationGraph

from .publishing import PROBES
from .session_mode import decoded, encoded
from .signatures import HIDDEN_MARGINS, HIDDEN_SCORES, HIDDEN_TOKENS, SIGNATURES, Signature

# Models with placeholders keep these spans as they are.
_SPANS = [b"<b>{name}</b>, see https://a.org/b or %s"]
# Adversarial inputs.
_HOSTILE = [
    b"\xff\xc3 \0 a",
    "</s> <pad> <0x0A> ▁␛ >>de<<".encode(),
    ("a" + "\u0301" * 2000).encode(),
]
TEXTS = [*(text.encode() for text in PROBES), *_SPANS, *_HOSTILE]

_MAX_SECONDS = 3600
_PROGRAM = pathlib.Path(__file__).with_name("session_mode.py")

_log = logging.getLogger(__name__)

Inputs = Mapping[str, tf.Tensor]
Outputs = dict[str, np.ndarray]


# The largest accepted differences between two numbers, absolute or relative to the number.
FLOAT32 = 1e-4
# GPUs multiply float32 numbers in TF32, which has 11 bits. The format bfloat16 has 8 bits.
TF32 = 2**-8
BFLOAT16 = 2**-6


def tolerance_of(precision: str, devices: Sequence[str]) -> float:
    """Returns the tolerance for a precision of the weights on these kinds of devices."""
    if precision == "bfloat16":
        return BFLOAT16
    return TF32 if "GPU" in devices else FLOAT32


def decides(margins: np.ndarray, tolerance: float) -> np.ndarray:
    """Returns whether searches with these margins are decided.

    With an error below a quarter of its margin, a search finds the same tokens. The scores of long
    texts have larger errors, but the candidates of a decision share most of them.
    `benchmarks/proofs.py` measures the largest margin of a search that found other tokens.
    """
    return margins > 4 * tolerance


def verify(
    path: pathlib.Path,
    translator: Translator,
    signatures: Mapping[SignatureName, Signature] = SIGNATURES,
    more: Mapping[SignatureName, Sequence[Inputs]] | None = None,
    python: str = sys.executable,
) -> None:
    """Proves that a SavedModel returns the same results as the translator.

    The SavedModel runs in a separate process and in session mode, as in TensorFlow Serving.

    Args:
        signatures: The signatures of the SavedModel.
        more: Requests to signatures in addition to `TEXTS`. Defaults to None.
        python: The interpreter of the process, which may have other versions of TensorFlow and
            tensorflow-text. Defaults to the interpreter of this process.

    Raises:
        VerificationError: The SavedModel cannot be loaded, contains an operation that a model
            server does not register, or returns other results than the translator.
    """
    requests: list[tuple[SignatureName, Inputs]] = []
    for name, signature in signatures.items():
        all_inputs = [signature.request(TEXTS), *(more or {}).get(name, ())]
        requests += [(name, inputs) for inputs in all_inputs]
    device, answers = _run_session(path, requests, python)
    devices = (kind_of_device(), device)
    tolerance = tolerance_of(translator.precision, devices)
    compared = (
        f"with a tolerance of {tolerance:.1g} for {translator.precision} "
        f"(translator: {devices[0]}, SavedModel: {device})"
    )
    reference = translator.graph.with_margins()
    num_texts = num_undecided = 0
    for (name, inputs), answer in zip(requests, answers, strict=True):
        try:
            margins = check_answer(reference, signatures[name], inputs, answer, tolerance)
        except VerificationError as error:
            raise VerificationError(f"{name}: {error}\ncompared {compared}") from None
        num_texts += margins.size
        num_undecided += int(np.count_nonzero(~decides(margins, tolerance)))
    _log.info(
        f"verified {compared}; {counted(num_texts, 'translation')}, {num_undecided} undecided: "
        "rounding could change a decision of the search"
    )


def check_answer(
    reference: TranslationGraph,
    signature: Signature,
    inputs: Inputs,
    answer: Outputs,
    tolerance: float,
) -> np.ndarray:
    """Checks the answer of a SavedModel to a request.

    Args:
        reference: The translator's graph with margins.
        answer: All outputs, also the hidden ones.

    Returns:
        The margins of the searches for all texts, or for all sentences of documents. The array is
        empty for a signature without a search.

    Raises:
        VerificationError: The answer differs from the reference.
    """
    expected = compute(reference, signature, inputs)
    margins = expected.pop(HIDDEN_MARGINS, np.zeros(0))
    for key, values in expected.items():
        name = key.lstrip("~")
        if (answer[key].shape, answer[key].dtype) != (values.shape, values.dtype):
            raise VerificationError(
                f"{name}: the SavedModel returns {answer[key].dtype} {answer[key].shape}; "
                f"the translator returns {values.dtype} {values.shape}"
            )
    if HIDDEN_TOKENS in expected:
        _check_search(reference, answer, expected, decides(margins, tolerance))
        expected = compute(reference, signature, inputs, answer)
    for key in expected:
        differs = _differs(key, answer, expected, tolerance)
        _require_equal(key, answer[key], expected[key], differs)
    return margins


def compute(
    reference: TranslationGraph,
    signature: Signature,
    inputs: Inputs,
    answer: Outputs | None = None,
) -> Outputs:
    """Returns the outputs of the reference.

    Args:
        answer: An answer of the SavedModel. The reference then does not search, but follows the
            tokens of the answer. Defaults to None.
    """
    if answer is not None:
        is_missing = np.isneginf(answer[HIDDEN_SCORES])
        token_ids = np.where(is_missing[:, :, None], -1, answer[HIDDEN_TOKENS])
        reference = reference.with_known_tokens(tf.constant(token_ids))
    outputs = signature.function(reference, **inputs)
    return {key: np.asarray(tensor) for key, tensor in outputs.items()}


def _check_search(
    reference: TranslationGraph, answer: Outputs, expected: Outputs, is_decided: np.ndarray
) -> None:
    """Checks the tokens of decided texts, and the order of the translations of all texts."""
    scores, wanted_scores = (outputs[HIDDEN_SCORES] for outputs in (answer, expected))
    is_missing = np.isneginf(scores)  # (number of texts, n_best)
    _require_equal("score", scores, wanted_scores, is_missing != np.isneginf(wanted_scores))
    _require_equal("score", scores[:, 1:], scores[:, :-1], scores[:, 1:] > scores[:, :-1])
    token_ids, wanted_ids = (outputs[HIDDEN_TOKENS] for outputs in (answer, expected))
    differs = (token_ids != wanted_ids).any(axis=2) & is_decided[:, None]
    if differs.any():
        tokenizer = reference.codec.tokenizers.target
        texts, wanted_texts = (
            tf.strings.reduce_join(tokenizer.id_to_piece(tf.constant(ids)), 2, separator=" ")
            for ids in (token_ids, wanted_ids)
        )
        _require_equal("text", texts.numpy(), wanted_texts.numpy(), differs)


def _differs(key: str, answer: Outputs, expected: Outputs, tolerance: float) -> np.ndarray:
    """Returns a mask of the elements of an output that differ by more than rounding."""
    received, wanted = answer[key], expected[key]
    if wanted.dtype.kind == "f":
        return ~np.isclose(received, wanted, rtol=tolerance, atol=tolerance)
    differs = np.asarray(received != wanted)
    if key == "position":
        # If the attention to several positions is equal up to rounding, accept any of them.
        attention = expected["attention"]
        places = np.clip(received, 0, attention.shape[-1] - 1)
        chosen = np.take_along_axis(attention, places[..., None], axis=-1)[..., 0]
        is_greatest = chosen >= attention.max(axis=-1) - 2 * tolerance
        differs &= ~(is_greatest & (places == received))
    return differs


def _require_equal(key: str, received: np.ndarray, wanted: np.ndarray, differs: np.ndarray) -> None:
    """Raises a VerificationError that describes the first element that differs, if there is one.

    Texts are cut to a few characters around the first byte that differs.
    """
    if not differs.any():
        return
    name = key.lstrip("~")
    place = tuple(np.argwhere(differs)[0])
    received, wanted = received[place], wanted[place]
    if isinstance(wanted, bytes):
        begin = max(len(os.path.commonprefix([received, wanted])) - 20, 0)  # noqa: RUF071
        received = shown(received[begin : begin + 60].decode(errors="replace"))
        wanted = shown(wanted[begin : begin + 60].decode(errors="replace"))
    raise VerificationError(
        f"{name}: {np.count_nonzero(differs)} of {differs.size} values differ by more than "
        f"rounding, the first in text {place[0] + 1}\n"
        f"SavedModel: {received}\n"
        f"translator: {wanted}"
    )


def _run_session(
    path: pathlib.Path, requests: Sequence[tuple[SignatureName, Inputs]], python: str
) -> tuple[str, list[Outputs]]:
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
