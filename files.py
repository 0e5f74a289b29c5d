"""Files that appear whole or not at all, alone or as a set."""

import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from errors import UserError

_PREFIX = ".part-"

# For a process that ends at once: what it has not finished. A path is entered before it is made, lest one be missed.
_unfinished: list[Path] = []  # temporary files and folders
_made: list[Path] = []  # folders that were made for them, the outermost first
_moving = False  # the files of a set are moving to their place
_ending = False  # nothing more may be begun


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`, of the same suffix; renamed to `path` on success, removed on failure.

    Raises:
        UserError: the system refuses to make, write or rename the file (a full disk, a file in the way, ...).
    """
    path = Path(path)
    if _ending:
        raise UserError(f"cannot write {path}: the program is ending")
    with _writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with _temporary_place(path.parent, path.suffix) as temporary, _writing(path):
        temporary.touch(exist_ok=False)
        yield temporary
        temporary.replace(path)


@contextmanager
def whole_files(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder inside `folder`; on success its files move up, in the order in which they were written.

    On failure the temporary folder goes, and `folder` and its parents too where they were not there before: files of
    an earlier run stay as they are.

    Raises:
        UserError: the system refuses to make or move files.
    """
    folder = Path(folder)
    with _folders(folder) as made, _temporary_place(folder) as temporary:
        with _writing(folder):
            temporary.mkdir()
        yield temporary
        with _writing(folder):
            files = sorted(temporary.iterdir(), key=lambda file: file.stat().st_mtime_ns)
            _check_no_folders(folder, [file.name for file in files])  # before the first one moves
            _move(files, folder)
        made.clear()  # they stay


def remove_unfinished() -> bool:
    """Remove all that is half written, by any thread, for a process that ends at once: no file can be begun anymore.

    Returns:
        False, with nothing done, where the files of a set are moving to their place: in a moment they are all there.
    """
    global _ending
    if _moving:
        return False
    _ending = True
    for place in _unfinished[::-1]:  # a copy: other threads still enter and leave
        for _ in range(100):  # other threads may be writing into the folder
            _remove(place)
            if not place.exists():
                break
    _remove_folders(_made)
    return True


def check_writable(folder: Path, names: Iterable[str]) -> None:
    """Raise the UserError that writing these files would end with, as far as can be told; leaves nothing behind."""
    folder = Path(folder)
    with _folders(folder), _temporary_place(folder) as temporary:
        with _writing(folder):
            temporary.mkdir()
        for name in names:
            with _writing(folder / name):
                (temporary / name).touch()  # the system may refuse the name itself
        _check_no_folders(folder, names)


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


@contextmanager
def _temporary_place(folder: Path, suffix: str = "") -> Iterator[Path]:
    """Yield a path that nobody has, to be made; whatever is there in the end is removed."""
    place = folder / f"{_PREFIX}{os.urandom(8).hex()}{suffix}"
    _unfinished.append(place)
    try:
        yield place
    finally:
        _remove(place)
        _unfinished.remove(place)


@contextmanager
def _folders(folder: Path) -> Iterator[list[Path]]:
    """Make `folder` and its parents; yields those that were missing, which are removed in the end if they are empty."""
    with _writing(folder):
        made = [place for place in (folder, *folder.parents) if not place.exists()][::-1]
    _made.extend(made)
    begun = list(made)
    try:
        with _writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        yield made
    finally:
        _remove_folders(made)
        for place in begun:
            _made.remove(place)


def _move(files: list[Path], folder: Path) -> None:
    global _moving
    _moving = True
    try:
        for file in files:
            file.replace(folder / file.name)
    finally:
        _moving = False


def _remove(place: Path) -> None:
    """Nothing more can be done where that fails, and what went wrong before matters more."""
    if place.is_dir():
        shutil.rmtree(place, ignore_errors=True)
    else:
        with suppress(OSError):
            place.unlink(missing_ok=True)


def _remove_folders(made: list[Path]) -> None:
    """Remove the folders of `made` that are empty, the innermost first."""
    for folder in reversed(made):
        with suppress(OSError):
            folder.rmdir()
