"""Background removal without a model: a plain background is flooded from the border, any other goes to GrabCut."""

import logging
from dataclasses import dataclass, replace

import cv2
import numpy as np

from errors import UserError

logger = logging.getLogger(__name__)

PLAIN_SHARE = 0.6  # of the border pixels that must follow one smooth colour for the background to count as plain
GRABCUT_SIDE = 384  # longer side at which GrabCut runs: its time grows with the area
NOISY = 1.0  # Lab units: above it the picture is smoothed before its background is sought
HOLE_SHARE = 0.004  # enclosed patches of background colour above this share of the object are holes, not paint


def cut_out(rgb: np.ndarray, name: str) -> np.ndarray:
    """Cut the object out of an opaque picture.

    1. A smooth background (each Lab channel a quadratic of x and y) is fitted to the border, leaving out what does
       not follow it.
    2. If most of the border follows, the background is what can be reached from the border without passing through
       an edge or a colour unlike the fit, and large enclosed patches of just that colour. Else GrabCut (Rother et
       al. 2004) separates the two, started from the border's colours.
    3. In a narrow band along the outline, coverage is where the pixel's colour lies between the nearest background's
       and the nearest object's, and the background's part is taken out of the colour.

    Args:
        rgb: uint8 [H, W, 3].
        name: what messages call the picture.
    Returns:
        uint8 [H, W, 4], straight alpha.
    Raises:
        UserError: the picture is one plain area, or all of it looks alike: no object to be found.
    """
    lab = _to_lab(rgb)
    background = _fit_background(lab)
    if background.noise > NOISY:
        lab = cv2.GaussianBlur(lab, (0, 0), 1.2)
        background = _fit_background(lab)
    if background.plain:
        mask, background = _flood(lab, background)
        method = "plain background flooded"
    else:
        mask = _grab(rgb, lab)
        method = "GrabCut"
    covered = float(mask.mean())
    logger.info("%s is opaque: background removed (%s), the object covers %.0f %%", name, method, 100 * covered)
    advice = "pass a picture with a transparent background, or prepare.background=keep to take it whole"
    if not mask.any():
        raise UserError(
            f"{name}: expected an object before a background, found nothing that stands out from the border; {advice}"
        )
    if mask.all():
        raise UserError(f"{name}: expected an object before a background, found no background; {advice}")
    return _matte(rgb, mask, background)


@dataclass(frozen=True)
class _Background:
    """A smooth colour field, fitted robustly.

    Attributes:
        colour: float32 [H, W, 3], Lab.
        distance: float32 [H, W], of the picture from it.
        noise: the picture's typical distance from it where it is background.
        plain: whether most of the border follows it.
    """

    colour: np.ndarray
    distance: np.ndarray
    noise: float
    plain: bool

    @property
    def tolerance(self) -> float:
        """Distance up to which a pixel can be background: the just noticeable 2.3, and four times the noise."""
        return float(np.clip(2.3 + 4 * self.noise, 2.5, 14))


def _to_lab(rgb: np.ndarray) -> np.ndarray:
    """float32 [H, W, 3] CIE Lab, lightly smoothed: a distance of 2.3 is just noticeable."""
    lab = cv2.cvtColor(rgb.astype(np.float32) / 255, cv2.COLOR_RGB2LAB)
    return cv2.GaussianBlur(lab, (3, 3), 0.7)


def _border(height: int, width: int) -> np.ndarray:
    """bool [H, W]: the frame along the picture's border."""
    thickness = max(1, min(height, width) // 50)
    border = np.ones((height, width), bool)
    border[thickness:-thickness, thickness:-thickness] = False
    return border


def _fit_background(lab: np.ndarray, where: np.ndarray | None = None) -> _Background:
    """Fit a quadratic in x and y to Lab at `where` (bool [H, W], the border by default), leaving outliers out."""
    height, width = lab.shape[:2]
    border = _border(height, width)
    where = border if where is None else where
    rows, columns = np.nonzero(where)
    if len(rows) > 20000:
        step = len(rows) // 20000 + 1
        rows, columns = rows[::step], columns[::step]
    samples = lab[rows, columns].astype(np.float64)  # [n, 3]
    basis = _quadratic(columns / max(width - 1, 1), rows / max(height - 1, 1))  # [n, 6]

    centre = _most_common(samples)
    inliers = np.linalg.norm(samples - centre, axis=1) < 25
    coefficients = np.zeros((6, 3))
    coefficients[0] = centre
    noise = 0.0
    for _ in range(8):
        if inliers.sum() >= 24:
            coefficients = np.linalg.lstsq(basis[inliers], samples[inliers], rcond=None)[0]
        residual = np.linalg.norm(samples - basis @ coefficients, axis=1)
        noise = float(np.median(residual[inliers])) if inliers.any() else 0.0
        inliers = residual < max(2.5, 3.5 * noise)

    x, y = np.meshgrid(np.arange(width) / max(width - 1, 1), np.arange(height) / max(height - 1, 1))
    colour = (_quadratic(x.ravel(), y.ravel()) @ coefficients).reshape(height, width, 3).astype(np.float32)
    distance = np.linalg.norm(lab - colour, axis=2)
    fitted = _Background(colour, distance, noise, False)
    return replace(fitted, plain=noise < 3 and _is_plain(border, distance >= fitted.tolerance))


def _is_plain(border: np.ndarray, unlike: np.ndarray) -> bool:
    """Whether the border follows the fit, but for at most two stretches where the object is cut off by the frame."""
    outliers = (border & unlike).astype(np.uint8)
    _, _, stats, _ = cv2.connectedComponentsWithStats(outliers, connectivity=8)
    areas = np.sort(stats[1:, cv2.CC_STAT_AREA])[::-1] / border.sum()
    return areas.sum() <= 1 - PLAIN_SHARE and areas[2:].sum() <= 0.05


def _quadratic(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """[n, 6]: 1, x, y, x^2, x y, y^2, centred."""
    x, y = 2 * x - 1, 2 * y - 1
    return np.stack([np.ones_like(x), x, y, x * x, x * y, y * y], axis=1)


def _most_common(samples: np.ndarray) -> np.ndarray:
    """[3]: median of the samples in the fullest cell of a coarse colour grid."""
    cells = np.floor(samples / 12).astype(np.int64)
    _, inverse, counts = np.unique(cells, axis=0, return_inverse=True, return_counts=True)
    return np.median(samples[inverse.ravel() == counts.argmax()], axis=0)


def _flood(lab: np.ndarray, background: _Background) -> tuple[np.ndarray, _Background]:
    """The object's mask, bool [H, W], and the background fitted again to all that was found of it."""
    reached = _reached_from_border(_background_like(lab, background))
    if reached.sum() >= 100:
        background = _fit_background(lab, reached)
    # A vignette is no quadratic: follow the colour of what was reached, spread a little further each time.
    for _ in range(4):
        before = reached
        background = _spread(lab, before, background)
        like = _background_like(lab, background)
        reached = _reached_from_border(like | before)
        if reached.sum() - before.sum() < 0.001 * reached.size:
            break
    reached |= _halo(reached, background.distance)
    like = _background_like(lab, background)
    mask = ~(reached | _holes(like & ~reached, ~reached, background))
    return _without_specks(mask, background.distance), background


def _spread(lab: np.ndarray, known: np.ndarray, background: _Background) -> _Background:
    """The background's colour as a local average of the pixels known to be background, the fit where there are none."""
    height, width = known.shape
    # At a quarter of the size: the average is smooth anyway.
    small = (max(1, width // 4), max(1, height // 4))
    weight = cv2.resize(known.astype(np.float32), small, interpolation=cv2.INTER_AREA)
    off = cv2.resize((lab - background.colour) * known[..., None], small, interpolation=cv2.INTER_AREA)
    sigma = max(1.0, max(small) / 24)
    total = cv2.GaussianBlur(weight, (0, 0), sigma)
    mean_off = cv2.GaussianBlur(off, (0, 0), sigma) / np.maximum(total, 0.02)[..., None]
    colour = background.colour + cv2.resize(mean_off, (width, height), interpolation=cv2.INTER_LINEAR)
    distance = np.linalg.norm(lab - colour, axis=2)
    return replace(background, colour=colour, distance=distance, noise=float(np.median(distance[known])))


def _halo(reached: np.ndarray, distance: np.ndarray) -> np.ndarray:
    """Background that JPEG's blocks have soiled: unlike the background, but far less so than the object close by.

    JPEG spreads an edge over blocks of 8 pixels, 16 in chroma, at a fraction of the edge's contrast.
    """
    radius = max(1, min(12, min(reached.shape) // 12))
    contrast = cv2.dilate(distance, cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * radius + 1,) * 2))
    soiled = (distance < 0.3 * contrast) & cv2.dilate(
        reached.astype(np.uint8), np.ones((2 * radius + 1,) * 2, np.uint8)
    ).astype(bool)
    return _reached_from_border(reached | soiled)


def _background_like(lab: np.ndarray, background: _Background) -> np.ndarray:
    """bool [H, W]: near the background's colour, and not on an edge."""
    gradient = np.sqrt(sum(cv2.Sobel(lab, cv2.CV_32F, *axis, ksize=3, scale=1 / 8) ** 2 for axis in ((1, 0), (0, 1))))
    steep = np.linalg.norm(gradient, axis=2) > 1.0 + 2 * background.noise
    return (background.distance < background.tolerance) & ~(steep & (background.distance > 0.5 * background.tolerance))


def _reached_from_border(like: np.ndarray) -> np.ndarray:
    """The part of `like` that hangs together with the border through passages at least 3 pixels wide."""
    padded = np.pad(like, 2, constant_values=True).astype(np.uint8)  # a ring outside: all of the border is a start
    wide = cv2.erode(padded, np.ones((3, 3), np.uint8))
    wide[0], wide[-1], wide[:, 0], wide[:, -1] = 1, 1, 1, 1
    _, labels = cv2.connectedComponents(wide, connectivity=4)
    reached = cv2.dilate((labels == labels[0, 0]).astype(np.uint8), np.ones((3, 3), np.uint8)) & padded
    return reached[2:-2, 2:-2].astype(bool)


def _holes(enclosed: np.ndarray, object_mask: np.ndarray, background: _Background) -> np.ndarray:
    """Which enclosed background-like patches are holes: large, as even as the background itself, and sharply bounded.

    A highlight on a white cup fades into the cup; the view through its handle ends at an edge.
    """
    count, labels, stats, _ = cv2.connectedComponentsWithStats(enclosed.astype(np.uint8), connectivity=4)
    smallest = max(16, HOLE_SHARE * object_mask.sum())
    kernel = np.ones((3, 3), np.uint8)
    holes = np.zeros_like(enclosed)
    for label in range(1, count):
        if stats[label, cv2.CC_STAT_AREA] < smallest:
            continue
        patch = (labels == label).astype(np.uint8)
        rim = cv2.dilate(patch, kernel, iterations=4) & ~cv2.dilate(patch, kernel, iterations=2) & object_mask
        even = np.median(background.distance[patch > 0]) < max(0.6, 1.5 * background.noise)
        if even and rim.any() and np.median(background.distance[rim > 0]) > max(8.0, 2 * background.tolerance):
            holes |= patch > 0
    return holes


def _without_specks(mask: np.ndarray, distance: np.ndarray) -> np.ndarray:
    """Drop parts below half a percent of the largest (noise), and below five if faint too (soiled JPEG blocks)."""
    count, labels, stats, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=8)
    if count == 1:
        return mask
    areas = stats[:, cv2.CC_STAT_AREA].copy()
    areas[0] = 0
    strongest = np.zeros(count, np.float32)
    np.maximum.at(strongest, labels[mask], distance[mask])
    faint = strongest < 0.3 * np.median(distance[labels == areas.argmax()])
    share = areas / areas.max()
    return (share >= np.where(faint, 0.05, 0.005))[labels] & mask


def _grab(rgb: np.ndarray, lab: np.ndarray) -> np.ndarray:
    """The object's mask, bool [H, W], by GrabCut at reduced size, started from the distance to the border's colours."""
    height, width = rgb.shape[:2]
    scale = min(1.0, GRABCUT_SIDE / max(height, width))
    small_size = (max(1, round(width * scale)), max(1, round(height * scale)))
    small = cv2.resize(rgb, small_size, interpolation=cv2.INTER_AREA)
    small_lab = _to_lab(small)
    border = _border(*small.shape[:2])
    distance = _distance_to_palette(small_lab, small_lab[border])

    y, x = np.mgrid[0 : small.shape[0], 0 : small.shape[1]]
    ellipse = ((x / small.shape[1] - 0.5) / 0.42) ** 2 + ((y / small.shape[0] - 0.5) / 0.42) ** 2 < 1
    mask = np.full(small.shape[:2], cv2.GC_PR_BGD, np.uint8)
    unlike = distance > max(12.0, np.percentile(distance[border], 95))
    mask[unlike & ellipse] = cv2.GC_PR_FGD
    mask[border & ~unlike] = cv2.GC_BGD
    if (mask == cv2.GC_PR_FGD).sum() < 25:
        mask[ellipse] = cv2.GC_PR_FGD
    if not ((mask == cv2.GC_BGD).any() and (mask == cv2.GC_PR_FGD).any()):
        return np.zeros((height, width), bool)
    cv2.setRNGSeed(0)  # its colour clusters start from random centres
    cv2.grabCut(
        cv2.cvtColor(small, cv2.COLOR_RGB2BGR),
        mask,
        None,
        np.zeros((1, 65)),
        np.zeros((1, 65)),
        5,
        cv2.GC_INIT_WITH_MASK,
    )
    found = ((mask == cv2.GC_FGD) | (mask == cv2.GC_PR_FGD)).astype(np.uint8)
    found = cv2.morphologyEx(found, cv2.MORPH_OPEN, np.ones((3, 3), np.uint8))
    found = _main_parts(found.astype(bool), border).astype(np.float32)
    return cv2.resize(found, (width, height), interpolation=cv2.INTER_LINEAR) > 0.5


def _main_parts(mask: np.ndarray, border: np.ndarray) -> np.ndarray:
    """The largest part, and others of a fifth of its size or more that keep off the border: the rest is clutter."""
    count, labels, stats, _ = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=8)
    areas = stats[:, cv2.CC_STAT_AREA].copy()
    areas[0] = 0
    touching = np.isin(np.arange(count), labels[border])
    keep = (areas >= max(1, 0.2 * areas.max())) & (~touching | (areas == areas.max()))
    return keep[labels] & mask


def _distance_to_palette(lab: np.ndarray, samples: np.ndarray, colours: int = 6) -> np.ndarray:
    """float32 [H, W]: Lab distance to the nearest of a few colours that stand for the samples."""
    cv2.setRNGSeed(0)
    stop = (cv2.TERM_CRITERIA_EPS + cv2.TERM_CRITERIA_MAX_ITER, 20, 0.5)
    colours = min(colours, len(samples))
    _, _, palette = cv2.kmeans(np.ascontiguousarray(samples), colours, None, stop, 2, cv2.KMEANS_PP_CENTERS)
    return np.min([np.linalg.norm(lab - colour, axis=2) for colour in palette], axis=0)


def _matte(rgb: np.ndarray, mask: np.ndarray, background: _Background) -> np.ndarray:
    """Soft coverage and clean colours along the outline of a mask.

    With B the nearest sure background and F the nearest sure object colour, a pixel C of the band has coverage
    alpha = (C - B).(F - B) / |F - B|^2, and the object's share of its colour is (C - (1 - alpha) B) / alpha.
    """
    picture = rgb.astype(np.float32)
    solid = mask.astype(np.uint8)
    kernel = np.ones((3, 3), np.uint8)
    reach = 2 if min(mask.shape) >= 64 else 1
    inner = cv2.erode(solid, kernel, iterations=reach, borderValue=1).astype(bool)
    outer = cv2.dilate(solid, kernel, iterations=reach).astype(bool)
    band = outer & ~inner
    near_object, near_background = _nearest(inner, picture), _nearest(~outer, picture)
    if near_object is None or near_background is None:
        return np.dstack([rgb, np.where(mask, 255, 0).astype(np.uint8)])
    c, f, b = picture[band], near_object[band], near_background[band]  # [n, 3]
    along = ((c - b) * (f - b)).sum(1)
    length = ((f - b) ** 2).sum(1)
    measured = np.clip(along / np.maximum(length, 1), 0, 1)
    # Where object and background look alike the colour tells nothing: the outline itself, smoothed, stands in.
    smooth = cv2.GaussianBlur(mask.astype(np.float32), (0, 0), 0.7)[band]
    trust = np.clip((np.sqrt(length) - 15) / 30, 0, 1)
    coverage = mask.astype(np.float32)
    coverage[band] = trust * measured + (1 - trust) * smooth
    clean = picture.copy()
    alpha = coverage[band][:, None]
    own = np.clip((c - (1 - alpha) * b) / np.maximum(alpha, 0.05), 0, 255)
    weight = np.clip(2 * alpha - 0.5, 0, 1)  # below a quarter of coverage dividing by it amplifies noise: take F
    clean[band] = weight * own + (1 - weight) * f
    return np.dstack([np.rint(clean), np.rint(255 * coverage)]).astype(np.uint8)


def _nearest(sure: np.ndarray, picture: np.ndarray) -> np.ndarray | None:
    """[H, W, 3]: each pixel's nearest `sure` pixel's colour; None if there is none."""
    if not sure.any():
        return None
    _, labels = cv2.distanceTransformWithLabels(
        (~sure).astype(np.uint8), cv2.DIST_L2, 5, labelType=cv2.DIST_LABEL_PIXEL
    )
    palette = np.zeros((labels.max() + 1, 3), np.float32)
    palette[labels[sure]] = picture[sure]
    return palette[labels]
