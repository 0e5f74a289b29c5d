"""Every readable picture becomes straight-alpha RGBA8; everything else one line that names the file."""

import io
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image, ImageCms

import picture_io
from errors import UserError
from picture_io import load_picture

ORANGE = (200, 100, 50)


def png(width, height, depth, colour_type, rows, key=None, palette=None):
    """A PNG file's bytes, chunk by chunk: Pillow cannot write all the kinds that it reads."""

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    parts = [chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour_type, 0, 0, 0))]
    if palette is not None:
        parts.append(chunk(b"PLTE", palette))
    if key is not None:
        parts.append(chunk(b"tRNS", key))
    parts += [chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows))), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


PNG_KINDS = {
    "1 bit": (png(2, 1, 1, 0, [b"\x80"]), [(255, 255, 255, 255), (0, 0, 0, 255)]),
    "1 bit, key": (png(2, 1, 1, 0, [b"\x80"], key=b"\0\1"), [(255, 255, 255, 0), (0, 0, 0, 255)]),
    "2 bits, key": (png(2, 1, 2, 0, [b"\x60"], key=b"\0\1"), [(85, 85, 85, 0), (170, 170, 170, 255)]),
    "4 bits, key": (png(2, 1, 4, 0, [b"\x5f"], key=b"\0\5"), [(85, 85, 85, 0), (255, 255, 255, 255)]),
    "grey, key": (png(2, 1, 8, 0, [b"\5\x09"], key=b"\0\5"), [(5, 5, 5, 0), (9, 9, 9, 255)]),
    "grey 16": (png(2, 1, 16, 0, [struct.pack(">2H", 40000, 65535)]), [(156, 156, 156, 255), (255, 255, 255, 255)]),
    "grey 16, key": (
        png(2, 1, 16, 0, [struct.pack(">2H", 40000, 65535)], key=struct.pack(">H", 40000)),
        [(156, 156, 156, 0), (255, 255, 255, 255)],
    ),
    "grey + alpha": (png(2, 1, 8, 4, [bytes([9, 0, 7, 128])]), [(9, 9, 9, 0), (7, 7, 7, 128)]),
    "grey + alpha 16": (png(1, 1, 16, 4, [struct.pack(">2H", 40000, 65535)]), [(156, 156, 156, 255)]),
    "rgb, key": (
        png(2, 1, 8, 2, [bytes(range(1, 7))], key=struct.pack(">3H", 1, 2, 3)),
        [(1, 2, 3, 0), (4, 5, 6, 255)],
    ),
    "rgb 16, key": (
        png(
            2, 1, 16, 2, [struct.pack(">6H", 256, 512, 768, 40000, 51200, 65535)], key=struct.pack(">3H", 256, 512, 768)
        ),
        [(1, 2, 3, 0), (156, 200, 255, 255)],
    ),
    "palette": (png(2, 1, 4, 3, [b"\x12"], palette=bytes(range(9))), [(3, 4, 5, 255), (6, 7, 8, 255)]),
    "palette, one index clear": (
        png(2, 1, 1, 3, [b"\x80"], key=b"\0", palette=bytes(range(1, 7))),
        [(4, 5, 6, 255), (1, 2, 3, 0)],
    ),
    "palette, alphas": (
        png(2, 1, 4, 3, [b"\x12"], key=b"\0\x80\xff", palette=bytes(range(9))),
        [(3, 4, 5, 128), (6, 7, 8, 255)],
    ),
}


@pytest.mark.parametrize("kind", PNG_KINDS)
def test_every_kind_of_png(tmp_path, kind):
    data, expected = PNG_KINDS[kind]
    path = tmp_path / "a.png"
    path.write_bytes(data)
    picture = load_picture(path)
    assert picture.dtype == np.uint8
    np.testing.assert_array_equal(picture, [expected])


def test_16_bit_rgba(tmp_path):
    samples = np.zeros((4, 6, 4), np.uint16)
    samples[1:3, 1:5] = (0, 0, 40000, 65535)  # OpenCV's order: blue, green, red, alpha
    assert cv2.imwrite(str(tmp_path / "a.png"), samples)
    expected = np.zeros((4, 6, 4), np.uint8)
    expected[1:3, 1:5] = (156, 0, 0, 255)
    np.testing.assert_array_equal(load_picture(tmp_path / "a.png"), expected)


LOSSLESS = [
    "RGB .png",
    "RGB .bmp",
    "RGB .tif",
    "RGB .webp",
    "CMYK .tif",
    "RGBA .png",
    "RGBA .tif",
    "RGBA .webp",
    "P .gif",
]
LOSSY = ["RGB .jpg", "CMYK .jpg", "YCbCr .jpg", "YCbCr .tif", "LAB .tif"]


@pytest.mark.parametrize("kind", LOSSLESS + LOSSY)
def test_modes_and_formats(tmp_path, kind):
    mode, suffix = kind.split()
    picture = Image.new("RGB", (8, 4), ORANGE)
    if mode == "LAB":
        profiles = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
        picture = ImageCms.applyTransform(picture, ImageCms.buildTransform(*profiles, "RGB", "LAB"))
    elif mode == "P":
        picture = picture.quantize(4)
    else:
        picture = picture.convert(mode)
    path = tmp_path / f"a{suffix}"
    picture.save(path, **({"lossless": True} if suffix == ".webp" else {}))
    loaded = load_picture(path)
    assert loaded.shape == (4, 8, 4)
    assert (loaded[..., 3] == 255).all()
    # One flat colour survives JPEG's and YCbCr's rounding within 1 or 2 of 255.
    assert np.abs(loaded[..., :3].astype(int) - ORANGE).max() <= (0 if kind in LOSSLESS else 2)


def test_adobe_jpeg_with_inverted_cmyk(tmp_path):
    """Adobe stores CMYK inverted and marks it so: read plainly, the orange would come out blue."""
    path = tmp_path / "a.jpg"
    Image.new("RGB", (16, 16), ORANGE).convert("CMYK").save(path)
    assert b"Adobe" in path.read_bytes()
    assert np.abs(load_picture(path)[8, 8, :3].astype(int) - ORANGE).max() <= 2


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        (np.array([[0.0, 0.5, 1.0]], np.float32), [0, 128, 255]),
        (np.array([[0.0, 100.0, 255.0]], np.float32), [0, 100, 255]),
        (np.array([[0.0, np.nan, 4.0]], np.float32), [0, 0, 4]),
        (np.array([[0, 7, 255]], np.int32), [0, 7, 255]),
        (np.array([[0, 40000, 65535]], np.int32), [0, 156, 255]),
        (np.array([[-5, 2**30, 2**31 - 1]], np.int32), [0, 128, 255]),
    ],
)
def test_32_bit_tiff(tmp_path, samples, expected):
    Image.fromarray(samples).save(tmp_path / "a.tif")
    np.testing.assert_array_equal(load_picture(tmp_path / "a.tif")[0, :, 0], expected)


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".webp", ".tif"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(tmp_path, orientation, suffix):
    """Stored so that turning by the tag gives back the upright picture, red at its top left."""
    upright = np.full((32, 64, 3), 255, np.uint8)
    upright[:16, :32] = (200, 0, 0)
    undo = {
        1: lambda a: a,
        2: lambda a: a[:, ::-1],
        3: lambda a: a[::-1, ::-1],
        4: lambda a: a[::-1],
        5: lambda a: a.swapaxes(0, 1),
        6: lambda a: np.rot90(a),
        7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
        8: lambda a: np.rot90(a, -1),
    }[orientation]
    stored = Image.fromarray(np.ascontiguousarray(undo(upright)))
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / f"a{suffix}"
    stored.save(path, exif=exif)
    loaded = load_picture(path)[..., :3].astype(int)
    assert loaded.shape == upright.shape
    # Flat blocks of 16 pixels: JPEG and WebP stay within a few levels of 255 away from the corner's edge.
    for row, column in ((4, 4), (4, 60), (28, 4), (28, 60)):
        assert np.abs(loaded[row, column] - upright[row, column]).max() <= 12


def test_exif_6_swaps_the_sides(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (8, 4)).save(tmp_path / "a.jpg", exif=exif)
    assert load_picture(tmp_path / "a.jpg").shape == (8, 4, 4)


def test_broken_exif_is_no_obstacle(tmp_path):
    Image.new("RGB", (8, 4), ORANGE).save(tmp_path / "a.jpg", exif=b"Exif\0\0MM\0*\0\0\0\x08\xff\xff rubbish")
    assert load_picture(tmp_path / "a.jpg").shape == (4, 8, 4)


def test_colour_profile_is_applied(tmp_path):
    """A profile that swaps the meaning of the numbers: its own white, in XYZ, is what sRGB shows as (255, 255, 255)."""
    linear = _linear_srgb_profile()
    path = tmp_path / "a.png"
    Image.new("RGB", (2, 2), (55, 55, 55)).save(path, icc_profile=linear)
    # Linear 55 / 255 = 0.2157 is 0.5023 in sRGB: 128.
    assert np.abs(load_picture(path)[0, 0, :3].astype(int) - 128).max() <= 1


def _linear_srgb_profile():
    """sRGB's own profile with its three tone curves replaced by the identity."""
    data = bytearray(ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes())
    for index in range(struct.unpack_from(">I", data, 128)[0]):
        name, offset, length = struct.unpack_from(">4sII", data, 132 + 12 * index)
        if name in (b"rTRC", b"gTRC", b"bTRC"):
            assert length >= 16
            # A parametric curve of type 0: Y = X ^ g, with g = 1 as s15Fixed16.
            struct.pack_into(">4sIHHi", data, offset, b"para", 0, 0, 0, 65536)
        if name == b"desc":
            data[offset : offset + length] = bytes(data[offset : offset + length]).replace(
                "sRGB".encode("utf-16-be"), "lRGB".encode("utf-16-be")
            )
    return bytes(data)


def test_damaged_colour_profile_is_ignored(tmp_path):
    Image.new("RGB", (2, 2), ORANGE).save(tmp_path / "a.png", icc_profile=b"no profile at all")
    np.testing.assert_array_equal(load_picture(tmp_path / "a.png")[0, 0], (*ORANGE, 255))


@pytest.mark.parametrize("suffix", [".gif", ".webp", ".png"])
def test_animation_gives_its_first_frame(tmp_path, suffix):
    frames = [Image.new("RGB", (8, 8), colour) for colour in (ORANGE, (0, 0, 0))]
    options = {"lossless": True} if suffix == ".webp" else {}
    frames[0].save(tmp_path / f"a{suffix}", save_all=True, append_images=frames[1:], **options)
    np.testing.assert_array_equal(load_picture(tmp_path / f"a{suffix}")[0, 0], (*ORANGE, 255))


@pytest.mark.parametrize("suffix", [".png", ".jpg"])
def test_large_pictures_are_reduced(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(picture_io, "MAX_SIDE", 64)
    picture = Image.new("RGB", (400, 160), ORANGE)
    picture.save(tmp_path / f"a{suffix}", quality=95)
    loaded = load_picture(tmp_path / f"a{suffix}")
    assert 32 < loaded.shape[1] <= 64
    assert loaded.shape[1] / loaded.shape[0] == pytest.approx(2.5, rel=0.05)
    assert np.abs(loaded[..., :3].astype(int) - ORANGE).max() <= 2


def test_reduction_ignores_the_colour_of_transparent_pixels(tmp_path, monkeypatch):
    monkeypatch.setattr(picture_io, "MAX_SIDE", 4)
    samples = np.zeros((8, 8, 4), np.uint8)
    samples[..., 1] = 255  # green, but transparent
    samples[:, 1::2] = (200, 0, 0, 255)
    Image.fromarray(samples).save(tmp_path / "a.png")
    loaded = load_picture(tmp_path / "a.png")
    assert loaded.shape == (4, 4, 4)
    assert (loaded[..., 3] == 128).all()
    assert np.abs(loaded[..., :3].astype(int) - (200, 0, 0)).max() <= 1  # 8-bit premultiplied rounding


def test_thin_pictures_keep_a_pixel_across(tmp_path, monkeypatch):
    monkeypatch.setattr(picture_io, "MAX_SIDE", 16)
    Image.new("L", (200, 1), 7).save(tmp_path / "a.png")
    assert load_picture(tmp_path / "a.png").shape[0] == 1


def test_too_many_pixels(tmp_path, monkeypatch):
    monkeypatch.setattr(picture_io, "MAX_PIXELS", 1000)
    Image.new("1", (100, 11)).save(tmp_path / "a.png")
    with pytest.raises(UserError, match=r"a\.png: expected a picture of at most 1,000 pixels, found 100 x 11"):
        load_picture(tmp_path / "a.png")


def test_decompression_bomb(tmp_path):
    """4 billion pixels by the header, a few bytes by the file: refused before any of it is decoded."""
    (tmp_path / "bomb.png").write_bytes(png(65535, 65535, 8, 2, [b"\0" * 8]))
    with pytest.raises(UserError, match=r"bomb\.png: expected a picture of at most .*found 4294836225 pixels"):
        load_picture(tmp_path / "bomb.png")


def _whole_png():
    rng = np.random.default_rng(0)
    stream = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(stream, "PNG")
    return stream.getvalue()


def _whole_jpeg():
    rng = np.random.default_rng(0)
    stream = io.BytesIO()
    Image.fromarray(rng.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(stream, "JPEG")
    return stream.getvalue()


BAD_FILES = {
    "empty": (b"", "empty"),
    "text": (b"not a picture\n", "a text file"),
    "svg": (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "SVG"),
    "pdf": (b"%PDF-1.7\n\0", "PDF"),
    "postscript": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "PostScript"),
    "heic": (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "HEIC"),
    "binary": (bytes(range(256)), "another kind"),
    "truncated png": (_whole_png()[:3000], "damaged"),
    "truncated jpeg": (_whole_jpeg()[:1500], "damaged"),
    "png header alone": (_whole_png()[:40], "damaged"),
    "png of no width": (png(0, 4, 8, 2, [b""]), "found"),
    "png with a wrong checksum": (_whole_png().replace(b"IDAT", b"IDAQ", 1), "damaged"),
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_files_that_are_no_picture(tmp_path, kind):
    data, found = BAD_FILES[kind]
    path = tmp_path / "bad file.png"
    path.write_bytes(data)
    with pytest.raises(UserError) as error:
        load_picture(path)
    message = str(error.value)
    assert message.startswith(f"{path}: expected a picture") and found in message and "\n" not in message


@pytest.mark.parametrize("cut", range(0, 400, 7))
def test_no_cut_of_a_file_escapes_the_named_error(tmp_path, cut):
    """A tiny TIFF or GIF cut anywhere either still loads or raises UserError, nothing else."""
    for suffix in (".tif", ".gif", ".webp"):
        path = tmp_path / f"a{suffix}"
        Image.linear_gradient("L").resize((24, 12)).save(path)
        path.write_bytes(path.read_bytes()[:cut])
        try:
            assert load_picture(path).shape == (12, 24, 4)
        except UserError as error:
            assert str(path) in str(error)


def test_folder_missing_and_special(tmp_path):
    with pytest.raises(UserError, match="found a folder"):
        load_picture(tmp_path)
    with pytest.raises(UserError, match="no such file"):
        load_picture(tmp_path / "missing.png")
    with pytest.raises(UserError, match="no such file"):
        load_picture("a\0b.png")
    with pytest.raises(UserError, match="cannot be read: File name too long"):
        load_picture(tmp_path / ("x" * 500))
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(UserError, match="special file"):  # and does not wait for a writer
            load_picture(tmp_path / "pipe")


def test_permission_denied(tmp_path, monkeypatch):
    """Simulated: root may read everything."""
    path = tmp_path / "a.png"
    Image.new("L", (2, 2)).save(path)

    def refuse(self, *args, **kwargs):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(UserError, match=r"a\.png: cannot be read: Permission denied"):
        load_picture(path)


@pytest.mark.parametrize(
    "name", ["a b.png", "é.png", "テスト.png", "a#b.png", "-a.png", "photo.v2.png", "no_suffix", "wrong.jpg", "[1].png"]
)
def test_names_and_read_only_folders(tmp_path, monkeypatch, name):
    folder = tmp_path / "in put"
    folder.mkdir()
    Image.new("RGB", (3, 2), ORANGE).save(folder / name, "PNG")
    folder.chmod(0o555)
    monkeypatch.chdir(folder)
    try:
        np.testing.assert_array_equal(load_picture(name)[1, 2], (*ORANGE, 255))
        assert [entry.name for entry in folder.iterdir()] == [name]
    finally:
        folder.chmod(0o755)


def test_rare_formats_are_loaded_only_for_a_rare_picture(tmp_path):
    """In a process of its own: what Pillow has loaded once, it keeps."""
    for name in ("common.png", "rare.tga"):
        Image.new("RGB", (2, 1), ORANGE).save(tmp_path / name)
    program = (
        "import sys; from picture_io import load_picture; found = []\n"
        "for name in ('common.png', 'rare.tga'):\n"
        "    found += [load_picture(sys.argv[1] + '/' + name).shape, 'PIL.TgaImagePlugin' in sys.modules]\n"
        "print(found)"
    )
    root = Path(picture_io.__file__).parent
    ended = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, cwd=root, check=False
    )
    assert ended.stdout.strip() == "[(1, 2, 4), False, (1, 2, 4), True]", ended.stderr
