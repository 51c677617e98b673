"""Files and directories that appear whole or not at all, whatever happens while they are written."""

import contextlib
import datetime
import fcntl
import os
import pathlib
import secrets
import shutil
import socket
from collections.abc import Iterator

from ..errors import LockedError

_TEMPORARY = ".writing-"
# Version 0.1 left directories of token ids behind.
_LEFTOVERS = (f"{_TEMPORARY}*", ".token-ids-*")


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Gives a temporary path beside `path`, which it replaces if the block ends without an error.

    Raises:
        OSError: The file cannot be written; the error names `path`, which then is as it was.
    """
    path = pathlib.Path(path)
    with temporary_beside(path) as temporary:
        yield temporary
        rename(temporary, path)


@contextlib.contextmanager
def temporary_beside(path: pathlib.Path, is_directory: bool = False) -> Iterator[pathlib.Path]:
    """Gives the path of a new, empty file or directory beside `path`, and removes what is there when the block ends.

    While the block runs, the file is locked: `remove_leftovers` removes only what no process holds.
    """
    # The name ends like the final one: programs look at the suffix.
    temporary = path.with_name(f"{_TEMPORARY}{secrets.token_hex(4)}-{path.name}")
    with naming_errors(path, temporary):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = _create_locked(temporary, is_directory)
    try:
        with naming_errors(path, temporary):
            yield temporary
    finally:
        _remove(temporary)
        os.close(descriptor)


def rename(path: pathlib.Path, target: pathlib.Path) -> None:
    """Renames a file or directory after its content is safe on the disk; the new name then is safe too."""
    for folder, _, names in os.walk(path):
        for entry in (pathlib.Path(folder, name) for name in names):
            _sync(entry)
    _sync(path)
    os.rename(path, target)
    # Not every file system can do this for a directory.
    with contextlib.suppress(OSError):
        _sync(target.parent)


def remove_leftovers(directory: pathlib.Path) -> None:
    """Removes temporary files and directories of processes that were killed; what a process holds stays."""
    for path in (path for pattern in _LEFTOVERS for path in directory.glob(pattern)):
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(path)
            finally:
                os.close(descriptor)


@contextlib.contextmanager
def locked(path: pathlib.Path, task: str) -> Iterator[None]:
    """Holds a lock file while the block runs; a process that is killed holds it no longer.

    Args:
        path: path of the lock file, in the directory that one process at a time may use.
        task: str. How error messages begin, such as "another training runs here".

    Raises:
        LockedError: Another process holds it; the message says which one, and since when.
    """
    with naming_errors(path):
        descriptor = _open_locked(path, task)
    try:
        with naming_errors(path):
            now = datetime.datetime.now().astimezone()
            holder = f"process {os.getpid()} on {socket.gethostname()}, since {now:%Y-%m-%d %H:%M:%S %Z}"
            os.ftruncate(descriptor, 0)
            os.write(descriptor, holder.encode())
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(descriptor)


@contextlib.contextmanager
def naming_errors(path: str | os.PathLike[str], temporary: pathlib.Path | None = None) -> Iterator[None]:
    """Makes an OSError that names no file, or a temporary one, name `path`."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(temporary)):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


def _create_locked(path: pathlib.Path, is_directory: bool) -> int:
    while True:
        if is_directory:
            path.mkdir()
        else:
            path.touch(exist_ok=False)
        # Another process may take it for a leftover before it is locked.
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(path, os.O_RDONLY)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            if _is_open(descriptor, path):
                return descriptor
            os.close(descriptor)


def _open_locked(path: pathlib.Path, task: str) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 1000).decode(errors="replace") or "another process"
            os.close(descriptor)
            raise LockedError(f"{path.parent}: {task}: {holder}") from None
        # The holder before may have removed the file after it was opened here.
        if _is_open(descriptor, path):
            return descriptor
        os.close(descriptor)


def _is_open(descriptor: int, path: pathlib.Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _sync(path: pathlib.Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: pathlib.Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        # On a disk that has become read-only it stays, and the next run removes it.
        with contextlib.suppress(OSError):
            path.unlink()
