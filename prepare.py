"""Picture file -> PreparedImage: the object cut out, centred, at the size and framing that priors were trained on."""

import logging
from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from config import PrepareConfig
from cutout import cut_out
from errors import UserError
from picture_io import load_picture

logger = logging.getLogger(__name__)

FEW_PIXELS = 32  # along an object's longer side: a quarter of what the embedded prior sees
SPECK_SHARE = 0.005  # parts of the object below this share of the largest part's area are specks, and go
OPAQUE_ALPHA = 250  # an alpha channel nowhere below this says nothing: the picture counts as opaque
CUTOUT_SIDE = 1024  # longer side at which backgrounds are removed: half a second at most
FAINT_ALPHA = 8  # alpha up to this (of 255) is a matting tool's haze: it connects nothing


@dataclass(frozen=True)
class PreparedImage:
    """The object in a square frame, y down.

    Attributes:
        rgb: [S, S, 3] in [0, 1], sRGB, composited over white.
        alpha: [S, S] in [0, 1], coverage.
        source: where alpha comes from: "alpha channel", "cut out" or "kept as it is".
        warnings: what may be wrong with the picture, a line each; also logged.
    """

    rgb: Tensor
    alpha: Tensor
    source: str = "alpha channel"
    warnings: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return self.alpha.shape[0]

    @property
    def rgba(self) -> Tensor:
        """[S, S, 4] straight alpha; white where alpha is 0."""
        alpha = self.alpha[..., None]
        straight = 1 - (1 - self.rgb) / alpha.clamp(min=1 / 512)  # rgb = alpha straight + (1 - alpha)
        return torch.cat([straight.clamp(0, 1), alpha], dim=-1)

    def over(self, background: tuple[float, float, float]) -> Tensor:
        """[S, S, 3]: the object over another colour than white."""
        colour = torch.tensor(background, dtype=self.rgb.dtype, device=self.rgb.device)
        return (self.rgb + (1 - self.alpha[..., None]) * (colour - 1)).clamp(0, 1)

    def resized(self, size: int) -> "PreparedImage":
        """The same frame at another size: averaged over areas when smaller, interpolated when larger."""
        layers = torch.cat([self.rgb, self.alpha[..., None]], -1).movedim(-1, 0)[None]  # [1, 4, S, S]
        if size > self.size:
            layers = F.interpolate(layers, size=(size, size), mode="bilinear", align_corners=False)
        else:
            layers = F.interpolate(layers, size=(size, size), mode="area")
        layers = layers[0].movedim(0, -1)
        return replace(self, rgb=layers[..., :3].contiguous(), alpha=layers[..., 3].contiguous())

    def to(self, device: torch.device | str) -> "PreparedImage":
        return replace(self, rgb=self.rgb.to(device), alpha=self.alpha.to(device))


def prepare_image(path: Path | str, config: PrepareConfig, size: int = 256) -> PreparedImage:
    """Load a picture, cut its object out if it has no alpha channel, and frame it.

    Framing, after MicroDreamer: the longer side of the bounding box of the solid pixels (alpha at least half of the
    largest) spans 1 - config.border of the frame, centred. Specks count neither for the box nor in the result. With
    config.background = "keep" the picture is only padded to a square and resized.

    Args:
        path: any file that `load_picture` reads.
        size: side of the result in pixels.
    Returns:
        float32 on the CPU, [size, size]; equal for equal input.
    Raises:
        UserError: the file cannot be used, the picture is fully transparent, or no object is found in it.
    """
    if size < 1:
        raise ValueError(f"size must be at least 1, got {size}")
    rgba = load_picture(path)
    alpha = rgba[..., 3]
    if alpha.max() <= FAINT_ALPHA:
        raise UserError(f"{path}: expected an object, found a fully transparent picture")
    warnings: list[str] = []
    opaque = alpha.min() >= OPAQUE_ALPHA
    if config.background == "keep":
        layers = _premultiplied(rgba)
        height, width = alpha.shape
        box, border, source, beyond = (0, 0, width, height), 0.0, "kept as it is", False
    else:
        if opaque:
            rgba = cut_out(_at_most(rgba[..., :3], CUTOUT_SIDE), str(path))
        source = "cut out" if opaque else "alpha channel"
        keep, box = _find_object(rgba[..., 3])
        warnings.extend(_doubts(keep, opaque))
        wide, high = box[2] - box[0], box[3] - box[1]
        if max(wide, high) < FEW_PIXELS:
            warnings.append(f"the object is only {wide} x {high} pixels: little can be made of it")
        layers = _premultiplied(rgba) * keep[..., None]
        border, beyond = config.border, True
    for line in warnings:
        logger.warning("%s: %s", path, line)
    layers = _framed(layers, box, border, size, beyond)
    alpha = layers[..., 3]
    rgb = layers[..., :3] + (1 - alpha[..., None])
    return PreparedImage(torch.from_numpy(rgb), torch.from_numpy(alpha.copy()), source, tuple(warnings))


def _at_most(rgb: np.ndarray, side: int) -> np.ndarray:
    """uint8 [H, W, 3] reduced, if need be, to a longer side of `side` pixels."""
    height, width = rgb.shape[:2]
    scale = side / max(height, width)
    if scale >= 1:
        return rgb
    target = (max(1, round(width * scale)), max(1, round(height * scale)))
    return cv2.resize(rgb, target, interpolation=cv2.INTER_AREA)


def _premultiplied(rgba: np.ndarray) -> np.ndarray:
    """uint8 straight [H, W, 4] -> float32 [H, W, 4] in [0, 1], colours times alpha."""
    layers = rgba.astype(np.float32) / 255
    layers[..., :3] *= layers[..., 3:]
    return layers


def _find_object(alpha: np.ndarray) -> tuple[np.ndarray, tuple[int, int, int, int]]:
    """Which pixels belong to the object, and its bounding box.

    Args:
        alpha: uint8 [H, W], not all 0.
    Returns:
        keep: bool [H, W], false at specks and at haze that touches no part of the object.
        box: (left, top, right, bottom) of the solid pixels kept, right and bottom exclusive.
    """
    solid = alpha >= max(1, (int(alpha.max()) + 1) // 2)
    _, labels, stats, _ = cv2.connectedComponentsWithStats(solid.astype(np.uint8), connectivity=8)
    areas = stats[:, cv2.CC_STAT_AREA].copy()
    areas[0] = 0  # label 0 is everything else
    large = areas >= max(1, SPECK_SHARE * areas.max())
    parts = large[labels]  # [H, W]
    specks = solid & ~parts
    # Soft pixels stay where they hang together with a kept part.
    _, soft_labels = cv2.connectedComponents(((alpha > FAINT_ALPHA) & ~specks).astype(np.uint8), connectivity=8)
    touched = np.zeros(soft_labels.max() + 1, bool)
    touched[np.unique(soft_labels[parts])] = True
    touched[0] = False
    rows, columns = np.flatnonzero(parts.any(1)), np.flatnonzero(parts.any(0))
    box = (int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1)
    return touched[soft_labels] | parts, box


def _doubts(keep: np.ndarray, was_opaque: bool) -> list[str]:
    """What speaks against the mask: background kept as part of the object, or an object cut off by the frame."""
    sides = {"top": keep[0], "bottom": keep[-1], "left": keep[:, 0], "right": keep[:, -1]}
    touching = [name for name, pixels in sides.items() if pixels.any()]
    covered = float(keep.mean())
    advice = "; if background was kept, pass a picture with a transparent background" if was_opaque else ""
    if min(keep.shape) < 3:
        return []
    if covered > 0.9:
        return [f"the object covers {covered:.0%} of the picture{advice}"]
    if len(touching) == 4:
        return [f"the object touches every border of the picture{advice}"]
    if touching:
        return [f"the object touches the picture's border ({', '.join(touching)}): it may be cut off there"]
    return []


def _framed(layers: np.ndarray, box: tuple[int, int, int, int], border: float, size: int, beyond: bool) -> np.ndarray:
    """Resample so that `box` lies centred in a square and its longer side spans 1 - border of it.

    Args:
        layers: float32 [H, W, 4], premultiplied.
        box: (left, top, right, bottom) in pixels.
        beyond: nothing lies beyond the picture, so that what its edge cuts fades within a pixel; else the edge goes on.
    Returns:
        float32 [size, size, 4], premultiplied, in [0, 1].
    """
    left, top, right, bottom = box
    scale = (1 - border) * size / max(right - left, bottom - top)  # target pixels a source pixel
    height, width = layers.shape[:2]
    columns, source_x = _span(width, (left + right) / 2, scale, size)
    rows, source_y = _span(height, (top + bottom) / 2, scale, size)
    # Cut to what is sampled, with what the filter reaches beyond, and pad with nothing where that leaves the picture.
    reach = int(np.ceil(3 * max(1.0, 1 / scale))) + 1 if beyond else 0
    x0, x1 = int(np.floor(source_x[0])) - reach, int(np.ceil(source_x[1])) + reach
    y0, y1 = int(np.floor(source_y[0])) - reach, int(np.ceil(source_y[1])) + reach
    cut = layers[max(y0, 0) : max(y1, 0), max(x0, 0) : max(x1, 0)]
    padding = ((max(-y0, 0), max(y1 - height, 0)), (max(-x0, 0), max(x1 - width, 0)), (0, 0))
    cut = np.pad(cut, padding)
    sample_box = (source_x[0] - x0, source_y[0] - y0, source_x[1] - x0, source_y[1] - y0)
    target = (columns.stop - columns.start, rows.stop - rows.start)

    framed = np.zeros((size, size, 4), np.float32)
    for channel in range(4):
        plane = Image.fromarray(np.ascontiguousarray(cut[..., channel]))  # mode F: no rounding in between
        framed[rows, columns, channel] = np.asarray(plane.resize(target, Image.Resampling.LANCZOS, box=sample_box))
    # Lanczos rings: coverage stays in [0, 1], and no colour is brighter than its coverage.
    framed[..., 3] = np.clip(framed[..., 3], 0, 1)
    framed[..., :3] = np.clip(framed[..., :3], 0, framed[..., 3:])
    return framed


def _span(length: int, centre: float, scale: float, size: int) -> tuple[slice, tuple[float, float]]:
    """Along one axis: which target pixels see the picture, and the stretch of source that they cover."""
    first = int(np.clip(np.floor((0 - centre) * scale + size / 2), 0, size - 1))
    last = int(np.clip(np.ceil((length - centre) * scale + size / 2), first + 1, size))
    return slice(first, last), ((first - size / 2) / scale + centre, (last - size / 2) / scale + centre)
