"""The flow of a run, one call a stage: picture -> Gaussians -> density -> mesh -> textured mesh -> files."""

import importlib.util
import logging
import math
import os
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor

from cameras import Cameras, orbit_cameras
from config import Config, MeshConfig
from devices import choose_device, enough_memory, reproducible, require_backend
from errors import UserError
from files import check_writable, whole_file, whole_files
from fit import fit_gaussians
from gaussians import Gaussians
from memory import free_memory, require_memory
from mesh_extract import (
    BACKENDS,
    ISOSURFACES,
    LOOSE_SHARE,
    GridSpec,
    Mesh,
    TexturedMesh,
    auto_threshold,
    bake_texture,
    carve,
    clean_mesh,
    export_mesh,
    extract_fields,
    extract_mesh,
    fill_cavities,
    smooth_field,
)
from mesh_extract.carve import silhouettes_of
from mesh_extract.fields import resolve_backend
from mesh_extract.grid import SURFACE_LEVEL
from mesh_extract.slab_field import SlabField, blur_radius, coarse_grid, slab_planes, surface_by_slabs
from prepare import PreparedImage, prepare_image
from previews import turntable_frames, views_sheet, write_turntable
from priors import PRIORS
from priors.make import make_prior
from profiling import set_scope
from refine import refine_texture
from registry import lookup
from rehearsal import start_late
from run_record import describe_run, write_json
from runtime_env import usable_cpus
from splat_ply import read_gaussians, write_gaussians
from stages import StageTimes

logger = logging.getLogger(__name__)

SAMPLE_PICTURE = Path(__file__).resolve().parent / "assets" / "sample.png"
SAMPLE_ELEVATION_DEG = 10.0  # from which it was taken
_LONGEST_NAME = 40  # of a run that is named by its prompt, characters
_BYTES_A_NODE = 64  # of the density grid, from the field to the surface: measured 60 at 224^3, 81 at 160^3
_MOST_BYTES_ON_GPU = 10e9  # that a whole field takes there, however much is free: 512^3, so that slabs begin beyond
_MESH_BYTES_A_NODE = 1100  # of the grid's sides, to clean the surface: measured 1 to 2 faces a node, 560 bytes a face

__all__ = ["choose_device", "fit_stage", "make_prior", "mesh_stage", "run", "run_folder", "source_elevation", "surface"]


def source_elevation(config: Config) -> float:
    """Elevation of the picture's camera, degrees: as given; else 0, for the sample picture its own."""
    if config.elevation is not None:
        return config.elevation
    return 0.0 if config.input or config.load or config.prompt else SAMPLE_ELEVATION_DEG


def fit_stage(
    prepared: PreparedImage | None,
    config: Config,
    device: torch.device,
    generator: torch.Generator,
    show_progress: bool,
) -> Gaussians:
    """Gaussians on `device` for a prepared picture or a text, under the prior that the configuration names."""
    prior = make_prior(config.prior, device)
    if prior.takes_text:
        prior.set_text(config.prompt, config.negative_prompt)
    what, advice = f"prior.name={config.prior.name}", "try a smaller fit.views, or --device cpu"
    with enough_memory(what, device, advice), reproducible(config.deterministic, device):
        picture = None if prepared is None else prepared.to(device)
        return fit_gaussians(picture, prior, config.fit, source_elevation(config), generator, show_progress, device)


def surface(
    gaussians: Gaussians,
    settings: MeshConfig,
    times: StageTimes,
    elevation_deg: float = 0.0,
    pixel: float = 0.0,
    picture: tuple[Tensor, Cameras] | None = None,
) -> tuple[Mesh, GridSpec, float]:
    """The closed surface of the Gaussians as the isosurface method gives it, its grid and its threshold.

    Args:
        elevation_deg: of the camera of the picture that they were fitted to.
        pixel: side, in world units, of the pixels that they were fitted in; 0: not known.
        picture: coverage [H, W] of the picture that they were fitted to, if there is one, and its camera.
    """
    automatic = settings.iso == "auto"
    # A number asks for the surface at that density: it is not cut unless that is asked for too.
    carving = automatic if settings.carve is None else settings.carve
    with times.stage("density field"):
        # A threshold below those of `auto` lies farther out: the grid has to reach it.
        level = SURFACE_LEVEL if automatic else min(SURFACE_LEVEL, float(settings.iso) / 2)
        grid = GridSpec.around(gaussians, settings.resolution, level)
        # Beyond memory: the field whole on a coarser grid, for what only the whole can tell.
        whole = _require_room(grid, settings, gaussians.means.device)
        sampled = grid if whole else coarse_grid(grid)
        smooth = settings.smooth * grid.voxel_size / sampled.voxel_size
        density = smooth_field(extract_fields(gaussians, sampled, settings.backend), smooth)
    with times.stage("isosurface"):
        iso = auto_threshold(gaussians, density, sampled, pixel=pixel) if automatic else float(settings.iso)
        if automatic and carving:
            iso *= LOOSE_SHARE
        if carving:
            logger.info("surface at mesh.iso=%.3g, cut to the silhouettes of the splats", iso)
        if not whole:
            silhouettes = (
                silhouettes_of(density, iso, sampled, gaussians, elevation_deg, pixel, picture) if carving else None
            )
            backend = resolve_backend(settings.backend, gaussians.means.device)
            field = SlabField(gaussians, grid, backend, settings.smooth, iso, silhouettes)
            return surface_by_slabs(field, density, sampled, settings.seal), grid, iso
        if carving:
            density = carve(density, iso, grid, gaussians, elevation_deg, pixel=pixel, picture=picture)
        return extract_mesh(fill_cavities(density, iso, settings.seal), grid, iso, settings.method), grid, iso


def _require_room(grid: GridSpec, settings: MeshConfig, device: torch.device) -> bool:
    """Whether the field is to be whole; False: in slabs. A UserError where there is no room for either."""
    what = f"mesh.resolution={settings.resolution} ({' x '.join(map(str, grid.shape))} nodes)"
    advice = "try a smaller one"
    needed_bytes = _BYTES_A_NODE * grid.node_count
    if settings.method != "marching_cubes":
        require_memory(needed_bytes, what, advice, device)
        return True
    free_bytes = free_memory(device)
    limit_bytes = math.inf if free_bytes is None else free_bytes
    if device.type == "cuda":
        limit_bytes = min(limit_bytes, _MOST_BYTES_ON_GPU)
    if needed_bytes <= limit_bytes:
        return True
    margin = blur_radius(settings.smooth) + 1
    planes = min(slab_planes(grid) + 2 * margin, grid.shape[0])
    nodes = max(planes * grid.shape[1] * grid.shape[2], coarse_grid(grid).node_count)
    require_memory(_BYTES_A_NODE * nodes, what, advice, device)
    x, y, z = grid.shape
    require_memory(_MESH_BYTES_A_NODE * 2 * (x * y + y * z + z * x), what, advice)  # cleaned on the CPU
    logger.info("%s would need %.1f GB at once: the field is made in slabs", what, needed_bytes / 1e9)
    return False


def mesh_stage(
    gaussians: Gaussians, config: Config, reference: tuple[PreparedImage, Cameras] | None, times: StageTimes
) -> tuple[TexturedMesh, dict]:
    """A closed, textured mesh of the Gaussians, made on their device, and a report of what was found and dropped.

    Args:
        reference: the picture, if there is one, and its camera: what it sees keeps its detail in the texture.
    """
    settings = config.mesh
    elevation_deg = source_elevation(config) if reference is None else float(reference[1].orbit_angles()[1][0])
    pixel = _fitted_pixel(config, gaussians.means.device)
    outline = None if reference is None else (reference[0].alpha, reference[1])
    raw, grid, iso = surface(gaussians, settings, times, elevation_deg, pixel, outline)
    with times.stage("clean mesh"):
        mesh, cleanup = clean_mesh(raw, settings.faces, settings.floaters, settings.smooth_iterations)
    with times.stage("texture"):
        picture = None if reference is None else (reference[0].rgba, reference[1])
        textured = bake_texture(mesh, gaussians, config.texture, picture, elevation_deg, pixel)
    if _refines(config):
        with times.stage("refine texture"):
            textured = refine_stage(textured, config, reference, elevation_deg, gaussians.means.device)
    report = {
        "grid": {"lower": list(grid.lower), "voxel_size": grid.voxel_size, "shape": list(grid.shape)},
        "backend": resolve_backend(settings.backend, gaussians.means.device),
        "iso": iso,
        "raw": {"vertices": len(raw.vertices), "faces": len(raw.faces)},
        **cleanup.to_dict(),
    }
    return textured, report


def _fitted_pixel(config: Config, device: torch.device) -> float:
    """Side of the pixels that the Gaussians were fitted in, world units: as given, else the prior's; 0: not known."""
    if config.mesh.pixel is not None:
        return config.mesh.pixel
    return 0.0 if config.load else make_prior(config.prior, device).pixel


def _refines(config: Config) -> bool:
    """Whether the prior is to go over the texture: as asked, else where that is known to be worth its time."""
    if config.refinement.rounds == 0:
        return False
    if config.refine is not None:
        return config.refine
    return not config.load and lookup(PRIORS, config.prior.name, "prior.name").refines


def refine_stage(
    textured: TexturedMesh,
    config: Config,
    reference: tuple[PreparedImage, Cameras] | None,
    elevation_deg: float,
    device: torch.device,
) -> TexturedMesh:
    """The mesh with a texture that the prior has gone over, as it imagines the object of the picture or the text."""
    if lookup(PRIORS, config.prior.name, "prior.name").takes_picture and reference is None:
        logger.info("the texture is not refined: there is no picture")
        return textured
    prior = make_prior(config.prior, device)
    if prior.takes_text:
        prior.set_text(config.prompt, config.negative_prompt)
    prior.set_source(reference[0].to(device) if prior.takes_picture else None, elevation_deg)
    picture = None
    if reference is not None and config.texture.reference and prior.source_azimuth_deg is not None:
        picture = reference[0].rgba, reference[1]
    generator = torch.Generator().manual_seed(config.seed)
    return refine_texture(textured, prior, config.refinement, generator, picture, elevation_deg, device)


def run(
    config: Config,
    device: torch.device,
    show_progress: bool = True,
    started_s: float | None = None,
    rehearsed: threading.Thread | None = None,
) -> Path:
    """Run everything that the configuration asks for and write the run's folder; returns the folder.

    Args:
        started_s: when the program started, on the clock of time.perf_counter(); None: now.
        rehearsed: a rehearsal of this run that is under way: the prior and the fit wait for its end.
    Raises:
        UserError: something from outside is wrong; no file of the run is left, those of an earlier run stay.
    """
    times = StageTimes() if started_s is None else StageTimes(started_s=started_s)
    times.add("start", times.total_s)
    set_scope(config.profile)
    config = replace(config, elevation=source_elevation(config))
    _check_names(config)
    config = replace(config, refine=_refines(config))
    source = _source(config)
    folder = run_folder(config, source)
    names = _file_names(folder.name, config)
    check_writable(folder, names)  # before any work
    logger.info("seed: %d", config.seed)
    start_late(device)
    if config.load:
        with times.stage("load"):
            gaussians, reference = read_gaussians(source).to(device), None
    else:
        prepared = reference = None
        if source is not None:
            with times.stage("prepare"):
                prepared = prepare_image(source, config.prepare)
                logger.info("the picture counts as taken from %+g degrees (+ is above)", config.elevation)
                reference = (prepared, orbit_cameras(0.0, config.elevation, width=prepared.size, height=prepared.size))
        with times.stage("prior"):
            if rehearsed is not None:
                rehearsed.join()
            make_prior(config.prior, device)
        with times.stage("fit"):
            generator = torch.Generator().manual_seed(config.seed)
            gaussians = fit_stage(prepared, config, device, generator, show_progress)
    advice = "try a smaller mesh.resolution or texture.size, or --device cpu"
    with enough_memory("the mesh", device, advice), reproducible(config.deterministic, device):
        textured, mesh_report = mesh_stage(gaussians, config, reference, times)
    with whole_files(folder) as temporary:
        with enough_memory("drawing the previews", device, advice), reproducible(config.deterministic, device):
            _write_results(temporary, names, gaussians, textured, reference, config, times)
        ran_on = _ran_on(config, device)
        record = describe_run(config, str(source or config.prompt), ran_on, times, mesh_report, names[:-1])
        write_json(record, temporary / names[-1])
    _remove_other_turntables(folder, names)
    logger.info("%s: %s", folder, ", ".join(names))
    logger.info("total: %.2f s", times.total_s)
    return folder


def _source(config: Config) -> Path | None:
    """The file that goes in: splats, a picture, the sample picture; None for a text alone."""
    if config.load or config.input:
        return _path(config.load or config.input)
    return SAMPLE_PICTURE if PRIORS[config.prior.name].takes_picture else None


def run_folder(config: Config, source: Path | None) -> Path:
    """<outdir>/<save_path>; without a name, that of the input, less the `_rgba` that marks cut-out pictures.

    For a text alone (`source` is None) the name is the first words of the prompt: `a_cat`.

    Raises:
        UserError: save_path ends without a name for the files, or one that no file may have.
    """
    if not config.save_path:
        stem = _words(config.prompt) if source is None else source.stem.removesuffix("_rgba")
        # Names of files may hold what no text file can: control characters, bytes that are no UTF-8.
        name = re.sub(r"[\x00-\x1f\x7f\ud800-\udfff]", "_", stem)
        return _path(config.outdir) / (name if name.strip(". ") else "asset")
    folder = _path(config.outdir) / config.save_path
    if Path(config.save_path).name in ("", "..") or re.search(r"[\x00-\x1f\x7f\ud800-\udfff]", config.save_path):
        raise UserError(f"save_path={config.save_path!r}: expected a name for the run's folder and files, such as cat")
    return folder


def _words(text: str) -> str:
    """The first words of a text, joined by `_`, as a name of at most 40 characters."""
    name = ""
    for word in re.findall(r"\w+", text):
        if len(name) + len(word) >= _LONGEST_NAME:
            return name or word[:_LONGEST_NAME]
        name = f"{name}_{word}" if name else word
    return name


def _ran_on(config: Config, device: torch.device) -> dict[str, str]:
    """What ran where, by the parts of a run."""
    fitted = {} if config.load else {"prepare": "cpu", "prior": device.type, "fit": device.type}
    refined = {"refine texture": device.type} if config.refine else {}
    field = "cuda" if resolve_backend(config.mesh.backend, device).startswith("cuda") else "cpu"
    return {
        **fitted, "rasteriser": device.type, "density field": field, "isosurface": device.type, "clean mesh": "cpu",
        "unwrapping": "cpu", "texture": device.type, **refined, "previews": device.type, "write files": "cpu",
    }  # fmt: skip


def _path(text: str) -> Path:
    """A path as typed; shells leave the `~` of `outdir=~/assets` to the program."""
    return Path(os.path.expanduser(text))


def _check_names(config: Config) -> None:
    """Refuse before any work what names something that is not there."""
    _check_sources(config)
    lookup(BACKENDS, config.mesh.backend, "mesh.backend")
    require_backend(config.mesh.backend)
    lookup(ISOSURFACES, config.mesh.method, "mesh.method")
    if config.output.turntable == "mp4" and importlib.util.find_spec("imageio_ffmpeg") is None:
        raise UserError("output.turntable=mp4 needs imageio-ffmpeg (pip install imageio-ffmpeg); gif needs nothing")


def _check_sources(config: Config) -> None:
    """Refuse a picture or a text that the prior does not take, or lacks."""
    name = config.prior.name
    prior = lookup(PRIORS, name, "prior.name")
    if config.load:
        return
    if config.prompt and not prior.takes_text:
        takers = ", ".join(other for other, kind in PRIORS.items() if kind.takes_text)
        raise UserError(f"prompt={config.prompt!r}: prior.name={name} takes no text; choose from {takers}")
    for key, views in (("fit.views", config.fit.views), ("refinement.views", config.refinement.views)):
        if views % prior.group_size:
            expected = f"a multiple of {prior.group_size}, which it imagines together"
            raise UserError(f"{key}={views}: prior.name={name} expects {expected}")
    if prior.takes_picture:
        if config.prompt and not config.input:
            raise UserError(f"prompt={config.prompt!r}: prior.name={name} needs a picture too: input=FILE")
    elif config.input:
        raise UserError(f"input={config.input}: prior.name={name} takes a text and no picture")
    elif not re.search(r"\w", config.prompt):
        raise UserError(f'prompt={config.prompt!r}: prior.name={name} needs a text, such as prompt="a cat"')


def _file_names(name: str, config: Config) -> list[str]:
    """The files of a run, run.json last."""
    suffixes = ["_gaussians.ply", ".obj", ".mtl", "_albedo.png", ".glb", "_mesh.ply", "_views.png"]
    if config.output.turntable != "none":
        suffixes.append(f"_turntable.{config.output.turntable}")
    return [*(name + suffix for suffix in suffixes), "run.json"]


def _remove_other_turntables(folder: Path, names: list[str]) -> None:
    """Remove an earlier run's turntable of another kind: it would look like this run's. All else has been replaced."""
    for kind in ("gif", "mp4"):
        if (name := f"{folder.name}_turntable.{kind}") not in names:
            with suppress(OSError):
                (folder / name).unlink(missing_ok=True)


def _write_results(
    folder: Path,
    names: list[str],
    gaussians: Gaussians,
    textured: TexturedMesh,
    reference: tuple[PreparedImage, Cameras] | None,
    config: Config,
    times: StageTimes,
) -> None:
    """Draw the previews and write all files of a run but run.json."""
    splats, obj, _, _, glb, ply, sheet, *turntable = (folder / name for name in names[:-1])
    with times.stage("previews"):
        picture = None if reference is None else reference[0].rgba
        views = views_sheet(picture, gaussians, textured, config.elevation)
        frames = turntable_frames(textured, device=gaussians.means.device) if turntable else []
    with times.stage("write files"):
        jobs = [partial(write_gaussians, gaussians, splats, config.output.sh_degree)]
        jobs += [partial(export_mesh, textured, path) for path in (obj, glb, ply)]  # .obj: its material and picture too
        jobs.append(partial(_save_picture, views, sheet))
        jobs += [partial(write_turntable, path, frames) for path in turntable]
        with ThreadPoolExecutor(min(len(jobs), usable_cpus())) as pool:  # most of it is compression, without the lock
            for job in [pool.submit(job) for job in jobs]:
                job.result()


def _save_picture(picture: Image.Image, path: Path) -> None:
    with whole_file(path) as temporary:
        picture.save(temporary)
