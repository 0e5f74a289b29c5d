"""Triangle rasteriser on the CPU: a z-buffer for baking, previews and evaluation. No OpenGL, one result everywhere.

A pixel belongs to the nearest face that its centre (column + 0.5, row + 0.5) lies in, borders included; of faces at
exactly one depth the first. Inverse depth is linear on the screen, which makes barycentrics perspective-correct.

The loops are compiled without Python's lock and run in threads on bands of rows that share nothing, so the result does
not depend on the number of threads.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numba import njit
from torch import Tensor

from cameras import Cameras
from mesh_extract.mesh import Mesh
from mesh_extract.textured import TexturedMesh

_NEAR = 1e-3  # world units; faces that reach behind this plane are left out, not clipped: cameras stand outside
_NO_UVS = np.zeros((1, 2), np.float32)
_NO_TEXTURE = np.zeros((0, 0, 3), np.float32)
_NO_COLORS = np.zeros((0, 3), np.float32)


@dataclass(frozen=True)
class MeshRaster:
    """What each of C pictures shows at its pixel centres.

    face_ids [C, H, W] int32, -1 where nothing; barycentrics [C, H, W, 3] float32, perspective-correct, in the order of
    the face's corners; depth [C, H, W] float32 along the camera's z, 0 where nothing.
    """

    face_ids: np.ndarray
    barycentrics: np.ndarray
    depth: np.ndarray


class MeshRendered(NamedTuple):
    """rgb [C, H, W, 3] over the background, alpha [C, H, W] coverage in [0, 1], depth [C, H, W] times coverage."""

    rgb: Tensor
    alpha: Tensor
    depth: Tensor


def rasterize_mesh(mesh: Mesh, cameras: Cameras, cull_backfaces: bool = False) -> MeshRaster:
    """Find the nearest face at every pixel centre.

    Args:
        mesh: vertices in world units; faces counter-clockwise from outside.
        cameras: C cameras; faces that reach behind a camera are left out.
        cull_backfaces: leave out faces seen from behind, so that what lies behind them shows.
    """
    screen = project_vertices(mesh.vertices, cameras)
    return _rasterize(screen, _faces(mesh.faces), cameras.width, cameras.height, cull_backfaces)


def rasterize_uvs(uvs: np.ndarray, uv_faces: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Find the face and the barycentrics at every texel centre of a square atlas.

    Args:
        uvs: [T, 2], v up; uv_faces: [F, 3]; size: side of the picture in texels.
    Returns:
        (face_ids [size, size], -1 outside the charts, row 0 at v = 1; barycentrics [size, size, 3])
    """
    flat = np.ones((1, len(uvs), 3), np.float32)
    flat[0, :, 0] = uvs[:, 0] * size
    flat[0, :, 1] = (1.0 - uvs[:, 1]) * size
    raster = _rasterize(flat, _faces(uv_faces), size, size, False)
    return raster.face_ids[0], raster.barycentrics[0]


def render_mesh(
    textured: TexturedMesh, cameras: Cameras, background=(1.0, 1.0, 1.0), supersample: int = 2, cull_backfaces=False
) -> MeshRendered:
    """Draw the texture unlit, bilinear, with `supersample`² samples a pixel.

    Returns:
        Float32 tensors on the CPU.
    """
    texture = textured.texture.astype(np.float32) / np.float32(255.0)
    return render_texture(
        textured.mesh, textured.uvs, textured.uv_faces, texture, cameras, background, supersample, cull_backfaces
    )


def render_texture(
    mesh: Mesh,
    uvs: np.ndarray,
    uv_faces: np.ndarray,
    texture: np.ndarray,
    cameras: Cameras,
    background=(1.0, 1.0, 1.0),
    supersample: int = 2,
    cull_backfaces: bool = False,
) -> MeshRendered:
    """As `render_mesh`, from a float texture [H, W, 3] that need not lie in [0, 1]."""
    uvs = np.ascontiguousarray(uvs, np.float32)
    texture = np.ascontiguousarray(texture, np.float32)
    return _render(mesh, uvs, _faces(uv_faces), texture, _NO_COLORS, cameras, background, supersample, cull_backfaces)


def render_vertex_colors(
    mesh: Mesh, colors: np.ndarray, cameras: Cameras, background=(1.0, 1.0, 1.0), supersample: int = 2,
    cull_backfaces: bool = False,
) -> MeshRendered:  # fmt: skip
    """Draw colours [V, 3] in [0, 1], interpolated across the faces, unlit."""
    colors = np.ascontiguousarray(colors, np.float32)
    return _render(
        mesh, _NO_UVS, _faces(mesh.faces), _NO_TEXTURE, colors, cameras, background, supersample, cull_backfaces
    )


def project_vertices(vertices: np.ndarray, cameras: Cameras) -> np.ndarray:
    """Columns and rows in pixels and depths along z, float32 [C, V, 3]; behind a camera x and y mean nothing."""
    viewmats = cameras.viewmats.detach().cpu().double().numpy()
    intrinsics = cameras.Ks.detach().cpu().double().numpy()
    in_camera = vertices.astype(np.float64) @ viewmats[:, :3, :3].transpose(0, 2, 1) + viewmats[:, None, :3, 3]
    on_screen = in_camera @ intrinsics.transpose(0, 2, 1)
    depth = in_camera[:, :, 2:]
    safe = np.where(np.abs(depth) < 1e-12, 1e-12, depth)
    return np.concatenate([on_screen[:, :, :2] / safe, depth], axis=2).astype(np.float32)


def in_threads(function: Callable[[int], None], count: int) -> None:
    """Call function(0) ... function(count - 1), on as many threads as torch uses: one setting limits them all."""
    if count == 0:
        return
    with ThreadPoolExecutor(max_workers=min(count, torch.get_num_threads())) as pool:
        for _ in pool.map(function, range(count)):
            pass


def _faces(faces: np.ndarray) -> np.ndarray:
    """Contiguous int32, the one type that the loops are compiled for."""
    return np.ascontiguousarray(faces, np.int32)


def _bands(cameras: int, height: int) -> list[tuple[int, int, int]]:
    """(camera, first row, last row + 1): whole pictures, cut only where there are fewer of them than threads."""
    parts = min(height, max(1, math.ceil(torch.get_num_threads() / max(cameras, 1))))
    edges = [round(height * k / parts) for k in range(parts + 1)]
    return [(c, edges[k], edges[k + 1]) for c in range(cameras) for k in range(parts)]


def _rasterize(screen: np.ndarray, faces: np.ndarray, width: int, height: int, cull: bool) -> MeshRaster:
    count = len(screen)
    face_ids = np.full((count, height, width), -1, np.int32)
    barycentrics = np.zeros((count, height, width, 3), np.float32)
    inverse_depth = np.zeros((count, height, width), np.float32)
    bands = _bands(count, height)

    def draw(job: int) -> None:
        camera, first, last = bands[job]
        part = inverse_depth[camera, first:last], face_ids[camera, first:last]
        _fill(screen[camera], faces, first, cull, *part)
        _interpolate(screen[camera], faces, first, *part, barycentrics[camera, first:last])

    in_threads(draw, len(bands))
    return MeshRaster(face_ids, barycentrics, inverse_depth)  # _interpolate has turned inverse depths into depths


def _render(mesh, uvs, corner_faces, texture, colors, cameras, background, supersample, cull) -> MeshRendered:
    if supersample < 1:
        raise ValueError(f"supersample must be at least 1, got {supersample}")
    count, height, width, scale = len(cameras), cameras.height, cameras.width, supersample
    screen = project_vertices(mesh.vertices, cameras)
    screen[:, :, :2] *= scale
    faces = _faces(mesh.faces)
    background = np.asarray(background, np.float32)
    rgb = np.empty((count, height, width, 3), np.float32)
    alpha = np.empty((count, height, width), np.float32)
    depth = np.empty((count, height, width), np.float32)
    bands = _bands(count, height)

    def draw(job: int) -> None:
        camera, first, last = bands[job]
        inverse_depth = np.zeros(((last - first) * scale, width * scale), np.float32)
        face_ids = np.full(inverse_depth.shape, -1, np.int32)
        _fill(screen[camera], faces, first * scale, cull, inverse_depth, face_ids)
        _shade(
            screen[camera], faces, first * scale, inverse_depth, face_ids, scale, corner_faces, uvs, texture, colors,
            background, rgb[camera, first:last], alpha[camera, first:last], depth[camera, first:last],
        )  # fmt: skip

    in_threads(draw, len(bands))
    return MeshRendered(torch.from_numpy(rgb), torch.from_numpy(alpha), torch.from_numpy(depth))


@njit(cache=True, nogil=True)
def _fill(screen, faces, first_row, cull, inverse_depth, face_ids):
    """Z-buffer of the rows first_row ... of one picture: the largest inverse depth and its face at every pixel."""
    rows, width = inverse_depth.shape
    for f in range(faces.shape[0]):
        i, j, k = faces[f, 0], faces[f, 1], faces[f, 2]
        z0, z1, z2 = np.float64(screen[i, 2]), np.float64(screen[j, 2]), np.float64(screen[k, 2])
        if not (z0 > _NEAR and z1 > _NEAR and z2 > _NEAR):
            continue
        x0, y0 = np.float64(screen[i, 0]), np.float64(screen[i, 1]) - first_row
        x1, y1 = np.float64(screen[j, 0]), np.float64(screen[j, 1]) - first_row
        x2, y2 = np.float64(screen[k, 0]), np.float64(screen[k, 1]) - first_row
        area = (x1 - x0) * (y2 - y0) - (x2 - x0) * (y1 - y0)  # negative: counter-clockwise to the eye, rows go down
        if not (area < 0.0 or (area > 0.0 and not cull)):  # also leaves out NaN
            continue
        left = max(0, int(math.ceil(max(min(x0, x1, x2), 0.0) - 0.5)))
        right = int(math.floor(min(max(x0, x1, x2), float(width)) - 0.5))
        top = max(0, int(math.ceil(max(min(y0, y1, y2), 0.0) - 0.5)))
        bottom = int(math.floor(min(max(y0, y1, y2), float(rows)) - 0.5))
        if left > right or top > bottom:
            continue
        per_area = 1.0 / area
        # Barycentrics as a + dx * x (+ dy * y): b_k is twice the signed area opposite corner k over the face's.
        dx0, dy0 = (y1 - y2) * per_area, (x2 - x1) * per_area
        dx1, dy1 = (y2 - y0) * per_area, (x0 - x2) * per_area
        dx2, dy2 = (y0 - y1) * per_area, (x1 - x0) * per_area
        w0, w1, w2 = 1.0 / z0, 1.0 / z1, 1.0 / z2
        for y in range(top, bottom + 1):
            py = y + 0.5
            b0_row = (py - y1) * dy0 - x1 * dx0
            b1_row = (py - y2) * dy1 - x2 * dx1
            b2_row = (py - y0) * dy2 - x0 * dx2
            for x in range(left, right + 1):
                px = x + 0.5
                b0, b1, b2 = b0_row + px * dx0, b1_row + px * dx1, b2_row + px * dx2
                # A rounding error's width beyond the border: no pinholes between neighbours; the depth test settles it.
                if b0 >= -1e-12 and b1 >= -1e-12 and b2 >= -1e-12:
                    w = np.float32(b0 * w0 + b1 * w1 + b2 * w2)
                    if w > inverse_depth[y, x]:
                        inverse_depth[y, x] = w
                        face_ids[y, x] = f


@njit(cache=True, nogil=True)
def _corner_weights(screen, faces, f, px, py):
    """Perspective-correct barycentrics of face f at a point on the screen, kept within the face."""
    i, j, k = faces[f, 0], faces[f, 1], faces[f, 2]
    x0, y0 = np.float64(screen[i, 0]), np.float64(screen[i, 1])
    x1, y1 = np.float64(screen[j, 0]), np.float64(screen[j, 1])
    x2, y2 = np.float64(screen[k, 0]), np.float64(screen[k, 1])
    b0 = abs((x1 - px) * (y2 - py) - (x2 - px) * (y1 - py)) / screen[i, 2]
    b1 = abs((x2 - px) * (y0 - py) - (x0 - px) * (y2 - py)) / screen[j, 2]
    b2 = abs((x0 - px) * (y1 - py) - (x1 - px) * (y0 - py)) / screen[k, 2]
    scale = 1.0 / (b0 + b1 + b2)
    return b0 * scale, b1 * scale, b2 * scale


@njit(cache=True, nogil=True)
def _interpolate(screen, faces, first_row, inverse_depth, face_ids, barycentrics):
    """Barycentrics of every covered pixel; inverse depths become depths."""
    for y in range(face_ids.shape[0]):
        for x in range(face_ids.shape[1]):
            f = face_ids[y, x]
            if f >= 0:
                b0, b1, b2 = _corner_weights(screen, faces, f, x + 0.5, first_row + y + 0.5)
                barycentrics[y, x, 0], barycentrics[y, x, 1], barycentrics[y, x, 2] = b0, b1, b2
                inverse_depth[y, x] = 1.0 / inverse_depth[y, x]


@njit(cache=True, nogil=True)
def _shade(
    screen, faces, first_row, inverse_depth, face_ids, scale, corner_faces, uvs, texture, colors, background,
    rgb, alpha, depth,
):  # fmt: skip
    """Average scale² samples a pixel: bilinear texture at the uvs of `corner_faces`, or `colors` of the corners."""
    height, width = texture.shape[0], texture.shape[1]
    textured = height > 0
    per_sample = 1.0 / (scale * scale)
    for y in range(alpha.shape[0]):
        for x in range(alpha.shape[1]):
            red, green, blue, z, hits = 0.0, 0.0, 0.0, 0.0, 0
            for sample in range(scale * scale):
                sy, sx = y * scale + sample // scale, x * scale + sample % scale
                f = face_ids[sy, sx]
                if f < 0:
                    continue
                hits += 1
                z += 1.0 / inverse_depth[sy, sx]
                b0, b1, b2 = _corner_weights(screen, faces, f, sx + 0.5, first_row + sy + 0.5)
                i, j, k = corner_faces[f, 0], corner_faces[f, 1], corner_faces[f, 2]
                if textured:
                    u = b0 * uvs[i, 0] + b1 * uvs[j, 0] + b2 * uvs[k, 0]
                    v = b0 * uvs[i, 1] + b1 * uvs[j, 1] + b2 * uvs[k, 1]
                    tx = min(max(u * width - 0.5, 0.0), width - 1.0)
                    ty = min(max((1.0 - v) * height - 0.5, 0.0), height - 1.0)
                    x0, y0 = int(tx), int(ty)
                    x1, y1 = min(x0 + 1, width - 1), min(y0 + 1, height - 1)
                    fx, fy = tx - x0, ty - y0
                    w00, w01, w10, w11 = (1 - fx) * (1 - fy), fx * (1 - fy), (1 - fx) * fy, fx * fy
                    red += (
                        w00 * texture[y0, x0, 0] + w01 * texture[y0, x1, 0]
                        + w10 * texture[y1, x0, 0] + w11 * texture[y1, x1, 0]
                    )  # fmt: skip
                    green += (
                        w00 * texture[y0, x0, 1] + w01 * texture[y0, x1, 1]
                        + w10 * texture[y1, x0, 1] + w11 * texture[y1, x1, 1]
                    )  # fmt: skip
                    blue += (
                        w00 * texture[y0, x0, 2] + w01 * texture[y0, x1, 2]
                        + w10 * texture[y1, x0, 2] + w11 * texture[y1, x1, 2]
                    )  # fmt: skip
                else:
                    red += b0 * colors[i, 0] + b1 * colors[j, 0] + b2 * colors[k, 0]
                    green += b0 * colors[i, 1] + b1 * colors[j, 1] + b2 * colors[k, 1]
                    blue += b0 * colors[i, 2] + b1 * colors[j, 2] + b2 * colors[k, 2]
            coverage = hits * per_sample
            rgb[y, x, 0] = red * per_sample + (1.0 - coverage) * background[0]
            rgb[y, x, 1] = green * per_sample + (1.0 - coverage) * background[1]
            rgb[y, x, 2] = blue * per_sample + (1.0 - coverage) * background[2]
            alpha[y, x] = coverage
            depth[y, x] = z * per_sample
