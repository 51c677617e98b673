"""Requests that TensorFlow Serving answers while it loads a SavedModel, so that no user waits for the first answer."""

import os
import pathlib
from collections.abc import Sequence

import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from keras_transformer.config.values import SignatureName

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


def write_warmup_requests(
    saved_model: str | os.PathLike[str], signatures: Sequence[SignatureName] = ("serving_default",)
) -> None:
    """Writes `REQUESTS` for each signature to where TensorFlow Serving looks for them.

    Args:
        saved_model: str or path of a SavedModel.
        signatures: names of `SIGNATURES` that it has. Defaults to `serving_default`.
    """
    path = pathlib.Path(saved_model, "assets.extra", "tf_serving_warmup_requests")
    path.parent.mkdir(exist_ok=True)
    # Of signatures that are one, the first.
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
