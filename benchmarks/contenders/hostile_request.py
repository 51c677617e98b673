"""One of the requests of `benchmarks.hostile_requests`, after one of 32 sentences, to a SavedModel in this process."""

import argparse
import json
import resource
import time

import tensorflow as tf
import tensorflow_text  # noqa: F401, the tokenizer's operations

from benchmarks.hostile_requests import FIRST, REQUESTS
from benchmarks.processes import versions


def main() -> None:
    """Sends the request and prints its report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("servable", metavar="DIR", help="a version's directory")
    parser.add_argument("request", metavar="NAME", choices=REQUESTS)
    options = parser.parse_args()
    signature = tf.saved_model.load(options.servable).signatures["serving_default"]
    signature(text=tf.constant(REQUESTS[FIRST]()))
    texts = tf.constant(REQUESTS[options.request]())
    memory_before = _peak_memory()
    begin = time.perf_counter()
    signature(text=texts)
    seconds = time.perf_counter() - begin
    megabytes = _peak_memory() - memory_before
    print(json.dumps({"value": seconds, "megabytes": megabytes, "versions": versions("tensorflow")}))


def _peak_memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
