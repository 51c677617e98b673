"""Whether a SavedModel, in a process that knows nothing of this package, answers as the translator does."""

import base64
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.core.framework.tensor_pb2 import TensorProto

from keras_transformer.config.values import SignatureName
from keras_transformer.errors import VerificationError

from .signatures import SIGNATURES
from .versions import PROBES

# What placeholders stand for, in a model that has them.
_SPANS = [b"<b>{name}</b>, see https://a.org/b or %s"]
# Texts that nobody means well with.
_HOSTILE = [b"\xff\xc3 \0 a", "</s> <pad> <0x0A> ▁␛ >>de<<".encode(), ("a" + "\u0301" * 2000).encode()]
TEXTS = [*(text.encode() for text in PROBES), *_SPANS, *_HOSTILE]
# Of floats that were added up in another order. A bfloat16 has 8 bits: scores of random bytes differ by up to 0.7%.
_TOLERANCE = {"float32": 1e-4, "int8": 1e-4, "bfloat16": 2**-6}
_MAX_SECONDS = 3600
_PROGRAM = pathlib.Path(__file__).with_name("session_mode.py")


def verify(
    path: pathlib.Path, functions: Mapping[SignatureName, Any], precision: str = "float32", python: str = sys.executable
) -> None:
    """Checks a SavedModel in session mode, as TensorFlow Serving loads it, in a process of its own.

    Args:
        path: path of the SavedModel.
        functions: by the names of signatures, the concrete functions that were saved, which compute with the
            translator.
        precision: `Translator.precision`. Defaults to "float32".
        python: the interpreter that runs it, which may have other releases of TensorFlow and tensorflow-text. Defaults
            to the one of this process.

    Raises:
        VerificationError: It cannot be loaded, holds an operation that a model server does not register, or answers
            otherwise than the translator.
    """
    requests = []
    for name in functions:
        signature = SIGNATURES[name]
        inputs = signature.example(TEXTS)
        requests.append((name, {key: tf.constant(inputs[key], spec.dtype) for key, spec in signature.inputs.items()}))
    served = _run_session(path, requests, python)
    tolerance = _TOLERANCE[precision]
    for (name, inputs), answer in zip(requests, served, strict=True):
        expected = functions[name](**inputs)
        for key, tensor in expected.items():
            _compare(f"{name}: {key}", answer[key], tensor.numpy(), tolerance)


def _run_session(
    path: pathlib.Path, requests: list[tuple[SignatureName, dict[str, tf.Tensor]]], python: str
) -> list[dict[str, np.ndarray]]:
    encoded = [
        (name, {key: base64.b64encode(tf.make_tensor_proto(value).SerializeToString()).decode() for key, value in each})
        for name, each in ((name, inputs.items()) for name, inputs in requests)
    ]
    finished = subprocess.run(
        # -P: not to find the modules beside the program in the place of others.
        [python, "-P", str(_PROGRAM), str(path.resolve())],
        input=json.dumps(encoded),
        capture_output=True,
        text=True,
        timeout=_MAX_SECONDS,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"},
    )
    if finished.returncode != 0:
        lines = finished.stderr.strip().splitlines() or [f"exit code {finished.returncode}"]
        raise VerificationError(f"the SavedModel does not run in a session: {lines[-1]}")
    return [
        {key: tf.make_ndarray(TensorProto.FromString(base64.b64decode(each))) for key, each in row.items()}
        for row in json.loads(finished.stdout)
    ]


def _compare(name: str, served: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    is_same = served.shape == expected.shape and served.dtype == expected.dtype
    if is_same and expected.dtype.kind == "f":
        is_same = np.allclose(served, expected, rtol=tolerance, atol=tolerance)
    elif is_same:
        is_same = np.array_equal(served, expected)
    if not is_same:
        raise VerificationError(f"{name}: the SavedModel answers {served.tolist()}, the translator {expected.tolist()}")
