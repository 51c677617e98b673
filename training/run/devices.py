"""Sets up the devices to train on, and the worker processes, one on each machine of a cluster."""

import contextlib
import logging
import re
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from keras_transformer.checks import require
from keras_transformer.errors import ConfigError, WorkerError

from .cluster import workers_of_environment
from .interruption import ended_by_signals

_log = logging.getLogger(__name__)

# Each core processes at least this many tokens of a batch. With fewer tokens, dividing the batch
# costs more time than it saves.
TOKENS_PER_PART = 1000
# Sum at most this many numbers at a time, to limit memory use.
_NUMBERS_PER_SUM = 2**22
# TensorFlow raises these errors if a worker has exited or does not respond.
_ERRORS_OF_LOST_WORKERS = (
    tf.errors.UnavailableError,
    tf.errors.DeadlineExceededError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
)


def make_strategy(devices: int | None = None) -> tf.distribute.Strategy:
    """Returns a distribution strategy for the GPUs, or for the CPU if there are none.

    Call this function before any other TensorFlow function. If `TF_CONFIG` describes several
    workers, or Slurm does and `TF_CONFIG` is not set, it waits until all workers are connected.

    Args:
        devices: Number of devices to use on this machine. A CPU is divided into logical devices.
            Defaults to None, which uses all GPUs, or the CPU as a single device.

    Returns:
        A `MultiWorkerMirroredStrategy` for several workers, a `MirroredStrategy` for several
        devices, or TensorFlow's default strategy for a single device.

    Raises:
        ConfigError: The number is not positive, is larger than the number of GPUs, or is given for
            several workers; or `TF_CONFIG` or Slurm's variables do not describe workers.
        WorkerError: The workers cannot connect to each other.
    """
    require(devices is None or devices > 0, "devices", "positive", devices)
    gpus = tf.config.list_physical_devices("GPU")
    if gpus:
        rule = f"at most {len(gpus)}, the number of GPUs"
        require(devices is None or devices <= len(gpus), "devices", rule, devices)
    workers, index = workers_of_environment()
    if len(workers) > 1:
        rule = "left out if there are several workers, which use all their GPUs"
        require(devices is None, "devices", rule, devices)
        return _connect(workers, index, len(gpus))
    devices = devices or len(gpus) or 1
    if devices == 1:
        return tf.distribute.get_strategy()
    if gpus:
        return tf.distribute.MirroredStrategy([f"GPU:{i}" for i in range(devices)])
    cpu = tf.config.list_physical_devices("CPU")[0]
    logical_devices = [tf.config.LogicalDeviceConfiguration()] * devices
    tf.config.set_logical_device_configuration(cpu, logical_devices)
    return tf.distribute.MirroredStrategy([f"CPU:{i}" for i in range(devices)])


class Workers:
    """The processes that train a model together, each with its own replicas.

    The first process is the chief. Only the chief reads and writes the model directory. The other
    processes receive what they need over the network, so the machines do not have to share the
    directory. All processes must call the same methods in the same order.

    Attributes:
        number: The number of processes.
        is_chief: Whether this process is the chief.
        name: The name of this process in messages.
        replicas: The indices of this process's replicas among all replicas.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self._addresses = ["localhost"]
        self._index = 0
        if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            self._addresses = strategy.cluster_resolver.cluster_spec().job_tasks("worker")
            self._index = strategy.cluster_resolver.task_id
        self.number = len(self._addresses)
        self.is_chief = self._index == 0
        self.name = self._name(self._index)
        replicas_here = strategy.num_replicas_in_sync // self.number
        self.replicas = range(self._index * replicas_here, (self._index + 1) * replicas_here)

        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
        def sum_of_all(numbers: tf.Tensor) -> tf.Tensor:
            def of_replica() -> tf.Tensor:
                replica = tf.distribute.get_replica_context()
                is_first = replica.replica_id_in_sync_group == self.replicas.start
                numbers_of_process = tf.where(is_first, numbers, tf.zeros_like(numbers))
                return replica.all_reduce(tf.distribute.ReduceOp.SUM, numbers_of_process)

            return strategy.experimental_local_results(strategy.run(of_replica))[0]

        self._sum_of_all = sum_of_all

    def from_chief(self, content: bytes) -> bytes:
        """Returns the chief's content in all processes. Content from other processes is ignored."""
        if self.number == 1:
            return content
        if not self.is_chief:
            content = b""
        # Float32 represents two-byte integers exactly, and float32 numbers can be summed over any
        # network.
        size_in_parts = self._sum(np.array([len(content)], "<u8").view("<u2"))
        size = int(size_in_parts.astype("<u2").view("<u8")[0])
        pieces = []
        for begin in range(0, size, 2 * _NUMBERS_PER_SUM):
            end = min(begin + 2 * _NUMBERS_PER_SUM, size)
            piece = content[begin:end].ljust(2 * -(-(end - begin) // 2), b"\0")
            pieces.append(self._sum(np.frombuffer(piece, "<u2")).astype("<u2").tobytes())
        return b"".join(pieces)[:size]

    def any(self, condition: bool) -> bool:
        """Returns whether a condition holds in any process. Waits for all processes."""
        if self.number == 1:
            return condition
        return bool(self._sum(np.array([condition]))[0])

    def require_same(self, what: str, content: str) -> None:
        """Checks that this process was given the same content as the chief.

        Args:
            what: The name of the content in messages.

        Raises:
            ConfigError: The contents differ.
        """
        if self.from_chief(content.encode()) != content.encode():
            raise ConfigError(f"{self.name}: {what} must be the same as on {self._name(0)}")

    @contextlib.contextmanager
    def naming_the_lost(self) -> Iterator[None]:
        """Replaces the error that all processes get if a process is lost with a clear message.

        Raises:
            WorkerError: A process has exited or does not respond. The message names it if possible.
        """
        try:
            yield
        except tf.errors.OpError as error:
            if self.number == 1 or not isinstance(error, _ERRORS_OF_LOST_WORKERS):
                raise
            # TensorFlow names the worker only in the message.
            numbers = re.findall(r"/job:worker/replica:0/task:(\d+)", str(error))
            others = sorted({int(number) for number in numbers} - {self._index})
            lost = " or ".join(self._name(task) for task in others) or "another worker"
            raise WorkerError(
                f"{lost} ended or does not answer. Start the same command on all workers again: "
                "training resumes from the last saved state"
            ) from None

    def _name(self, index: int) -> str:
        return f"{'the chief' if index == 0 else f'worker {index}'} ({self._addresses[index]})"

    def _sum(self, numbers: np.ndarray) -> np.ndarray:
        """Sums the numbers elementwise over all processes."""
        return self._sum_of_all(numbers.astype("float32")).numpy()


def _connect(workers: list[str], index: int, num_gpus: int) -> tf.distribute.Strategy:
    resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
        tf.train.ClusterSpec({"worker": workers}),
        task_type="worker",
        task_id=index,
        num_accelerators={"GPU": num_gpus},
        rpc_layer="grpc",
    )
    with ended_by_signals():
        # While TensorFlow waits, no other thread runs, so a progress bar would not move.
        _log.info(f"waiting until all workers are connected: {', '.join(workers)}")
        try:
            return tf.distribute.MultiWorkerMirroredStrategy(resolver)
        except tf.errors.OpError as error:
            reason = str(error).splitlines()[0]
            raise WorkerError(
                f"{workers[index]}: this worker cannot connect to the others: {reason}"
            ) from None
