"""Public weights on this machine: where each part lies, and tensors into a network, strictly.

Parts are read one by one, from safetensors and json alone: no pickles, no pipelines, and never code that came with the
weights.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from errors import UserError
from priors.weights_registry import REPOSITORIES, Component, Repository, WeightsFile, accepted_names, repositories_for

logger = logging.getLogger(__name__)

_PICKLES = (".ckpt", ".bin", ".pt", ".pth")  # formats that may run code when they are read


@dataclass(frozen=True)
class Located:
    """One part of a model on disk.

    folder: holds its settings.
    weights: its safetensors file; None for a part without weights.
    origin: what the part is, where it comes from and how to get it again, for messages.
    """

    folder: Path
    weights: Path | None
    origin: str


def locate(variant: str, weights: str = "") -> dict[str, Located]:
    """The parts of a public model, by the registry's names of their folders ("unet", "vae", ...).

    Args:
        variant: which model, as the registry has it; never read off a path.
        weights: a folder in the layout of one of the model's repositories, or the id of such a repository (it is then
            taken from the hub's cache); empty: the model's first repository, from the hub's cache. What is missing in
            the cache is fetched, unless HF_HUB_OFFLINE is set.
    Raises:
        UserError: a file is missing or of a kind that is not read; names it, its repository, size and licence, and the
            command that fetches it.
    """
    repository = _repository(variant, weights)
    if weights and not _is_repository_id(weights):
        root = Path(weights).expanduser()
        _check_folder(root, repository)
    else:
        from priors.weights_fetch import fetch  # huggingface_hub: half a second to import

        root = fetch(repository)
    return {component.folder: _locate_component(root, component, repository) for component in repository.components}


def _repository(variant: str, weights: str) -> Repository:
    """The repository that files are compared with: of this id, else the variant's first."""
    serving = repositories_for(variant)
    if not serving:
        choices = ", ".join(dict.fromkeys(repository.variant for repository in REPOSITORIES.values()))
        raise UserError(f"prior.variant={variant!r} is unknown; choose from {choices}")
    if not weights or not _is_repository_id(weights):
        return serving[0]
    for repository in serving:
        if repository.repo_id == weights:
            return repository
    known = ", ".join(repository.repo_id for repository in serving)
    raise UserError(
        f"prior.weights={weights}: no such folder, and no repository of {variant} with a pinned revision; "
        f"known are {known}"
    )


def _is_repository_id(weights: str) -> bool:
    """Whether this names a repository: owner/name, and no such file or folder is here."""
    return bool(re.fullmatch(r"[\w.-]+/[\w.-]+", weights)) and not Path(weights).expanduser().exists()


def _check_folder(root: Path, repository: Repository) -> None:
    if root.is_file():
        kind = "a pickle, which may run code" if root.suffix in _PICKLES else "a single file"
        raise UserError(
            f"prior.weights={root}: found {kind}; expected a folder with the parts of {repository.repo_id} as "
            f"safetensors; fetch it with: {_command(repository)}"
        )
    if not root.is_dir():
        raise UserError(
            f"prior.weights={root}: no such folder; expected the parts of {repository.repo_id} "
            f"({repository.shown_size}; {repository.licence}); fetch it with: {_command(repository)}"
        )


def _locate_component(root: Path, component: Component, repository: Repository) -> Located:
    """A part under `root`; every file that it needs is there."""
    folder = next(
        (root / name for name in (component.folder, *component.aliases) if (root / name).is_dir()),
        root / component.folder,
    )
    for file in component.settings:
        if not (folder / file.name).is_file():
            raise UserError(f"{folder / file.name}: no such file; {_describe(component, file, repository)}")
    if component.weights is None:
        return Located(folder, None, _describe(component, component.settings[0], repository))
    origin = _describe(component, component.weights, repository)
    for name in accepted_names(component.weights.name):
        if (folder / name).is_file():
            return Located(folder, folder / name, origin)
    pickles = sorted(path.name for path in folder.glob("*") if path.suffix in _PICKLES) if folder.is_dir() else []
    found = f"found {pickles[0]}, a pickle, which may run code and is not read" if pickles else "no such file"
    raise UserError(f"{folder / component.weights.name}: {found}; {origin}")


def _describe(component: Component, file: WeightsFile, repository: Repository) -> str:
    """What a file is and how to get it, as the second half of a line."""
    return (
        f"{component.folder}/{file.name} ({file.shown_size}) belongs to {repository.repo_id} "
        f"({repository.shown_size}; {repository.licence}); fetch it with: {_command(repository)}"
    )


def _command(repository: Repository) -> str:
    return f"python scripts/fetch_weights.py {repository.name}"


def read_settings(part: Located, name: str = "config.json") -> dict:
    """A json file of a part."""
    path = part.folder / name
    try:
        settings = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: expected json, found none ({' '.join(str(error).split())}); {part.origin}") from error
    if not isinstance(settings, dict):
        raise UserError(f"{path}: expected a json object, found {type(settings).__name__}; {part.origin}")
    return settings


def load_safetensors(
    part: Located,
    model: nn.Module,
    *,
    dtype: torch.dtype,
    device: torch.device,
    rename: Callable[[str], str] | None = None,
    ignore: Iterable[str] = (),
) -> nn.Module:
    """Fill `model` (which may lie on the meta device) from a part's file; afterwards in eval mode, gradients off.

    Every parameter and persistent buffer must be in the file, with its shape, and nothing else may be.

    Args:
        dtype, device: of the loaded tensors.
        rename: a name in the file -> the model's.
        ignore: regular expressions of names in the file that older layouts carry along and that mean nothing.
    Raises:
        UserError: the file is damaged, or its names or shapes are not the model's.
    """
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    patterns = [re.compile(pattern) for pattern in ignore]
    found: dict[str, Tensor] = {}
    try:
        with safe_open(str(part.weights), framework="pt", device=str(device)) as file:
            for name in file.keys():
                if any(pattern.fullmatch(name) for pattern in patterns):
                    continue
                own = name if rename is None else rename(name)
                shape = tuple(file.get_slice(name).get_shape())
                if expected.get(own) == shape:
                    found[own] = file.get_tensor(name).to(dtype)
                elif own in expected:
                    raise UserError(
                        f"{part.weights}: tensor {name} is {list(shape)}, expected {list(expected[own])}; {part.origin}"
                    )
                else:
                    raise UserError(f"{part.weights}: tensor {name} is not the network's; {part.origin}")
    except (OSError, SafetensorError) as error:
        raise UserError(f"{part.weights}: damaged or incomplete ({error}); {part.origin}") from error
    missing = sorted(expected.keys() - found.keys())
    if missing:
        raise UserError(f"{part.weights}: {len(missing)} tensors are missing, the first is {missing[0]}; {part.origin}")
    model.load_state_dict(found, strict=True, assign=True)
    return model.to(device).eval().requires_grad_(False)
