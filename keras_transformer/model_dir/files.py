"""Atomic writes of files and directories, checksums and locks.

Binary files have a checksum, which reveals damage before the file is used. The checksum of `NAME`
is in `NAME.sha256`, in the format of the command `sha256sum`. A file and its checksum cannot be
renamed together, so the checksum file lists both the old and the new checksum while the file is
replaced. If the process is killed, the checksum of the file is still in the list.
"""

import contextlib
import datetime
import fcntl
import hashlib
import os
import pathlib
import secrets
import shutil
import socket
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from ..errors import ConfigError, DamagedFileError, Error, InvalidFileError, LockedError

if TYPE_CHECKING:
    import numpy as np

_TEMPORARY = ".writing-"
_MAX_CHECKSUM_BYTES = 2**16
# Limit for shortlists, which are compressed. Training states are not compressed.
_MAX_UNPACKED_BYTES = 2**28
# Errors that NumPy, h5py, zipfile and json raise for damaged files.
UNREADABLE = (
    OSError,
    EOFError,
    KeyError,
    ValueError,
    TypeError,
    AttributeError,
    OverflowError,
    MemoryError,
    RuntimeError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Yields a temporary path that replaces `path` if the block ends without an error.

    If writing raises an OSError, its message names `path`, and the file at `path` is unchanged.
    """
    path = pathlib.Path(path)
    with temporary_beside(path) as temporary:
        yield temporary
        rename(temporary, path)


@contextlib.contextmanager
def temporary_beside(path: pathlib.Path, is_directory: bool = False) -> Iterator[pathlib.Path]:
    """Yields the path of a new, empty file or directory in the same directory as `path`.

    It is removed when the block ends, unless the block has renamed it. It is locked while the block
    runs, so that `remove_leftovers` in another process does not remove it. Leftovers of killed
    processes are removed first.
    """
    # Keep the suffix of the final name, because other programs check it.
    temporary = path.with_name(f"{_TEMPORARY}{secrets.token_hex(4)}-{path.name}")
    with naming_errors(path, temporary):
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path.parent)
        descriptor = _create_locked(temporary, is_directory)
        try:
            yield temporary
        finally:
            _remove(temporary)
            os.close(descriptor)


def rename(path: pathlib.Path, target: pathlib.Path) -> None:
    """Syncs a file or directory to disk, renames it, and syncs the new name."""
    for entry in path.rglob("*"):
        _sync(entry)
    _sync(path)
    os.rename(path, target)
    # Some file systems cannot sync a directory.
    with contextlib.suppress(OSError):
        _sync(target.parent)


def remove_leftovers(directory: pathlib.Path) -> None:
    """Removes temporary files and directories that no running process has locked."""
    for path in directory.glob(f"{_TEMPORARY}*"):
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(path)
            finally:
                os.close(descriptor)


def read_limited(path: str | os.PathLike[str], max_bytes: int) -> bytes:
    """Reads a whole file.

    Raises:
        InvalidFileError: If the file has more than `max_bytes` bytes.
    """
    with open(path, "rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise InvalidFileError(f"{path}: the file must have at most {max_bytes:,} bytes")
    return content


def checksum_path(path: pathlib.Path) -> pathlib.Path:
    return path.with_name(f"{path.name}.sha256")


@contextlib.contextmanager
def replacing_with_checksum(
    path: str | os.PathLike[str], previous: pathlib.Path | None = None
) -> Iterator[pathlib.Path]:
    """Replaces a file like `replacing`, together with its checksum.

    If `previous` is given, the old file is kept under that name.
    """
    path = pathlib.Path(path)
    with temporary_beside(path) as temporary:
        yield temporary
        if previous is not None and path.is_file():
            rename_with_checksum(path, previous)
        rename_with_checksum(temporary, path)


def rename_with_checksum(path: pathlib.Path, target: pathlib.Path) -> None:
    """Renames a file so that the checksum of `target` is valid at all times."""
    checksums = _checksums(path)
    _write_checksums(target, [*_checksums(target), *checksums])
    rename(path, target)
    _write_checksums(target, checksums)
    checksum_path(path).unlink(missing_ok=True)


def remove_with_checksum(path: pathlib.Path) -> None:
    """Removes a file and its checksum, if they exist."""
    checksum_path(path).unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def require_undamaged(path: pathlib.Path) -> None:
    """Raises a DamagedFileError if a file does not match its checksum.

    A file without a checksum passes.
    """
    while True:
        with open(path, "rb") as file:
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
            if not checksum_path(path).is_file() or checksum in _read_checksums(path):
                return
            # Try again: a training run may have just replaced the file.
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                raise DamagedFileError(
                    f"{path}: the file is damaged, its SHA-256 checksum is not the one in "
                    f"{checksum_path(path).name}"
                )


@contextlib.contextmanager
def reading_archive(path: pathlib.Path, content: str) -> "Iterator[Mapping[str, np.ndarray]]":
    """Opens an .npz file with a checksum.

    Args:
        content: description of the content for messages, such as "the training state".

    Raises:
        DamagedFileError: If the file cannot be read, or if the block fails to read its arrays.
    """
    import numpy as np

    try:
        require_undamaged(path)
        with np.load(path, allow_pickle=False) as arrays:
            size = sum(member.file_size for member in arrays.zip.infolist())
            limit = max(os.path.getsize(path), _MAX_UNPACKED_BYTES)
            if size > limit:
                rule = f"its arrays must take at most {limit:,} bytes"
                raise ValueError(f"{rule}; they take {size:,}")
            yield arrays
    except Error:
        raise
    except UNREADABLE as error:
        reason = " ".join(str(error).split())
        # NumPy assumes that any other file is a pickle and suggests loading it.
        if "pickle" in reason:
            reason = "it is not a NumPy archive"
        raise DamagedFileError(
            f"{path}: {content} is damaged ({reason or type(error).__name__})"
        ) from None


@contextlib.contextmanager
def locked(path: pathlib.Path, task: str) -> Iterator[None]:
    """Holds a lock file while the block runs.

    The lock is released if the process is killed.

    Args:
        task: task of the holder for messages, such as "another training run uses this directory".

    Raises:
        LockedError: If another process holds the lock. The message names the process and its start
            time.
        ConfigError: If the path is not a regular file, such as a symbolic link.
    """
    with naming_errors(path):
        descriptor = _open_locked(path, task)
    try:
        with naming_errors(path):
            now = datetime.datetime.now().astimezone()
            holder = f"process {os.getpid()} on {socket.gethostname()}"
            holder += f", since {now:%Y-%m-%d %H:%M:%S %Z}"
            os.write(descriptor, holder.encode())
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
        os.close(descriptor)


@contextlib.contextmanager
def naming_errors(
    path: str | os.PathLike[str], temporary: pathlib.Path | None = None
) -> Iterator[None]:
    """Makes an OSError name `path` if it names the temporary file or no file."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename not in (None, str(temporary)):
            raise
        raise OSError(error.errno, error.strerror, str(path)) from None


def _checksums(path: pathlib.Path) -> list[str]:
    """Returns the valid checksums of a file.

    There is more than one only if a process was killed while it replaced the file.
    """
    if checksum_path(path).is_file():
        return _read_checksums(path)
    if not path.is_file():
        return []
    with open(path, "rb") as file:
        return [hashlib.file_digest(file, "sha256").hexdigest()]


def _read_checksums(path: pathlib.Path) -> list[str]:
    text = read_limited(checksum_path(path), _MAX_CHECKSUM_BYTES).decode(errors="replace")
    return [line.partition(" ")[0] for line in text.splitlines()]


def _write_checksums(path: pathlib.Path, checksums: list[str]) -> None:
    lines = [f"{checksum}  {path.name}\n" for checksum in dict.fromkeys(checksums)]
    with replacing(checksum_path(path)) as temporary:
        temporary.write_text("".join(lines), "utf-8")


def _create_locked(path: pathlib.Path, is_directory: bool) -> int:
    while True:
        if is_directory:
            path.mkdir()
            try:
                descriptor = os.open(path, os.O_RDONLY)
            except FileNotFoundError:
                continue
        else:
            # NFS only locks files that are open for writing.
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        # Another process may have removed it as a leftover before it was locked.
        if _is_open(descriptor, path):
            return descriptor
        os.close(descriptor)


def _open_locked(path: pathlib.Path, task: str) -> int:
    """Opens a new, empty lock file. Existing files are never written to."""
    while True:
        _require_lock_file(path)
        # O_NOFOLLOW also rejects a link that was created after the check.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(descriptor, 1000).decode(errors="replace") or "another process"
            os.close(descriptor)
            raise LockedError(f"{path.parent}: {task}: {holder}") from None
        # The previous holder may have removed the file after this process opened it.
        if _is_open(descriptor, path):
            if os.fstat(descriptor).st_size == 0:
                return descriptor
            # A killed process left the file, or it is a hard link: remove only the name.
            path.unlink()
        os.close(descriptor)


def _require_lock_file(path: pathlib.Path) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        kind = "a symbolic link" if stat.S_ISLNK(mode) else "another type of file"
        raise ConfigError(f"{path}: a lock must be a regular file; received {kind}; remove it")


def _is_open(descriptor: int, path: pathlib.Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.lstat(path))
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
        # If the disk has become read-only, the next run removes the file.
        with contextlib.suppress(OSError):
            path.unlink()
