"""Pictures to look at: a sheet with the input and views all around, and a turntable."""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from cameras import FOVY_DEG, RADIUS, Cameras, orbit_cameras
from errors import UserError
from files import whole_file
from gaussians import Gaussians
from gs_renderer import render
from mesh_extract.mesh_raster import render_mesh
from mesh_extract.rig import moved
from mesh_extract.textured import TexturedMesh
from profiling import profiled

SHEET_AZIMUTHS_DEG = tuple(45.0 * k for k in range(8))
TILE_PX = 256
TURNTABLE_FRAMES = 60
TURNTABLE_PX = 320
FRAMES_PER_S = 20
# Distance from the origin up to which objects stand in the usual frame: the corners of a cube of half side 0.72.
_LARGEST_BOUND = 1.25
_SMALLEST_BOUND = 0.2  # below it an object would be a speck there
_STEEPEST_DEG = 89.0  # from straight above no direction of the picture is up
_BATCH = 8  # views drawn at once: bounds the memory
_WHITE = 255


def views_sheet(
    source_rgba: Tensor | None,
    gaussians: Gaussians | None,
    textured: TexturedMesh | None,
    elevation_deg: float = 0.0,
    tile_px: int = TILE_PX,
    device: torch.device | None = None,
) -> Image.Image:
    """One row for the Gaussians and one for the mesh, 8 views each; the input stands to the left of the first row.

    Args:
        source_rgba: the prepared picture [H, W, 4] in [0, 1], straight alpha; None leaves the column out.
        gaussians, textured: None leaves the row out.
        elevation_deg: of the views, that of the input so that the first view and the input should agree.
        device: where the mesh is drawn; None: where the Gaussians are, else on the CPU.
    Returns:
        RGB over white, (9 or 8) tiles wide, one or two tiles high.
    """
    cameras = framing_cameras(gaussians if textured is None else textured, SHEET_AZIMUTHS_DEG, elevation_deg, tile_px)
    if device is None and gaussians is not None:
        device = gaussians.means.device
    shown = [what for what in (gaussians, textured) if what is not None]
    rows = [np.concatenate(draw_views(what, cameras, device), axis=1) for what in shown]
    if source_rgba is not None:
        tile = _source_tile(source_rgba, tile_px)
        rows = rows or [np.empty((tile_px, 0, 3), np.uint8)]
        column = [tile] + [np.full_like(tile, _WHITE)] * (len(rows) - 1)
        rows = [np.concatenate(pair, axis=1) for pair in zip(column, rows, strict=True)]
    if not rows:
        raise ValueError("views_sheet needs a picture, Gaussians or a mesh")
    return Image.fromarray(np.concatenate(rows, axis=0))


def turntable_frames(
    what: Gaussians | TexturedMesh,
    elevation_deg: float = 10.0,
    count: int = TURNTABLE_FRAMES,
    size_px: int = TURNTABLE_PX,
    device: torch.device | None = None,
) -> list[np.ndarray]:
    """A full turn in `count` steps, over white: pictures [size_px, size_px, 3], uint8.

    Args:
        device: where a mesh is drawn; None: on the CPU. Gaussians are drawn where they are.
    """
    azimuths_deg = [360.0 * k / count for k in range(count)]
    return draw_views(what, framing_cameras(what, azimuths_deg, elevation_deg, size_px), device)


def framing_cameras(
    what: Gaussians | TexturedMesh | None, azimuths_deg: Sequence[float], elevation_deg: float, size_px: int
) -> Cameras:
    """The project's own cameras around the origin; what does not fit into their pictures gets ones that frame it."""
    elevation_deg = min(max(elevation_deg, -_STEEPEST_DEG), _STEEPEST_DEG)
    center, distance = np.zeros(3), RADIUS
    points = _points(what)
    if len(points):
        bound = float(np.linalg.norm(points, axis=1).max())
        if not _SMALLEST_BOUND < bound < _LARGEST_BOUND:
            center = (points.min(axis=0) + points.max(axis=0)) / 2
            bound = max(float(np.linalg.norm(points - center, axis=1).max()), 1e-6)
            distance = 1.05 * bound / math.sin(math.radians(FOVY_DEG / 2))
    return moved(orbit_cameras(azimuths_deg, elevation_deg, distance, width=size_px, height=size_px), center)


def _points(what: Gaussians | TexturedMesh | None) -> np.ndarray:
    """Where a thing lies [N, 3], float64, finite."""
    if what is None:
        return np.zeros((0, 3))
    points = what.means.detach().cpu().numpy() if isinstance(what, Gaussians) else what.mesh.vertices
    return points[np.isfinite(points).all(axis=1)].astype(np.float64)


@profiled
@torch.no_grad()
def draw_views(
    what: Gaussians | TexturedMesh, cameras: Cameras, device: torch.device | None = None
) -> list[np.ndarray]:
    """Gaussians or a textured mesh (on `device`) from each camera, over white: pictures [H, W, 3], uint8."""
    pictures = []
    # The mesh rasteriser on a GPU sees to its memory itself.
    at_once = _BATCH if isinstance(what, Gaussians) or device is None or device.type == "cpu" else len(cameras)
    for start in range(0, len(cameras), at_once):
        batch = cameras[slice(start, start + at_once)]
        if isinstance(what, Gaussians):
            rgb = render(what.detach(), batch.to(device=what.means.device, dtype=what.means.dtype)).rgb
        else:
            rgb = render_mesh(what, batch, device=device).rgb
        pictures.extend((rgb.float().clamp(0.0, 1.0) * 255.0 + 0.5).to(torch.uint8).cpu().numpy())
    return pictures


def write_turntable(path: Path, frames: Iterable[np.ndarray], frames_per_s: int = FRAMES_PER_S) -> None:
    """Write frames [H, W, 3], uint8, of one size as an endless .gif or as an .mp4.

    Raises:
        UserError: another suffix; .mp4 without imageio-ffmpeg.
    """
    path, frames = Path(path), list(frames)
    if not frames:
        raise ValueError("frames must not be empty")
    suffix = path.suffix.lower()
    if suffix == ".gif":
        _write_gif(path, frames, frames_per_s)
    elif suffix == ".mp4":
        _write_mp4(path, frames, frames_per_s)
    else:
        raise UserError(f"turntable {path.name}: expected a name that ends in .gif or .mp4")


def _write_gif(path: Path, frames: list[np.ndarray], frames_per_s: int) -> None:
    """One palette for all frames and no dithering: what stands still in the object does not flicker."""
    chosen = [frame[::2, ::2] for frame in frames[:: max(1, len(frames) // 8)]]  # enough to choose colours from
    palette = Image.fromarray(np.concatenate(chosen, axis=1)).quantize(255, Image.Quantize.MEDIANCUT)
    colors = (palette.getpalette() or [])[: 3 * 255] + [_WHITE] * 3  # the background stays exactly white
    palette.putpalette(colors)
    pictures = [Image.fromarray(f).quantize(palette=palette, dither=Image.Dither.NONE) for f in frames]
    with whole_file(path) as temporary:
        pictures[0].save(
            temporary, format="GIF", save_all=True, append_images=pictures[1:], duration=round(1000 / frames_per_s),
            loop=0, optimize=False,
        )  # fmt: skip


def _write_mp4(path: Path, frames: list[np.ndarray], frames_per_s: int) -> None:
    """H.264 through the ffmpeg that imageio-ffmpeg brings."""
    try:
        import imageio_ffmpeg
    except ImportError as error:
        message = "output.turntable=mp4 needs imageio-ffmpeg (pip install imageio-ffmpeg); gif needs nothing"
        raise UserError(message) from error
    height, width = frames[0].shape[:2]
    grow = ((0, height % 2), (0, width % 2), (0, 0))  # the usual chroma format wants even sides
    with whole_file(path) as temporary:
        writer = imageio_ffmpeg.write_frames(
            str(temporary), (width + width % 2, height + height % 2), fps=frames_per_s, quality=8, macro_block_size=2,
            output_params=["-fflags", "+bitexact", "-flags:v", "+bitexact", "-movflags", "+faststart"],
        )  # fmt: skip
        writer.send(None)
        for frame in frames:
            writer.send(np.ascontiguousarray(np.pad(frame, grow, constant_values=_WHITE)))
        writer.close()


def _source_tile(rgba: Tensor, tile_px: int) -> np.ndarray:
    """The picture over white, scaled to fit a square tile [tile_px, tile_px, 3], uint8."""
    rgba = rgba.detach().float().cpu()
    over_white = rgba[..., :3] * rgba[..., 3:] + 1.0 - rgba[..., 3:]
    picture = Image.fromarray((over_white.clamp(0.0, 1.0) * 255.0 + 0.5).to(torch.uint8).numpy())
    scale = tile_px / max(picture.size)
    picture = picture.resize([max(1, round(side * scale)) for side in picture.size], Image.Resampling.LANCZOS)
    tile = Image.new("RGB", (tile_px, tile_px), (_WHITE,) * 3)
    tile.paste(picture, ((tile_px - picture.width) // 2, (tile_px - picture.height) // 2))
    return np.asarray(tile)
