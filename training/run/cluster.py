"""Finds the worker processes that `TF_CONFIG` or Slurm describes."""

import json
import os
import re

from keras_transformer.checks import shown
from keras_transformer.errors import ConfigError

# A host name or IPv4 address, or an IPv6 address in brackets, with a port.
_ADDRESS = re.compile(r"(?:[\w.-]+|\[[0-9A-Fa-f:.]+\]):([1-9][0-9]{0,4})", re.ASCII)
_MAX_PORT = 2**16 - 1


def workers_of_environment() -> tuple[list[str], int]:
    """Returns the addresses of all workers, the chief's first, and the index of this worker.

    If this process trains alone, the list contains at most one address.

    Raises:
        ConfigError: If `TF_CONFIG` or Slurm's variables are invalid.
    """
    if _slurm_describes_workers():
        return _workers_of_slurm()
    if os.environ.get("TF_CONFIG"):
        return _workers_of_tf_config(os.environ["TF_CONFIG"])
    return [], 0


def trains_alone() -> bool:
    """Returns whether this process trains alone. This function does not load TensorFlow.

    This function does not load TensorFlow. Call it before the training text is read, to report a
    mistake in `TF_CONFIG` early. Slurm's variables are checked only by `workers_of_environment`,
    which needs TensorFlow to read them.

    Raises:
        ConfigError: If `TF_CONFIG` is invalid.
    """
    return not _slurm_describes_workers() and len(workers_of_environment()[0]) < 2


def _slurm_describes_workers() -> bool:
    """Returns whether this process belongs to a Slurm job step (`srun`) with several tasks.

    The shell of an allocation is not part of a step. `TF_CONFIG` takes precedence: if it is set,
    the result is False.
    """
    is_step = os.environ.get("SLURM_STEP_NUM_TASKS", "1") != "1"
    return is_step and not os.environ.get("TF_CONFIG")


def _workers_of_tf_config(text: str) -> tuple[list[str], int]:
    try:
        config = json.loads(text)
        jobs = config.get("cluster", {})
        task = config.get("task", {})
        chiefs = jobs.get("chief", [])
        non_chiefs = jobs.get("worker", [])
        workers = chiefs + non_chiefs
        are_valid = all(map(_is_address, workers)) and len(set(workers)) == len(workers)
        if are_valid and len(workers) < 2:
            return workers, 0
        # The index may be a string, as in TensorFlow.
        index = str(task["index"])
        if not (are_valid and index.isdecimal()):
            raise ValueError
        address = {"chief": chiefs, "worker": non_chiefs}[task["type"]][int(index)]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ConfigError(
            'TF_CONFIG must be like {"cluster": {"worker": ["host-a:2222", "host-b:2222"]}, '
            f'"task": {{"type": "worker", "index": 0}}}}; received TF_CONFIG={shown(text)}'
        ) from None
    return workers, workers.index(address)


def _is_address(text: str) -> bool:
    match = _ADDRESS.fullmatch(text)
    return match is not None and int(match[1]) <= _MAX_PORT


def _workers_of_slurm() -> tuple[list[str], int]:
    import tensorflow as tf

    try:
        # Slurm assigns each task its GPUs. On machines without GPUs, the resolver needs a number,
        # which must not be smaller than the number of tasks on a machine.
        resolver = tf.distribute.cluster_resolver.SlurmClusterResolver(
            gpus_per_node=2**16, gpus_per_task=1, auto_set_gpu=False
        )
        workers = resolver.cluster_spec().job_tasks("worker")
        index = resolver.task_id
        if index is None:
            raise ValueError("SLURM_PROCID is not a task of the step")
    except (ValueError, RuntimeError) as error:
        names = (
            "SLURM_PROCID",
            "SLURM_STEP_NUM_TASKS",
            "SLURM_STEP_NODELIST",
            "SLURM_STEP_TASKS_PER_NODE",
        )
        received = ", ".join(f"{name}={os.environ.get(name)}" for name in names)
        raise ConfigError(
            "the variables of Slurm must describe the tasks of a step, as srun sets them: "
            f"{error}; received {received}"
        ) from None
    return workers, index
