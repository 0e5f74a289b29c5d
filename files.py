"""Files that appear whole or not at all, alone or as a set."""

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from errors import UserError

_PREFIX = ".part-"


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, of the same suffix; renamed to `path` on success, removed on failure.

    Raises:
        UserError: the system refuses to make, write or rename the file (a full disk, a file in the way, ...).
    """
    path = Path(path)
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=_PREFIX, suffix=path.suffix)
    os.close(handle)
    temporary = Path(name)
    try:
        with _writing(path):
            yield temporary
            # mkstemp makes files private; give them the mode that open() would have given.
            mask = os.umask(0)
            os.umask(mask)
            temporary.chmod(0o666 & ~mask)
            temporary.replace(path)
    finally:
        with suppress(OSError):  # nothing more can be done about it, and what went wrong before matters more
            temporary.unlink(missing_ok=True)


@contextmanager
def whole_files(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder inside `folder`; on success its files move up, in the order in which they were written.

    On failure the temporary folder goes, and `folder` and its parents too where they were not there before: files of
    an earlier run stay as they are.

    Raises:
        UserError: the system refuses to make or move files.
    """
    folder = Path(folder)
    made: list[Path] = []
    try:
        with _writing(folder):
            _make_folders(folder, made)
            temporary = Path(tempfile.mkdtemp(dir=folder, prefix=_PREFIX))
        try:
            yield temporary
            with _writing(folder):
                files = sorted(temporary.iterdir(), key=lambda file: file.stat().st_mtime_ns)
                _check_no_folders(folder, [file.name for file in files])  # before the first one moves
                for file in files:
                    file.replace(folder / file.name)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except BaseException:  # also when interrupted
        _remove_folders(made)
        raise


def check_writable(folder: Path, names: Iterable[str]) -> None:
    """Raise the UserError that writing these files would end with, as far as can be told; leaves nothing behind."""
    folder = Path(folder)
    made: list[Path] = []
    try:
        with _writing(folder):
            _make_folders(folder, made)
            temporary = Path(tempfile.mkdtemp(dir=folder, prefix=_PREFIX))
        try:
            for name in names:
                with _writing(folder / name):
                    (temporary / name).touch()  # the system may refuse the name itself
            _check_no_folders(folder, names)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    finally:
        _remove_folders(made)


def _check_no_folders(folder: Path, names: Iterable[str]) -> None:
    """Raise a UserError where a folder has one of the names."""
    for name in names:
        if (folder / name).is_dir():
            raise UserError(f"cannot write {folder / name}: there is a folder of that name")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Turn the system's errors into one line that names `path`."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error


def _make_folders(folder: Path, made: list[Path]) -> None:
    """Make `folder` and its parents; those that were missing are added to `made`, the outermost first."""
    missing = []
    while not folder.exists():
        missing.append(folder)
        folder = folder.parent
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        made.append(folder)


def _remove_folders(made: list[Path]) -> None:
    """Remove the folders of `made` that are empty, the innermost first."""
    for folder in reversed(made):
        with suppress(OSError):
            folder.rmdir()
