"""Previews: the sheet shows what it should where it should; turntables play, loop and repeat to the byte."""

import sys
import types

import numpy as np
import pytest
import torch
from PIL import Image

import previews
from cameras import orbit_cameras
from errors import UserError
from gaussians import Gaussians
from gs_renderer import render
from mesh_extract.mesh import Mesh
from mesh_extract.textured import TexturedMesh
from previews import draw_views, turntable_frames, views_sheet, write_turntable

TILE = 32


def two_colored_quads() -> TexturedMesh:
    """Red seen from +z, blue seen from -z, a square of side 1 at the origin."""
    square = np.array([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]], np.float32)
    front = np.concatenate([square, np.full((4, 1), 0.01, np.float32)], axis=1)
    back = front * np.array([1, 1, -1], np.float32)
    faces = np.array([[0, 1, 2], [0, 2, 3], [4, 6, 5], [4, 7, 6]], np.int32)
    uvs = np.array([[0.25, 0.5], [0.75, 0.5]], np.float32)
    uv_faces = np.array([[0, 0, 0], [0, 0, 0], [1, 1, 1], [1, 1, 1]], np.int32)
    texture = np.zeros((2, 4, 3), np.uint8)
    texture[:, :2, 0] = texture[:, 2:, 2] = 255
    return TexturedMesh(Mesh(np.concatenate([front, back]), faces), uvs, uv_faces, texture)


def green_blob() -> Gaussians:
    return Gaussians.create(
        torch.zeros(1, 3), torch.full((1, 3), 0.2), torch.tensor([0.95]), torch.tensor([[0.0, 1.0, 0.0]])
    )


def source() -> torch.Tensor:
    rgba = torch.zeros(40, 20, 4)
    rgba[10:30, 5:15] = torch.tensor([1.0, 0.0, 1.0, 1.0])
    return rgba


def middle(sheet: Image.Image, row: int, column: int) -> tuple[int, ...]:
    return sheet.getpixel((column * TILE + TILE // 2, row * TILE + TILE // 2))


def test_sheet_has_input_splats_and_mesh_in_their_places():
    sheet = views_sheet(source(), green_blob(), two_colored_quads(), tile_px=TILE)
    assert sheet.size == (9 * TILE, 2 * TILE) and sheet.mode == "RGB"
    assert middle(sheet, 0, 0) == (255, 0, 255) and middle(sheet, 1, 0) == (255, 255, 255)
    for column in range(1, 9):
        red, green, blue = middle(sheet, 0, column)
        assert green > 240 and red < 30 and blue < 30
    assert middle(sheet, 1, 1) == (255, 0, 0)  # from +z
    assert middle(sheet, 1, 5) == (0, 0, 255)  # from -z
    assert sheet.getpixel((0, 0)) == (255, 255, 255)


def test_sheet_leaves_out_what_is_not_there():
    assert views_sheet(None, green_blob(), None, tile_px=TILE).size == (8 * TILE, TILE)
    assert views_sheet(source(), None, two_colored_quads(), tile_px=TILE).size == (9 * TILE, TILE)
    assert views_sheet(source(), None, None, tile_px=TILE).size == (TILE, TILE)
    with pytest.raises(ValueError, match="needs"):
        views_sheet(None, None, None)


def test_views_are_those_of_the_renderer():
    cameras = orbit_cameras([15.0 * k for k in range(11)], 20.0, width=24, height=24)  # more than one batch
    pictures = draw_views(green_blob(), cameras)
    exact = render(green_blob(), cameras).rgb.clamp(0, 1).numpy()
    assert len(pictures) == 11
    assert np.abs(np.stack(pictures) / 255.0 - exact).max() <= 0.5 / 255 + 1e-6


def test_turntable_goes_once_round():
    frames = turntable_frames(two_colored_quads(), elevation_deg=0.0, count=4, size_px=TILE)
    assert len(frames) == 4 and frames[0].shape == (TILE, TILE, 3) and frames[0].dtype == np.uint8
    assert tuple(frames[0][TILE // 2, TILE // 2]) == (255, 0, 0)
    assert tuple(frames[2][TILE // 2, TILE // 2]) == (0, 0, 255)


@pytest.mark.parametrize("place, size", [((30.0, -2.0, 5.0), 8.0), ((0.0, 0.0, 0.0), 50.0), ((0.0, 0.0, 0.0), 0.01)])
def test_objects_of_any_place_and_size_are_framed(place, size):
    quads = two_colored_quads()
    vertices = quads.mesh.vertices * size + np.array(place)
    elsewhere = TexturedMesh(Mesh(vertices, quads.mesh.faces), quads.uvs, quads.uv_faces, quads.texture)
    for picture in turntable_frames(elsewhere, elevation_deg=90.0, count=4, size_px=TILE):
        assert (picture[0] == 255).all() and (picture[-1] == 255).all()
    front = turntable_frames(elsewhere, elevation_deg=0.0, count=1, size_px=TILE)[0]
    assert tuple(front[TILE // 2, TILE // 2]) == (255, 0, 0)
    assert 0.2 < (front[..., 1] == 0).mean() < 0.6


def test_the_usual_frame_stays():
    cameras = previews.framing_cameras(two_colored_quads(), [0.0, 90.0], 20.0, TILE)
    usual = orbit_cameras([0.0, 90.0], 20.0, width=TILE, height=TILE)
    assert torch.equal(cameras.viewmats, usual.viewmats) and torch.equal(cameras.Ks, usual.Ks)


def test_gif_plays_in_a_loop_without_flicker(tmp_path):
    frames = turntable_frames(two_colored_quads(), count=8, size_px=TILE)
    still = np.random.default_rng(0).integers(0, 256, (8, 8, 3), dtype=np.uint8)
    for frame in frames:
        frame[:8, :8] = still  # many colours that stay the same: they must stay the same in the file
    path = tmp_path / "new folder" / "turn.gif"
    write_turntable(path, frames, 20)
    with Image.open(path) as gif:
        assert gif.n_frames == 8 and gif.info["loop"] == 0 and gif.info["duration"] == 50
        back = []
        for k in range(8):
            gif.seek(k)
            back.append(np.asarray(gif.convert("RGB")).astype(int))
    for frame, original in zip(back, frames, strict=True):
        assert np.array_equal(frame[:8, :8], back[0][:8, :8])
        assert tuple(frame[-1, -1]) == (255, 255, 255)
        assert np.abs(frame[8:] - original[8:]).mean() < 4
    first = path.read_bytes()
    write_turntable(path, frames, 20)
    assert path.read_bytes() == first
    assert [p.name for p in path.parent.iterdir()] == ["turn.gif"]


def test_a_still_turntable_keeps_all_its_frames(tmp_path):
    frames = [np.full((8, 8, 3), 200, np.uint8)] * 5
    write_turntable(tmp_path / "still.gif", frames)
    with Image.open(tmp_path / "still.gif") as gif:
        total_ms = 0
        for k in range(gif.n_frames):
            gif.seek(k)
            total_ms += gif.info["duration"]
    assert total_ms == 250  # equal frames may be merged, not lost


def test_mp4_without_its_package_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(UserError, match="pip install imageio-ffmpeg"):
        write_turntable(tmp_path / "turn.mp4", [np.zeros((8, 8, 3), np.uint8)])
    assert not list(tmp_path.iterdir())


def test_mp4_frames_go_to_ffmpeg_with_even_sides(tmp_path, monkeypatch):
    written = []

    def write_frames(path, size, **options):
        assert size == (10, 8)
        assert (yield) is None or True
        while True:
            try:
                written.append((yield).shape)
            except GeneratorExit:
                open(path, "wb").write(b"film")
                return

    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", types.SimpleNamespace(write_frames=write_frames))
    write_turntable(tmp_path / "turn.mp4", [np.zeros((7, 9, 3), np.uint8)] * 3)
    assert (tmp_path / "turn.mp4").read_bytes() == b"film"


def test_mp4_for_real(tmp_path):
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg", reason="imageio-ffmpeg is optional: only .mp4 needs it")
    frames = turntable_frames(two_colored_quads(), count=6, size_px=TILE + 1)
    write_turntable(tmp_path / "turn.mp4", frames)
    count, seconds = imageio_ffmpeg.count_frames_and_secs(str(tmp_path / "turn.mp4"))
    assert count == 6 and abs(seconds - 6 / previews.FRAMES_PER_S) < 0.05


def test_other_suffixes_are_refused(tmp_path):
    with pytest.raises(UserError, match=r"\.gif or \.mp4"):
        write_turntable(tmp_path / "turn.avi", [np.zeros((8, 8, 3), np.uint8)])
    with pytest.raises(ValueError, match="empty"):
        write_turntable(tmp_path / "turn.gif", [])


@pytest.mark.gpu
def test_a_gpu_draws_the_same_mesh(cuda):
    """Frames and the mesh's row of the sheet, byte for byte."""
    here, there = (turntable_frames(two_colored_quads(), count=9, size_px=TILE, device=d) for d in (None, cuda))
    assert np.array_equal(here, there)
    sheets = [views_sheet(source(), green_blob().to(d), two_colored_quads(), tile_px=TILE) for d in ("cpu", cuda)]
    mesh_rows = [np.asarray(sheet)[TILE:] for sheet in sheets]
    assert np.array_equal(*mesh_rows) and mesh_rows[0].min() == 0
