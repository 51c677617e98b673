"""Clients that ask a SavedModel all at once, in a session as in TensorFlow Serving.

The clients are threads of this process. With gRPC, they speak TensorFlow Serving's protocol with
the server of the tests, over the loopback interface. With batching, requests are joined as
TensorFlow Serving joins them with the parameters of docs/serving.md.
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import queue
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

import grpc
import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401, the tokenizer's operations

from benchmarks.processes import versions
from keras_transformer.export.warmup import REQUESTS

# What TensorFlow logs for each graph that it optimizes, if TF_CPP_VMODULE says so.
_OPTIMIZATION = b"Starting optimization"
_MEMORY_SAMPLES = 20
_TESTS = pathlib.Path(__file__).parents[2] / "tests"
# Translates texts, and raises an error if the answer is none.
Predict = Callable[[list[str]], None]
# The parameters of docs/serving.md.
_MAX_BATCH_SIZE = 32
_BATCH_TIMEOUT = 0.005
_NUM_BATCH_THREADS = 2


class Server:
    """The signature `serving_default` in a session.

    Args:
        servable: path of a SavedModel.
    """

    def __init__(self, servable: str) -> None:
        # As with --tensorflow_intra_op_parallelism=1.
        cores = len(os.sched_getaffinity(0))
        config = tf.compat.v1.ConfigProto(
            intra_op_parallelism_threads=1, inter_op_parallelism_threads=cores
        )
        with tf.Graph().as_default():
            self._session = tf.compat.v1.Session(config=config)
            loaded = tf.compat.v1.saved_model.load(self._session, ["serve"], servable)
        signature = loaded.signature_def["serving_default"]
        self._input = signature.inputs["text"].name
        self._outputs = [info.name for info in signature.outputs.values()]

    def predict(self, texts: list[str]) -> None:
        """Translates texts."""
        answers = self._session.run(self._outputs, {self._input: np.array(texts, object)})
        _check_sizes({len(answer) for answer in answers}, texts)


class Batching:
    """Joins waiting requests: a batch begins when it is full, or some time after its first request.

    Requests are not divided, so that one of several texts may make a batch larger than that.

    Args:
        predict: translates the texts of a batch.
    """

    def __init__(self, predict: Predict) -> None:
        self._predict = predict
        self._waiting: queue.SimpleQueue[tuple[list[str], concurrent.futures.Future[None]]] = (
            queue.SimpleQueue()
        )
        # Only one thread collects a batch at a time.
        self._collecting = threading.Lock()
        for _ in range(_NUM_BATCH_THREADS):
            threading.Thread(target=self._answer, daemon=True).start()

    def predict(self, texts: list[str]) -> None:
        """Translates texts with those of other requests."""
        answer: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._waiting.put((texts, answer))
        answer.result()

    def _answer(self) -> None:
        while True:
            with self._collecting:
                requests = [self._waiting.get()]
                texts = list(requests[0][0])
                until = time.monotonic() + _BATCH_TIMEOUT
                with contextlib.suppress(queue.Empty):
                    while len(texts) < _MAX_BATCH_SIZE:
                        requests.append(self._waiting.get(timeout=max(until - time.monotonic(), 0)))
                        texts += requests[-1][0]
            try:
                self._predict(texts)
            except (tf.errors.OpError, grpc.RpcError, ValueError) as error:
                for _, answer in requests:
                    answer.set_exception(error)
            else:
                for _, answer in requests:
                    answer.set_result(None)


@contextlib.contextmanager
def grpc_server(servable: str) -> Iterator[Predict]:
    """Serves `serving_default` by gRPC; gives a client that many threads may call."""
    sys.path.append(str(_TESTS))
    from model_server import serve
    from tensorflow_serving.apis.predict_pb2 import PredictRequest
    from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

    with (
        serve("model", pathlib.Path(servable)) as (address, _),
        grpc.insecure_channel(address) as channel,
    ):
        stub = PredictionServiceStub(channel)

        def predict(texts: list[str]) -> None:
            request = PredictRequest()
            request.model_spec.name = "model"
            request.inputs["text"].CopyFrom(tf.make_tensor_proto(texts, tf.string))
            answer = stub.Predict(request)
            _check_sizes(
                {tensor.tensor_shape.dim[0].size for tensor in answer.outputs.values()}, texts
            )

        yield predict


def _check_sizes(sizes: set[int], texts: list[str]) -> None:
    if sizes != {len(texts)}:
        raise ValueError(f"an answer of other sizes than {len(texts)}")


class Client(threading.Thread):
    """Sends a request when it has the answer to the one before.

    A request has one to eight texts of one to four sentences.

    Args:
        predict: translates texts.
        sentences: list of strings, of which the texts are made.
        is_single: whether each request is one sentence.
        until: float. When it ends, by `time.monotonic`.
        seed: int. Of its texts.

    Attributes:
        latencies: list of float, the seconds of its requests.
        num_texts: int. How many texts were answered.
        errors: list of str, the messages of requests that failed.
    """

    def __init__(
        self, predict: Predict, sentences: list[str], is_single: bool, until: float, seed: int
    ) -> None:
        super().__init__()
        self.latencies: list[float] = []
        self.num_texts = 0
        self.errors: list[str] = []
        self._predict = predict
        self._sentences = sentences
        self._until = until
        self._rng = random.Random(seed)
        self._most_texts = 1 if is_single else 8
        self._most_sentences = 1 if is_single else 4

    def run(self) -> None:
        rng = self._rng
        while time.monotonic() < self._until:
            texts = [
                " ".join(rng.choices(self._sentences, k=rng.randint(1, self._most_sentences)))
                for _ in range(rng.randint(1, self._most_texts))
            ]
            begin = time.perf_counter()
            try:
                self._predict(texts)
            except (tf.errors.OpError, grpc.RpcError, ValueError) as error:
                self.errors.append(str(error))
                continue
            self.latencies.append(time.perf_counter() - begin)
            self.num_texts += len(texts)


def main() -> None:
    """Runs the clients and prints their report."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("servable")
    parser.add_argument("sentences", type=pathlib.Path)
    parser.add_argument("--clients", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--grpc", action="store_true")
    parser.add_argument("--batching", action="store_true")
    parser.add_argument("--single", action="store_true")
    options = parser.parse_args()
    sentences = options.sentences.read_text("utf-8").splitlines()
    with tempfile.TemporaryFile() as log, contextlib.ExitStack() as stack:
        # TensorFlow writes to the descriptor.
        os.dup2(log.fileno(), 2)
        if options.grpc:
            predict = stack.enter_context(grpc_server(options.servable))
        else:
            predict = Server(options.servable).predict
        for texts in REQUESTS:
            predict(texts)
        if options.batching:
            predict = Batching(predict).predict
        optimized = _count(log)
        begin = time.monotonic()
        until = begin + options.seconds
        clients = [
            Client(predict, sentences, options.single, until, seed)
            for seed in range(options.clients)
        ]
        for client in clients:
            client.start()
        megabytes = []
        for i in range(1, _MEMORY_SAMPLES + 1):
            time.sleep(max(begin + options.seconds * i / _MEMORY_SAMPLES - time.monotonic(), 0))
            megabytes.append(_memory())
        for client in clients:
            client.join()
        seconds = time.monotonic() - begin
        optimized_later = _count(log) - optimized
    latencies = [latency for client in clients for latency in client.latencies]
    errors = [error for client in clients for error in client.errors]
    num_texts = sum(client.num_texts for client in clients)
    p50, p95, p99 = np.quantile(latencies, [0.5, 0.95, 0.99]).tolist()
    report = {
        "value": num_texts / seconds,
        "requests": len(latencies),
        "latencies": {"p50": p50, "p95": p95, "p99": p99},
        "errors": errors[:10],
        "num_errors": len(errors),
        "megabytes": megabytes,
        "optimized_in_warm_up": optimized,
        "optimized_later": optimized_later,
        "versions": versions("tensorflow", "tensorflow-text"),
    }
    print(json.dumps(report))


def _count(log: "tempfile._TemporaryFileWrapper[bytes]") -> int:
    return os.pread(log.fileno(), os.fstat(log.fileno()).st_size, 0).count(_OPTIMIZATION)


def _memory() -> float:
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


if __name__ == "__main__":
    main()
