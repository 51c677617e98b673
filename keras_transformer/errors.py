"""The exceptions of this package. The command line shows them as a single line."""

import contextlib
from collections.abc import Iterator


class Error(Exception):
    """Base class of all errors with a message for the user."""


class ConfigError(Error, ValueError):
    """An invalid argument or option. The message names it, its rule and the received value."""


class InvalidFileError(Error, ValueError):
    """A file with the wrong content. The message begins with its path."""


class DamagedFileError(InvalidFileError):
    """A file of the right kind that is damaged. Another file of that kind may be intact."""


class LockedError(Error):
    """A resource for a single process that another process is using."""


class StreamError(Error):
    """A standard stream that is closed, or that cannot be read or written."""


class DivergedError(Error, FloatingPointError):
    """A training run that produces numbers that are not finite."""


class WorkerError(Error):
    """Processes that train a model together but cannot connect, or that stop running."""


class VerificationError(Error, RuntimeError):
    """An exported model that does not return the same outputs as the original."""


class MissingPackageError(Error, ImportError):
    """A required package that is not installed. The message says how to install it."""


class MemoryLimitError(Error, MemoryError):
    """A lack of memory on the machine or on its accelerator."""


@contextlib.contextmanager
def naming_source(source: object) -> Iterator[None]:
    """Prepends the source of a value, such as a file, to the message of a ConfigError."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{source}: {error}") from None
