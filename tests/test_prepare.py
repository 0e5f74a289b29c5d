"""Framing and background removal, on pictures drawn here whose true coverage is known."""

import io
import logging
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from PIL import Image

from config import PrepareConfig
from cutout import cut_out
from errors import UserError
from prepare import PreparedImage, prepare_image

AUTO = PrepareConfig()


def save(tmp_path, samples, name="a.png"):
    Image.fromarray(samples).save(tmp_path / name)
    return tmp_path / name


def extent(alpha):
    """(left, top, right, bottom) where coverage passes one half, to a fraction of a pixel, for a filled rectangle."""
    rows, columns = alpha.max(1).values / alpha.max(), alpha.max(0).values / alpha.max()
    right, bottom = columns.numpy().nonzero()[0], rows.numpy().nonzero()[0]
    width, height = columns.sum().item(), rows.sum().item()
    centre_x = (torch.arange(len(columns)) + 0.5).mul(columns).sum().item() / width
    centre_y = (torch.arange(len(rows)) + 0.5).mul(rows).sum().item() / height
    assert len(right) and len(bottom)
    return centre_x - width / 2, centre_y - height / 2, centre_x + width / 2, centre_y + height / 2


# ---------------------------------------------------------------------------------------------------- framing


@pytest.mark.parametrize("size", [64, 128, 255])
@pytest.mark.parametrize("border", [0.0, 0.2, 0.5, 0.9])
@pytest.mark.parametrize("box", [(20, 20, 40, 40), (3, 30, 60, 37), (0, 0, 10, 64)])
def test_the_longer_side_spans_the_frame_but_its_border(tmp_path, box, border, size):
    left, top, right, bottom = box
    samples = np.zeros((64, 64, 4), np.uint8)
    samples[top:bottom, left:right] = (200, 100, 50, 255)
    prepared = prepare_image(save(tmp_path, samples), PrepareConfig(border=border), size)
    assert prepared.rgb.shape == (size, size, 3) and prepared.alpha.shape == (size, size)
    assert prepared.rgb.dtype == prepared.alpha.dtype == torch.float32
    assert (
        0 <= prepared.rgb.min() and prepared.rgb.max() <= 1 and 0 <= prepared.alpha.min() <= prepared.alpha.max() <= 1
    )
    longer = (1 - border) * size
    scale = longer / max(right - left, bottom - top)
    half_x, half_y = scale * (right - left) / 2, scale * (bottom - top) / 2
    expected = (size / 2 - half_x, size / 2 - half_y, size / 2 + half_x, size / 2 + half_y)
    # Lanczos overshoots outside the object are kept, those above 1 are not: up to 0.6 pixels of the larger of a
    # source and a target pixel were measured.
    np.testing.assert_allclose(extent(prepared.alpha), expected, atol=0.7 * max(1.0, scale))


def test_all_transparent(tmp_path):
    with pytest.raises(UserError, match=r"a\.png: expected an object, found a fully transparent picture"):
        prepare_image(save(tmp_path, np.zeros((64, 64, 4), np.uint8)), AUTO)


def test_a_stray_pixel_moves_nothing(tmp_path):
    samples = np.zeros((64, 64, 4), np.uint8)
    samples[20:40, 20:40] = 255
    clean = prepare_image(save(tmp_path, samples), AUTO)
    samples[0, 0] = (0, 0, 0, 255)
    speckled = prepare_image(save(tmp_path, samples), AUTO)
    assert torch.equal(clean.rgb, speckled.rgb) and torch.equal(clean.alpha, speckled.alpha)


def test_haze_moves_nothing(tmp_path):
    """A matting tool's faint rest over the whole background: neither framed nor kept."""
    samples = np.zeros((64, 64, 4), np.uint8)
    samples[20:40, 20:40] = 255
    clean = prepare_image(save(tmp_path, samples), AUTO)
    samples[..., 3] = np.maximum(samples[..., 3], 5)
    samples[2:6, 2:6, 3] = 90  # a denser cloud that touches nothing
    hazy = prepare_image(save(tmp_path, samples), AUTO)
    assert torch.equal(clean.alpha, hazy.alpha)


def test_detached_parts_stay(tmp_path):
    samples = np.zeros((64, 64, 4), np.uint8)
    samples[20:60, 10:50] = 255
    samples[6:12, 27:33] = 255  # 36 pixels to 1600: an apple above a head
    prepared = prepare_image(save(tmp_path, samples), AUTO, 128)
    _, top, _, bottom = extent(prepared.alpha)
    assert bottom - top == pytest.approx((46 + 8) * 102.4 / 54 - 8 * 102.4 / 54, abs=3)  # rows 6-11 and 20-59
    assert prepared.alpha[13:20].max() > 0.9


@pytest.mark.parametrize("shape", ["row", "pixel", "translucent"])
def test_objects_of_hardly_anything(tmp_path, shape):
    samples = np.zeros((64, 64, 4), np.uint8)
    if shape == "row":
        samples[10, 5:60] = (200, 0, 0, 255)
    elif shape == "pixel":
        samples[10, 10] = (200, 0, 0, 255)
    else:
        samples[20:40, 20:40] = (200, 0, 0, 60)
    prepared = prepare_image(save(tmp_path, samples), AUTO, 128)
    solid = prepared.alpha > prepared.alpha.max() / 2
    columns = solid.any(0).nonzero().ravel()
    # 80 % of 128 = 102.4; the filter spreads a lone pixel or row by up to a fifth.
    assert columns[-1] - columns[0] + 1 == pytest.approx(102.4, rel=0.25)
    assert abs((columns[0] + columns[-1] + 1).item() / 2 - 64) <= 1
    red = prepared.rgba[64, 64, :3]
    assert torch.allclose(red, torch.tensor([200 / 255, 0, 0]), atol=0.02)


def test_colours_of_transparent_pixels_do_not_bleed(tmp_path):
    """Green hides under alpha 0: straight-alpha resizing would tint the outline."""
    samples = np.zeros((200, 200, 4), np.uint8)
    samples[...] = (0, 255, 0, 0)
    y, x = np.mgrid[:200, :200]
    samples[np.hypot(x - 100, y - 100) < 70] = (200, 0, 0, 255)
    prepared = prepare_image(save(tmp_path, samples), AUTO, 64)
    seen = prepared.alpha > 0.1
    assert (prepared.rgba[..., 1][seen] < 0.02).all()
    assert torch.allclose(prepared.over((0, 0, 0)), prepared.rgba[..., :3] * prepared.alpha[..., None], atol=0.005)


def test_resized_keeps_the_mean(tmp_path):
    samples = np.random.default_rng(0).integers(0, 256, (50, 40, 4), dtype=np.uint8)
    prepared = prepare_image(save(tmp_path, samples), AUTO, 256)
    smaller = prepared.resized(128)
    assert smaller.rgb.shape == (128, 128, 3) and smaller.size == 128
    assert smaller.rgb.mean().item() == pytest.approx(prepared.rgb.mean().item(), abs=1e-4)
    assert smaller.alpha.mean().item() == pytest.approx(prepared.alpha.mean().item(), abs=1e-4)
    assert prepared.resized(300).alpha.shape == (300, 300)
    assert torch.equal(prepared.resized(256).rgb, prepared.rgb)


def test_same_file_same_result(tmp_path):
    samples = np.random.default_rng(1).integers(0, 256, (90, 90, 3), dtype=np.uint8)
    samples[20:70, 20:70] = (250, 10, 10)  # noise around it: GrabCut's way
    path = save(tmp_path, samples)
    first, second = prepare_image(path, AUTO, 64), prepare_image(path, AUTO, 64)
    assert torch.equal(first.rgb, second.rgb) and torch.equal(first.alpha, second.alpha)


def test_keep_takes_the_picture_as_it_is(tmp_path):
    samples = np.random.default_rng(2).integers(0, 256, (32, 64, 3), dtype=np.uint8)
    prepared = prepare_image(save(tmp_path, samples), PrepareConfig(background="keep"), 64)
    assert prepared.source == "kept as it is"
    kept = torch.from_numpy(samples).float() / 255
    torch.testing.assert_close(prepared.rgb[16:48], kept, atol=1e-5, rtol=0)
    assert (prepared.alpha[16:48] > 0.999).all()
    assert (prepared.alpha[:16] == 0).all() and (prepared.alpha[48:] == 0).all() and (prepared.rgb[:16] == 1).all()


def test_an_alpha_channel_is_taken_at_its_word(tmp_path):
    """White object, alpha given: no colour decides."""
    samples = np.full((64, 64, 4), 255, np.uint8)
    samples[..., 3] = 0
    samples[10:50, 10:50, 3] = 255
    prepared = prepare_image(save(tmp_path, samples), AUTO, 64)
    assert prepared.source == "alpha channel" and not prepared.warnings
    assert (prepared.rgb == 1).all() and prepared.alpha.sum().item() == pytest.approx(51.2**2, rel=0.02)


@pytest.mark.parametrize("alpha", [255, 252])
def test_an_opaque_alpha_channel_is_none(tmp_path, alpha):
    rgb, _ = disc_on(np.full((96, 96, 3), 255.0))
    samples = np.dstack([rgb, np.full(rgb.shape[:2], alpha, np.uint8)])
    assert prepare_image(save(tmp_path, samples), AUTO, 64).source == "cut out"


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        (slice(0, 64), slice(0, 64), "covers 9"),
        (slice(20, 64), slice(20, 40), "border (bottom)"),
        (slice(10, 20), slice(0, 64), "border (left, right)"),
    ],
)
def test_doubtful_masks_are_reported(tmp_path, caplog, rows, columns, message):
    samples = np.zeros((64, 64, 4), np.uint8)
    samples[rows, columns] = 255
    samples[0, :] = 0 if message.startswith("covers") else samples[0, :]
    with caplog.at_level(logging.WARNING):
        prepared = prepare_image(save(tmp_path, samples), AUTO, 32)
    assert len(prepared.warnings) == 1 and message in prepared.warnings[0] and message in caplog.text


def test_an_object_of_a_few_pixels_is_reported(tmp_path):
    samples = np.zeros((64, 64, 4), np.uint8)
    samples[20:51, 20:30] = 255
    assert prepare_image(save(tmp_path, samples), AUTO, 32).warnings == (
        "the object is only 10 x 31 pixels: little can be made of it",
    )
    samples[20:52, 20:30] = 255
    assert prepare_image(save(tmp_path, samples), AUTO, 32).warnings == ()


# ------------------------------------------------------------------------------------------ background removal


def disc_on(background, radius=0.3, colour=(170, 60, 40)):
    """A shaded ball with an anti-aliased outline over `background` float [H, W, 3]; its coverage float [H, W]."""
    height, width = background.shape[:2]
    y, x = np.mgrid[:height, :width] + 0.5
    reach = np.hypot(x - width / 2, y - height / 2)
    radius_px = radius * min(height, width)
    coverage = np.clip(radius_px - reach + 0.5, 0, 1)
    shade = 0.6 + 0.4 * np.clip(1 - ((x - 0.45 * width) ** 2 + (y - 0.45 * height) ** 2) / radius_px**2, 0, 1)
    ball = shade[..., None] * np.array(colour)
    return np.rint(ball * coverage[..., None] + background * (1 - coverage[..., None])).astype(np.uint8), coverage


def flat(colour, size=160):
    return np.zeros((size, size, 3)) + np.array(colour, float)


def backgrounds():
    y, x = np.mgrid[:160, :160] / 160
    vignette = 245 - 150 * np.hypot(x - 0.5, y - 0.45)
    return {
        "white": flat((255, 255, 255)),
        "black": flat((0, 0, 0)),
        "grey": flat((128, 128, 128)),
        "green": flat((60, 160, 90)),
        "slope": np.stack([170 + 70 * y, 180 + 60 * y, 200 + 40 * y], -1),
        "vignette": np.stack([vignette] * 3, -1),
    }


def jpeg(samples, quality):
    stream = io.BytesIO()
    Image.fromarray(samples).save(stream, "JPEG", quality=quality)
    return np.array(Image.open(stream))


def cut_out_coverage(picture):
    return cut_out(picture, "picture")[..., 3] / 255


def overlap(found, coverage):
    a, b = found > 0.5, coverage > 0.5
    return (a & b).sum() / (a | b).sum()


@pytest.mark.parametrize("damage", ["none", "jpeg 75", "noise"])
@pytest.mark.parametrize("name", backgrounds())
def test_plain_backgrounds(name, damage):
    picture, coverage = disc_on(backgrounds()[name])
    if damage == "jpeg 75":
        picture = jpeg(picture, 75)
    elif damage == "noise":
        noise = np.random.default_rng(0).normal(0, 4, picture.shape)
        picture = np.clip(picture + noise, 0, 255).astype(np.uint8)
    found = cut_out_coverage(picture)
    assert found.shape == coverage.shape
    assert overlap(found, coverage) > 0.97  # measured: 0.98 to 1.00
    far = cv2.erode((coverage == 0).astype(np.uint8), np.ones((7, 7)), borderValue=1).astype(bool)
    assert (found[far] == 0).all()
    assert (found[cv2.erode((coverage == 1).astype(np.uint8), np.ones((7, 7))).astype(bool)] == 1).all()


def test_no_halo_and_a_soft_outline():
    """A dark ball on white: over black, its outline must not shine, and coverage must match the anti-aliasing."""
    picture, coverage = disc_on(flat((255, 255, 255)), colour=(60, 30, 20))
    cut = cut_out(picture, "ball").astype(float) / 255
    assert np.abs(cut[..., 3] - coverage).mean() / coverage.mean() < 0.01
    outline = (coverage > 0.2) & (coverage < 0.8)
    assert np.abs(cut[..., 3] - coverage)[outline].mean() < 0.06
    assert cut[..., 0][outline].max() < 80 / 255  # the ball itself has at most 60


def test_white_on_white_is_not_eaten():
    """A white cup on white, told by its outline and faint shading alone."""
    picture = flat((255, 255, 255)).astype(np.uint8)
    cv2.circle(picture, (80, 80), 50, (246, 246, 244), -1, cv2.LINE_AA)
    cv2.circle(picture, (80, 80), 50, (190, 190, 190), 2, cv2.LINE_AA)
    cv2.circle(picture, (70, 70), 20, (255, 255, 255), -1, cv2.LINE_AA)  # a highlight
    y, x = np.mgrid[:160, :160]
    inside = np.hypot(x - 80, y - 80) < 45
    highlight = np.hypot(x - 70, y - 70) < 22
    found = cut_out_coverage(picture)
    assert (found[inside & ~highlight] == 1).all()
    assert (found[np.hypot(x - 80, y - 80) > 55] == 0).all()


def test_the_inside_of_a_handle_is_background():
    picture = flat((235, 235, 240)).astype(np.uint8)
    cv2.rectangle(picture, (30, 50), (90, 120), (40, 60, 150), -1)
    cv2.circle(picture, (95, 85), 25, (40, 60, 150), 8)
    found = cut_out_coverage(picture)
    assert (found[80:90, 98:108] == 0).all()  # through the handle
    assert (found[60:110, 40:80] == 1).all()


def test_small_light_marks_stay():
    """Eyes of the background's colour are no holes: too small."""
    picture = flat((255, 255, 255)).astype(np.uint8)
    cv2.circle(picture, (80, 80), 55, (200, 120, 40), -1, cv2.LINE_AA)
    cv2.circle(picture, (65, 70), 3, (255, 255, 255), -1)
    assert (cut_out_coverage(picture)[66:75, 61:70] == 1).all()


def test_an_object_cut_off_by_the_frame(tmp_path):
    picture = flat((225, 225, 225)).astype(np.uint8)
    picture[60:, 50:110] = (30, 90, 60)
    found = cut_out_coverage(picture)
    truth = np.zeros((160, 160))
    truth[60:, 50:110] = 1
    assert overlap(found, truth) > 0.98
    assert "bottom" in prepare_image(save(tmp_path, picture), AUTO, 64).warnings[0]


def test_busy_backgrounds_go_to_grabcut():
    rng = np.random.default_rng(0)
    bricks = flat((110, 110, 110))
    bricks[::16] = 190
    bricks[:, ::32] = 190
    for background in (
        bricks,
        cv2.GaussianBlur(rng.uniform(60, 200, (160, 160, 1)), (5, 5), 0)[..., None] * np.ones(3),
    ):
        picture, coverage = disc_on(background, colour=(220, 60, 30))
        assert overlap(cut_out_coverage(picture), coverage) > 0.93


@pytest.mark.parametrize("value", [0, 128, 255])
def test_a_plain_area_holds_no_object(tmp_path, value):
    with pytest.raises(UserError, match=r"a\.png: expected an object before a background, .*transparent.*=keep"):
        prepare_image(save(tmp_path, np.full((40, 40, 3), value, np.uint8)), AUTO)


@pytest.mark.parametrize("shape", [(1, 1), (1, 2), (2, 2), (3, 3), (1, 50), (50, 1), (7, 5), (3, 500)])
@pytest.mark.parametrize("channels", [3, 4])
def test_tiny_and_thin_pictures(tmp_path, shape, channels):
    """Anything is prepared or refused by name."""
    samples = np.random.default_rng(3).integers(0, 256, (*shape, channels), dtype=np.uint8)
    for config in (AUTO, PrepareConfig(background="keep")):
        try:
            prepared = prepare_image(save(tmp_path, samples), config, 32)
        except UserError as error:
            assert channels == 3 and config is AUTO and "expected an object" in str(error)
        else:
            assert (
                isinstance(prepared, PreparedImage) and torch.isfinite(prepared.rgb).all() and prepared.alpha.max() > 0
            )


def test_large_opaque_pictures_are_cut_at_reduced_size(tmp_path):
    picture = np.full((1200, 1600, 3), 250, np.uint8)
    cv2.ellipse(picture, (800, 600), (500, 300), 0, 0, 360, (40, 60, 200), -1, cv2.LINE_AA)
    prepared = prepare_image(save(tmp_path, picture), AUTO, 128)
    # An ellipse of half-axes 51.2 and 30.7 pixels.
    assert prepared.alpha.sum().item() == pytest.approx(np.pi * 51.2 * 30.72, rel=0.01)


def test_the_sample_picture():
    prepared = prepare_image(Path(__file__).parent.parent / "assets" / "sample.png", AUTO)
    assert prepared.source == "alpha channel" and not prepared.warnings
    _, top, _, bottom = extent(prepared.alpha)
    assert 200 < bottom - top <= 205  # its longer side is the vertical one: 80 % of 256 pixels
