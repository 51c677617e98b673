"""The devices to train on."""

import tensorflow as tf

from keras_transformer.config import ConfigError

# Of a part of a batch that a core or more computes: with fewer, parts cost more than they save.
TOKENS_OF_A_PART = 1000


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
