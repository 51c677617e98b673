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
    """Prints a report with the median milliseconds of a step, and of adding up gradients alone."""
    rows, steps = map(int, sys.argv[1:])
    from keras_transformer.runtime.device import divide_cores
    from keras_transformer.training.run.devices import make_strategy

    divide_cores(1)
    strategy = make_strategy()
    import numpy as np
    import tensorflow as tf

    from keras_transformer.training.recipe import load_recipe
    from keras_transformer.training.step.model import build_training_step

    settings = [f"model.{name}={value}" for name, value in SIZES.items()]
    settings += [f"tokenizer.vocab_size={_VOCAB_SIZE}", "training.precision=float32"]
    config = load_recipe(None, settings)
    model = build_training_step(config.model, config.training, strategy)
    random = np.random.default_rng(0)
    shape = (3, rows // strategy.num_replicas_in_sync, LENGTH)
    source, target, labels = random.integers(4, _VOCAB_SIZE, shape, "int32")
    batch = {"source": source, "target": target}, labels
    batches = tf.data.Dataset.from_tensors(batch).repeat()
    iterator = iter(strategy.distribute_datasets_from_function(lambda _: batches))

    @tf.function
    def add_up() -> Any:
        def of_replica() -> Any:
            gradients = [tf.ones(variable.shape) for variable in model.trainable_variables]
            replica = tf.distribute.get_replica_context()
            return replica.all_reduce(tf.distribute.ReduceOp.SUM, gradients)[0]

        return strategy.run(of_replica)

    def sum_of_gradients() -> Any:
        return strategy.experimental_local_results(add_up())[0].numpy()

    report = {
        "value": _milliseconds(lambda: model.update(iterator), steps),
        "sum": _milliseconds(sum_of_gradients, steps),
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
