"""A contact sheet to look at: sources, truth and samples side by side."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from config import PrepareConfig
from errors import UserError
from files import whole_file
from prepare import prepare_image
from priors.embedded import source_rgba
from priors.tiny_zero123_io import load_model
from training.floor import OFFSETS_DEG, held_out_views, sample_views

PICTURE_OFFSETS_DEG = (0.0, 45.0, 90.0, 135.0, 180.0, 225.0, 270.0, 315.0)


def load_source(path: Path, size: int) -> Tensor:
    """A picture file as the app would show it to the prior: [4, size, size] in [0, 1], colour over white, coverage.

    Raises:
        UserError: the file cannot be read, or no object is found in it.
    """
    return source_rgba(prepare_image(path, PrepareConfig(), size), size)[0]


def write_grid(rows: list[list[Tensor]], path: Path) -> None:
    """Write rows of pictures [3 or 4, S, S] in [0, 1] (colour over white) as one PNG."""
    size = rows[0][0].shape[-1]
    columns = max(len(row) for row in rows)
    sheet = np.full((len(rows) * (size + 2), columns * (size + 2), 3), 128, dtype=np.uint8)
    for i, row in enumerate(rows):
        for j, picture in enumerate(row):
            pixels = (picture[:3].clamp(0, 1) * 255 + 0.5).byte().permute(1, 2, 0).numpy()
            sheet[i * (size + 2) : i * (size + 2) + size, j * (size + 2) : j * (size + 2) + size] = pixels
    with whole_file(path) as aside:
        Image.fromarray(sheet).save(aside)


def make_sheet(
    weights: Path,
    out: Path,
    device: str,
    *,
    held_out: int = 12,
    version: str = "v2",
    pictures: list[Path] | tuple[Path, ...] = (),
    elevation_deg: float = 5.0,
    steps: int = 20,
    guidance: float = 2.0,
    seed: int = 0,
) -> None:
    """Write the sheet.

    A held-out object takes a row: source; truth at OFFSETS_DEG; sampled apart; sampled jointly; means (1 step).
    A picture takes two: source, then PICTURE_OFFSETS_DEG sampled apart; and jointly, in two fours.
    """
    model, _ = load_model(weights, device)
    size = model.config.image_size
    rows: list[list[Tensor]] = []
    common = {"seed": seed, "batch": 16}
    if held_out:
        views, elevations = held_out_views(version, held_out, size, device)
        offsets = torch.tensor(OFFSETS_DEG)
        columns = [views[:, :1], views[:, 1:]]
        for n, g, joint in ((steps, guidance, False), (steps, guidance, True), (1, 1.0, False)):
            columns.append(
                sample_views(model, views[:, 0], elevations, offsets, steps=n, guidance=g, joint=joint, **common)
            )
        rows += [list(row.unbind(0)) for row in torch.cat(columns, 1).cpu()]
    if pictures:
        sources = torch.stack([load_source(path, size) for path in pictures])
        elevations = torch.full((len(sources),), elevation_deg)
        apart, joined = (
            torch.cat(
                [
                    sample_views(
                        model,
                        sources,
                        elevations,
                        torch.tensor(PICTURE_OFFSETS_DEG[first::2]),
                        steps=steps,
                        guidance=guidance,
                        joint=joint,
                        **common,
                    )
                    for first in (0, 1)
                ],
                1,
            ).cpu()
            for joint in (False, True)
        )
        order = [0, 4, 1, 5, 2, 6, 3, 7]  # back to PICTURE_OFFSETS_DEG
        for source, a, b in zip(sources, apart, joined, strict=True):
            rows += [[source, *a[order].unbind(0)], [source, *b[order].unbind(0)]]
    if not rows:
        raise UserError("sheet: expected --objects above 0 or pictures, found neither")
    write_grid(rows, out)
