"""The loops of the mesh rasteriser on the CPU.

They are compiled without Python's lock and run in threads on bands of rows that share nothing, so the result does not
depend on the number of threads.
"""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numba import njit
from torch import Tensor

# World units, exact in any precision. Faces that reach behind this plane are left out, not clipped: cameras stand
# outside.
NEAR = 2.0**-10


def rasterize(screen: Tensor, faces: Tensor, width: int, height: int, cull: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Face ids, barycentrics and depths, as `MeshRaster` has them, of vertices on the screen [C, V, 3]."""
    count = len(screen)
    screen, faces = screen.numpy(), faces.numpy()
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
    # _interpolate has turned inverse depths into depths.
    return torch.from_numpy(face_ids), torch.from_numpy(barycentrics), torch.from_numpy(inverse_depth)


def shade(
    screen: Tensor, faces: Tensor, width: int, height: int, scale: int, cull: bool, uv_faces: Tensor, uvs: Tensor,
    texture: Tensor, background: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Colours, coverage and depths, as `MeshRendered` has them, of scale^2 samples a pixel.

    Args:
        screen: [C, V, 3], in samples. uv_faces [F, 3] index `uvs` [T, 2].
    """
    count = len(screen)
    screen, faces = screen.numpy(), faces.numpy()
    look = [t.numpy() for t in (uv_faces, uvs, texture, background)]
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
            screen[camera], faces, first * scale, inverse_depth, face_ids, scale, *look,
            rgb[camera, first:last], alpha[camera, first:last], depth[camera, first:last],
        )  # fmt: skip

    in_threads(draw, len(bands))
    return torch.from_numpy(rgb), torch.from_numpy(alpha), torch.from_numpy(depth)


def in_threads(function: Callable[[int], None], count: int) -> None:
    """Call function(0) ... function(count - 1), on as many threads as torch uses: one setting limits them all."""
    if count == 0:
        return
    with ThreadPoolExecutor(max_workers=min(count, torch.get_num_threads())) as pool:
        for _ in pool.map(function, range(count)):
            pass


def _bands(cameras: int, height: int) -> list[tuple[int, int, int]]:
    """(camera, first row, last row + 1): whole pictures, cut only where there are fewer of them than threads."""
    parts = min(height, max(1, math.ceil(torch.get_num_threads() / max(cameras, 1))))
    edges = [round(height * k / parts) for k in range(parts + 1)]
    return [(c, edges[k], edges[k + 1]) for c in range(cameras) for k in range(parts)]


@njit(cache=True, nogil=True)
def _fill(screen, faces, first_row, cull, inverse_depth, face_ids):
    """Z-buffer of the rows first_row ... of one picture: the largest inverse depth and its face at every pixel."""
    rows, width = inverse_depth.shape
    for f in range(faces.shape[0]):
        i, j, k = faces[f, 0], faces[f, 1], faces[f, 2]
        z0, z1, z2 = np.float64(screen[i, 2]), np.float64(screen[j, 2]), np.float64(screen[k, 2])
        if not (z0 > NEAR and z1 > NEAR and z2 > NEAR):
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
    screen, faces, first_row, inverse_depth, face_ids, scale, uv_faces, uvs, texture, background, rgb, alpha, depth
):
    """Average scale² samples a pixel: bilinear texture at the uvs of `uv_faces`."""
    height, width = texture.shape[0], texture.shape[1]
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
                i, j, k = uv_faces[f, 0], uv_faces[f, 1], uv_faces[f, 2]
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
            coverage = hits * per_sample
            rgb[y, x, 0] = red * per_sample + (1.0 - coverage) * background[0]
            rgb[y, x, 1] = green * per_sample + (1.0 - coverage) * background[1]
            rgb[y, x, 2] = blue * per_sample + (1.0 - coverage) * background[2]
            alpha[y, x] = coverage
            depth[y, x] = z * per_sample
