"""The devices to train on."""

import os

import tensorflow as tf

from keras_transformer.config import ConfigError

# With fewer tokens for each, parts cost more than they save.
_TOKENS_OF_A_PART = 1000


def share_cores(tokens_per_batch):
    """Shares a CPU's cores among parts of a batch that are computed side by side; with GPUs, does nothing.

    Most operations of a small model are too small to be shared among the cores themselves. `parts_at_once` tells what
    came of it. Call it before TensorFlow does anything else.

    Args:
        tokens_per_batch: most positions in a batch.
    """
    cores = os.cpu_count()
    parts = min(tokens_per_batch // _TOKENS_OF_A_PART, cores)
    if parts < 2 or tf.config.list_physical_devices("GPU"):
        return
    tf.config.threading.set_inter_op_parallelism_threads(parts)
    tf.config.threading.set_intra_op_parallelism_threads(cores // parts)


def parts_at_once(strategy):
    """Into how many parts each device cuts its rows: one for each operation that TensorFlow was told to run at once."""
    return max(tf.config.threading.get_inter_op_parallelism_threads() // strategy.num_replicas_in_sync, 1)


def mirrored_strategy(devices=None):
    """A `MirroredStrategy` over GPUs, or over the CPU where there are none.

    Call it before TensorFlow does anything else.

    Args:
        devices: how many; None for all GPUs, or one CPU. A CPU is split into as many logical devices.

    Raises:
        ConfigError: `devices` is not positive, or more than there are GPUs.
    """
    if devices is not None and devices < 1:
        raise ConfigError(f"devices must be positive; received {devices}")
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        if devices is not None and devices > len(gpus):
            raise ConfigError(f"devices must be at most {len(gpus)}, the GPUs here; received {devices}")
        return tf.distribute.MirroredStrategy([f"GPU:{i}" for i in range(devices or len(gpus))])
    devices = devices or 1
    if devices > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * devices
        )
    return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(devices)])
