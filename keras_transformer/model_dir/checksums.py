"""Files with a checksum beside them, by which a damaged file is noticed before it is used.

The checksum of `NAME` is in `NAME.sha256`, in the format of the command `sha256sum`. A file and its checksum cannot be
renamed at once, so the checksum file lists both the old and the new checksum while the file is replaced: whenever a
process is killed, the checksum of the file is in the list.
"""

import contextlib
import hashlib
import os
import pathlib
from collections.abc import Iterator

from ..errors import DamagedFileError
from .files import rename, replacing, temporary_beside


def checksum_path(path: pathlib.Path) -> pathlib.Path:
    """Returns the path of a file's checksum."""
    return path.with_name(f"{path.name}.sha256")


@contextlib.contextmanager
def replacing_with_checksum(
    path: str | os.PathLike[str], previous: pathlib.Path | None = None
) -> Iterator[pathlib.Path]:
    """Gives a temporary path beside `path`, which it replaces, with its checksum, if the block ends without an error.

    Args:
        path: str or path of the file.
        previous: path or None. Under which name the file that is replaced stays. Defaults to None: it does not.

    Raises:
        OSError: The file cannot be written; the error names `path`.
    """
    path = pathlib.Path(path)
    with temporary_beside(path) as temporary:
        yield temporary
        if previous is not None and path.is_file():
            rename_with_checksum(path, previous)
        rename_with_checksum(temporary, path)


def rename_with_checksum(path: pathlib.Path, target: pathlib.Path) -> None:
    """Renames a file; at every instant, the checksum of `target` is that of the file with this name."""
    checksums = _checksums(path)
    _write_checksums(target, [*_checksums(target), *checksums])
    rename(path, target)
    _write_checksums(target, checksums)
    checksum_path(path).unlink(missing_ok=True)


def remove_with_checksum(path: pathlib.Path) -> None:
    """Removes a file, if it exists, and its checksum."""
    checksum_path(path).unlink(missing_ok=True)
    path.unlink(missing_ok=True)


def require_undamaged(path: pathlib.Path) -> None:
    """Compares a file with its checksum; a file without one passes.

    Raises:
        DamagedFileError: They differ.
        OSError: The file cannot be read.
    """
    while True:
        with open(path, "rb") as file:
            checksum = hashlib.file_digest(file, "sha256").hexdigest()
            if not checksum_path(path).is_file() or checksum in _read_checksums(path):
                return
            # Unless a training run has just replaced it.
            if os.path.samestat(os.fstat(file.fileno()), os.stat(path)):
                raise DamagedFileError(
                    f"{path}: the file is damaged, its SHA-256 checksum is not the one in {checksum_path(path).name}"
                )


def _checksums(path: pathlib.Path) -> list[str]:
    """The checksums that the content of a file may have; the only one, unless a process was killed."""
    if checksum_path(path).is_file():
        return _read_checksums(path)
    if not path.is_file():
        return []
    with open(path, "rb") as file:
        return [hashlib.file_digest(file, "sha256").hexdigest()]


def _read_checksums(path: pathlib.Path) -> list[str]:
    lines = checksum_path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    return [line.partition(" ")[0] for line in lines]


def _write_checksums(path: pathlib.Path, checksums: list[str]) -> None:
    with replacing(checksum_path(path)) as temporary:
        temporary.write_text("".join(f"{checksum}  {path.name}\n" for checksum in dict.fromkeys(checksums)), "utf-8")
