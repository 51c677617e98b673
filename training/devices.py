"""The devices to train on."""

import tensorflow as tf

from keras_transformer.rules import require

# A core computes at least this many tokens of a batch; with fewer, dividing the batch costs more than it saves.
TOKENS_PER_PART = 1000


def make_strategy(devices: int | None = None) -> tf.distribute.Strategy:
    """Makes a strategy for GPUs, or for the CPU if there are none. Call it before TensorFlow does anything else.

    Args:
        devices: int or None. How many devices; a CPU is divided into as many logical devices. Defaults to None: all
            GPUs, or one CPU.

    Returns:
        A `MirroredStrategy`; for one device TensorFlow's default strategy, since the other's input pipeline may take
        a minute to end.

    Raises:
        ConfigError: The number is not positive, or there are fewer GPUs.
    """
    require(devices is None or devices > 0, "devices", "positive", devices)
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        require(devices is None or devices <= len(gpus), "devices", f"at most {len(gpus)}, the number of GPUs", devices)
    devices = devices or len(gpus) or 1
    if devices == 1:
        return tf.distribute.get_strategy()
    if not gpus:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * devices)
    return tf.distribute.MirroredStrategy([f"{'GPU' if gpus else 'CPU'}:{i}" for i in range(devices)])
