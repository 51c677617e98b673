"""Trainings that are disturbed at random moments, and resumed: is anything lost?

    python tests/training/run/chaos.py --runs 50
    python tests/training/run/chaos.py --runs 25 --faults kill
    python tests/training/run/chaos.py --runs 10 --workers 2

One training runs undisturbed. Each of the others is the same, and has one fault at a random moment:

    kill        SIGKILL
    terminate   SIGTERM
    full disk   no file can grow any more (a limit of the process: no privileges are needed)
    read-only   the model directory and those in it become read-only
    truncated   SIGKILL, then the newest binary file loses its second half
    flipped     SIGKILL, then a bit of the newest binary file is flipped
    second      the same command once more, beside it

Then the fault is removed and the same command is given again. It must end with the log, the weights
and the training state of the undisturbed run, bit for bit, or with one line that says why not. No
temporary file may be left, and no traceback be shown. The exit code is 1 if a run breaks these
rules.

With `--workers N`, one training of N workers is killed `--runs` times: at a random moment one of
them, and all are started again after the others have ended by themselves. It must end as if it had
not been killed, too.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

# `examples` is in the root of the repository, which is not on the path of a script.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[3]))

from training_runs import differences, drop_privilege, free_addresses, leftovers, write_text

_SETTINGS = (
    *(
        "model.d_model=32",
        "model.d_ff=64",
        "model.num_heads=2",
        "model.num_layers=1",
        "model.dropout=0.1",
    ),
    *("tokenizer.vocab_size=500", "training.tokens_per_batch=500", "training.num_buckets=3"),
    *("training.precision=float32", "training.steps=48", "training.validate_every=4"),
    *("training.keep_checkpoints=3", "training.average_last=2"),
)
# Processes may have to wait for a busy machine.
_MOST_SECONDS = 1800


class Broken(Exception):
    """A run broke a rule; the message says which one."""


@dataclasses.dataclass
class Training:
    """A training in a process, with the directory of its text."""

    text: pathlib.Path
    model_dir: pathlib.Path

    def start(self, *settings: str, **environment: str) -> subprocess.Popen[str]:
        """Starts the command; its standard error is a pipe."""
        command = [sys.executable, "-m", "keras_transformer", "train", "--config", "demo"]
        command += ["--source", self.text / "train.en", "--target", self.text / "train.de"]
        command += [
            "--valid-source",
            self.text / "valid.en",
            "--valid-target",
            self.text / "valid.de",
        ]
        command += ["--model-dir", self.model_dir, "--set", *_SETTINGS, *settings]
        return subprocess.Popen(
            list(map(str, command)),
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=drop_privilege,
        )

    def run(self) -> tuple[int, list[str]]:
        """Runs the command to its end, and returns its exit code and the lines of its standard
        error."""
        return _ended(self.start())


def _ended(process: subprocess.Popen[str]) -> tuple[int, list[str]]:
    _, output = process.communicate(timeout=_MOST_SECONDS)
    if "Traceback" in output:
        raise Broken(f"a traceback, which ends with: {output.splitlines()[-1]}")
    return process.returncode, output.splitlines()


# What a fault does to a process that runs.
Fault = Callable[[Training, "subprocess.Popen[str]", random.Random], None]


def _fill_disk(training: Training, process: "subprocess.Popen[str]", rng: random.Random) -> None:
    limit = rng.choice([0, 1000, 100_000])
    if process.poll() is None:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit, limit))


def _set_mode(directory: pathlib.Path, mode: int) -> None:
    for path in [directory, *directory.rglob("*")]:
        if path.is_dir():
            path.chmod(mode)


def _truncate(training: Training, process: "subprocess.Popen[str]", rng: random.Random) -> None:
    if path := _newest_after_kill(training, process):
        os.truncate(path, path.stat().st_size // 2)


def _flip(training: Training, process: "subprocess.Popen[str]", rng: random.Random) -> None:
    if path := _newest_after_kill(training, process):
        content = bytearray(path.read_bytes())
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        path.write_bytes(content)


def _newest_after_kill(training: Training, process: "subprocess.Popen[str]") -> pathlib.Path | None:
    process.kill()
    process.wait()
    files = [
        path
        for path in training.model_dir.rglob("[!.]*")
        if path.suffix in (".h5", ".npz", ".model")
    ]
    return max(files, key=lambda path: path.stat().st_mtime_ns, default=None)


def _train_twice(training: Training, process: "subprocess.Popen[str]", rng: random.Random) -> None:
    code, lines = training.run()
    if code and not any(
        "another training run uses this directory: process" in line for line in lines
    ):
        raise Broken(f"the second training ended with {code}: {lines[-1]}")


FAULTS: dict[str, Fault] = {
    "kill": lambda training, process, rng: process.kill(),
    "terminate": lambda training, process, rng: process.terminate(),
    "full disk": _fill_disk,
    "read-only": lambda training, process, rng: _set_mode(training.model_dir, 0o555),
    "truncated": _truncate,
    "flipped": _flip,
    "second": _train_twice,
}
# The exit codes that a fault may cause; 0 if it came too late.
_CODES = {"kill": {-9}, "terminate": {143, -15}, "truncated": {-9}, "flipped": {-9}}


@dataclasses.dataclass
class Outcome:
    """What became of a disturbed training."""

    fault: str
    # When the fault came: the processor time of the training until then.
    seconds: float
    # Of the disturbed process.
    code: int | None
    # "equal", or the lines that say why not, or what rule was broken.
    result: str
    is_broken: bool = False


def disturb(
    training: Training, undisturbed: Training, fault: str, seconds: float, seed: int
) -> Outcome:
    """Runs a training with a fault, resumes it, compares it with the undisturbed one, and removes
    it."""
    code = None
    try:
        process = training.start()
        while process.poll() is None and _cpu_seconds(process) < seconds:
            time.sleep(0.005)
        FAULTS[fault](training, process, random.Random(seed))
        code, lines = _ended(process)
        _set_mode(training.model_dir, 0o755)
        if code not in _CODES.get(fault, {1}) | {0}:
            raise Broken(f"exit code {code}: {lines[-1:]}")
        if code == 1 and sum(": error: " in line for line in lines) != 1:
            raise Broken(f"not one line of an error, but {lines[-3:]}")
        code_again, lines = training.run()
        reasons = [line for line in lines if ": error: " in line or line.startswith("warning: ")]
        if code_again not in (0, 1) or (code_again == 1 and len(reasons) != 1):
            raise Broken(f"the resumed training ended with {code_again}: {lines[-1:]}")
        different = [] if code_again else differences(training.model_dir, undisturbed.model_dir)
        if different and not reasons:
            raise Broken(
                f"{', '.join(different)}: not as in the undisturbed run, and no line says why"
            )
        if left := leftovers(training.model_dir):
            raise Broken(f"left over: {', '.join(left)}")
        said = "; ".join(reasons).replace(f"{training.model_dir}/", "")
        result = (
            f"not equal ({', '.join(different)})"
            if different
            else "not resumed"
            if code_again
            else "equal"
        )
        return Outcome(fault, seconds, code, f"{result}: {said}" if said else result)
    except (Broken, OSError) as error:
        return Outcome(fault, seconds, code, str(error), is_broken=True)
    finally:
        shutil.rmtree(training.model_dir, ignore_errors=True)


def _cpu_seconds(process: "subprocess.Popen[str]") -> float:
    """The processor time of a process: unlike the time since its start, it does not depend on other
    programs."""
    try:
        # After the name, which may contain spaces, the 12th and 13th fields are those in user and
        # in kernel mode.
        fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start_workers(training: Training, number: int) -> list[subprocess.Popen[str]]:
    """Starts a training in several processes; the model directory is the first one's."""
    addresses = free_addresses(number)
    processes = []
    for index in range(number):
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        # Long enough to be killed often.
        processes.append(training.start("training.steps=240", TF_CONFIG=json.dumps(task)))
    return processes


def kill_workers(directory: pathlib.Path, number: int, kills: int, rng: random.Random) -> int:
    """Kills a random worker of a training again and again, prints what became of it, and returns
    the exit code."""
    text = directory / "text"
    write_text(text)
    undisturbed, training = (
        Training(text, directory / "undisturbed"),
        Training(text, directory / "killed"),
    )
    for process in start_workers(undisturbed, number):
        code, lines = _ended(process)
        if code:
            raise SystemExit(f"the undisturbed training failed: {lines[-1]}")
    for kill in range(1, kills + 1):
        workers = start_workers(training, number)
        assert workers[0].stderr is not None
        validations, victim = rng.randrange(1, 4), rng.randrange(number)
        for line in workers[0].stderr:
            validations -= line.startswith("step ")
            if not validations:
                break
        # In a step, in a validation, or while a file is written.
        time.sleep(rng.uniform(0, 0.5))
        workers[victim].kill()
        ends = [_ended(process) for process in workers]
        said = [lines[-1] if lines else "" for code, lines in ends if code == 1]
        print(
            f"{kill:3} killed worker {victim}  exits {[code for code, _ in ends]}  "
            f"{'; '.join(said)}",
            flush=True,
        )
    ends = [_ended(process) for process in start_workers(training, number)]
    different = differences(training.model_dir, undisturbed.model_dir)
    left = leftovers(training.model_dir)
    print(
        f"exits {[code for code, _ in ends]}; not equal: {different or 'nothing'}; left over: "
        f"{left or 'nothing'}"
    )
    return int(bool(different or left or any(code for code, _ in ends)))


def main() -> None:
    """Runs the command."""
    description = "Disturb trainings at random moments, and resume them."
    parser = argparse.ArgumentParser(description=description, allow_abbrev=False)
    parser.add_argument(
        "--runs", type=int, default=50, metavar="N", help="disturbed trainings (50)"
    )
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="trainings at a time (2)")
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="of faults and moments (1)"
    )
    parser.add_argument(
        "--faults", nargs="+", choices=FAULTS, default=list(FAULTS), help="which, in turns (all)"
    )
    parser.add_argument(
        "--workers", type=int, metavar="N", help="kill one of so many workers instead"
    )
    options = parser.parse_args()
    rng = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as directory:
        path = pathlib.Path(directory)
        if options.workers:
            sys.exit(kill_workers(path, options.workers, options.runs, rng))
        sys.exit(run(path, options.runs, options.jobs, options.faults, rng))


def run(
    directory: pathlib.Path, runs: int, jobs: int, faults: list[str], rng: random.Random
) -> int:
    """Runs all trainings, prints what became of them, and returns the exit code."""
    text = directory / "text"
    write_text(text)
    undisturbed = Training(text, directory / "undisturbed")
    code, lines = undisturbed.run()
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    duration = usage.ru_utime + usage.ru_stime
    if code:
        raise SystemExit(f"the undisturbed training failed: {lines[-1]}")
    validations = sum(line.startswith("step ") for line in lines)
    print(f"undisturbed: {duration:.0f} s of processor time, {validations} validations", flush=True)
    outcomes, futures = [], []
    with concurrent.futures.ThreadPoolExecutor(jobs) as executor:
        for number in range(runs):
            training, fault = Training(text, directory / str(number)), faults[number % len(faults)]
            # To start takes more than half of the time.
            seconds = rng.uniform(0.4, 1.0) * duration
            futures.append(
                executor.submit(
                    disturb, training, undisturbed, fault, seconds, rng.randrange(2**32)
                )
            )
        for number, future in enumerate(futures, start=1):
            outcome = future.result()
            outcomes.append(outcome)
            result = f"{'BROKEN: ' * outcome.is_broken}{outcome.result}"
            when = f"after {outcome.seconds:5.1f} s  exit {outcome.code!s:>4}"
            print(f"{number:3} {outcome.fault:10} {when}  {result}", flush=True)
    print(table(outcomes))
    return int(any(outcome.is_broken for outcome in outcomes))


def table(outcomes: list[Outcome]) -> str:
    """Returns how often each fault had which outcome, as a table in Markdown."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for outcome in outcomes:
        kind = (
            "broken"
            if outcome.is_broken
            else "equal"
            if outcome.result.startswith("equal")
            else "said why not"
        )
        came = "too late" if outcome.code == 0 and outcome.fault != "second" else "in time"
        counts[outcome.fault].update(["runs", kind, came])
    columns = ("runs", "in time", "too late", "equal", "said why not", "broken")
    lines = [f"| fault | {' | '.join(columns)} |", f"| --- |{' --- |' * len(columns)}"]
    lines += [
        f"| {fault} | {' | '.join(str(count[column]) for column in columns)} |"
        for fault, count in counts.items()
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
