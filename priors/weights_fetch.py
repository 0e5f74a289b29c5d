"""Public weights from the hub: the listed files of one pinned revision, checked; nothing else of the repository."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from pathlib import Path

from errors import UserError
from priors.weights_registry import Component, Repository, accepted_names

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Remote:
    """A file as the hub lists it."""

    path: str
    size: int | None
    sha256: str | None  # of large files alone


def fetch(repository: Repository, folder: Path | None = None, check: bool = False) -> Path:
    """Folder with the repository's listed files: from the hub's cache, else fetched (interrupted downloads go on).

    Args:
        folder: put them there rather than in the hub's cache.
        check: compare sizes and hashes with what the hub says, also of files that were there already.
    Raises:
        UserError: they are not here, and the hub cannot be reached or must not be (HF_HUB_OFFLINE); or a fetched file
            is not what the hub or the registry says.
    """
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HTTPError, LocalEntryNotFoundError

    place = {} if folder is None else {"local_dir": str(folder)}
    if not check:
        cached = _cached(repository, folder)
        if cached is not None:
            return cached
    if constants.HF_HUB_OFFLINE:
        raise UserError(
            f"{_what(repository)} is not in the hub's cache, and HF_HUB_OFFLINE is set; {_advice(repository)}"
        )
    try:
        listed = _listing(repository)
        wanted = choose(repository, listed)
        total = sum(file.size or 0 for file in wanted)
        logger.info("fetching %s: %d files, %.2f GB", _what(repository), len(wanted), total / 1e9)
        root = Path(
            snapshot_download(
                repository.repo_id,
                revision=repository.revision,
                allow_patterns=[file.path for file in wanted],
                **place,
            )
        )
    except (HfHubHTTPError, HTTPError, LocalEntryNotFoundError, OSError) as error:  # HTTPError: the hub is not reached
        reason = " ".join(str(error).split()).removesuffix("For more information check:").strip()[:200]
        raise UserError(f"{_what(repository)} cannot be fetched: {reason}; {_advice(repository)}") from error
    for file in wanted:
        verify(root / file.path, file, repository, with_hash=check)
    return root


def _cached(repository: Repository, folder: Path | None) -> Path | None:
    """The folder, if every listed file is in it already; without a look at the network."""
    if folder is None:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import LocalEntryNotFoundError

        try:
            folder = Path(snapshot_download(repository.repo_id, revision=repository.revision, local_files_only=True))
        except LocalEntryNotFoundError:
            return None
    complete = all(_present(folder, component) for component in repository.components)
    return folder if complete else None


def _present(root: Path, component: Component) -> bool:
    for name in (component.folder, *component.aliases):
        settings = all((root / name / file.name).is_file() for file in component.settings)
        weights = component.weights is None or any(
            (root / name / accepted).is_file() for accepted in accepted_names(component.weights.name)
        )
        if settings and weights:
            return True
    return False


def _listing(repository: Repository) -> dict[str, Remote]:
    """All files of the pinned revision by path, with sizes and hashes as the hub has them."""
    from huggingface_hub import HfApi

    info = HfApi().model_info(repository.repo_id, revision=repository.revision, files_metadata=True)
    return {
        file.rfilename: Remote(file.rfilename, file.size, file.lfs.sha256 if file.lfs else None)
        for file in info.siblings or ()
    }


def choose(repository: Repository, listed: dict[str, Remote]) -> list[Remote]:
    """Of a repository's files those that are read: the settings, and one weights file a part.

    Raises:
        UserError: the repository lacks one, or a size is not the registry's.
    """
    wanted = []
    for component in repository.components:
        for file in component.settings:
            wanted.append(_pick(repository, component.folder, (file.name,), listed))
        if component.weights is not None:
            wanted.append(_pick(repository, component.folder, accepted_names(component.weights.name), listed))
        for file in component.files:
            remote = listed.get(f"{component.folder}/{file.name}")
            if file.size is not None and remote is not None and remote.size not in (None, file.size):
                raise UserError(
                    f"{repository.repo_id}@{repository.revision[:8]}: {remote.path} has {remote.size} bytes, "
                    f"expected {file.size}"
                )
    return wanted


def _pick(repository: Repository, folder: str, names: tuple[str, ...], listed: dict[str, Remote]) -> Remote:
    for name in names:
        if f"{folder}/{name}" in listed:
            return listed[f"{folder}/{name}"]
    raise UserError(f"{repository.repo_id}@{repository.revision[:8]} has no {folder}/{' or '.join(names)}")


def verify(path: Path, remote: Remote, repository: Repository, with_hash: bool) -> None:
    """Compare a file with what the hub says of it."""
    size = path.stat().st_size if path.is_file() else 0
    if remote.size is not None and size != remote.size:
        raise UserError(f"{path}: {size} bytes, expected {remote.size}; delete it, then: {_advice(repository)}")
    if with_hash and remote.sha256 is not None and _sha256(path) != remote.sha256:
        raise UserError(f"{path}: its hash is not the hub's; delete it, then: {_advice(repository)}")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _what(repository: Repository) -> str:
    return f"{repository.repo_id} ({repository.shown_size}; {repository.licence})"


def _advice(repository: Repository) -> str:
    return f"fetch it with: python scripts/fetch_weights.py {repository.name}"
