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
    """Returns the addresses of all workers, the chief's first, and the number of this worker.

    If this process trains alone, there is at most one address.

    Raises:
        ConfigError: `TF_CONFIG` or Slurm's variables do not describe workers.
    """
    if os.environ.get("TF_CONFIG"):
        return _workers_of_tf_config(os.environ["TF_CONFIG"])
    if _is_slurm_step():
        return _workers_of_slurm()
    return [], 0


def trains_alone() -> bool:
    """Returns whether this process trains without other workers. Does not load TensorFlow.

    Raises:
        ConfigError: `TF_CONFIG` does not describe workers.
    """
    if os.environ.get("TF_CONFIG"):
        return len(_workers_of_tf_config(os.environ["TF_CONFIG"])[0]) < 2
    return not _is_slurm_step()


def _is_slurm_step() -> bool:
    """Returns whether this is a step of a Slurm job (`srun`) with several tasks.

    The shell of an allocation is not a step.
    """
    return os.environ.get("SLURM_STEP_NUM_TASKS", "1") != "1"


def _workers_of_tf_config(text: str) -> tuple[list[str], int]:
    try:
        config = json.loads(text)
        jobs = config.get("cluster", {})
        task = config.get("task", {})
        chiefs = jobs.get("chief", [])
        others = jobs.get("worker", [])
        workers = chiefs + others
        if len(set(workers)) < len(workers):
            raise ValueError
        for address in workers:
            match = _ADDRESS.fullmatch(address)
            if not match or int(match[1]) > _MAX_PORT:
                raise ValueError
        if len(workers) < 2:
            return workers, 0
        # The index may be a string, as in TensorFlow.
        index = str(task["index"])
        if not index.isdecimal():
            raise ValueError
        address = {"chief": chiefs, "worker": others}[task["type"]][int(index)]
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise ConfigError(
            'TF_CONFIG must be like {"cluster": {"worker": ["host-a:2222", "host-b:2222"]}, '
            f'"task": {{"type": "worker", "index": 0}}}}; received TF_CONFIG={shown(text)}'
        ) from None
    return workers, workers.index(address)


def _workers_of_slurm() -> tuple[list[str], int]:
    import tensorflow as tf

    try:
        # Slurm gives each task its GPUs. On machines without GPUs, the resolver needs a number.
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
