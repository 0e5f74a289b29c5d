"""Files that appear whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from errors import UserError


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, of the same suffix; renamed to `path` on success, removed on failure."""
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".part-", suffix=path.suffix)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        # mkstemp makes files private; give them the mode that open() would have given.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
