"""Several workers: the same training as on one device, and nothing is lost when one of them fails."""

import contextlib
import csv
import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest
from test_training import ROOT, TINY, command, files  # noqa: F401

from keras_transformer.model_dir import ModelDir

# Long enough for a machine on which other tests run.
SECONDS = 300


def cluster(number):
    """The addresses of so many workers on this machine."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]


def tf_config(addresses, index):
    return json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})


@pytest.fixture
def start():
    """Starts a command as the worker of a cluster; what still runs at the end of a test is killed."""
    processes = []

    def start(command, addresses, index, **environment):
        process = subprocess.Popen(
            [str(part) for part in command],
            cwd=ROOT,
            env={**os.environ, "TF_CONFIG": tf_config(addresses, index), **environment},
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()


def finish(process):
    """The exit code of a process, and what it said."""
    _, said = process.communicate(timeout=SECONDS)
    assert "Traceback" not in said, said
    return process.returncode, said


# The same training on one device and on several

LAYOUT = """
import json, os, sys
import keras
import tensorflow as tf
from tensorflow.python.distribute.collective_all_reduce_strategy import CollectiveAllReduceExtended

from keras_transformer.training.devices import make_strategy
from keras_transformer.training.recipe import load_recipe
from keras_transformer.training.trainer import train
from test_training import pairs

workers, devices, directory = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
if workers > 1 and devices > 1:
    # TensorFlow gives a worker all its GPUs, but only one CPU.
    cpus = [tf.config.LogicalDeviceConfiguration()] * devices
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], cpus)

    def local_devices(self, resolver, worker):
        return tuple(f"{worker}/device:CPU:{i}" for i in range(devices)), "CPU"

    CollectiveAllReduceExtended._initialize_local_devices = local_devices

strategy = make_strategy(None if workers > 1 else devices)
assert strategy.num_replicas_in_sync == workers * devices
for name, overrides in json.loads(sys.argv[4]).items():
    config = load_recipe("demo", overrides)
    keras.utils.set_random_seed(config.training.seed)
    train(config, pairs(0, 353), pairs(353, 400), os.path.join(directory, name), strategy, 4 // workers)
"""
SETTINGS = {
    "plain": ["training.steps=50", "training.validate_every=1", "training.clip_norm=0.5", "training.average_last=0"],
    "r-drop": ["training.consistency=5", "model.dropout=0.2", "training.accumulate_steps=2"],
}
SETTINGS["r-drop"] = SETTINGS["plain"] + SETTINGS["r-drop"]


@pytest.fixture(scope="module")
def layouts(tmp_path_factory):
    """Trains with each layout of workers and devices, in four parts altogether; returns the model directories."""
    folder = tmp_path_factory.mktemp("layouts")
    settings = json.dumps({name: [*TINY, *overrides] for name, overrides in SETTINGS.items()})
    for workers, devices in ((1, 1), (1, 2), (2, 1), (2, 2)):
        addresses = cluster(workers)
        processes = []
        for index in range(workers):
            # Only the chief's directory is looked at: the others need none.
            directory = folder / f"{workers}x{devices}" / ("chief" if index == 0 else "other")
            environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT}/tests"}
            if workers > 1:
                environment["TF_CONFIG"] = tf_config(addresses, index)
            arguments = [sys.executable, "-c", LAYOUT, str(workers), str(devices), str(directory), settings]
            processes.append(subprocess.Popen(arguments, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True))
        for process in processes:
            _, said = process.communicate(timeout=2 * SECONDS)
            assert process.returncode == 0, said
    return folder


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("layout", ["1x2", "2x1", "2x2"])
def test_the_layout_of_workers_and_devices_does_not_matter(layouts, layout, name):
    one, several = (ModelDir(layouts / each / "chief" / name) for each in ("1x1", layout))
    losses = [[float(row["loss"]) for row in csv.DictReader(open(each.log_path))] for each in (one, several)]
    assert len(losses[0]) == 50
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    states = [np.load(each.training_state_path) for each in (one, several)]
    for key in states[0].files:
        if key.startswith("model."):
            np.testing.assert_allclose(states[1][key], states[0][key], rtol=0, atol=1e-4, err_msg=key)


@pytest.mark.parametrize("name", SETTINGS)
def test_only_the_chief_writes(layouts, name):
    assert not (layouts / "2x1" / "other" / name).exists()
