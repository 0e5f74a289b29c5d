"""Texture baking: what the Gaussians look like, and nothing of the background or of what lies behind."""

import dataclasses
import math

import numpy as np
import pytest
import torch
import trimesh
from plain_meshes import render_plain
from scipy.ndimage import distance_transform_edt

from cameras import orbit_cameras
from config import TextureConfig
from gaussians import Gaussians
from gs_renderer import render
from mesh_extract import bake
from mesh_extract.backproject import SurfaceViews, backproject
from mesh_extract.bake import bake_texture, paint
from mesh_extract.cleanup import with_normals
from mesh_extract.fill import nearest_marked, nearest_texels, spread_over_surface
from mesh_extract.mesh import Mesh
from mesh_extract.mesh_raster import rasterize_mesh, rasterize_uvs, render_mesh
from mesh_extract.rig import cameras_around, pixel_at
from mesh_extract.uv import unwrap

SMALL = TextureConfig(size=128, render_size=96)


def ball(radius: float = 0.6, subdivisions: int = 3, center=(0.0, 0.0, 0.0)) -> Mesh:
    sphere = trimesh.creation.icosphere(subdivisions=subdivisions, radius=radius)
    return with_normals(Mesh(sphere.vertices + np.asarray(center), sphere.faces))


def shell_of_gaussians(color_of, radius: float = 0.6, count: int = 8000, center=(0.0, 0.0, 0.0)) -> Gaussians:
    generator = torch.Generator().manual_seed(0)
    directions = torch.nn.functional.normalize(torch.randn(count, 3, generator=generator), dim=1)
    means = directions * radius + torch.tensor(center)
    rgb = torch.as_tensor(color_of(directions.numpy()), dtype=torch.float32).expand(count, 3)
    return Gaussians.create(means, torch.full((count, 3), 0.02), torch.full((count,), 0.95), rgb)


def both(first: Mesh, second: Mesh) -> Mesh:
    """Two meshes as one."""
    vertices = np.concatenate([first.vertices, second.vertices])
    return with_normals(Mesh(vertices, np.concatenate([first.faces, second.faces + len(first.vertices)])))


def waves(points: np.ndarray) -> np.ndarray:
    """Smooth colours in [0.1, 0.9] with about two waves across the unit ball."""
    return 0.5 + 0.4 * np.sin(6.0 * points + np.array([0.0, 1.0, 2.0]))


def exact_views(mesh: Mesh, cameras, color_of) -> SurfaceViews:
    """The mesh itself, painted by a formula at every pixel's surface point."""
    raster = rasterize_mesh(mesh, cameras)
    corners = mesh.vertices[mesh.faces[np.maximum(raster.face_ids, 0)]]
    points = (raster.barycentrics[..., None] * corners).sum(axis=-2)
    there = raster.face_ids >= 0
    colors = np.where(there[..., None], color_of(points), 0.0).astype(np.float32)
    return surface_views(cameras, colors, there, raster.depth)


def surface_views(cameras, colors: np.ndarray, confidence: np.ndarray, depth: np.ndarray) -> SurfaceViews:
    return SurfaceViews(cameras, *(torch.from_numpy(v.astype(np.float32)) for v in (colors, confidence, depth)))


def psnr(a, b) -> float:
    return float(-10 * np.log10(np.mean((np.asarray(a, np.float64) - np.asarray(b, np.float64)) ** 2)))


def texels(textured) -> np.ndarray:
    """The texels that lie inside charts [T, 3], in [0, 1]."""
    face_ids, _ = rasterize_uvs(textured.uvs, textured.uv_faces, textured.texture.shape[0])
    return textured.texture[face_ids >= 0] / 255.0


def test_exact_pictures_give_the_exact_texture():
    mesh = ball()
    views = exact_views(mesh, cameras_around(mesh.vertices, 96), waves)
    uvs, uv_faces = unwrap(mesh, 128)
    novel = orbit_cameras([20.0, 140.0, 260.0], [10.0, -35.0, 65.0], width=96, height=96)
    truth = exact_views(mesh, novel, waves)
    inside = (truth.depth > 0).numpy()
    quality = {}
    for passes in (0, 3):
        textured = paint(mesh, uvs, uv_faces, views, dataclasses.replace(SMALL, passes=passes))
        drawn = render_mesh(textured, novel, supersample=1).rgb.numpy()
        quality[passes] = psnr(drawn[inside], truth.colors.numpy()[inside])
    assert quality[3] > 44  # measured 48.4 (0 passes: 44.3); 8-bit colours alone give 58
    assert quality[3] > quality[0] + 1


def test_the_mesh_looks_like_the_gaussians():
    # Two standard deviations outside the centres: what is seen of opaque Gaussians. At the centres it is 22 dB.
    mesh, gaussians = ball(0.64), shell_of_gaussians(waves)
    textured = bake_texture(mesh, gaussians, SMALL)
    novel = orbit_cameras([20.0, 140.0, 260.0], [10.0, -35.0, 65.0], width=96, height=96)
    splats = render(gaussians, novel)
    drawn = render_mesh(textured, novel)
    solid = ((splats.alpha > 0.98) & (drawn.alpha == 1)).numpy()
    assert solid.mean() > 0.15
    assert psnr(drawn.rgb.numpy()[solid], splats.rgb.numpy()[solid]) > 31  # measured 34.7


def test_splats_that_are_solid_in_their_fits_pixels_only_are_baked_as_they_look_there():
    gaussians = shell_of_gaussians(waves, count=3000)
    gaussians.log_scales.fill_(math.log(0.005))  # dots with gaps between them, in finer pixels
    fitted = orbit_cameras([20.0, 140.0, 260.0], [10.0, -10.0, 5.0], width=32, height=32)
    pixel = pixel_at(gaussians.means, fitted)
    splats, mesh = render(gaussians, fitted, background=(0.0, 0.0, 0.0)), ball(0.6 + pixel)
    quality = []
    for width in (0.0, pixel):
        drawn = render_mesh(bake_texture(mesh, gaussians, SMALL, pixel=width), fitted)
        solid = (splats.alpha > 0.8) & (drawn.alpha == 1)
        quality.append(psnr(drawn.rgb[solid], (splats.rgb / splats.alpha[..., None])[solid]))
    assert quality[1] > quality[0] + 3  # measured 23.1 and 16.9


def test_no_white_rims():
    """A dark object over white: half-covered pixels must not brighten a single texel."""
    gaussians = shell_of_gaussians(lambda d: np.full((1, 3), 0.1))
    for radius in (0.6, 0.64):  # on the splats, and so far out that outlines see past them
        textured = bake_texture(ball(radius), gaussians, SMALL)
        assert np.abs(textured.texture / 255.0 - 0.1).max() < 0.02  # gutters too; measured 0.002


def test_gutters_continue_their_charts():
    """Beside the charts each texel has the colour of the nearest one inside: at least 4 texels belong to each chart."""
    textured = bake_texture(ball(), shell_of_gaussians(waves), SMALL)
    valid = rasterize_uvs(textured.uvs, textured.uv_faces, 128)[0] >= 0
    distance = distance_transform_edt(~valid)
    gutter = (distance > 0) & (distance <= bake.GUTTER_PX)
    assert gutter.sum() > 500
    nearest = nearest_texels(torch.from_numpy(valid)).numpy()
    assert np.array_equal(textured.texture[gutter], textured.texture[valid][nearest][gutter])


@pytest.mark.parametrize("share", [0.004, 0.05, 0.9])
def test_nearest_texels_is_the_nearest(share):
    valid = np.random.default_rng(0).random((23, 31)) < share
    assert valid.any()
    numbers = nearest_texels(torch.from_numpy(valid)).numpy()
    rows, columns = np.nonzero(valid)
    y, x = np.mgrid[:23, :31]
    distances = (y[..., None] - rows) ** 2 + (x[..., None] - columns) ** 2
    assert np.array_equal(numbers, distances.argmin(axis=2))  # of several the first
    assert (nearest_marked(torch.zeros(3, 4, dtype=torch.bool)) == -1).all()


def test_what_is_hidden_gets_nothing_from_what_hides_it():
    """A small red ball in front of a large green one: no red on the green one's shadowed side."""
    large, small = ball(0.5), ball(0.15, center=(0.0, 0.0, 0.75))
    mesh = both(large, small)

    def colors_of(points):
        red = np.linalg.norm(points - [0.0, 0.0, 0.75], axis=-1) < 0.2
        return np.stack([red, ~red, np.zeros_like(red)], axis=-1).astype(np.float32)

    colors = colors_of(mesh.vertices)
    views = exact_views(mesh, cameras_around(mesh.vertices, 96), colors_of)
    points = torch.from_numpy(mesh.vertices), torch.from_numpy(mesh.vertex_normals)
    seen, weights = (found.numpy() for found in backproject(*points, views, 3.0))
    expected = np.where(weights[:, None] > 0, colors, 0.0)
    assert (weights > 0).mean() > 0.95
    assert np.abs(seen - expected).max() < 1e-6


def test_hidden_parts_take_the_nearest_gaussians():
    """A ball inside a ball is seen from nowhere: it takes its own Gaussians' colour, not grey."""
    outer, inner = ball(0.64), ball(0.25)
    mesh = both(outer, inner)
    red, blue = np.array([[0.9, 0.1, 0.1]]), np.array([[0.1, 0.1, 0.9]])
    outside, inside = shell_of_gaussians(lambda d: red), shell_of_gaussians(lambda d: blue, 0.25, 300)
    gaussians = Gaussians(**{k: torch.cat([v, inside.tensors()[k]]) for k, v in outside.tensors().items()})
    colors = bake_texture(mesh, gaussians, SMALL).vertex_colors() / 255.0
    assert np.abs(colors[: len(outer.vertices)] - red).max() < 0.15  # measured 0.07: gaps in the shell show blue
    assert np.abs(colors[len(outer.vertices) :] - blue).max() < 0.06


def test_unseen_vertices_are_interpolated_between_seen_ones():
    """On a strip of squares whose ends alone are known the colours rise evenly."""
    n = 11
    x = np.arange(n, dtype=np.float64)
    vertices = np.concatenate([np.stack([x, 0 * x, 0 * x], 1), np.stack([x, 0 * x + 1, 0 * x], 1)])
    faces = []
    for k in range(n - 1):
        faces += [[k, k + 1, n + k + 1], [k, n + k + 1, n + k]]
    mesh = Mesh(vertices, np.array(faces))
    weights = np.zeros(2 * n)
    weights[[0, n - 1, n, 2 * n - 1]] = 1
    colors = np.zeros((2 * n, 3))
    colors[[n - 1, 2 * n - 1]] = 1.0
    filled = spread_over_surface(mesh, colors, weights, np.zeros((0, 3)), np.zeros((0, 3)))
    assert (np.diff(filled[:n], axis=0) > 0).all() and (filled >= 0).all() and (filled <= 1).all()
    middle = filled[[5, n + 5]].mean()
    assert abs(middle - 0.5) < 1e-9  # the strip turned by half a turn is itself
    alone = spread_over_surface(mesh, colors, np.zeros(2 * n), np.array([[0.0, 0, 0]]), np.array([[0.1, 0.2, 0.3]]))
    assert np.allclose(alone, [0.1, 0.2, 0.3])
    assert np.allclose(spread_over_surface(mesh, colors, 0 * weights, np.zeros((0, 3)), np.zeros((0, 3))), 0.5)


def test_the_source_picture_keeps_its_detail_in_front_only():
    mesh, gaussians = ball(), shell_of_gaussians(lambda d: np.full((1, 3), 0.5))
    camera = orbit_cameras([0.0], [0.0], width=128, height=128)
    stripes = lambda p: np.where(np.floor(p[..., :1] * 20) % 2 == 0, 0.9, 0.1) * np.ones(3)  # noqa: E731
    exact = exact_views(mesh, camera, stripes)
    rgba = torch.cat([exact.colors[0], exact.confidence[0][..., None]], dim=-1)
    plain = bake_texture(mesh, gaussians, SMALL)
    detailed = bake_texture(mesh, gaussians, SMALL, (rgba, camera))
    front, back = (orbit_cameras([a], [0.0], width=96, height=96) for a in (0.0, 180.0))
    rows = slice(40, 56)
    contrast = {
        (name, side): float(render_mesh(textured, camera_there).rgb[0, rows, rows].std())
        for name, textured in (("plain", plain), ("detailed", detailed))
        for side, camera_there in (("front", front), ("back", back))
    }
    assert contrast["detailed", "front"] > 0.15 and contrast["plain", "front"] < 0.02  # measured 0.3 and 0.002
    assert contrast["detailed", "back"] < 0.02
    ignored = bake_texture(mesh, gaussians, dataclasses.replace(SMALL, reference=False), (rgba, camera))
    assert np.array_equal(ignored.texture, plain.texture)
    with pytest.raises(ValueError, match=r"reference must be \[128, 128, 4\]"):
        bake_texture(mesh, gaussians, SMALL, (rgba[:64], camera))


def test_the_source_picture_fades_out_without_a_seam():
    """A picture brighter than the splats: half of that in the middle, less around, nothing on oblique texels."""
    mesh, gaussians = ball(subdivisions=4), shell_of_gaussians(lambda d: np.full((1, 3), 0.5))
    camera = orbit_cameras([0.0], [0.0], width=256, height=256)
    bright = exact_views(mesh, camera, lambda p: np.full((*p.shape[:-1], 3), 0.7))
    rgba = torch.cat([bright.colors[0], bright.confidence[0][..., None]], dim=-1)
    plain, painted = (bake_texture(mesh, gaussians, SMALL, source) for source in (None, (rgba, camera)))
    face_ids, barycentrics = rasterize_uvs(plain.uvs, plain.uv_faces, 128)
    there = face_ids >= 0
    points = (barycentrics[there][..., None] * mesh.vertices[mesh.faces[face_ids[there]]]).sum(axis=1)
    toward = camera.centers[0].numpy() - points
    cosines = (points * toward).sum(axis=1) / np.linalg.norm(points, axis=1) / np.linalg.norm(toward, axis=1)
    change = (painted.texture[there].astype(float) - plain.texture[there]).mean(axis=1) / 255.0
    assert change[cosines > 0.95].mean() == pytest.approx(0.1, abs=0.02)
    assert np.abs(change[cosines < 0.25]).max() < 0.005
    means = [change[(cosines > c) & (cosines <= c + 0.1)].mean() for c in np.arange(0.2, 1.0, 0.1)]
    # From one tenth of the cosine to the next at most 0.021 was measured; a seam would jump by 0.1.
    assert (np.diff(means) > -0.005).all() and np.diff(means).max() < 0.03


def test_no_rim_from_the_source_pictures_background():
    """A dark source, white outside its outline, its alpha a little too wide: the white must not reach the texture."""
    mesh, gaussians = ball(), shell_of_gaussians(lambda d: np.full((1, 3), 0.1))
    camera = orbit_cameras([0.0], [0.0], width=256, height=256)
    alpha, solid = (render_plain(ball(radius), camera).alpha[0] for radius in (0.605, 0.595))
    rgba = torch.cat([(0.1 * solid + 1.0 * (1 - solid))[..., None].expand(-1, -1, 3), alpha[..., None]], dim=-1)
    assert (bake_texture(mesh, gaussians, SMALL, (rgba, camera)).texture / 255.0).max() < 0.13


def test_numbers_that_are_not_finite_stay_out(caplog):
    mesh, gaussians = ball(), shell_of_gaussians(waves)
    gaussians.sh0[5] = float("nan")
    gaussians.means[7] = float("inf")
    textured = bake_texture(mesh, gaussians, SMALL)
    assert "2 Gaussians" in caplog.text
    assert texels(textured).std() > 0.1 and (textured.texture.reshape(-1, 3).max(axis=1) > 0).all()


def test_tiny_and_empty_inputs():
    none = shell_of_gaussians(waves, count=0)
    textured = bake_texture(ball(subdivisions=1), none, dataclasses.replace(SMALL, size=16, render_size=16))
    assert np.abs(textured.texture.astype(int) - 128).max() <= 1  # nothing to see: grey
    point = with_normals(Mesh(np.zeros((3, 3)), np.array([[0, 1, 2]])))
    assert bake_texture(point, none, SMALL).texture.shape == (128, 128, 3)


def test_equal_bytes_whatever_the_threads(monkeypatch):
    mesh, gaussians = ball(), shell_of_gaussians(waves)
    results = []
    for threads in (1, 3):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        textured = bake_texture(mesh, gaussians, SMALL)
        results.append(textured.texture.tobytes() + textured.uvs.tobytes())
    assert results[0] == results[1]


def test_rig_frames_objects_of_any_place_and_size():
    mesh = ball(5.0, center=(20.0, -3.0, 7.0))
    raster = rasterize_mesh(mesh, cameras_around(mesh.vertices, 64))
    covered = raster.face_ids >= 0
    border = np.concatenate([covered[:, 0], covered[:, -1], covered[:, :, 0], covered[:, :, -1]], axis=1)
    assert not border.any()
    assert (covered.mean(axis=(1, 2)) > 0.65).all()  # a disc that touched the frame would fill 0.785


def test_normals_point_outward():
    mesh = with_normals(Mesh(ball().vertices, ball().faces))
    directions = mesh.vertices / np.linalg.norm(mesh.vertices, axis=1, keepdims=True)
    assert (mesh.vertex_normals * directions).sum(axis=1).min() > 0.999
    assert with_normals(mesh).vertices.dtype == np.float32


def on(device: torch.device, views: SurfaceViews) -> SurfaceViews:
    values = (v.to(device) for v in (views.colors, views.confidence, views.depth))
    return SurfaceViews(views.cameras, *values)


def painted(devices: list[torch.device]) -> list[np.ndarray]:
    """The same pictures of a mesh, and a source picture, painted on one device after the other."""
    mesh = ball()
    uvs, uv_faces = unwrap(mesh, 128)
    views = exact_views(mesh, cameras_around(mesh.vertices, 96), waves)
    camera = orbit_cameras([0.0], [0.0], width=128, height=128)
    exact = exact_views(mesh, camera, lambda p: np.where(np.floor(p[..., :1] * 20) % 2 == 0, 0.9, 0.1) * np.ones(3))
    rgba = torch.cat([exact.colors[0], exact.confidence[0][..., None]], dim=-1)
    return [
        paint(mesh, uvs, uv_faces, on(d, views), SMALL, bake.view_picture(mesh, rgba, camera, d)).texture.astype(int)
        for d in devices
    ]


@pytest.mark.gpu
def test_a_gpu_paints_the_same_texture(cuda):
    here, there, again = painted([torch.device("cpu"), cuda, cuda])
    assert np.array_equal(there, again)
    # Equal in an emulation of the kernels. Single precision decides on the border between seen and unseen: such texels
    # may differ, but they are few.
    assert np.abs(here - there).mean() < 0.02 and (np.abs(here - there).max(axis=2) > 1).mean() < 1e-3


@pytest.mark.gpu
def test_a_gpu_that_is_not_the_current_one(cuda, other_gpu):
    assert np.array_equal(*painted([cuda, other_gpu]))


@pytest.mark.gpu
@pytest.mark.parametrize("share", [0.0, 0.004, 0.05, 0.9])
def test_the_nearest_texels_on_a_gpu(cuda, share):
    valid = torch.from_numpy(np.random.default_rng(0).random((123, 231)) < share)
    assert torch.equal(nearest_marked(valid.to(cuda)).cpu(), nearest_marked(valid))


@pytest.mark.gpu
def test_gaussians_on_a_gpu_give_the_same_texture(cuda):
    mesh, gaussians = ball(0.64), shell_of_gaussians(waves, count=2000)
    here = bake_texture(mesh, gaussians, SMALL).texture.astype(int)
    there = bake_texture(mesh, gaussians.to(cuda), SMALL).texture.astype(int)
    assert np.abs(here - there).mean() < 1.0  # of 255: the rasterisers agree to rounding but for the order of ties
