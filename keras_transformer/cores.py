"""How a CPU's cores are shared."""

import contextlib
import os

import tensorflow as tf


def share_cores(parts):
    """Shares a CPU's cores among computations that run side by side; where there are GPUs, does nothing.

    Most operations of a small model are too small to be shared among all cores themselves. Call it before TensorFlow
    does anything else: later it has no effect.

    Args:
        parts: how many such computations there may be. With fewer cores than parts each has one core.
    """
    cores = os.cpu_count()
    parts = min(parts, cores)
    if parts < 2 or tf.config.list_physical_devices("GPU"):
        return
    # TensorFlow does not change its threads once they run.
    with contextlib.suppress(RuntimeError):
        tf.config.threading.set_inter_op_parallelism_threads(parts)
        tf.config.threading.set_intra_op_parallelism_threads(cores // parts)
