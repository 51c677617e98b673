"""A program that publishes a version again and again, and is killed, or runs out of disk, at a
later instant each time.

python tests/export/publish_trials.py FOLDER kill|full

An instant is when Python opens a file, makes a directory, renames something, ... (`INSTANTS`); it
then does not happen any more. Each trial is a process of its own, and the next export into the same
folder follows. Prints the trials as JSON: how the process ended, the versions and other names that
it left behind, and those after the next export.
"""

import errno
import itertools
import json
import os
import pathlib
import signal
import sys

from keras_transformer.export.publishing import publish

# Events of Python's audit hooks.
INSTANTS = {
    "open",
    "os.listdir",
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.scandir",
    "fcntl.flock",
}
WRITING = {"os.mkdir", "os.rename"}
CONTENT = {
    "saved_model.pb": b"graph" * 1000,
    "variables/variables.index": b"index",
    "assets.extra/README.md": b"# Card\n",
}


def export(output):
    """As `export_servable` does: a version with its card beside it."""

    def write(directory):
        for name, content in CONTENT.items():
            (directory / name).parent.mkdir(exist_ok=True)
            (directory / name).write_bytes(content)

    publish(output, None, write, pathlib.PurePath("assets.extra", "README.md"))


def disturb(fault, instant):
    """Kills this process at an instant, or lets the disk be full from then on."""
    left = instant

    def hook(event, arguments):
        nonlocal left
        if event not in INSTANTS:
            return
        left -= 1
        if left < 0 and fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if left < 0 and (
            event in WRITING or (event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR))
        ):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    sys.addaudithook(hook)


def names(output):
    """What is in the folder; its versions must have all of the content, and a card beside them."""
    for path in output.glob("[0-9]*"):
        contents = {
            str(file.relative_to(path)): file.read_bytes()
            for file in path.rglob("*")
            if file.is_file()
        }
        assert contents == CONTENT, (path, contents)
        assert (
            (output / "README.md").read_text().startswith("# Card\n\nThis is the card of version ")
        )
    return sorted(path.name for path in output.glob("*"))


def main(folder, fault):
    trials = []
    for instant in itertools.count():
        output = pathlib.Path(folder, str(instant))
        child = os.fork()
        if child == 0:
            disturb(fault, instant)
            try:
                export(output)
            except OSError as error:
                os._exit(error.errno)
            os._exit(0)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        left = names(output)
        export(output)
        trials.append({"status": status, "left": left, "then": names(output)})
        if status == 0:
            break
    print(json.dumps(trials))


if __name__ == "__main__":
    main(*sys.argv[1:])
