"""The commands of docs/scaling.md, unchanged, in two processes on this machine."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
from test_training import ROOT, TINY, logged
from training_runs import free_addresses, leftovers, write_text

from keras_transformer.model_dir import ModelDir

# Long enough for a machine on which other tests run.
SECONDS = 900
SETTINGS = [*TINY, "training.steps=4", "training.validate_every=2", "training.average_last=0"]
# What starts the tasks of a Slurm job, each with what tells it of the others.
SRUN = """#!/bin/sh
export SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST=localhost SLURM_STEP_TASKS_PER_NODE=2
SLURM_PROCID=0 "$@" &
chief=$!
SLURM_PROCID=1 "$@"
wait $chief
"""


@pytest.fixture
def folder(tmp_path):
    """A directory with the text of the page, in which its commands run, and a stand-in for Slurm's
    `srun`."""
    write_text(tmp_path / "text")
    for path in (tmp_path / "text").iterdir():
        path.rename(tmp_path / path.name.replace("valid", "val"))
    srun = tmp_path / "srun"
    srun.write_text(SRUN)
    srun.chmod(0o755)
    return tmp_path


def blocks(title, folder):
    """The commands below a title, for a tiny model, with the addresses of this machine for those of
    the page."""
    page = (ROOT / "docs" / "scaling.md").read_text()
    section = re.search(rf"^### {title}\n(.*?)(?=^##)|^### {title}\n(.*)", page, re.M | re.S)[0]
    scripts = re.findall(r"```sh\n(.*?)```", section, re.S)
    addresses = free_addresses(2)
    for hosts in (["host-a:2222", "host-b:2222"], ["train-0.train:2222", "train-1.train:2222"]):
        for host, address in zip(hosts, addresses):
            scripts = [block.replace(host, address) for block in scripts]
    settings = " ".join(["--config demo", "--set", *SETTINGS])
    return [
        block.replace("--config wmt14-en-de-base", settings).replace("/text", str(folder))
        for block in scripts
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "title, indices",
    [("Two machines", (None, None)), ("Slurm", (None,)), ("Kubernetes", (0, 1))],
    ids=str,
)
def test_the_commands_train_on_two_workers(title, indices, folder, capfd):
    scripts = blocks(title, folder)
    if title == "Kubernetes":
        # Every pod has the same command.
        scripts *= 2
    path = f"{folder}:{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    processes = []
    for script, index in zip(scripts, indices, strict=True):
        environment = {} if index is None else {"JOB_COMPLETION_INDEX": str(index)}
        environment |= {**os.environ, "PATH": path}
        processes.append(subprocess.Popen(["sh", "-c", script], cwd=folder, env=environment))
    try:
        assert [process.wait(timeout=SECONDS) for process in processes] == [0] * len(processes)
    finally:
        for process in processes:
            process.kill()
    assert "2 devices of 2 workers" in capfd.readouterr().err
    model_dir = ModelDir(folder / "models" / "en-de")
    assert logged(model_dir, "step") == [2, 4]
    assert leftovers(model_dir.path) == []
