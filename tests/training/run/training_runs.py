"""What tests of training runs share: their text, addresses of workers, and what two runs left in
their directories."""

import ctypes
import os
import pathlib
import socket

import h5py
import numpy as np

from examples.corpus import generate

NUM_PAIRS = 400
# From linux/prctl.h and linux/capability.h. Without the capability, root may not write to read-only
# directories either.
_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE = 24, 1


def write_text(directory: pathlib.Path) -> None:
    """Writes a small parallel text, for training and validation."""
    directory.mkdir()
    pairs = generate(NUM_PAIRS, seed=3)
    split = NUM_PAIRS * 9 // 10
    for name, part in (("train", pairs[:split]), ("valid", pairs[split:])):
        for side, language in enumerate(("en", "de")):
            lines = "".join(f"{pair[side]}\n" for pair in part)
            (directory / f"{name}.{language}").write_text(lines, encoding="utf-8")


def free_addresses(number: int) -> list[str]:
    """Returns addresses of this machine at which no process listens."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    addresses = [f"127.0.0.1:{sock.getsockname()[1]}" for sock in sockets]
    for sock in sockets:
        sock.close()
    return addresses


def drop_privilege() -> None:
    """Takes from a process, before it runs its program, what root may do and others may not."""
    if os.getuid() == 0:
        ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, 0, 0, 0)


def differences(one: pathlib.Path, other: pathlib.Path) -> list[str]:
    """Returns the names of the files that are not equal: weights and states by their numbers,
    others by their bytes."""
    names = {
        path.relative_to(directory).as_posix()
        for directory in (one, other)
        for path in directory.rglob("*")
        if path.suffix in (".h5", ".npz", ".model", ".csv", ".yaml")
    }
    # The state before the last is another one if the training was stopped between two validations.
    names.discard("training_state.previous.npz")
    return sorted(name for name in names if _content(one / name) != _content(other / name))


def _content(path: pathlib.Path) -> object:
    if not path.is_file():
        return None
    if path.suffix == ".npz":
        with np.load(path) as arrays:
            return {name: arrays[name].tobytes() for name in arrays.files}
    if path.suffix == ".h5":
        weights: dict[str, bytes] = {}

        def visit(name: str, item: h5py.HLObject) -> None:
            if isinstance(item, h5py.Dataset):
                weights[name] = item[()].tobytes()

        with h5py.File(path) as file:
            file.visititems(visit)
        return weights
    return path.read_bytes()


def leftovers(model_dir: pathlib.Path) -> list[str]:
    """Returns the names of files that no training leaves when it ends."""
    names = [path.relative_to(model_dir).as_posix() for path in model_dir.rglob("*")]
    return [
        name
        for name in names
        if pathlib.PurePath(name).name.startswith(".")
        or name.rsplit(".", 1)[-1].isdigit()
        or (name.endswith(".sha256") and name.removesuffix(".sha256") not in names)
    ]
