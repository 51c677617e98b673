"""Several workers: the same training as on one device, and nothing is lost if one of them fails."""

import contextlib
import csv
import dataclasses
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest
from test_training import ROOT, TINY, command, files, train_here  # noqa: F401
from training_runs import free_addresses, leftovers

from keras_transformer.checks import shown
from keras_transformer.errors import ConfigError
from keras_transformer.model_dir import ModelDir
from keras_transformer.training.run.cluster import workers_of_environment
from keras_transformer.training.run.devices import make_strategy
from keras_transformer.training.run.state import read_progress

# Long enough for a machine on which other tests run.
SECONDS = 900
# Three validations.
OVERRIDES = (
    *(
        "training.steps=60",
        "training.validate_every=20",
        "training.keep_checkpoints=3",
        "training.average_last=2",
    ),
    *("training.warmup_steps=3", "training.decay=inverse_sqrt", "model.dropout=0.1"),
)


@dataclasses.dataclass
class Worker:
    """A process of a cluster, and its output."""

    arguments: list
    addresses: list
    index: int
    environment: dict = dataclasses.field(default_factory=dict)
    max_file_size: int | None = None

    def __post_init__(self):
        config = tf_config({"worker": self.addresses}, "worker", self.index)
        self.said = ""
        self.process = subprocess.Popen(
            [str(argument) for argument in self.arguments],
            cwd=ROOT,
            # As the command sets it, unless it is set: by JAX in the process of the tests, which
            # would show more.
            env={
                **os.environ,
                "TF_CONFIG": config,
                "TF_CPP_MIN_LOG_LEVEL": "3",
                **self.environment,
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=self._prepare,
        )
        # Whatever happens, no test waits for ever.
        self.timer = threading.Timer(SECONDS, self.process.kill)
        self.timer.start()

    def _prepare(self):
        # A shell that runs the tests in the background lets them ignore Ctrl-C.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if self.max_file_size is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.max_file_size, self.max_file_size))

    def wait_for(self, text):
        while text not in self.said:
            line = self.process.stderr.readline()
            assert line, self.said
            self.said += line

    def end(self):
        """The exit code, and the last line that it said."""
        self.said += self.process.stderr.read()
        code = self.process.wait()
        self.timer.cancel()
        assert "Traceback" not in self.said, self.said
        return code, self.said.splitlines()[-1]

    def succeed(self):
        code, line = self.end()
        assert code == 0, line

    def fail(self):
        """The last line that it said."""
        code, line = self.end()
        assert code == 1, line
        return line


@pytest.fixture
def start(files, tmp_path):  # noqa: F811
    """Starts two workers, each with its own model directory; kills those that still run at the
    end."""
    workers = []

    def start(*overrides, more=(), **options_of_workers):
        addresses = free_addresses(2)
        for index, name in enumerate(("chief", "other")):
            arguments = [*command(files, tmp_path / name, *OVERRIDES, *overrides), *more]
            options = {
                "arguments": arguments,
                "addresses": addresses,
                **options_of_workers.get(name, {}),
            }
            workers.append(Worker(index=index, **options))
        return workers[-2:]

    yield start
    for worker in workers:
        worker.timer.cancel()
        worker.process.kill()
        worker.process.communicate()


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """On one device, which divides its batches as two workers do: dropout is the same then."""
    return train_here(
        tmp_path_factory.mktemp("undisturbed") / "model", *OVERRIDES, parallel_parts=2
    )


def finish(start, tmp_path):
    """Runs both workers until they end, and returns the chief's model directory."""
    for worker in start():
        worker.succeed()
    # Tokens for the worker's next start.
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["tokens"]
    return ModelDir(tmp_path / "chief")


def assert_as_on_one_device(model_dir, undisturbed):
    losses = [
        [float(row["loss"]) for row in rows(directory)] for directory in (model_dir, undisturbed)
    ]
    np.testing.assert_allclose(*losses, rtol=1e-5)
    with (
        np.load(model_dir.training_state_path) as state,
        np.load(undisturbed.training_state_path) as expected,
    ):
        kept = [name for name in expected.files if name.startswith(("model.", "average"))]
        names = [name for name in kept if expected[name].dtype == np.float32]
        weights, others = (
            np.concatenate([arrays[name].ravel() for name in names]) for arrays in (state, expected)
        )
    # All weights together: Adam makes large steps of gradients that are rounding errors, too.
    # Measured: 0.0007.
    assert np.linalg.norm(weights - others) < 0.002 * np.linalg.norm(others)
    assert leftovers(model_dir.path) == []


def rows(model_dir):
    return list(csv.DictReader(model_dir.log_path.read_text().splitlines()))


LOST = (
    "ended or does not answer. Start the same command on all workers again: training resumes "
    "from the last saved state"
)


@pytest.mark.slow
def test_two_workers_train_as_one_device_does(start, undisturbed, tmp_path):
    assert_as_on_one_device(finish(start, tmp_path), undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("victim", [0, 1])
def test_a_killed_worker_stops_the_other_and_both_resume(victim, start, undisturbed, tmp_path):
    workers = start()
    workers[0].wait_for("step 20:")
    workers[victim].process.kill()
    name = ("the chief", "worker 1")[victim]
    expected = f"keras-transformer train: error: {name} ({workers[0].addresses[victim]}) {LOST}"
    assert workers[1 - victim].fail() == expected
    assert_as_on_one_device(finish(start, tmp_path), undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("receiver", [0, 1])
def test_a_signal_to_one_worker_stops_both_after_the_same_step(
    receiver, start, undisturbed, tmp_path
):
    workers = start()
    workers[0].wait_for("step 20:")
    workers[receiver].process.send_signal(signal.SIGTERM)
    ends = [worker.end() for worker in workers]
    step = read_progress(ModelDir(tmp_path / "chief")).step
    saved = f"after step {step}, which is saved; run the same command to resume"
    assert ends[receiver] == (143, f"stopped by SIGTERM {saved}")
    assert ends[1 - receiver] == (143, f"stopped by a signal to another worker {saved}")
    assert_as_on_one_device(finish(start, tmp_path), undisturbed)


@pytest.mark.slow
def test_workers_use_the_tokens_of_one_directory_again(start, undisturbed, tmp_path):
    shared = tmp_path / "shared"
    for worker in start("training.steps=20", more=["--token-cache", shared]):
        worker.succeed()
    kept = {path: path.stat().st_ino for path in shared.iterdir()}
    assert len(kept) == 2
    chief, other = start(more=["--token-cache", shared])
    for worker in (chief, other):
        worker.succeed()
    # The chief shows the progress.
    assert chief.said.count(f"tokenized before, in {shared}/") == 2
    assert {path: path.stat().st_ino for path in shared.iterdir()} == kept
    assert not (tmp_path / "other").exists()
    assert_as_on_one_device(ModelDir(tmp_path / "chief"), undisturbed)


@pytest.mark.slow
def test_workers_begin_with_the_weights_of_a_model(start, undisturbed, tmp_path):
    overrides = (
        "training.steps=20",
        "training.decay=constant",
        "training.peak_learning_rate=0.001",
    )
    for worker in start(*overrides, more=["--init-from", undisturbed.path]):
        worker.succeed()
    on_one_device = train_here(
        tmp_path / "one", *OVERRIDES, *overrides, parallel_parts=2, init_from=undisturbed
    )
    assert_as_on_one_device(ModelDir(tmp_path / "chief"), on_one_device)


class Link:
    """A network between two workers: forwards what is sent to its address to the other worker,
    until it is cut."""

    def __init__(self, address):
        self.target = address.rpartition(":")[::2]
        self.server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.server.getsockname()[1]}"
        self.is_cut = threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.server.accept()
                far = self._connect()
                for ends in ((near, far), (far, near)):
                    threading.Thread(target=self._forward, args=ends, daemon=True).start()

    def _connect(self):
        # The other worker may not listen yet.
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                return socket.create_connection((self.target[0], int(self.target[1])))

    def _forward(self, source, sink):
        with contextlib.suppress(OSError):
            while (data := source.recv(65536)) and not self.is_cut.is_set():
                sink.sendall(data)
            # As with a cable that is pulled out, nobody hears of it.
            if not self.is_cut.is_set():
                sink.shutdown(socket.SHUT_WR)


@pytest.mark.slow
def test_a_lost_network_stops_both(start, undisturbed, tmp_path):
    addresses = free_addresses(2)
    to_chief, to_other = map(Link, addresses)
    chief, other = start(
        chief={"addresses": [addresses[0], to_other.address]},
        other={"addresses": [to_chief.address, addresses[1]]},
    )
    chief.wait_for("step 20:")
    to_chief.is_cut.set()
    to_other.is_cut.set()
    for worker in (chief, other):
        assert worker.fail().endswith(LOST)
    assert_as_on_one_device(finish(start, tmp_path), undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, size, file",
    [
        ("other", 2000, "tokenizer.model"),
        ("chief", 100_000, "checkpoints/step-00000020.weights.h5"),
    ],
)
def test_a_full_disk_of_one_worker_stops_both(name, size, file, start, undisturbed, tmp_path):
    workers = start(**{name: {"max_file_size": size}})
    victim = ("chief", "other").index(name)
    line = workers[victim].fail()
    assert line.startswith("keras-transformer train: error: ") and line.endswith(
        f"{file}: File too large"
    )
    assert workers[1 - victim].fail().endswith(LOST)
    assert_as_on_one_device(finish(start, tmp_path), undisturbed)


@pytest.mark.slow
def test_a_second_chief_touches_nothing(start, tmp_path):
    model_dir = ModelDir(tmp_path / "chief")
    model_dir.path.mkdir()
    with model_dir.lock_for_training():
        chief, other = start()
        assert (
            f"{model_dir}: another training run uses this directory: process {os.getpid()} on "
            in chief.fail()
        )
        assert other.fail().endswith(LOST)
        assert list(model_dir.path.iterdir()) == [model_dir.lock_path]


@pytest.mark.slow
@pytest.mark.parametrize("what", ["options", "texts"])
def test_a_worker_with_something_else_than_the_chief_is_told(
    what,
    start,
    files,  # noqa: F811
    tmp_path,
):
    arguments = command(
        files, tmp_path / "other", *OVERRIDES, *(["training.seed=2"] if what == "options" else [])
    )
    if what == "texts":
        arguments[arguments.index("--source") + 1] = arguments[arguments.index("--target") + 1]
    chief, other = start(other={"arguments": arguments})
    assert f"the {what} must be the same as on the chief ({chief.addresses[0]})" in other.fail()
    assert chief.fail().endswith(LOST)


# TensorFlow looks every 30 s whether the other workers are there; here it does so when the chief
# has ended.
NOT_A_NUMBER = """
import sys
import time
import keras_transformer.training.step.model as training_model
from keras_transformer.commands.main import main
from tensorflow.python.distribute.collective_all_reduce_strategy import CollectiveAllReduceExtended

CollectiveAllReduceExtended._check_health_interval = 0.01

sum_over_tokens = training_model.TrainingStep._sum_over_tokens

def nan_from_step_21(self, *arguments):
    total, gradients = sum_over_tokens(self, *arguments)
    steps = training_model.tf.cast(self.optimizer.iterations, "float32")
    return training_model.tf.where(steps >= 20, float("nan"), total), gradients

training_model.TrainingStep._sum_over_tokens = nan_from_step_21
try:
    main(sys.argv[1:])
finally:
    time.sleep(3)
"""


@pytest.mark.slow
def test_a_loss_that_is_not_finite_on_one_worker_stops_both(
    start,
    files,  # noqa: F811
    undisturbed,
    tmp_path,
):
    arguments = [
        sys.executable,
        "-c",
        NOT_A_NUMBER,
        *command(files, tmp_path / "other", *OVERRIDES)[3:],
    ]
    for worker in start(other={"arguments": arguments}):
        line = worker.fail()
        assert "training diverged in step 21, " in line and "the loss is nan. " in line
    assert_as_on_one_device(finish(start, tmp_path), undisturbed)


WITH_CALLBACK = """
import functools, json, sys
import keras
from keras_transformer.commands.main import main
from keras_transformer.training.run import trainer

class Stop(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs):
        assert set(logs) == {"loss"}
        self.model.stop_training = int(self.model.optimizer.iterations.numpy()) == 25

    def on_epoch_end(self, epoch, logs):
        print(json.dumps(logs), file=sys.stderr)

trainer.train = functools.partial(trainer.train, callbacks=[Stop()])
main(sys.argv[1:])
"""


@pytest.mark.slow
def test_a_callback_of_one_worker_stops_both_after_the_same_validation(
    start,
    files,  # noqa: F811
    undisturbed,
    tmp_path,
):
    arguments = [
        sys.executable,
        "-c",
        WITH_CALLBACK,
        *command(files, tmp_path / "other", *OVERRIDES)[3:],
    ]
    chief, other = start(other={"arguments": arguments})
    for worker in (chief, other):
        worker.succeed()
    assert "stopped after step 40 by a callback; run the same command to resume" in chief.said
    # Its logs are those of the chief.
    logs = [json.loads(line) for line in other.said.splitlines() if line.startswith("{")]
    log = [
        {name: float(row[name]) for name in row if name != "epoch"}
        for row in rows(ModelDir(tmp_path / "chief"))
    ]
    assert [log_row["step"] for log_row in logs] == [20, 40] and logs == log
    assert_as_on_one_device(finish(start, tmp_path), undisturbed)


@pytest.mark.slow
def test_a_worker_that_waits_for_the_others_can_be_interrupted(files, tmp_path):  # noqa: F811
    worker = Worker(command(files, tmp_path / "chief"), free_addresses(2), 0)
    worker.wait_for("waiting until all workers are connected: ")
    worker.process.send_signal(signal.SIGINT)
    assert worker.end()[0] == -signal.SIGINT
    assert not (tmp_path / "chief").exists()


@pytest.mark.slow
def test_an_address_that_is_in_use_is_one_line(files, tmp_path):  # noqa: F811
    with socket.create_server(("127.0.0.1", 0)) as server:
        addresses = [f"127.0.0.1:{server.getsockname()[1]}", *free_addresses(1)]
        line = Worker(command(files, tmp_path / "chief"), addresses, 0).fail()
    assert (
        f"error: {addresses[0]}: this worker cannot connect to the others: Could not start "
        f"gRPC" in line
    )


# Where workers are described


@pytest.fixture
def environment(monkeypatch):
    def environment(**variables):
        for name in ("TF_CONFIG", *(name for name in os.environ if name.startswith("SLURM_"))):
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return environment


def tf_config(jobs, kind, index):
    return json.dumps({"cluster": jobs, "task": {"type": kind, "index": index}})


UNUSUAL_ADDRESSES = ["10.0.0.1:65535", "[fe80::1]:80", "a-b.c_d:1"]


@pytest.mark.parametrize(
    "jobs, kind, index, expected",
    [
        ({"worker": ["a:1", "b:2"]}, "worker", 1, (["a:1", "b:2"], 1)),
        ({"chief": ["c:3"], "worker": ["a:1", "b:2"]}, "worker", 1, (["c:3", "a:1", "b:2"], 2)),
        ({"chief": ["c:3"], "worker": ["a:1", "b:2"]}, "chief", 0, (["c:3", "a:1", "b:2"], 0)),
        ({"worker": ["a:1"]}, "worker", 0, (["a:1"], 0)),
        ({"worker": UNUSUAL_ADDRESSES}, "worker", "2", (UNUSUAL_ADDRESSES, 2)),
        ({}, "worker", 0, ([], 0)),
    ],
)
def test_workers_of_tf_config(jobs, kind, index, expected, environment):
    environment(TF_CONFIG=tf_config(jobs, kind, index))
    assert workers_of_environment() == expected


BAD_ADDRESSES = (
    *(
        [address, "b:2"]
        for address in (1, None, [], {}, "", ":1", "a", "a:", "a:0", "a:65536", "a:1\n", "a:1:2")
    ),
    *(["a:1", "a:1"], "a:1", {"a:1": 0, "b:2": 1}, 7, None),
)
BAD_INDICES = (0.0, 1.5, True, -1, float("inf"), None, [0], {}, "", "-1", "1.0", 10**30)


@pytest.mark.parametrize(
    "text",
    [
        "workers",
        "[]",
        '{"cluster": {"worker": ["a:1", "b:2"]}}',
        tf_config({"worker": ["a:1", "b:2"]}, "worker", 2),
        tf_config({"worker": ["a:1", "b:2"]}, "worker", "first"),
        tf_config({"worker": ["a:1", "b:2"], "ps": ["c:3"]}, "ps", 0),
        *(tf_config({"worker": addresses}, "worker", 0) for addresses in BAD_ADDRESSES),
        tf_config({"chief": ["b:2"], "worker": ["a:1", "b:2"]}, "worker", 0),
        *(tf_config({"worker": ["a:1", "b:2"]}, "worker", index) for index in BAD_INDICES),
        # The second chief, not the first worker.
        tf_config({"chief": ["c:3"], "worker": ["a:1", "b:2"]}, "chief", 1),
        *(tf_config({"worker": ["a:1", "b:2"]}, kind, 0) for kind in (None, 1, ["worker"], {})),
        *(
            tf_config(jobs, "worker", 0)
            for jobs in (["a:1", "b:2"], "a:1", 2, None, {"chief": {"a:1": "b:2"}})
        ),
        *(
            json.dumps({"cluster": {"worker": ["a:1", "b:2"]}, "task": task})
            for task in (None, 0, "worker", [0])
        ),
        "[" * 100_000,
        '{"cluster":' * 10_000,
    ],
)
def test_a_tf_config_that_describes_no_worker_is_refused(text, environment):
    environment(TF_CONFIG=text)
    with pytest.raises(
        ConfigError, match="^TF_CONFIG must be like .*; received TF_CONFIG="
    ) as error:
        make_strategy()
    message = str(error.value)
    assert (
        message.endswith(f"; received TF_CONFIG={shown(text)}")
        and "\n" not in message
        and len(message) < 500
    )


TASKS_PER_NODE = {"SLURM_STEP_TASKS_PER_NODE": "1(x2)"}


def test_workers_of_slurm(environment):
    step = {
        "SLURM_STEP_NUM_TASKS": "4",
        "SLURM_STEP_NODELIST": "gpu[07-08]",
        "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    }
    environment(**step, SLURM_PROCID="2")
    addresses = ["gpu07:8888", "gpu07:8889", "gpu08:8888", "gpu08:8889"]
    assert workers_of_environment() == (addresses, 2)
    # In the shell of an allocation there is one task.
    environment(**{**step, "SLURM_STEP_NUM_TASKS": "1"}, SLURM_PROCID="0")
    assert workers_of_environment() == ([], 0)


@pytest.mark.parametrize(
    "step",
    [
        {"SLURM_STEP_NUM_TASKS": "2"},
        {"SLURM_STEP_NUM_TASKS": "two", "SLURM_PROCID": "0"},
        {
            "SLURM_PROCID": "2",
            "SLURM_STEP_NUM_TASKS": "2",
            "SLURM_STEP_NODELIST": "a,b",
            **TASKS_PER_NODE,
        },
        {
            "SLURM_PROCID": "0",
            "SLURM_STEP_NUM_TASKS": "3",
            "SLURM_STEP_NODELIST": "a,b",
            **TASKS_PER_NODE,
        },
        {
            "SLURM_PROCID": "0",
            "SLURM_STEP_NUM_TASKS": "2",
            "SLURM_STEP_NODELIST": "a[1-",
            **TASKS_PER_NODE,
        },
    ],
)
def test_variables_of_slurm_that_describe_no_step_are_refused(step, environment):
    environment(**step)
    message = "^the variables of Slurm must describe the tasks of a step, .*; received "
    with pytest.raises(ConfigError, match=message) as error:
        make_strategy()
    assert all(f"{name}={value}" in str(error.value) for name, value in step.items())


def test_workers_use_all_their_devices(environment):
    environment(TF_CONFIG=tf_config({"worker": ["a:1", "b:2"]}, "worker", 0))
    with pytest.raises(
        ConfigError, match="devices must be left out if there are several workers.*devices=2"
    ):
        make_strategy(2)


# The same training on one device and on several

LAYOUT = """
import json, os, sys
import keras
import tensorflow as tf
from tensorflow.python.distribute.collective_all_reduce_strategy import CollectiveAllReduceExtended

from keras_transformer.training.run.devices import make_strategy
from keras_transformer.training.recipe import load_recipe
from keras_transformer.training.run.trainer import train
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
    train(config, pairs(0, 353), pairs(353, 400), os.path.join(directory, name), strategy, parallel_parts=4 // workers)
"""
PLAIN = [
    *(
        "training.steps=50",
        "training.validate_every=1",
        "training.clip_norm=0.5",
        "training.accumulate_steps=2",
    ),
    *("training.num_buckets=1", "training.keep_checkpoints=1", "training.average_last=0"),
]
SETTINGS = {
    "plain": PLAIN,
    "r-drop": [*PLAIN, "training.consistency=5", "model.dropout=0.2", "training.ema=0.9"],
}


@pytest.fixture(scope="module")
def layouts(tmp_path_factory):
    """Trains with each layout of workers and devices, in four parts altogether; returns the model
    directories."""
    folder = tmp_path_factory.mktemp("layouts")
    settings = json.dumps({name: [*TINY, *overrides] for name, overrides in SETTINGS.items()})
    environment = {"PYTHONPATH": f"{ROOT}:{ROOT}/tests:{ROOT}/tests/training/run"}
    for number, devices_of_each in ((1, 1), (1, 2), (2, 1), (2, 2)):
        directory = folder / f"{number}x{devices_of_each}"
        arguments = [sys.executable, "-c", LAYOUT, number, devices_of_each, directory, settings]
        addresses = free_addresses(number)
        for worker in [Worker(arguments, addresses, index, environment) for index in range(number)]:
            worker.succeed()
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("layout", ["1x2", "2x1", "2x2"])
def test_the_layout_of_workers_and_devices_does_not_matter(layouts, layout, name):
    one, several = (ModelDir(layouts / folder / name) for folder in ("1x1", layout))
    assert len(rows(one)) == 50
    assert_as_on_one_device(several, one)
