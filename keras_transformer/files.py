"""Files that appear whole or not at all."""

import contextlib
import os
import pathlib


@contextlib.contextmanager
def replacing(path):
    """A temporary path beside `path`, which it replaces when the block ends without an error."""
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # The whole name ends the temporary one too: Keras looks at the suffix.
    temporary = path.with_name(f".writing-{os.getpid()}-{path.name}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
