"""Decoding: the one loader that turns every picture Pillow can read into straight-alpha RGBA, 8 bits a channel."""

import io
import logging
import re
import warnings
from pathlib import Path

import numpy as np
from PIL import Image, ImageCms, ImageOps

from errors import UserError

logger = logging.getLogger(__name__)

MAX_PIXELS = 150_000_000  # decoded, 4 bytes each: what a phone's largest photograph needs, with a margin
MAX_SIDE = 2048  # larger pictures are reduced on loading; the fit looks at 256 pixels, the texture at 1024

# Raster formats alone: Pillow would hand EPS to Ghostscript, and vector metafiles to the operating system.
_FORMATS = "PNG JPEG MPO WEBP GIF BMP DIB TIFF AVIF JPEG2000 PPM TGA ICO ICNS PCX SGI QOI DDS MSP XBM SUN PSD".split()
_EXPECTED = "expected a picture such as PNG, JPEG or WebP"


def load_picture(path: Path | str) -> np.ndarray:
    """Read a picture file as straight-alpha RGBA.

    Any mode: 1-bit, grey, palette, transparency by index, by colour key or by channel, CMYK, YCbCr, Lab, 16 and 32
    bits, float. The first frame of an animation. Turned upright by its EXIF orientation; colours go to sRGB where
    the file brings an ICC profile. A picture with a side above MAX_SIDE is reduced by a whole factor.

    Returns:
        uint8 [H, W, 4]; alpha is 255 throughout where the file has no transparency.
    Raises:
        UserError: the file is missing, not a file, not readable, empty, not a picture, damaged, or has more than
            MAX_PIXELS pixels.
    """
    path = Path(path)
    _check_file(path)
    try:
        with path.open("rb") as stream, warnings.catch_warnings():
            # Pillow warns at half its limit; ours is checked in _decode. Other warnings concern odd metadata.
            warnings.simplefilter("ignore")
            return _decode(stream, path)
    except UserError:
        raise
    except Image.DecompressionBombError as error:
        found = re.search(r"\d+", str(error))
        raise _too_large(path, f"{found.group()} pixels" if found else "more") from error
    except Image.UnidentifiedImageError as error:
        raise UserError(f"{path}: {_EXPECTED}, found {_sniff(path)}") from error
    except MemoryError as error:
        raise UserError(f"{path}: not enough memory to decode this picture; expected a smaller one") from error
    except Exception as error:  # a damaged file makes decoders raise nearly anything: SyntaxError, struct.error, ...
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{path}: {_EXPECTED}, found a damaged or unsupported one ({reason})") from error


def _check_file(path: Path) -> None:
    """What can be said without decoding."""
    try:
        if path.is_dir():
            raise UserError(f"{path}: {_EXPECTED}, found a folder")
        if not path.exists():
            raise UserError(f"{path}: {_EXPECTED}, found no such file")
        if not path.is_file():
            raise UserError(f"{path}: {_EXPECTED}, found a special file")
        with path.open("rb") as stream:
            if not stream.read(1):
                raise UserError(f"{path}: {_EXPECTED}, found an empty file")
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from error


def _too_large(path: Path, found: str) -> UserError:
    return UserError(f"{path}: expected a picture of at most {MAX_PIXELS:,} pixels, found {found}; reduce it first")


def _sniff(path: Path) -> str:
    """Name what is no picture to us, for the error message."""
    with path.open("rb") as stream:
        head = stream.read(512)
    if head.startswith((b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"II*\0", b"MM\0*")) or head[8:12] == b"WEBP":
        return "a damaged one"
    if head[4:8] == b"ftyp" and head[8:12] in (b"heic", b"heix", b"mif1", b"hevc", b"heif"):
        return "HEIC; save it as JPEG or PNG"
    if b"<svg" in head:
        return "SVG, a drawing; save it as PNG"
    if head.startswith(b"%PDF"):
        return "PDF; save the page as PNG"
    if head.startswith(b"%!PS"):
        return "PostScript; save it as PNG"
    if head.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer; fetch the file itself"
    if b"\0" not in head:
        return "a text file" if head.isascii() else "text or unknown data"
    return "a file of another kind"


def _decode(stream, path: Path) -> np.ndarray:
    """Decode an open file; errors come as the decoders raise them."""
    image = _open(stream)
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise _too_large(path, f"{width} x {height}")
    if image.format in ("JPEG", "MPO"):
        image.draft(None, (MAX_SIDE, MAX_SIDE))  # decodes at 1/2, 1/4 or 1/8, never below MAX_SIDE
    profile = image.info.get("icc_profile")
    bits = _sample_bits(image)
    image.load()
    image = _upright(image)
    image = _to_8_bit(image, bits)
    image = _reduced(image)
    return np.array(_to_rgba(image, profile))  # [H, W, 4]


def _open(stream) -> Image.Image:
    """Identify a picture. Most are of the formats that Pillow loads first; all forty take a tenth of a second."""
    Image.preinit()
    try:
        return Image.open(stream, formats=_known_formats())
    except Image.UnidentifiedImageError:
        Image.init()
        return Image.open(stream, formats=_known_formats())


def _known_formats() -> list[str]:
    """Those of ours that Pillow has loaded, and was built with: it may not be asked for others."""
    return [name for name in _FORMATS if name in Image.OPEN]


def _upright(image: Image.Image) -> Image.Image:
    """Turn by the EXIF orientation. Unreadable EXIF is no reason to refuse a readable picture."""
    try:
        return ImageOps.exif_transpose(image)
    except Exception as error:  # the EXIF parser raises nearly anything on damaged data
        logger.warning("the picture's EXIF data cannot be read (%s): its orientation is ignored", error)
        return image


def _sample_bits(image: Image.Image) -> int:
    """Bits of a sample as stored in a PNG, which is what its colour key refers to; 8 elsewhere."""
    if image.format != "PNG" or not image.tile:
        return 8
    raw_mode = image.tile[0].args
    raw_mode = raw_mode[0] if isinstance(raw_mode, tuple) else raw_mode
    if raw_mode == "1":
        return 1
    _, _, depth = str(raw_mode).partition(";")
    return {"2": 2, "4": 4, "16B": 16}.get(depth, 8)


def _to_8_bit(image: Image.Image, bits: int) -> Image.Image:
    """Bring every mode to one of L, LA, P, PA, RGB, RGBA, CMYK, ...: 8 bits a sample, colour key as an alpha channel.

    Pillow keeps a PNG's colour key in the units of the file but scales the samples of 1, 2, 4 and 16 bits, so that
    its own conversion would compare unlike numbers.
    """
    key = image.info.get("transparency")
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        samples = np.asarray(image)
        grey = Image.fromarray(_scaled_to_8_bit(samples, image.mode))
        if isinstance(key, int):
            grey.putalpha(Image.fromarray(np.where(samples == key, 0, 255).astype(np.uint8)))
        return grey
    if image.mode in ("1", "L", "RGB") and key is not None and not isinstance(key, bytes):
        # Pillow brings 16 bits to 8 by their high byte, fewer by stretching them to 0..255 (a 1-bit key it may or
        # may not have stretched itself, by version).
        key = np.atleast_1d(key) >> 8 if bits == 16 else np.minimum(np.atleast_1d(key) * (255 // (2**bits - 1)), 255)
        plain = image.convert("L" if image.mode == "1" else image.mode)
        samples = np.asarray(plain).reshape(plain.height, plain.width, -1)  # [H, W, 1 or 3]
        opaque = (samples != key.astype(samples.dtype)).any(-1)
        plain.putalpha(Image.fromarray(np.where(opaque, 255, 0).astype(np.uint8)))
        return plain
    return image


def _scaled_to_8_bit(samples: np.ndarray, mode: str) -> np.ndarray:
    """Grey samples of 16 or 32 bits or float to uint8.

    16 bits: 65535 is white. 32-bit integers and floats have no agreed white: the first of 1 (floats), 255 and 65535
    that no sample passes, else the largest sample.
    """
    if mode.startswith("I;16"):
        return np.rint(samples.astype(np.float32) / 257).astype(np.uint8)
    samples = np.nan_to_num(samples.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    largest = samples.max(initial=0.0)
    white = next((w for w in ((1.0,) if mode == "F" else ()) + (255.0, 65535.0) if largest <= w), largest)
    return np.rint(np.clip(samples / white, 0, 1) * 255).astype(np.uint8)


def _reduced(image: Image.Image) -> Image.Image:
    """Average whole blocks of pixels, as large as keep the longer side at MAX_SIDE or above half of it."""
    factor = -(-max(image.size) // MAX_SIDE)
    if factor == 1:
        return image
    has_alpha = image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info
    # Premultiplied, so that the colour of transparent pixels does not count.
    image = image.convert("RGBA").convert("RGBa") if has_alpha else image
    if image.mode in ("1", "P"):
        image = image.convert("L" if image.mode == "1" else "RGB")
    logger.info("the picture has %d x %d pixels: reduced by %d", *image.size, factor)
    # A thin picture keeps at least one pixel across.
    image = image.reduce((min(factor, image.width), min(factor, image.height)))
    return image.convert("RGBA") if has_alpha else image


def _to_rgba(image: Image.Image, profile: bytes | None) -> Image.Image:
    """To RGBA, through the ICC profile if it says anything else than sRGB."""
    if image.mode == "LAB":
        to_rgb = ImageCms.buildTransform(ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB"), "LAB", "RGB")
        return ImageCms.applyTransform(image, to_rgb).convert("RGBA")
    has_alpha = image.mode in ("RGBA", "LA", "PA", "RGBa", "La") or "transparency" in image.info
    alpha = image.convert("RGBA").getchannel("A") if has_alpha else None
    if profile:
        image = _to_srgb(image, profile)
    image = image.convert("RGBA")
    if alpha is not None:
        image.putalpha(alpha)
    return image


def _to_srgb(image: Image.Image, profile: bytes) -> Image.Image:
    """Colours through the ICC profile; a profile that is damaged or of another colour space is left out."""
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        if "srgb" in ImageCms.getProfileDescription(source).lower():
            return image
        space = source.profile.xcolor_space.strip()
        mode = {"RGB": "RGB", "GRAY": "L", "CMYK": "CMYK"}.get(space)
        if mode is None or (mode == "CMYK") != (image.mode == "CMYK"):
            logger.warning(
                "the picture's colour profile is for %s, its pixels are %s: profile ignored", space, image.mode
            )
            return image
        transform = ImageCms.buildTransform(source, ImageCms.createProfile("sRGB"), mode, "RGB")
        colours = image.convert("RGBA").convert(mode) if image.mode != mode else image
        return ImageCms.applyTransform(colours, transform)
    except (ImageCms.PyCMSError, OSError, ValueError) as error:
        logger.warning("the picture's colour profile cannot be used (%s): colours are taken as sRGB", error)
        return image
