"""Weights of the embedded prior on disk: safetensors in half precision, the network's sizes in the metadata."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from errors import UserError
from files import whole_file
from priors.tiny_zero123 import TinyZero123, TinyZero123Config

FORMAT = "tiny-zero123/1"
METADATA_KEY = "tiny_zero123"  # one key, because safetensors writes several in random order


def save_weights(
    weights: dict[str, Tensor], config: TinyZero123Config, path: Path, notes: dict[str, str] | None = None
) -> None:
    """Write a state dict as fp16 safetensors, `notes` in the metadata. The same input gives the same bytes."""
    half = {name: weights[name].detach().to("cpu", torch.float16).contiguous() for name in sorted(weights)}
    metadata = {"format": FORMAT, "config": config.to_dict(), "notes": notes or {}}
    with whole_file(path) as aside:
        save_file(half, str(aside), metadata={METADATA_KEY: json.dumps(metadata, sort_keys=True)})


def load_model(path: Path, device: torch.device | str = "cpu") -> tuple[TinyZero123, dict[str, str]]:
    """Read a network written by `save_weights`: in float32, in eval mode, gradients off; and the notes.

    Raises:
        UserError: the file is missing, no safetensors file, or of another format.
    """
    try:
        with safe_open(str(path), framework="pt", device="cpu") as file:
            metadata = json.loads((file.metadata() or {}).get(METADATA_KEY, "{}"))
            if metadata.get("format") != FORMAT:
                found = metadata.get("format", "none")
                raise UserError(f"prior weights {path}: expected format {FORMAT}, found {found}")
            weights = {name: file.get_tensor(name).float() for name in file.keys()}
    except (OSError, SafetensorError) as error:
        raise UserError(f"prior weights {path}: expected a safetensors file, found none ({error})") from error
    except json.JSONDecodeError as error:
        raise UserError(f"prior weights {path}: its metadata is damaged ({error})") from error
    try:
        model = TinyZero123(TinyZero123Config(**metadata["config"]))  # on "meta" it would import sympy: 2 s
        model.load_state_dict(weights)
    except (KeyError, TypeError, RuntimeError) as error:
        raise UserError(f"prior weights {path}: tensors do not fit the config in its metadata") from error
    return model.to(device).eval().requires_grad_(False), metadata.get("notes", {})
