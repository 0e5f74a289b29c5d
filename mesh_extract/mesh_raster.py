"""Triangle rasteriser: a z-buffer for baking, previews and evaluation. No OpenGL, one result everywhere.

A pixel belongs to the nearest face that its centre (column + 0.5, row + 0.5) lies in, borders included; of faces at
exactly one depth the first. Inverse depth is linear on the screen, which makes barycentrics perspective-correct.

The loops are in mesh_raster_numba.py, for the CPU, and in cuda_ext/kernels/mesh_raster.cu, which give the same bits.
"""

from dataclasses import dataclass
from types import ModuleType
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from cameras import Cameras
from mesh_extract import mesh_raster_numba
from mesh_extract.mesh import Mesh
from mesh_extract.textured import TexturedMesh

Values = np.ndarray | Tensor


@dataclass(frozen=True)
class MeshRaster:
    """What each of C pictures shows at its pixel centres.

    face_ids [C, H, W] int32, -1 where nothing; barycentrics [C, H, W, 3] float32, perspective-correct, in the order of
    the face's corners; depth [C, H, W] float32 along the camera's z, 0 where nothing. Arrays, or tensors where a device
    was asked for.
    """

    face_ids: Values
    barycentrics: Values
    depth: Values


class MeshRendered(NamedTuple):
    """rgb [C, H, W, 3] over the background, alpha [C, H, W] coverage in [0, 1], depth [C, H, W] times coverage."""

    rgb: Tensor
    alpha: Tensor
    depth: Tensor


def rasterize_mesh(
    mesh: Mesh, cameras: Cameras, cull_backfaces: bool = False, device: torch.device | None = None
) -> MeshRaster:
    """Find the nearest face at every pixel centre.

    Args:
        mesh: vertices in world units; faces counter-clockwise from outside.
        cameras: C cameras; faces that reach behind a camera are left out.
        cull_backfaces: leave out faces seen from behind, so that what lies behind them shows.
        device: where to work and leave the result, as tensors; None: on the CPU, as arrays.
    """
    screen = _project(mesh.vertices, cameras, device)
    found = _loops(device).rasterize(screen, _faces(mesh.faces, device), cameras.width, cameras.height, cull_backfaces)
    return MeshRaster(*(found if device is not None else (t.numpy() for t in found)))


def rasterize_uvs(
    uvs: np.ndarray, uv_faces: np.ndarray, size: int, device: torch.device | None = None
) -> tuple[Values, Values]:
    """Find the face and the barycentrics at every texel centre of a square atlas.

    Args:
        uvs: [T, 2], v up; uv_faces: [F, 3]; size: side of the picture in texels.
        device: as for `rasterize_mesh`.
    Returns:
        (face_ids [size, size], -1 outside the charts, row 0 at v = 1; barycentrics [size, size, 3])
    """
    flat = np.ones((1, len(uvs), 3), np.float32)
    flat[0, :, 0] = uvs[:, 0] * size
    flat[0, :, 1] = (1.0 - uvs[:, 1]) * size
    face_ids, barycentrics, _ = _loops(device).rasterize(
        _tensor(flat, device), _faces(uv_faces, device), size, size, False
    )
    if device is None:
        return face_ids[0].numpy(), barycentrics[0].numpy()
    return face_ids[0], barycentrics[0]


def render_mesh(
    textured: TexturedMesh, cameras: Cameras, background=(1.0, 1.0, 1.0), supersample: int = 2, cull_backfaces=False,
    device: torch.device | None = None,
) -> MeshRendered:  # fmt: skip
    """Draw the texture unlit, bilinear, with `supersample`² samples a pixel.

    Args:
        device: where to work and leave the result; None: on the CPU.
    Returns:
        Float32 tensors.
    """
    whole = torch.tensor(255.0, device=device)  # a tensor: by a number, GPUs multiply with its rounded reciprocal
    texture = torch.from_numpy(np.ascontiguousarray(textured.texture)).to(device).float() / whole
    return render_texture(
        textured.mesh, textured.uvs, textured.uv_faces, texture, cameras, background, supersample, cull_backfaces,
        device,
    )  # fmt: skip


def render_texture(
    mesh: Mesh,
    uvs: np.ndarray,
    uv_faces: np.ndarray,
    texture: Values,
    cameras: Cameras,
    background=(1.0, 1.0, 1.0),
    supersample: int = 2,
    cull_backfaces: bool = False,
    device: torch.device | None = None,
) -> MeshRendered:
    """As `render_mesh`, from a float texture [H, W, 3] that need not lie in [0, 1]."""
    if supersample < 1:
        raise ValueError(f"supersample must be at least 1, got {supersample}")
    screen = _project(mesh.vertices, cameras, device)
    screen[:, :, :2] *= supersample
    size = cameras.width, cameras.height, supersample
    look = _faces(uv_faces, device), _tensor(uvs, device), _tensor(texture, device)
    background = _tensor(np.asarray(background, np.float32), device)
    return MeshRendered(
        *_loops(device).shade(screen, _faces(mesh.faces, device), *size, cull_backfaces, *look, background)
    )


def project_vertices(vertices: np.ndarray, cameras: Cameras) -> np.ndarray:
    """Columns and rows in pixels and depths along z, float32 [C, V, 3]; behind a camera x and y mean nothing."""
    return _project(vertices, cameras, None).numpy()


def _project(vertices: np.ndarray, cameras: Cameras, device: torch.device | None) -> Tensor:
    """As `project_vertices`. Products and sums are operations of their own, so that every device rounds alike."""
    x, y, z = torch.from_numpy(vertices).to(device).double().unbind(1)  # [V] each
    view, intrinsics = (matrix.detach().to(device or "cpu").double() for matrix in (cameras.viewmats, cameras.Ks))
    in_camera = view[:, :3, :1] * x + view[:, :3, 1:2] * y + view[:, :3, 2:3] * z + view[:, :3, 3:]  # [C, 3, V]
    x, y, z = in_camera[:, :1], in_camera[:, 1:2], in_camera[:, 2:]
    on_screen = intrinsics[:, :2, :1] * x + intrinsics[:, :2, 1:2] * y + intrinsics[:, :2, 2:] * z
    on_screen = on_screen / torch.where(z.abs() < 1e-12, 1e-12, z)
    return torch.cat([on_screen, z], dim=1).transpose(1, 2).float().contiguous()


def _loops(device: torch.device | None) -> ModuleType:
    """The module whose `rasterize` and `shade` run on a device."""
    if device is None or torch.device(device).type == "cpu":
        return mesh_raster_numba
    from mesh_extract import mesh_raster_cuda

    return mesh_raster_cuda


def _faces(faces: np.ndarray, device: torch.device | None) -> Tensor:
    """Contiguous int32, the one type that the loops are compiled for."""
    return torch.from_numpy(np.ascontiguousarray(faces, np.int32)).to(device)


def _tensor(values: Values, device: torch.device | None) -> Tensor:
    """Contiguous float32."""
    if isinstance(values, np.ndarray):
        values = np.ascontiguousarray(values, np.float32)
    return torch.as_tensor(values, dtype=torch.float32, device=device).contiguous()
