"""Files that appear whole or not at all."""

import contextlib
import os
import pathlib
from collections.abc import Iterator


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[pathlib.Path]:
    """Gives a temporary path beside `path`, which it replaces if the block ends without an error."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # The temporary name ends like the final one: Keras looks at the suffix.
    temporary = path.with_name(f".writing-{os.getpid()}-{path.name}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
