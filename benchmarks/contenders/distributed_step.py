"""Training steps in one of the processes of `benchmarks.scaling`, which `TF_CONFIG` describes.

The arguments are the number of rows in a batch of all processes, and the number of steps to time.
"""

import json
import statistics
import sys
import time
from typing import Any

from benchmarks.command import SIZES
from benchmarks.processes import versions

_VOCAB_SIZE = 8000
LENGTH = 30
_WARMUP_STEPS = 5


def main() -> None:
    """Measures the medians, in milliseconds, of a step and of adding up the gradients alone, and
    prints the report."""
    rows, steps = map(int, sys.argv[1:])
    from keras_transformer.runtime.device import divide_cores
    from keras_transformer.training.run.devices import make_strategy

    divide_cores(1)
    strategy = make_strategy()
    import numpy as np
    import tensorflow as tf

    from keras_transformer.training.recipe import load_recipe
    from keras_transformer.training.step.model import build_training_model

    sizes = [f"model.{name}={value}" for name, value in SIZES.items()]
    config = load_recipe(
        None, [*sizes, f"tokenizer.vocab_size={_VOCAB_SIZE}", "training.precision=float32"]
    )
    model = build_training_model(config.model, config.training, strategy)
    random = np.random.default_rng(0)
    ids = random.integers(
        4, _VOCAB_SIZE, (3, rows // strategy.num_replicas_in_sync, LENGTH), "int32"
    )
    batch = {"source": ids[0], "target": ids[1]}, ids[2]
    batches = tf.data.Dataset.from_tensors(batch).repeat()
    iterator = iter(strategy.distribute_datasets_from_function(lambda _: batches))

    @tf.function
    def add_up() -> Any:
        def of_replica() -> Any:
            gradients = [tf.ones(variable.shape) for variable in model.trainable_variables]
            return tf.distribute.get_replica_context().all_reduce(
                tf.distribute.ReduceOp.SUM, gradients
            )[0]

        return strategy.run(of_replica)

    report = {
        "value": _milliseconds(lambda: model.update(iterator), steps),
        "sum": _milliseconds(
            lambda: strategy.experimental_local_results(add_up())[0].numpy(), steps
        ),
        "megabytes": 4e-6 * model.transformer.count_params(),
        "versions": versions("keras", "tensorflow"),
    }
    print(json.dumps(report))


def _milliseconds(run: Any, steps: int) -> float:
    seconds = []
    for step in range(_WARMUP_STEPS + steps):
        begin = time.perf_counter()
        run()
        if step >= _WARMUP_STEPS:
            seconds.append(time.perf_counter() - begin)
    return 1000 * statistics.median(seconds)


if __name__ == "__main__":
    main()
