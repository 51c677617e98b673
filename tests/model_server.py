"""A server for tests: TensorFlow Serving's own service stubs, and its REST API, around a SavedModel
in a session.

What a request may look like, and how errors are reported, is as in TensorFlow Serving, whose server
cannot be installed with pip. It listens on the loopback interface only.
"""

import base64
import concurrent.futures
import contextlib
import http.server
import json
import threading

import grpc
import numpy as np
import tensorflow as tf
from session_mode import SavedModelSession
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

# The label of every model's version.
LABEL = "stable"


class InvalidRequestError(Exception):
    """A request that does not fit the signatures."""


class BusyError(Exception):
    """The queue is full."""


class Model:
    """What both protocols call."""

    def __init__(self, name, path):
        self.name, self.version = name, int(path.name)
        self.run = SavedModelSession(path)

    def signature(self, name):
        if name not in self.run.signatures:
            raise InvalidRequestError(f'Serving signature key "{name}" not found.')
        return self.run.signatures[name]

    def inputs(self, name, given):
        """What a signature takes, if that is what is given."""
        infos = self.signature(name).inputs
        if sorted(given) != sorted(infos):
            raise InvalidRequestError(
                f"the inputs must be {sorted(infos)}; received {sorted(given)}"
            )
        return infos

    def predict(self, signature_name, inputs):
        infos = self.inputs(signature_name, inputs)
        for name, array in inputs.items():
            info = infos[name]
            if tf.as_dtype(array.dtype if array.dtype.kind != "O" else tf.string) != tf.as_dtype(
                info.dtype
            ):
                raise InvalidRequestError(f"{name} must be of type {tf.as_dtype(info.dtype).name}")
            sizes = [dim.size for dim in info.tensor_shape.dim]
            if len(sizes) != array.ndim or any(
                size not in (-1, given) for size, given in zip(sizes, array.shape)
            ):
                raise InvalidRequestError(
                    f"{name} must be of shape {sizes}; received {list(array.shape)}"
                )
        return self.run(signature_name, inputs)


class PredictionService(prediction_service_pb2_grpc.PredictionServiceServicer):
    """The gRPC service, of which `Predict` is there."""

    def __init__(self, model):
        self.model = model

    def Predict(self, request, context):
        spec = request.model_spec
        if spec.name != self.model.name or (
            spec.HasField("version") and spec.version.value != self.model.version
        ):
            context.abort(grpc.StatusCode.NOT_FOUND, f"Servable not found for request: {spec.name}")
        if spec.version_label not in ("", LABEL):
            context.abort(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"Unrecognized servable version label: {spec.version_label}",
            )
        name = spec.signature_name or "serving_default"
        try:
            outputs = self.model.predict(
                name, {key: tf.make_ndarray(tensor) for key, tensor in request.inputs.items()}
            )
        except InvalidRequestError as error:
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except BusyError as error:
            context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        response = predict_pb2.PredictResponse()
        response.model_spec.name, response.model_spec.signature_name = self.model.name, name
        response.model_spec.version.value = self.model.version
        for key, array in outputs.items():
            if not request.output_filter or key in request.output_filter:
                response.outputs[key].CopyFrom(tf.make_tensor_proto(array))
        return response


class RestHandler(http.server.BaseHTTPRequestHandler):
    """`POST /v1/models/NAME[/versions/N|/labels/LABEL]:predict` with "instances", in rows, or
    "inputs", in columns."""

    model: Model

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        path = f"/v1/models/{self.model.name}"
        chosen = ("", f"/versions/{self.model.version}", f"/labels/{LABEL}")
        if self.path not in [f"{path}{choice}:predict" for choice in chosen]:
            status = 400 if self.path.startswith(f"{path}/labels/") else 404
            return self.answer(status, {"error": f"Malformed request: POST {self.path}"})
        try:
            return self.answer(200, self.predict(json.loads(body)))
        except (InvalidRequestError, ValueError) as error:
            return self.answer(400, {"error": str(error)})
        except BusyError as error:
            return self.answer(503, {"error": str(error)})

    def predict(self, request):
        name = request.get("signature_name", "serving_default")
        if "instances" in request:
            rows = request["instances"]
            columns = {key: [row[key] for row in rows] for key in rows[0]}
        else:
            columns = request["inputs"]
        infos = self.model.inputs(name, columns)
        inputs = {key: read_json(infos[key].dtype, column) for key, column in columns.items()}
        outputs = self.model.predict(name, inputs)
        outputs = {key: write_json(array) for key, array in outputs.items()}
        (only, *others) = outputs.values()
        if "inputs" in request:
            return {"outputs": outputs if others else only}
        sizes = {len(column) for column in outputs.values()}
        if sizes != {len(rows)}:
            raise InvalidRequestError(f"the outputs have {sizes} rows, the request {len(rows)}")
        return {
            "predictions": [
                dict(zip(outputs, row)) if others else row[0] for row in zip(*outputs.values())
            ]
        }

    def answer(self, status, content):
        body = json.dumps(content, ensure_ascii=False, indent=4, allow_nan=False).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def read_json(dtype, values):
    if dtype != tf.string.as_datatype_enum:
        return np.asarray(values, tf.as_dtype(dtype).as_numpy_dtype)
    texts = [
        base64.b64decode(text["b64"]) if isinstance(text, dict) else text.encode()
        for text in values
    ]
    return np.array([*texts, None], object)[:-1]


def write_json(array):
    if array.dtype.kind == "f":
        # As few digits as tell a float32 apart.
        return array.astype(str).astype(float).tolist()
    if array.dtype.kind == "O":
        return (
            np.vectorize(bytes.decode, otypes=[object])(array).tolist()
            if array.size
            else array.tolist()
        )
    return array.tolist()


@contextlib.contextmanager
def serve(name, path):
    """Serves a version of a model; gives the addresses of gRPC and of REST."""
    model = Model(name, path)
    # Requests may be of any size, as in TensorFlow Serving.
    options = [("grpc.max_receive_message_length", -1)]
    grpc_server = grpc.server(concurrent.futures.ThreadPoolExecutor(4), options=options)
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(
        PredictionService(model), grpc_server
    )
    port = grpc_server.add_insecure_port("127.0.0.1:0")
    grpc_server.start()
    handler = type("Handler", (RestHandler,), {"model": model})
    rest_server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=rest_server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{port}", f"http://127.0.0.1:{rest_server.server_port}"
    finally:
        rest_server.shutdown()
        thread.join()
        rest_server.server_close()
        grpc_server.stop(None).wait()
        model.run.close()
