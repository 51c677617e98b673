"""Translates standard input with TensorFlow Serving over gRPC; needs only tensorflow-serving-api.

python examples/serving/translate_grpc.py localhost:8500 en-de < in.txt > out.txt
"""

import itertools
import sys

import grpc
import tensorflow as tf
from tensorflow_serving.apis.predict_pb2 import PredictRequest
from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

TEXTS_PER_REQUEST = 32


def main(address, model):
    lines = (line.removesuffix(b"\n").removesuffix(b"\r") for line in sys.stdin.buffer)
    with grpc.insecure_channel(address) as channel:
        stub = PredictionServiceStub(channel)
        while texts := list(itertools.islice(lines, TEXTS_PER_REQUEST)):
            request = PredictRequest()
            request.model_spec.name = model
            request.model_spec.signature_name = "translate"
            request.inputs["text"].CopyFrom(tf.make_tensor_proto(texts, tf.string))
            answer = stub.Predict(request, timeout=60)
            for text, truncated in zip(
                answer.outputs["text"].string_val, answer.outputs["truncated"].bool_val
            ):
                sys.stdout.buffer.write(text + b"\n")
                if truncated:
                    print("a line is too long: only its beginning is translated", file=sys.stderr)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except grpc.RpcError as error:
        sys.exit(f"{error.code().name}: {error.details()}")
