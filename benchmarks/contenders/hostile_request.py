"""One of the requests of `benchmarks.hostile_requests`, after one of 32 sentences, to a SavedModel in this process."""

import json
import resource
import sys
import time

from benchmarks.processes import versions

_SENTENCES = ["A man in a blue shirt is standing on a ladder cleaning a window.", "Two young dogs run in the snow."]


def _line(part: str) -> str:
    return part * (1_000_000 // len(part.encode()))


FIRST = "32 sentences"
REQUESTS = {
    FIRST: lambda: _SENTENCES * 16,
    "a line of 1 MB": lambda: [_line("dog runs ")],
    "a word of 1 MB": lambda: [_line("x")],
    "a line of 1 MB, of a character that is not in the vocabulary": lambda: [_line("\U0001f9ff")],
    "32 lines of 1 MB": lambda: [_line("dog runs ")] * 32,
    "1,000 sentences": lambda: _SENTENCES * 500,
    "10,000 sentences": lambda: _SENTENCES * 5000,
    "10,000 empty texts": lambda: [""] * 10_000,
}


def main() -> None:
    """Sends the request to the SavedModel, both named by the command line, and prints its report."""
    import tensorflow as tf
    import tensorflow_text  # noqa: F401, the tokenizer's operations

    servable, request = sys.argv[1:]
    signature = tf.saved_model.load(servable).signatures["serving_default"]
    signature(text=tf.constant(REQUESTS[FIRST]()))
    texts = tf.constant(REQUESTS[request]())
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
