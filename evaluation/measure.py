"""One held-out object through the whole pipeline, measured."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cameras import Cameras
from config import Config
from errors import UserError
from evaluation import baselines, metrics
from evaluation.objects import HeldOut, true_surface
from evaluation.report import AT_SOURCE
from gaussians import Gaussians
from mesh_extract.mesh import Mesh
from mesh_extract.textured import TexturedMesh
from prepare import PreparedImage
from priors.base import Prior
from run_record import own_peak_memory_mb, peak_memory_mb
from stages import StageTimes
from views import Views

FORMAT = 4  # of a result; raised when a number changes its meaning
FINE_SUPERSAMPLE = 4  # samples a pixel's side of "mesh_finely"; "mesh", which is judged, has 2
REFERENCE = 0  # of the cameras, the source's
NOVEL = slice(1, None)


@dataclass(frozen=True)
class Pipeline:
    """What is measured; tests put doubles here.

    fit: (picture, config, device, generator) -> Gaussians.
    mesh: (Gaussians, config, reference, times) -> (textured mesh, report).
    make_prior: (config, device) -> Prior that samples each view by itself, for the baselines.
    fuse: (views, config, generator) -> Gaussians fitted to fixed pictures.
    true_surface: object -> (mesh in the pipeline's frame, number of parts).
    mean_mesh: () -> the mean object's mesh.
    """

    fit: Callable[[PreparedImage, Config, torch.device, torch.Generator], Gaussians]
    mesh: Callable[
        [Gaussians, Config, tuple[PreparedImage, Cameras] | None, StageTimes], tuple[TexturedMesh, dict]
    ]
    make_prior: Callable[[Config, torch.device], Prior]
    fuse: Callable[[Views, Config, torch.Generator], Gaussians]
    true_surface: Callable[[HeldOut], tuple[Mesh, int]] = true_surface
    mean_mesh: Callable[[], Mesh] = baselines.mean_object_mesh


@dataclass
class Measured:
    """result: plain values for JSON. pictures: name -> rgb [9, S, S, 3] for the sheets. arrays: to be kept beside."""

    result: dict
    pictures: dict[str, Tensor]
    arrays: dict[str, np.ndarray]


def measure_object(
    item: HeldOut,
    config: Config,
    device: torch.device,
    pipeline: Pipeline,
    samples_path: Path | None,
    mean_mesh: Mesh | None,
) -> Measured:
    """Reconstruct one object and measure it against the truth and the baselines.

    Args:
        config: its elevation is replaced by the object's.
        samples_path: where the prior's independent samples are kept; None leaves out every baseline that needs the
            prior, and the mean mesh.
        mean_mesh: the mean object's, with samples_path.
    """
    from evaluation.pixel_filter import render_mesh_as_splats
    from gs_renderer import render
    from mesh_extract.mesh_raster import render_mesh

    _forget_peak_memory(device)
    config = replace(config, elevation=item.elevation_deg)
    generator = torch.Generator().manual_seed(config.seed)
    times = StageTimes()
    started_s = time.perf_counter()

    with times.stage("fit"):
        gaussians = pipeline.fit(item.picture, config, device, generator)
    reference = item.picture, item.cameras[REFERENCE].resized(item.picture.size, item.picture.size)
    with times.stage("mesh"):
        textured, report, failure = _mesh(pipeline, gaussians, config, reference, times)
    pipeline_s = time.perf_counter() - started_s
    peak_memory_mb = _peak_memory_mb(device)  # of the pipeline alone

    with times.stage("measure"), torch.no_grad():
        splats = render(gaussians.detach().to("cpu"), item.cameras, background=(1.0, 1.0, 1.0))
        drawn = {"splats": (splats.rgb.cpu(), splats.alpha.cpu())}
        if textured is None:
            nothing = (torch.ones_like(item.rgb), torch.zeros_like(item.alpha))
            drawn |= dict.fromkeys(("mesh", "mesh_finely", "mesh_filtered"), nothing)
        else:
            boxes = render_mesh(textured, item.cameras)
            drawn["mesh"] = (boxes.rgb, boxes.alpha)
            finely = render_mesh(textured, item.cameras, supersample=FINE_SUPERSAMPLE)
            drawn["mesh_finely"] = (finely.rgb, finely.alpha)
            drawn["mesh_filtered"] = (render_mesh_as_splats(textured, item.cameras), boxes.alpha)
        drawn["copy"] = (item.rgb[:1].expand_as(item.rgb), item.alpha[:1].expand_as(item.alpha))
        drawn["mean_object"] = (item.mean_rgb, item.mean_alpha)
        truth_mesh, true_components = pipeline.true_surface(item)
        true_points = _surface_points(truth_mesh, item, 0)
        mesh = baselines.empty_mesh() if textured is None else textured.mesh
        meshes = {"mesh": mesh}

    if samples_path is not None:
        with times.stage("baseline: samples"):
            samples = baselines.cached_samples(
                lambda: pipeline.make_prior(config, device), item, config.seed, samples_path
            )
            novel = len(item.cameras) - 1
            # The source's own view needs no sample.
            drawn["samples"] = (
                torch.cat([item.rgb[:1], samples.rgb[:novel]]),
                torch.cat([item.alpha[:1], samples.alpha[:novel]]),
            )
        fused_views = baselines.with_source(item, samples)
        with times.stage("baseline: fused samples"):
            fused = pipeline.fuse(fused_views, config, torch.Generator().manual_seed(config.seed))
            fused_mesh, _, _ = _mesh(pipeline, fused, config, None, StageTimes())
            meshes["fused_samples"] = baselines.empty_mesh() if fused_mesh is None else fused_mesh.mesh
            with torch.no_grad():
                fused_pictures = render(fused.detach().to("cpu"), item.cameras, background=(1.0, 1.0, 1.0))
            drawn["fused_samples"] = (fused_pictures.rgb.cpu(), fused_pictures.alpha.cpu())
        with times.stage("baseline: hull"):
            meshes["visual_hull"] = baselines.visual_hull(fused_views.alpha, fused_views.cameras)
        meshes["mean_object"] = mean_mesh

    with times.stage("measure"):
        surfaces = {}
        for name, one in meshes.items():
            chamfer, fscore = metrics.chamfer_and_fscore(_surface_points(one, item, 1), true_points)
            surfaces[name] = {"chamfer": _rounded(chamfer, 5), "fscore": _rounded(fscore, 4)}
        views = {name: _picture_measures(rgb[NOVEL], alpha[NOVEL], item) for name, (rgb, alpha) in drawn.items()}
        at_source = {name: _reference_measures(*drawn[name], item) for name in AT_SOURCE}

    seconds = times.seconds | {"pipeline": pipeline_s}
    result = {
        "format": FORMAT,
        "version": item.version,
        "index": item.index,
        "seed": item.seed,
        "azimuth_deg": _rounded(item.azimuth_deg, 3),
        "elevation_deg": _rounded(item.elevation_deg, 3),
        "views": views,
        "reference": at_source,
        "surfaces": surfaces,
        "mesh": mesh_properties(mesh) | {"true_components": true_components, "failure": failure, "report": report},
        "gaussians": len(gaussians),
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "peak_memory_mb": peak_memory_mb,
    }
    pictures = {"truth": item.rgb} | {name: rgb for name, (rgb, _) in drawn.items()}
    return Measured(result, pictures, _kept_arrays(gaussians, mesh, pictures))


def _mesh(
    pipeline: Pipeline,
    gaussians: Gaussians,
    config: Config,
    reference: tuple[PreparedImage, Cameras] | None,
    times: StageTimes,
) -> tuple[TexturedMesh | None, dict, str | None]:
    """The mesh stage; Gaussians without a surface are a bad result to be counted, not the end of an evaluation."""
    try:
        textured, report = pipeline.mesh(gaussians, config, reference, times)
    except UserError as error:
        return None, {}, str(error)
    return textured, report, None


def mesh_properties(mesh: Mesh) -> dict:
    """Whether a mesh is whole: its parts, whether it is closed, and whether every part winds outward."""
    count, part_of_face = mesh.components()
    volumes = np.bincount(part_of_face, mesh.face_volumes(), count) if count else np.zeros(0)
    return {
        "components": int(count),
        "closed": mesh.is_closed(),
        "outward": bool(count > 0 and (volumes > 0).all()),
        "euler_number": mesh.euler_number(),
        "vertices": len(mesh.vertices),
        "faces": len(mesh.faces),
        "volume": _rounded(mesh.volume, 6),
    }


def _picture_measures(rgb: Tensor, alpha: Tensor, item: HeldOut) -> dict[str, list[float]]:
    """Every measure of every novel view, in the order of objects.NOVEL_AZIMUTHS_DEG."""
    rgb, truth_rgb, truth_alpha = rgb.clamp(0, 1), item.rgb[NOVEL], item.alpha[NOVEL]
    return {
        "psnr": _rounded_list(metrics.psnr(rgb, truth_rgb), 4),
        "ssim": _rounded_list(metrics.ssim(rgb, truth_rgb), 5),
        "iou": _rounded_list(metrics.alpha_iou(alpha, truth_alpha), 5),
    }


def _reference_measures(rgb: Tensor, alpha: Tensor, item: HeldOut) -> dict[str, float]:
    """The same, at the source's own view."""
    rgb, truth = rgb[REFERENCE].clamp(0, 1), item.rgb[REFERENCE]
    return {
        "psnr": _rounded(float(metrics.psnr(rgb, truth)), 4),
        "ssim": _rounded(float(metrics.ssim(rgb, truth)), 5),
        "iou": _rounded(float(metrics.alpha_iou(alpha[REFERENCE], item.alpha[REFERENCE])), 5),
    }


def _surface_points(mesh: Mesh, item: HeldOut, stream: int) -> np.ndarray:
    """Points on a surface; stream 0 is the truth's, so that a mesh is never compared with its own very points."""
    return metrics.sample_surface(mesh.vertices, mesh.faces, metrics.SURFACE_POINTS, seed=2 * item.index + stream)


def _kept_arrays(gaussians: Gaussians, mesh: Mesh, pictures: dict[str, Tensor]) -> dict[str, np.ndarray]:
    """What the npz beside a result holds: parameters of the splats, the mesh, and the drawn pictures as bytes."""
    kept = {f"gaussians.{name}": value.detach().cpu().numpy() for name, value in gaussians.tensors().items()}
    kept |= {"mesh.vertices": mesh.vertices, "mesh.faces": mesh.faces}
    for name, rgb in pictures.items():
        if name in ("copy", "mean_object"):  # follow from the truth
            continue
        kept[f"pictures.{name}"] = (rgb.clamp(0, 1) * 255).round().to(torch.uint8).numpy()
    return kept


def _rounded(value: float, digits: int) -> float:
    return round(float(value), digits)


def _rounded_list(values: Tensor, digits: int) -> list[float]:
    return [_rounded(value, digits) for value in values.tolist()]


def _forget_peak_memory(device: torch.device) -> None:
    """Start a new peak, since one process measures several objects; only Linux can do that for resident memory."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pass  # the peak is then that of the process so far


def _peak_memory_mb(device: torch.device) -> dict[str, float]:
    """Peak of resident memory, and of torch's on the GPU if there is one, in 10^6 bytes; what is not known is left out.

    Children count only where the process's own peak is not told: theirs cannot be forgotten between objects.
    """
    host_mb = own_peak_memory_mb() or peak_memory_mb()
    peaks = {} if host_mb is None else {"host": round(host_mb, 1)}
    if device.type == "cuda":
        peaks["gpu"] = round(torch.cuda.max_memory_allocated(device) / 1e6, 1)
    return peaks
