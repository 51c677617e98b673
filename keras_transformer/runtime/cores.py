"""How the cores of a CPU are divided among computations that run side by side."""

import contextlib
import os

import tensorflow as tf


def divide_cores(most_parts: int) -> int:
    """Divides the cores among computations that run side by side. Call it before TensorFlow does anything else.

    Most operations of a small model are too small to be split across all cores themselves.

    Args:
        most_parts: int. How many such computations there may be.

    Returns:
        How many computations should run side by side: at most one per core that this process may use, and one if
        there is a GPU. If TensorFlow is already running, its threads stay as they are.
    """
    # macOS has no affinity.
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parts = min(most_parts, cores)
    if parts < 2 or tf.config.list_physical_devices("GPU"):
        return 1
    with contextlib.suppress(RuntimeError):
        tf.config.threading.set_inter_op_parallelism_threads(parts)
        tf.config.threading.set_intra_op_parallelism_threads(cores // parts)
    return parts
