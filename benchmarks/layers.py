"""Speed of our layers compared with stock Keras layers and with KerasHub, on each backend.

    python -m benchmarks.layers --json layers.json

An encoder layer, a decoder layer and an attention layer are measured, each as a Keras model of its
own: its forward pass (`predict_on_batch`) and its training step (`train_on_batch`), compiled as
Keras does by default. All blocks of one backend run in one process and take turns, step by step.
"""

import argparse
import functools
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.comparison import format_number
from benchmarks.machine import add_machine_options, machine, restrict, restrictions
from keras_transformer.model_dir.files import replacing

D_MODEL = 256
D_FF = 1024
NUM_HEADS = 8
DROPOUT = 0.1
EPSILON = 1e-5
BACKENDS = ("tensorflow", "jax", "torch")
SHAPES = ((32, 32), (8, 128))  # (batch, length)


def attention_models(length: int) -> dict[str, Callable[[], Any]]:
    """Returns functions that make a model of self-attention alone, by library."""
    import keras

    from keras_transformer import MultiHeadAttention

    def model(layer_class: Callable[..., Any]) -> Any:
        inputs = keras.Input((length, D_MODEL))
        return keras.Model(inputs, layer_class(NUM_HEADS, D_MODEL // NUM_HEADS)(inputs, inputs))

    return {
        "ours": lambda: model(MultiHeadAttention),
        "stock Keras": lambda: model(keras.layers.MultiHeadAttention),
    }


def block_models(kind: str, num_inputs: int, length: int) -> dict[str, Callable[[], Any]]:
    """Returns functions that make a model of one layer, by library.

    Args:
        kind: "Encoder" or "Decoder".
    """
    import keras

    import keras_transformer

    def model(block: Callable[..., Any]) -> Any:
        inputs = [keras.Input((length, D_MODEL)) for _ in range(num_inputs)]
        return keras.Model(inputs, block(*inputs))

    def hub_block(*inputs: Any) -> Any:
        import keras_hub

        layer_class = getattr(keras_hub.layers, f"Transformer{kind}")
        return layer_class(D_FF, NUM_HEADS, DROPOUT, layer_norm_epsilon=EPSILON)(*inputs)

    layer_class = getattr(keras_transformer, f"{kind}Layer")
    ours = layer_class(NUM_HEADS, D_FF, dropout=DROPOUT, attention_bias=True, epsilon=EPSILON)
    blocks = {
        "ours": ours,
        "stock Keras": {"Encoder": _stock_encoder, "Decoder": _stock_decoder}[kind],
    }
    if importlib.util.find_spec("keras_hub"):
        blocks["KerasHub"] = hub_block
    return {name: lambda block=block: model(block) for name, block in blocks.items()}


def _stock_encoder(inputs: Any) -> Any:
    return _stock_feed_forward(_stock_attention(inputs, inputs))


def _stock_decoder(target: Any, source: Any) -> Any:
    target = _stock_attention(target, target, use_causal_mask=True)
    return _stock_feed_forward(_stock_attention(target, source))


def _stock_attention(query: Any, value: Any, **arguments: Any) -> Any:
    from keras import layers

    attention = layers.MultiHeadAttention(NUM_HEADS, D_MODEL // NUM_HEADS)
    hidden = layers.Dropout(DROPOUT)(attention(query, value, **arguments))
    return layers.LayerNormalization(epsilon=EPSILON)(query + hidden)


def _stock_feed_forward(inputs: Any) -> Any:
    from keras import layers

    hidden = layers.Dense(D_FF, activation="relu")(inputs)
    hidden = layers.Dropout(DROPOUT)(layers.Dense(D_MODEL)(hidden))
    return layers.LayerNormalization(epsilon=EPSILON)(inputs + hidden)


MODELS = {
    "attention": attention_models,
    "encoder layer": functools.partial(block_models, "Encoder", 1),
    "decoder layer": functools.partial(block_models, "Decoder", 2),
}


def measure(seconds: float) -> list[dict[str, Any]]:
    """Measures all blocks on the backend of this process.

    Records have the median milliseconds of each library.
    """
    import keras
    import numpy as np

    def synchronized(result: Any) -> None:
        keras.tree.map_structure(np.asarray, result)

    records = []
    for name, models in MODELS.items():
        for batch, length in SHAPES:
            features = np.random.default_rng(0).normal(size=(batch, length, D_MODEL))
            features = features.astype("float32")
            forward: dict[str, Callable[[], None]] = {}
            training_step: dict[str, Callable[[], None]] = {}
            for library, make in models(length).items():
                model = make()
                model.compile("sgd", "mse")
                inputs = [features] * len(model.inputs)

                def predict(model: Any = model, inputs: Any = inputs) -> None:
                    synchronized(model.predict_on_batch(inputs))

                def train(model: Any = model, inputs: Any = inputs, labels: Any = features) -> None:
                    synchronized(model.train_on_batch(inputs, labels))

                forward[library] = predict
                training_step[library] = train
            for task, contenders in (("forward", forward), ("training step", training_step)):
                record = {
                    "block": name,
                    "task": task,
                    "batch": batch,
                    "length": length,
                    "milliseconds": _take_turns(contenders, seconds),
                }
                records.append(record)
    return records


def _take_turns(contenders: dict[str, Callable[[], None]], seconds: float) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for call in contenders.values():
        # These calls compile.
        call()
        call()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times["ours"]) < 5:
        for name, call in contenders.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: 1000 * statistics.median(values) for name, values in times.items()}


def main() -> None:
    """Runs the benchmark from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.layers",
        description=(__doc__ or "").partition("\n")[0],
        allow_abbrev=False,
    )
    parser.add_argument("--json", metavar="FILE", help="file to write the measurements to")
    parser.add_argument(
        "--seconds", type=float, default=4, help="for each block and task (%(default)s)"
    )
    parser.add_argument("--backends", nargs="+", choices=BACKENDS, default=list(BACKENDS))
    parser.add_argument("--records", action="store_true", help=argparse.SUPPRESS)
    add_machine_options(parser)
    options = parser.parse_args()
    restrict(options.isa, options.cores)
    if options.records:
        json.dump(measure(options.seconds), sys.stdout)
        return
    tables = {}
    for backend in options.backends:
        command = [
            sys.executable,
            "-m",
            "benchmarks.layers",
            "--records",
            "--seconds",
            str(options.seconds),
        ]
        environment = {**os.environ, "KERAS_BACKEND": backend}
        finished = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
        tables[backend] = json.loads(finished.stdout.splitlines()[-1])
        print(f"\n{backend}: milliseconds, medians of turns, {restrictions()}\n")
        for record in tables[backend]:
            times = record["milliseconds"]
            cells = ", ".join(
                f"{library} {format_number(value)} ({value / times['ours']:.2f})"
                for library, value in times.items()
            )
            shape = f"{record['batch']:3} x {record['length']:3}"
            print(f"{record['block']:13} {record['task']:13} {shape}: {cells}")
    if options.json:
        content = {"machine": machine(), "tables": tables}
        with replacing(options.json) as temporary:
            temporary.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
