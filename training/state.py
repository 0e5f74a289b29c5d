"""What survives between runs of the training: the state folder, and the exported weights."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from errors import UserError
from files import whole_file
from priors.tiny_zero123 import TinyZero123, TinyZero123Config
from priors.tiny_zero123_io import load_model
from training.muon import Muon

STATE_NAME = "state.pt"
LOG_NAME = "log.jsonl"
PART_BYTES = 15 * 10**6


@dataclass
class Progress:
    """How far the training is, over all runs."""

    step: int = 0
    wall_s: float = 0.0  # of all runs, set-up included; the schedule follows it
    train_s: float = 0.0  # in training steps alone
    run: int = 0  # runs begun


@dataclass
class Trainee:
    """The network and everything that changes with it."""

    model: TinyZero123
    ema: dict[str, Tensor]
    muon: Muon
    adam: torch.optim.AdamW
    progress: Progress

    @classmethod
    def create(cls, config: TinyZero123Config, device: torch.device, seed: int = 0) -> Trainee:
        """A new network with its optimisers: Muon for the trunk's matrices, AdamW for the rest."""
        torch.manual_seed(seed)  # initialisers of nn take no generator
        model = TinyZero123(config).to(device)
        matrices = model.trunk_matrices()
        chosen = {id(p) for p in matrices}
        rest = [p for p in model.parameters() if id(p) not in chosen]
        adam = torch.optim.AdamW(rest, lr=1e-3, betas=(0.9, 0.98), fused=device.type == "cuda")
        ema = {name: p.detach().clone() for name, p in model.state_dict().items()}
        return cls(model, ema, Muon(matrices), adam, Progress())

    def start_from(self, weights: Path) -> None:
        """Take exported weights, of the same sizes, for the network and its average."""
        loaded, _ = load_model(weights, "cpu")
        if loaded.config != self.model.config:
            raise UserError(f"--init {weights}: expected a network of {self.model.config}, found {loaded.config}")
        self.model.load_state_dict(loaded.state_dict())
        self.ema = {name: p.detach().clone() for name, p in self.model.state_dict().items()}

    def update_ema(self, decay: float) -> None:
        """Move the average towards the weights; faster in the first steps, when the average is not worth keeping."""
        decay = min(decay, (1 + self.progress.step) / (10 + self.progress.step))
        torch._foreach_lerp_(list(self.ema.values()), list(self.model.state_dict().values()), 1 - decay)

    def save(self, folder: Path) -> None:
        """Write everything to the state folder, whole or not at all."""
        with whole_file(folder / STATE_NAME) as aside:
            torch.save(
                {
                    "config": self.model.config.to_dict(),
                    "model": self.model.state_dict(),
                    "ema": self.ema,
                    "muon": self.muon.state_dict(),
                    "adam": self.adam.state_dict(),
                    "progress": vars(self.progress),
                },
                aside,
            )

    @classmethod
    def load(cls, folder: Path, device: torch.device) -> Trainee | None:
        """Read what `save` wrote; None where nothing was."""
        path = folder / STATE_NAME
        if not path.exists():
            return None
        saved = torch.load(path, map_location=device, weights_only=True)
        trainee = cls.create(TinyZero123Config(**saved["config"]), device)
        trainee.model.load_state_dict(saved["model"])
        trainee.ema = saved["ema"]
        trainee.muon.load_state_dict(saved["muon"])
        trainee.adam.load_state_dict(saved["adam"])
        trainee.progress = Progress(**saved["progress"])
        return trainee


def split_file(path: Path, part_bytes: int = PART_BYTES) -> list[Path]:
    """Write a file's bytes as `<name>.part0`, `.part1`, ... beside it, and `<name>.parts.json` with count and hash."""
    data = path.read_bytes()
    parts = []
    for i, start in enumerate(range(0, max(1, len(data)), part_bytes)):
        part = path.with_name(f"{path.name}.part{i}")
        with whole_file(part) as aside:
            aside.write_bytes(data[start : start + part_bytes])
        parts.append(part)
    with whole_file(path.with_name(f"{path.name}.parts.json")) as aside:
        aside.write_text(json.dumps({"parts": len(parts), "sha256": hashlib.sha256(data).hexdigest()}) + "\n")
    return parts


def join_file(path: Path, folder: Path | None = None) -> None:
    """Put the parts of `path` (in `folder`, by default beside it) together again.

    Raises:
        UserError: a part is missing or the result is not what was split.
    """
    folder = folder or path.parent
    try:
        index = json.loads((folder / f"{path.name}.parts.json").read_text())
        data = b"".join((folder / f"{path.name}.part{i}").read_bytes() for i in range(index["parts"]))
    except OSError as error:
        raise UserError(f"parts of {path.name}: expected in {folder}, {error.filename} is not there") from error
    found = hashlib.sha256(data).hexdigest()
    if found != index["sha256"]:
        raise UserError(f"parts of {path.name}: expected sha256 {index['sha256']}, found {found}")
    with whole_file(path) as aside:
        aside.write_bytes(data)
