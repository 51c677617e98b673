"""Warm-up requests, which TensorFlow Serving sends to a SavedModel when it loads it."""

import itertools
import math
import os
import pathlib
import re
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.message import DecodeError

from keras_transformer.config.values import SignatureName
from keras_transformer.errors import InvalidFileError
from keras_transformer.translation import Translator
from keras_transformer.translation.compiled_search import num_places
from keras_transformer.translation.shapes import SearchShapes

from .signatures import Signature

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
# These requests cover all paths through the search. A few texts form one batch. 32 texts form two
# batches, which run in parallel and drop finished sentences.
REQUESTS = [_SENTENCES[:1], [""], _SENTENCES * 4, [" ".join(_SENTENCES)]]


def _field(
    name: str, number: int, message: str | None = None, label: str = "LABEL_OPTIONAL"
) -> dict[str, object]:
    """Describes a field that contains a string or a message."""
    kind = {"type": "TYPE_STRING"} if message is None else {"type_name": message}
    return {"name": name, "number": number, "label": label, **kind}


# The parts of TensorFlow Serving's messages that a request needs. The file contains only the
# numbers of fields, not their names, and stores the entries of a map as ordinary messages. The
# tests read the file with the package tensorflow-serving-api.
_MESSAGES = {
    "ModelSpec": [_field("signature_name", 3)],
    "Input": [_field("key", 1), _field("value", 2, ".tensorflow.TensorProto")],
    "PredictRequest": [
        _field("model_spec", 1, "ModelSpec"),
        _field("inputs", 2, "Input", "LABEL_REPEATED"),
    ],
    "PredictLog": [_field("request", 1, "PredictRequest")],
    "PredictionLog": [_field("predict_log", 6, "PredictLog")],
}
_PROTO = {
    "name": "keras_transformer/export/warmup.proto",
    "package": "keras_transformer.export",
    "dependency": ["tensorflow/core/framework/tensor.proto"],
    "message_type": [{"name": name, "field": fields} for name, fields in _MESSAGES.items()],
}
_FILE = json_format.ParseDict(_PROTO, descriptor_pb2.FileDescriptorProto())
descriptor_pool.Default().AddSerializedFile(_FILE.SerializeToString())
_PredictionLog = message_factory.GetMessageClass(
    descriptor_pool.Default().FindMessageTypeByName(f"{_FILE.package}.PredictionLog")
)

# TensorFlow Serving reads its warm-up requests from this file.
WARMUP = pathlib.PurePath("assets.extra", "tf_serving_warmup_requests")


def requests_that_compile(
    translator: Translator, shapes: SearchShapes, signatures: Mapping[SignatureName, Signature]
) -> dict[SignatureName, list[dict[str, tf.Tensor]]]:
    """Returns requests that compile every shape, for each signature that searches, by name.

    Signatures with the same function share their requests, under the name of the first one.
    """
    texts = _texts_of_lengths(translator, shapes)
    first_names: dict[object, SignatureName] = {}
    for name, signature in signatures.items():
        if signature.is_compilable:
            first_names.setdefault(signature.function, name)
    return {
        name: [
            _request_of_shape(translator, signatures[name], [text] * batch_size)
            for text in texts
            for batch_size in shapes.batch_sizes
        ]
        for name in first_names.values()
    }


def _texts_of_lengths(translator: Translator, shapes: SearchShapes) -> list[str]:
    """Returns the longest text for each length whose candidates fit the compiled search.

    The text does not fit the next shorter length. If a length is too short for any text, because
    the tag fills it, there is no text for it. If no list of candidates fits, the text is the
    shortest one.
    """
    # Without periods, the text is not divided when it is translated as a document.
    words = re.sub("[.?]", "", " ".join(_SENTENCES))
    # Each word has at least one token.
    longest = " ".join([words] * math.ceil(shapes.lengths[-1] / len(words.split())))
    beginnings = [longest[:end] for end in range(1, len(longest) + 1)]
    lengths = translator.num_tokens(beginnings)
    texts = []
    for shorter, length in itertools.pairwise((0, *shapes.lengths)):
        places = np.flatnonzero((lengths > shorter) & (lengths <= length))
        for place in reversed(places):
            text = beginnings[place]
            if place == places[0] or _has_short_list(translator, text, length):
                texts.append(text)
                break
    return texts


def _request_of_shape(
    translator: Translator, signature: Signature, texts: list[str]
) -> dict[str, tf.Tensor]:
    if "token_id" in signature.inputs:
        return {"token_id": tf.constant(translator.token_ids(texts), tf.int32)}
    request = signature.request(texts)
    if "tag" in request:
        # Other tags would change the numbers of tokens.
        request["tag"] = tf.constant([translator.decoding.tag or ""] * len(texts))
    return request


def _has_short_list(translator: Translator, text: str, length: int) -> bool:
    """Returns whether the text's list of candidates fits the compiled search for a length."""
    candidates = translator.graph.candidates
    if candidates is None:
        return True
    num_candidates = tf.size(candidates.of(tf.constant(translator.token_ids([text])), None))
    # The signature may put a tag in front of the text.
    num_candidates += candidates.by_source.shape[1]
    return bool(num_candidates <= num_places(candidates, tf.constant(length)))


def write_warmup_requests(
    saved_model: str | os.PathLike[str],
    signatures: Mapping[SignatureName, Signature],
    more: Mapping[SignatureName, Sequence[dict[str, tf.Tensor]]] | None = None,
) -> None:
    """Writes `REQUESTS` for each signature to TensorFlow Serving's warm-up file.

    Args:
        more: Additional requests, by signature name. Defaults to None.
    """
    path = pathlib.Path(saved_model, WARMUP)
    path.parent.mkdir(exist_ok=True)
    # Signatures with the same function share a graph, which has to be warmed up only once.
    chosen: dict[object, SignatureName] = {}
    for name, signature in signatures.items():
        chosen.setdefault(signature.function, name)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for name in chosen.values():
            requests = [signatures[name].request(texts) for texts in REQUESTS]
            for tensors in [*requests, *(more or {}).get(name, ())]:
                inputs = [
                    {"key": key, "value": tf.make_tensor_proto(tensor)}
                    for key, tensor in tensors.items()
                ]
                request = {"model_spec": {"signature_name": name}, "inputs": inputs}
                writer.write(_PredictionLog(predict_log={"request": request}).SerializeToString())


def read_warmup_requests(
    saved_model: str | os.PathLike[str],
) -> list[tuple[str, dict[str, tf.Tensor]]]:
    """Returns TensorFlow Serving's warm-up requests, as pairs of signature name and inputs.

    Raises:
        InvalidFileError: The file is damaged.
    """
    path = pathlib.Path(saved_model, WARMUP)
    if not path.is_file():
        return []
    requests = []
    try:
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            request = _PredictionLog.FromString(record).predict_log.request
            inputs = {part.key: tf.constant(tf.make_ndarray(part.value)) for part in request.inputs}
            requests.append((request.model_spec.signature_name, inputs))
    except (tf.errors.DataLossError, DecodeError, TypeError, ValueError):
        raise InvalidFileError(
            f"{path}: the warm-up requests cannot be read; export the model again"
        ) from None
    return requests
