"""Contact sheets of random objects, to look at."""

from pathlib import Path

import numpy as np
from PIL import Image

from files import whole_file
from procedural.families import Objects, sample_view_angles
from procedural.render import render_views


def contact_sheet(
    objects: Objects, seeds: np.ndarray, path: Path, columns: int = 4, size: int = 128, device: str = "cpu"
) -> None:
    """Write a sheet, `columns` objects a row, each as four views side by side: three sources and one other.

    Args:
        seeds: [M], of the M objects: they give the views.
        size: pixels a view.
    Raises:
        UserError: the file cannot be written.
    """
    azimuths, elevations = sample_view_angles(seeds)
    chosen = [0, 1, 2, 5]
    pictures = render_views(objects, azimuths[:, chosen], elevations[:, chosen], size, device)
    pictures = pictures[..., :3].cpu().numpy()
    m, v = pictures.shape[:2]
    rows = (m + columns - 1) // columns
    sheet = np.full((rows * size, columns * (v * size + 8), 3), 160, np.uint8)
    for k in range(m):
        y, x = k // columns * size, k % columns * (v * size + 8)
        sheet[y : y + size, x : x + v * size] = np.concatenate(list(pictures[k]), 1)
    with whole_file(path) as temporary:
        Image.fromarray(sheet).save(temporary)
