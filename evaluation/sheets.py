"""Contact sheets: an object's views in rows, and one picture with all objects."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from evaluation.objects import NOVEL_AZIMUTHS_DEG
from files import whole_file

ROWS = ("truth", "splats", "mesh", "samples")  # of an object's sheet; those that are there
OVERVIEW_VIEWS = (0, 5, 6, 8, 3)  # of an object in the overview: the source, then +40, +80, +160 and -80 degrees
LABEL_PX = 14
MARGIN_PX = 2


def object_sheet(pictures: dict[str, np.ndarray], result: dict) -> Image.Image:
    """The source's view, then the novel views by azimuth; a row each for the truth and what was made.

    Args:
        pictures: name -> [9, S, S, 3] uint8.
        result: of the object, for the numbers beside the pictures.
    """
    rows, labels = [], []
    for name in ROWS:
        if name not in pictures:
            continue
        rows.append(pictures[name])
        if name == "truth":
            labels.append([f"object {result['index']}, source", *(f"{a:+.0f}" for a in NOVEL_AZIMUTHS_DEG)])
            continue
        measures = result["views"][name]
        cells = [f"{p:.1f} / {i:.2f}" for p, i in zip(measures["psnr"], measures["iou"], strict=True)]
        first = result["reference"].get(name)
        labels.append([f"{name}" if first is None else f"{name} {first['psnr']:.1f}", *cells])
    return _grid(rows, labels)


def overview_sheet(kept: list[tuple[dict, dict[str, np.ndarray]]], columns: int = 3) -> Image.Image:
    """All objects: for each a line of truth, splats and mesh, in `columns` blocks side by side.

    Args:
        kept: (result, pictures) of every object, pictures as in `object_sheet`.
    """
    blocks = []
    for result, pictures in kept:
        names = [name for name in ("truth", "splats", "mesh") if name in pictures]
        rows = [pictures[name][list(OVERVIEW_VIEWS)] for name in names]
        labels = []
        for name in names:
            texts = [""] * len(OVERVIEW_VIEWS)
            texts[0] = f"{result['index']} truth" if name == "truth" else name
            if name != "truth":
                texts[1] = f"{np.mean(result['views'][name]['psnr']):.2f} dB"
                texts[2] = f"IoU {np.mean(result['views'][name]['iou']):.3f}"
            labels.append(texts)
        blocks.append(_grid(rows, labels))
    width, height = max(b.width for b in blocks), max(b.height for b in blocks)
    columns = min(columns, len(blocks))
    sheet = Image.new("RGB", (columns * width, -(-len(blocks) // columns) * height), "white")
    for i, block in enumerate(blocks):
        sheet.paste(block, (i % columns * width, i // columns * height))
    return sheet


def save_picture(picture: Image.Image, path: Path) -> None:
    """Write a picture whole."""
    with whole_file(path) as temporary:
        picture.save(temporary)


def _grid(rows: list[np.ndarray], labels: list[list[str]]) -> Image.Image:
    """Pictures [V, S, S, 3] uint8 in rows, a line of text above each."""
    count, size = len(rows[0]), rows[0].shape[1]
    cell, line = size + MARGIN_PX, size + LABEL_PX + MARGIN_PX
    sheet = Image.new("RGB", (count * cell, len(rows) * line), "white")
    draw = ImageDraw.Draw(sheet)
    for r, (row, texts) in enumerate(zip(rows, labels, strict=True)):
        for c, (picture, text) in enumerate(zip(row, texts, strict=True)):
            draw.text((c * cell + 2, r * line + 1), text, fill="black")
            sheet.paste(Image.fromarray(picture), (c * cell, r * line + LABEL_PX))
            # A thin frame: the pictures' white ground would otherwise run into the sheet's.
            draw.rectangle(
                (c * cell, r * line + LABEL_PX, c * cell + size - 1, r * line + LABEL_PX + size - 1), outline=(225,) * 3
            )
    return sheet
