"""Runs requests to a SavedModel in a session, like TensorFlow Serving.

This program does not import the package:

    python session_mode.py SAVED_MODEL < requests > answers

The requests are a JSON list of [signature name, {name: tensor}]. Each tensor is a serialized
TensorProto in Base64. The answers are JSON too: [kind of device, list of {name: tensor}]. They also
contain the hidden outputs, which the function of a signature returns but the signature does not
list: "~score" and "~token_id" if it searches.
"""

import base64
import json
import pathlib
import sys

import numpy as np
import tensorflow as tf
import tensorflow_text
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow.core.protobuf.meta_graph_pb2 import MetaGraphDef, SignatureDef

# TensorFlow registers these operations in Python, but not in a model server.
_PYTHON = {"PyFunc", "EagerPyFunc", "PyFuncStateless"}
# Hidden outputs of functions that search, see signatures.py.
HIDDEN = ("~score", "~token_id")


def check_operations(meta_graph: MetaGraphDef) -> None:
    """Exits if a graph contains an operation that a model server does not register."""
    libraries = pathlib.Path(tensorflow_text.__file__).parent.glob("python/ops/_*.so")
    # Each library becomes a module with a function for each operation.
    registered = {name for path in libraries for name in dir(tf.load_op_library(str(path)))}
    registered |= set(dir(tf.raw_ops)) - _PYTHON
    functions = meta_graph.graph_def.library.function
    nodes = list(meta_graph.graph_def.node)
    for function in functions:
        nodes += function.node_def
    used = {node.op for node in nodes} - {function.signature.name for function in functions}
    unknown = {name for name in used if name.replace(">", "_") not in registered}
    if unknown:
        sys.exit(f"a model server does not register {', '.join(sorted(unknown))}")


def encoded(tensor: tf.Tensor | np.ndarray) -> str:
    return base64.b64encode(tf.make_tensor_proto(tensor).SerializeToString()).decode()


def decoded(tensor: str) -> np.ndarray:
    return tf.make_ndarray(TensorProto.FromString(base64.b64decode(tensor)))


def answer(
    session: tf.compat.v1.Session, signature: SignatureDef, tensors: dict[str, str]
) -> dict[str, str]:
    fed = {signature.inputs[name].name: decoded(tensor) for name, tensor in tensors.items()}
    fetched = {
        name: session.graph.get_tensor_by_name(output.name)
        for name, output in signature.outputs.items()
    }
    # All outputs come from one operation, which calls the function, in the order of their names.
    function = next(iter(fetched.values())).op
    fetched.update(zip(HIDDEN, function.outputs[len(fetched) :], strict=False))
    answers = session.run(fetched, fed)
    return {name: encoded(tensor) for name, tensor in answers.items()}


def main(path: str) -> None:
    # From here on, importing the package fails.
    sys.modules["keras_transformer"] = None  # type: ignore[assignment]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        meta_graph = tf.compat.v1.saved_model.load(session, ["serve"], path)
        check_operations(meta_graph)
        requests = json.load(sys.stdin)
        answers = [
            answer(session, meta_graph.signature_def[name], tensors) for name, tensors in requests
        ]
    device = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
    json.dump([device, answers], sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
