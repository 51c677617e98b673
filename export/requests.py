"""Requests to a SavedModel before users send theirs: some warm up a server, others check what was written."""

import base64
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from tensorflow.core.framework.tensor_pb2 import TensorProto

from keras_transformer.config.values import SignatureName
from keras_transformer.errors import VerificationError

from .publishing import PROBES
from .signatures import SIGNATURES

_SENTENCES = [
    "A dog runs.",
    "Two children are playing in front of an old house.",
    "The train to the coast leaves at 7:45, if it leaves at all.",
    "Why?",
    "My sister painted the kitchen while it rained.",
    "Nobody in the village remembered who had built the bridge, or when.",
    "He buys bread, cheese and apples.",
    "On Sundays the library stays closed.",
]
# All paths through the search: few texts are one batch; 32 are two, side by side, which finished sentences leave.
REQUESTS = [_SENTENCES[:1], [""], _SENTENCES * 4, [" ".join(_SENTENCES)]]

# The part of TensorFlow Serving's messages that a request needs. In a file, numbers matter and names do not, and the
# entries of a map are messages like any others. The tests read the file with the package tensorflow-serving-api.
_PROTO = """
name: "keras_transformer/export/warmup.proto"
package: "keras_transformer.export"
dependency: "tensorflow/core/framework/tensor.proto"
message_type {
  name: "ModelSpec"
  field { name: "signature_name" number: 3 label: LABEL_OPTIONAL type: TYPE_STRING }
}
message_type {
  name: "Input"
  field { name: "key" number: 1 label: LABEL_OPTIONAL type: TYPE_STRING }
  field { name: "value" number: 2 label: LABEL_OPTIONAL type_name: ".tensorflow.TensorProto" }
}
message_type {
  name: "PredictRequest"
  field { name: "model_spec" number: 1 label: LABEL_OPTIONAL type_name: "ModelSpec" }
  field { name: "inputs" number: 2 label: LABEL_REPEATED type_name: "Input" }
}
message_type {
  name: "PredictLog"
  field { name: "request" number: 1 label: LABEL_OPTIONAL type_name: "PredictRequest" }
}
message_type {
  name: "PredictionLog"
  field { name: "predict_log" number: 6 label: LABEL_OPTIONAL type_name: "PredictLog" }
}
"""
_FILE = text_format.Parse(_PROTO, descriptor_pb2.FileDescriptorProto())
descriptor_pool.Default().AddSerializedFile(_FILE.SerializeToString())
_PredictionLog = message_factory.GetMessageClass(
    descriptor_pool.Default().FindMessageTypeByName(f"{_FILE.package}.PredictionLog")
)

# What placeholders stand for, in a model that has them.
_SPANS = [b"<b>{name}</b>, see https://a.org/b or %s"]
# Texts as an attacker may send them.
_HOSTILE = [b"\xff\xc3 \0 a", "</s> <pad> <0x0A> ▁␛ >>de<<".encode(), ("a" + "\u0301" * 2000).encode()]
TEXTS = [*(text.encode() for text in PROBES), *_SPANS, *_HOSTILE]
# Floats are added up in another order. A bfloat16 has 8 bits: scores of random bytes differ by up to 0.7%.
_TOLERANCE = {"float32": 1e-4, "int8": 1e-4, "bfloat16": 2**-6}
_MAX_SECONDS = 3600
_PROGRAM = pathlib.Path(__file__).with_name("session_mode.py")


def write_warmup_requests(
    saved_model: str | os.PathLike[str], signatures: Sequence[SignatureName] = ("serving_default",)
) -> None:
    """Writes `REQUESTS` for each signature to where TensorFlow Serving looks for them."""
    path = pathlib.Path(saved_model, "assets.extra", "tf_serving_warmup_requests")
    path.parent.mkdir(exist_ok=True)
    # Signatures with the same function are one graph, which is warmed up once.
    chosen: dict[object, SignatureName] = {}
    for name in signatures:
        chosen.setdefault(SIGNATURES[name].function, name)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for name in chosen.values():
            signature = SIGNATURES[name]
            for texts in REQUESTS:
                inputs = signature.example(texts)
                request = {
                    "model_spec": {"signature_name": name},
                    "inputs": [
                        {"key": key, "value": tf.make_tensor_proto(inputs[key], spec.dtype)}
                        for key, spec in signature.inputs.items()
                    ],
                }
                writer.write(_PredictionLog(predict_log={"request": request}).SerializeToString())


def verify(
    path: pathlib.Path, functions: Mapping[SignatureName, Any], precision: str = "float32", python: str = sys.executable
) -> None:
    """Checks a SavedModel in session mode, as TensorFlow Serving loads it, in a process of its own.

    Args:
        functions: by the names of signatures, the concrete functions that were saved, which compute with the
            translator.
        precision: that of the translator.
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
        for key, tensor in functions[name](**inputs).items():
            received, expected = answer[key], tensor.numpy()
            is_same = received.shape == expected.shape and received.dtype == expected.dtype
            if is_same and expected.dtype.kind == "f":
                is_same = np.allclose(received, expected, rtol=tolerance, atol=tolerance)
            elif is_same:
                is_same = np.array_equal(received, expected)
            if not is_same:
                raise VerificationError(
                    f"{name}: {key}: the SavedModel answers {received.tolist()}, the translator {expected.tolist()}"
                )


def _run_session(
    path: pathlib.Path, requests: list[tuple[SignatureName, dict[str, tf.Tensor]]], python: str
) -> list[dict[str, np.ndarray]]:
    encoded = [(name, {key: _encoded(tensor) for key, tensor in inputs.items()}) for name, inputs in requests]
    finished = subprocess.run(
        # -P: modules beside the program must not hide others of the same name.
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
        {key: tf.make_ndarray(TensorProto.FromString(base64.b64decode(tensor))) for key, tensor in answer.items()}
        for answer in json.loads(finished.stdout)
    ]


def _encoded(tensor: tf.Tensor) -> str:
    """As session_mode.py reads it."""
    return base64.b64encode(tf.make_tensor_proto(tensor).SerializeToString()).decode()
