"""The processes that train one model: a single one, or one on each machine of a cluster."""

import contextlib
import re
from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from keras_transformer.errors import ConfigError, WorkerError

# Numbers that are summed at a time; bounds memory.
_NUMBERS_PER_SUM = 2**22
# What a computation of all workers ends with if one of them has ended or does not answer.
_ERRORS_OF_LOST_WORKERS = (
    tf.errors.UnavailableError,
    tf.errors.DeadlineExceededError,
    tf.errors.AbortedError,
    tf.errors.CancelledError,
)


class Workers:
    """The processes that train one model, each with its own replicas.

    The first is the chief. It alone reads and writes the model directory; the others get what they need of it over
    the network, so that the directory need not be shared. All processes call the same methods in the same order.

    Args:
        strategy: tf.distribute.Strategy, from `make_strategy`.

    Attributes:
        number: int. How many processes there are.
        is_chief: bool. Whether this process is the chief.
        name: str. What messages call this process.
        replicas: range. The numbers of this process' replicas among all replicas.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self._addresses, self._index = ["localhost"], 0
        if isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy):
            self._addresses = strategy.cluster_resolver.cluster_spec().job_tasks("worker")
            self._index = strategy.cluster_resolver.task_id
        self.number = len(self._addresses)
        self.is_chief = self._index == 0
        self.name = self._name(self._index)
        replicas_here = strategy.num_replicas_in_sync // self.number
        self.replicas = range(self._index * replicas_here, (self._index + 1) * replicas_here)
        first_replica = self.replicas.start

        @tf.function(input_signature=[tf.TensorSpec([None], tf.float32)])
        def sum_of_all(numbers: tf.Tensor) -> tf.Tensor:
            def of_replica() -> tf.Tensor:
                replica = tf.distribute.get_replica_context()
                is_first = replica.replica_id_in_sync_group == first_replica
                own = tf.where(is_first, numbers, tf.zeros_like(numbers))
                return replica.all_reduce(tf.distribute.ReduceOp.SUM, own)

            return strategy.experimental_local_results(strategy.run(of_replica))[0]

        self._sum_of_all = sum_of_all

    def from_chief(self, content: bytes) -> bytes:
        """Returns the content that the chief gives; what the others give does not matter."""
        if self.number == 1:
            return content
        if not self.is_chief:
            content = b""
        # Two bytes are a number that float32 holds exactly, and every network can add up.
        size = sum(
            int(digits) << 16 * i for i, digits in enumerate(self._sum(np.array([len(content)], "<u8").view("<u2")))
        )
        pieces = []
        for begin in range(0, size, 2 * _NUMBERS_PER_SUM):
            end = min(begin + 2 * _NUMBERS_PER_SUM, size)
            piece = content[begin:end].ljust(2 * -(-(end - begin) // 2), b"\0")
            pieces.append(self._sum(np.frombuffer(piece, "<u2")).astype("<u2").tobytes())
        return b"".join(pieces)[:size]

    def any(self, condition: bool) -> bool:
        """Returns whether a condition holds in any process. It waits for all of them."""
        return condition if self.number == 1 else bool(self._sum(np.array([condition]))[0])

    def require_same(self, what: str, content: str) -> None:
        """Checks that this process was given what the chief was given.

        Args:
            what: str. What messages call it.
            content: str. It, as text.

        Raises:
            ConfigError: They differ.
        """
        if self.from_chief(content.encode()) != content.encode():
            raise ConfigError(f"{self.name}: {what} must be the same as those of {self._name(0)}")

    @contextlib.contextmanager
    def naming_the_lost(self) -> Iterator[None]:
        """Turns the error that all processes get when one is lost into a clear one.

        Raises:
            WorkerError: It names the process that has ended or does not answer, if that is known.
        """
        try:
            yield
        except tf.errors.OpError as error:
            if self.number == 1 or not isinstance(error, _ERRORS_OF_LOST_WORKERS):
                raise
            # Only the message says which one: an attribute for it does not exist.
            tasks = {int(task) for task in re.findall(r"/job:worker/replica:0/task:(\d+)", str(error))}
            lost = " or ".join(self._name(task) for task in sorted(tasks - {self._index})) or "another worker"
            raise WorkerError(
                f"{lost} ended or does not answer. Start the same command on all workers again: training resumes from "
                "the last saved state"
            ) from None

    def _name(self, index: int) -> str:
        return f"{'the chief' if index == 0 else f'worker {index}'} ({self._addresses[index]})"

    def _sum(self, numbers: np.ndarray) -> np.ndarray:
        """Adds up the numbers of all processes."""
        return self._sum_of_all(numbers.astype("float32")).numpy()
