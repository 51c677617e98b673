"""What a user can do wrong, and what can go wrong around a program: the command shows each of these
as one line."""

import contextlib
from collections.abc import Iterator


class Error(Exception):
    """The base class of all errors that this package raises for a user to read."""


class ConfigError(Error, ValueError):
    """A value breaks its rule; the message names the value, the rule and what was received."""


class InvalidFileError(Error, ValueError):
    """A file does not hold what it should; the message begins with its path."""


class DamagedFileError(InvalidFileError):
    """A file cannot be used, although its name and its kind are right; another one of the same kind
    may be."""


class LockedError(Error):
    """Another process uses what only one process at a time may use."""


class StreamError(Error):
    """Standard input or output is closed, or cannot be read or written."""


class DivergedError(Error, FloatingPointError):
    """Training arrived at numbers that are not finite."""


class WorkerError(Error):
    """The processes that train one model cannot be connected, or one of them ended."""


class VerificationError(Error, RuntimeError):
    """An exported model does not answer as the original does."""


class MissingPackageError(Error, ImportError):
    """A package is needed that is not installed; the message says how to install it."""


class MemoryLimitError(Error, MemoryError):
    """Something does not fit into the memory of the machine or of its accelerator."""


@contextlib.contextmanager
def naming_source(source: object) -> Iterator[None]:
    """Puts the file, or whatever else a value comes from, in front of the message of a
    ConfigError."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
