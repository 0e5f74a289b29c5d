"""The mesh rasteriser against brute force in float64, and against what is known of simple bodies."""

import dataclasses
import math

import numpy as np
import pytest
import torch
import trimesh
from plain_meshes import render_plain

from cameras import Cameras, orbit_cameras
from mesh_extract import mesh_raster_cuda
from mesh_extract.mesh import Mesh
from mesh_extract.mesh_raster import (
    project_vertices,
    rasterize_mesh,
    rasterize_uvs,
    render_mesh,
    render_texture,
)
from mesh_extract.textured import TexturedMesh


def icosphere(subdivisions: int, radius: float = 0.7) -> Mesh:
    ball = trimesh.creation.icosphere(subdivisions=subdivisions, radius=radius)
    return Mesh(ball.vertices.astype(np.float32), ball.faces)


def soup(count: int) -> Mesh:
    rng = np.random.default_rng(0)
    centers = rng.uniform(-0.5, 0.5, (count, 1, 3))
    corners = centers + rng.normal(0, 0.2, (count, 3, 3))
    return Mesh(corners.reshape(-1, 3).astype(np.float32), np.arange(3 * count).reshape(-1, 3))


def quad(half: float = 1.0) -> tuple[Mesh, np.ndarray, np.ndarray]:
    """A square in the plane z = 0 that faces +z, its uvs and uv faces."""
    corners = np.array([[-1, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0]], np.float32) * np.float32(half)
    faces = np.array([[0, 1, 2], [0, 2, 3]])
    return Mesh(corners, faces), np.array([[0, 0], [1, 0], [1, 1], [0, 1]], np.float32), faces.astype(np.int32)


def noise_picture(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).random((height, width, 3)).astype(np.float32)


def brute_force(mesh: Mesh, cameras: Cameras) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nearest face, its depth, and the least barycentric over all faces near 0, by solving for every pixel and face."""
    corners = project_vertices(mesh.vertices, cameras)[0].astype(np.float64)[mesh.faces]  # [F, 3, 3]
    y, x = np.mgrid[: cameras.height, : cameras.width] + 0.5
    matrix = np.concatenate([corners[:, :, :2], np.ones((len(corners), 3, 1))], axis=2).transpose(0, 2, 1)
    points = np.stack([x.ravel(), y.ravel(), np.ones(x.size)])
    weights = np.linalg.inv(matrix) @ points  # [F, 3, P]
    inverse_depth = (weights / corners[:, :, 2:]).sum(axis=1)
    inside = (weights >= 0).all(axis=1)
    inverse_depth = np.where(inside, inverse_depth, 0)
    ids = np.where(inside.any(axis=0), inverse_depth.argmax(axis=0), -1)
    depth = np.where(ids >= 0, 1 / np.maximum(inverse_depth.max(axis=0), 1e-9), 0)
    shape = (cameras.height, cameras.width)
    return ids.reshape(shape), depth.reshape(shape), np.abs(weights.min(axis=1)).min(axis=0).reshape(shape)


def test_agrees_with_brute_force():
    mesh, cameras = soup(60), orbit_cameras(30.0, 20.0, width=80, height=60)
    ids, depth, margin = brute_force(mesh, cameras)
    raster = rasterize_mesh(mesh, cameras)
    sure = margin > 1e-6  # a centre within 1e-6 of a border may fall on either side
    assert sure.mean() > 0.99
    assert (ids >= 0).mean() > 0.3
    assert np.array_equal(raster.face_ids[0][sure], ids[sure])
    assert np.abs(raster.depth[0] - depth)[sure].max() < 1e-5  # measured 4e-7


def test_barycentrics_are_perspective_correct():
    """The surface point that they give projects back to the centre of its pixel."""
    mesh, cameras = soup(40), orbit_cameras([0.0, 100.0], [10.0, -40.0], width=64, height=64)
    raster = rasterize_mesh(mesh, cameras)
    assert np.allclose(raster.barycentrics.sum(-1)[raster.face_ids >= 0], 1, atol=1e-6)
    for camera in range(2):
        y, x = np.nonzero(raster.face_ids[camera] >= 0)
        corners = mesh.vertices[mesh.faces[raster.face_ids[camera, y, x]]]
        points = (raster.barycentrics[camera, y, x][..., None] * corners).sum(axis=1)
        back = project_vertices(points, cameras[camera])[0]
        error_px = np.abs(back[:, :2] - np.stack([x + 0.5, y + 0.5], axis=1)).max()
        assert error_px < 5e-4  # measured 5e-5: positions are float32
        assert np.abs(back[:, 2] - raster.depth[camera, y, x]).max() < 1e-5


def test_neighbours_leave_no_pinholes():
    """Nets of faces cover every pixel: diagonals exactly on pixel centres, nearly on them, and anywhere."""
    for jitter in (0.0, 1e-6, 1e-3, 0.4):
        rng = np.random.default_rng(0)
        n = 33
        y, x = np.mgrid[:n, :n] * 2 - 0.5
        uvs = np.stack([x.ravel(), y.ravel()], axis=1) + jitter * rng.uniform(-1, 1, (n * n, 2))
        corner = (np.arange(n - 1)[:, None] * n + np.arange(n - 1)).ravel()
        faces = np.concatenate(
            [np.stack([corner, corner + 1, corner + n], 1), np.stack([corner + 1, corner + n + 1, corner + n], 1)]
        )
        face_ids, barycentrics = rasterize_uvs((uvs / 64).astype(np.float32), faces, 64)
        assert (face_ids[2:-2, 2:-2] >= 0).all()
        assert barycentrics.min() >= 0


def test_a_diagonal_through_pixel_centres_does_not_let_the_back_shine_through():
    """Of a closed box no face seen from behind shows, wherever its diagonals run."""
    box = trimesh.creation.box((1.0, 1.0, 0.02))
    mesh = Mesh(box.vertices.astype(np.float32), box.faces)
    azimuths_deg = [0.0, 180.0, 90.0, 30.0, 210.0]
    cameras = orbit_cameras(azimuths_deg, 0.0, width=32, height=32)
    raster = rasterize_mesh(mesh, cameras)
    normals = mesh.face_normals[raster.face_ids]  # [C, H, W, 3]
    corners = mesh.vertices[mesh.faces[raster.face_ids, 0]]
    towards = cameras.centers.numpy()[:, None, None] - corners
    facing = (normals * towards).sum(axis=-1)
    assert (facing[raster.face_ids >= 0] > 0).all()


def test_uv_rows_go_down():
    uvs = np.array([[0.0, 1.0], [0.25, 1.0], [0.0, 0.75]], np.float32)
    face_ids, _ = rasterize_uvs(uvs, np.array([[0, 1, 2]]), 16)
    rows, columns = np.nonzero(face_ids == 0)
    assert rows.max() <= 3 and columns.max() <= 3 and len(rows) == 10  # upper left corner: 4 + 3 + 2 + 1 centres


def test_depth_and_outline_of_a_ball():
    radius, cameras = 0.7, orbit_cameras([0.0, 77.0], [0.0, 30.0], width=128, height=128)
    raster = rasterize_mesh(icosphere(5, radius), cameras)
    middle = raster.depth[:, 63:65, 63:65]
    assert np.abs(middle - (2.0 - radius)).max() < 2e-3  # half a pixel off the axis and a facet's sag
    # A ball's outline is a circle of half angle asin(r / d) around the axis.
    radius_px = float(cameras.Ks[0, 0, 0]) * math.tan(math.asin(radius / 2.0))
    rendered = render_plain(icosphere(5, radius), cameras, supersample=3)
    area_px = rendered.alpha.sum(dim=(1, 2)).numpy()
    assert np.allclose(area_px, math.pi * radius_px**2, rtol=3e-3)  # measured 1.5e-3


def test_culling_shows_what_lies_behind():
    ball, cameras = icosphere(3), orbit_cameras([0.0], [0.0], width=64, height=64)
    plain, culled = (rasterize_mesh(ball, cameras, cull_backfaces=cull) for cull in (False, True))
    assert np.array_equal(plain.face_ids, culled.face_ids)  # the nearest faces of a closed body look at the camera
    turned = Mesh(ball.vertices, ball.faces[:, ::-1])
    far = rasterize_mesh(turned, cameras, cull_backfaces=True)
    assert np.array_equal(far.face_ids >= 0, plain.face_ids >= 0)
    assert (far.depth[0, 32, 32] > 2.6) and (plain.depth[0, 32, 32] < 1.4)


def test_order_of_faces_does_not_matter():
    mesh, cameras = soup(50), orbit_cameras([40.0], [0.0], width=64, height=64)
    order = np.random.default_rng(2).permutation(50)
    first, second = rasterize_mesh(mesh, cameras), rasterize_mesh(Mesh(mesh.vertices, mesh.faces[order]), cameras)
    assert np.array_equal(first.depth, second.depth)
    renumbered = np.where(second.face_ids >= 0, order[second.face_ids], -1)
    assert np.array_equal(first.face_ids, renumbered)


def test_threads_do_not_change_a_bit(monkeypatch):
    mesh, cameras = icosphere(3), orbit_cameras([0.0, 120.0], [0.0, 10.0], width=50, height=37)
    results = []
    for threads in (1, 2, 7):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        raster = rasterize_mesh(mesh, cameras)
        rendered = render_texture(mesh, mesh.vertices[:, :2], mesh.faces, noise_picture(9, 13), cameras)
        arrays = (raster.face_ids, raster.barycentrics, raster.depth, *(t.numpy() for t in rendered))
        results.append(b"".join(array.tobytes() for array in arrays))
    assert results[0] == results[1] == results[2]


def test_texture_stands_upright():
    """Seen from +z the picture's upper left corner is up and left."""
    mesh, uvs, uv_faces = quad(0.8)
    texture = np.zeros((2, 2, 3), np.uint8)
    texture[0, 0], texture[0, 1], texture[1, 0], texture[1, 1] = (255, 0, 0), (0, 255, 0), (0, 0, 255), (255,) * 3
    rendered = render_mesh(TexturedMesh(mesh, uvs, uv_faces, texture), orbit_cameras([0.0], [0.0], width=64, height=64))
    pictured = [rendered.rgb[0, y, x].tolist() for y, x in ((12, 12), (12, 51), (51, 12), (51, 51))]
    assert np.allclose(pictured, [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]], atol=0.01)


def test_bilinear_lookup_reproduces_a_linear_texture():
    mesh, uvs, uv_faces = quad(0.8)
    size = 32
    ramp = (np.arange(size, dtype=np.float32) + 0.5) / size
    texture = np.stack(np.broadcast_arrays(ramp[None, :], 1 - ramp[:, None], 0.5), axis=2)  # red = u, green = v
    cameras = orbit_cameras([25.0], [15.0], width=64, height=64)
    rendered = render_texture(mesh, uvs, uv_faces, texture, cameras, supersample=1)
    raster = rasterize_mesh(mesh, cameras)
    y, x = np.nonzero(raster.face_ids[0] >= 0)
    uv = (raster.barycentrics[0, y, x][..., None] * uvs[uv_faces[raster.face_ids[0, y, x]]]).sum(axis=1)
    inner = (np.abs(uv - 0.5) < 0.5 - 0.5 / size).all(axis=1)  # beyond the outer texel centres it is clamped
    assert np.abs(rendered.rgb[0, y, x, :2].numpy() - uv)[inner].max() < 1e-5


def test_one_texel_textures_are_textures():
    mesh, uvs, uv_faces = quad()
    picture = np.full((1, 1, 3), 0.25, np.float32)
    rendered = render_texture(mesh, uvs, uv_faces, picture, orbit_cameras([0.0], [0.0], width=8, height=8))
    assert torch.allclose(rendered.rgb[0, 4, 4], torch.tensor(0.25))


def test_coverage_background_and_depth_compose():
    ball, cameras = icosphere(3), orbit_cameras([10.0], [0.0], width=48, height=48)
    color = np.array([0.2, 0.4, 0.6])
    rendered = render_plain(ball, cameras, color, background=(1.0, 0.0, 0.5), supersample=4)
    alpha = rendered.alpha[..., None].numpy()
    assert np.abs(rendered.rgb.numpy() - (alpha * color + (1 - alpha) * (1.0, 0.0, 0.5))).max() < 1e-6
    assert set(np.unique(rendered.alpha.numpy() * 16).tolist()) <= set(range(17))
    assert ((rendered.alpha > 0) & (rendered.alpha < 1)).any()
    assert rendered.depth[rendered.alpha == 0].abs().max() == 0
    assert rendered.rgb.dtype == torch.float32


def test_odd_meshes_do_not_crash():
    cameras = orbit_cameras([0.0], [0.0], width=16, height=16)
    nothing = Mesh(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.int32))
    assert (rasterize_mesh(nothing, cameras).face_ids == -1).all()
    point = Mesh(np.zeros((3, 3), np.float32), np.array([[0, 1, 2], [0, 0, 0]]))
    assert (rasterize_mesh(point, cameras).face_ids == -1).all()
    corners = np.array(
        [[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 2], [0, 0, 9], [np.nan, 0, 0], [1e30, 0, 0]], np.float32
    )
    odd = Mesh(corners.astype(np.float32), np.array([[0, 1, 2], [0, 1, 3], [0, 1, 4], [0, 1, 5], [0, 6, 2]]))
    raster = rasterize_mesh(odd, cameras)  # sound, at the camera, behind it, not a number, far out of the picture
    assert set(np.unique(raster.face_ids).tolist()) <= {-1, 0, 4} and (raster.face_ids == 0).sum() > 5
    with pytest.raises(ValueError, match="supersample"):
        render_plain(point, cameras, supersample=0)


def as_arrays(found) -> list[np.ndarray]:
    """The fields of a MeshRaster or MeshRendered, wherever they lie."""
    fields = vars(found).values() if dataclasses.is_dataclass(found) else found
    return [torch.as_tensor(value).cpu().numpy() for value in fields]


def assert_same_bits(first, second) -> None:
    for here, there in zip(as_arrays(first), as_arrays(second), strict=True):
        assert here.dtype == there.dtype and here.tobytes() == there.tobytes()


def drawn_everything(device: torch.device | None) -> list:
    """What every public function makes of a soup, a ball and a textured square."""
    cameras, results = orbit_cameras([0.0, 30.0, 200.0], [10.0, -20.0, 60.0], width=120, height=84), []
    for mesh in (soup(300), icosphere(4)):
        results += [rasterize_mesh(mesh, cameras, cull, device) for cull in (False, True)]
        results += [
            render_texture(
                mesh,
                mesh.vertices[:, :2],
                mesh.faces,
                noise_picture(9, 13),
                cameras,
                (0.3, 0.4, 0.5),
                supersample,
                device=device,
            )  # fmt: skip
            for supersample in (1, 3)
        ]
    mesh, uvs, uv_faces = quad(0.8)
    picture = (255 * noise_picture(9, 13)).astype(np.uint8)
    results.append(render_mesh(TexturedMesh(mesh, uvs, uv_faces, picture), cameras, device=device))
    results.append(rasterize_uvs(uvs, uv_faces, 77, device))
    return results


@pytest.mark.gpu
def test_the_gpu_draws_the_same_bits(cuda, monkeypatch):
    """Every picture, face by face and bit by bit: both sides round each product and sum alike. Whole batches, or one
    picture after the other; once, or again."""
    here, there, again = (drawn_everything(device) for device in (None, cuda, cuda))
    monkeypatch.setattr(mesh_raster_cuda, "_BUFFER_BYTES", 1)
    one_by_one = drawn_everything(cuda)
    for expected, *found in zip(here, there, again, one_by_one, strict=True):
        for result in found:
            assert_same_bits(expected, result)
    assert there[0].depth.device.type == "cuda" and (there[0].depth > 0).float().mean() > 0.1


@pytest.mark.gpu
def test_a_gpu_that_is_not_the_current_one(other_gpu):
    for expected, found in zip(drawn_everything(None), drawn_everything(other_gpu), strict=True):
        assert_same_bits(expected, found)


@pytest.mark.gpu
def test_odd_meshes_on_the_gpu(cuda):
    cameras = orbit_cameras([0.0], [0.0], width=16, height=16)
    corners = np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 2], [np.nan, 0, 0], [1e30, 0, 0]], np.float32)
    for faces in ([[0, 1, 2], [0, 1, 3], [0, 1, 4], [0, 5, 2]], [[0, 0, 0]], np.zeros((0, 3))):
        mesh = Mesh(corners, np.array(faces))
        assert_same_bits(rasterize_mesh(mesh, cameras), rasterize_mesh(mesh, cameras, device=cuda))
