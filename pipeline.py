"""The flow of a run, one call a stage: picture -> Gaussians -> density -> mesh -> textured mesh -> files."""

import logging
from pathlib import Path

import torch

from cameras import Cameras, orbit_cameras
from config import Config
from errors import UserError
from files import whole_file
from fit import fit_gaussians
from gaussians import Gaussians
from mesh_extract import (
    BACKENDS,
    ISOSURFACES,
    GridSpec,
    TexturedMesh,
    auto_threshold,
    bake_texture,
    clean_mesh,
    export_mesh,
    extract_fields,
    extract_mesh,
    fill_cavities,
    smooth_field,
)
from prepare import PreparedImage, prepare_image
from previews import turntable_frames, views_sheet, write_turntable
from priors import PRIORS
from registry import lookup
from run_record import describe_run, write_json
from splat_ply import read_gaussians, write_gaussians
from stages import StageTimes

logger = logging.getLogger(__name__)

SAMPLE_PICTURE = Path(__file__).resolve().parent / "assets" / "sample.png"
SPLATS_DEVICE = torch.device("cpu")  # of the rasteriser and the density field


def choose_device(name: str) -> torch.device:
    """The device of the prior: as asked, never quietly another; "auto" takes the GPU where torch finds one."""
    if name == "cuda" and not torch.cuda.is_available():
        built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "a CPU build"
        raise UserError(f"--device cuda: torch {torch.__version__} ({built}) finds no CUDA device")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
        logger.info("device: %s", name)
    return torch.device(name)


def fit_stage(
    prepared: PreparedImage, config: Config, device: torch.device, generator: torch.Generator, show_progress: bool
) -> Gaussians:
    """Gaussians for a prepared picture, under the prior that the configuration names."""
    prior = lookup(PRIORS, config.prior.name, "prior.name")(config.prior, device)
    return fit_gaussians(prepared, prior, config.fit, config.elevation, generator, show_progress)


def mesh_stage(
    gaussians: Gaussians, config: Config, reference: tuple[PreparedImage, Cameras] | None, times: StageTimes
) -> tuple[TexturedMesh, dict]:
    """A closed, textured mesh of the Gaussians, and a report of what was found and dropped on the way.

    Args:
        reference: the picture, if there is one, and its camera: what it sees keeps its detail in the texture.
    """
    settings = config.mesh
    with times.stage("density field"):
        grid = GridSpec.around(gaussians, settings.resolution)
        density = smooth_field(extract_fields(gaussians, grid, settings.backend), settings.smooth)
    with times.stage("isosurface"):
        iso = auto_threshold(gaussians, density, grid) if settings.iso == "auto" else float(settings.iso)
        raw = extract_mesh(fill_cavities(density, iso, settings.seal), grid, iso, settings.method)
    with times.stage("clean mesh"):
        mesh, cleanup = clean_mesh(raw, settings.faces, settings.floaters, settings.smooth_iterations)
    with times.stage("texture"):
        picture = None
        if reference is not None and config.texture.reference:
            picture = (reference[0].rgba, reference[1])
        textured = bake_texture(mesh, gaussians, config.texture, picture)
    report = {
        "grid": {"lower": list(grid.lower), "voxel_size": grid.voxel_size, "shape": list(grid.shape)},
        "backend": settings.backend,
        "iso": iso,
        "raw": {"vertices": len(raw.vertices), "faces": len(raw.faces)},
        **cleanup.to_dict(),
    }
    return textured, report


def run(config: Config, device: torch.device, show_progress: bool = True) -> Path:
    """Run everything that the configuration asks for and write the run's folder; returns the folder.

    Raises:
        UserError: something from outside is wrong; no file of the run is half written.
    """
    times = StageTimes()
    source = Path(config.load or config.input or SAMPLE_PICTURE)
    folder = run_folder(config, source)
    _check_names(config)
    if config.load:
        with times.stage("load"):
            gaussians, reference = read_gaussians(source), None
    else:
        with times.stage("prepare"):
            prepared = prepare_image(source, config.prepare)
            reference = (prepared, orbit_cameras(0.0, config.elevation, width=prepared.size, height=prepared.size))
        with times.stage("fit"):
            generator = torch.Generator().manual_seed(config.seed)
            gaussians = fit_stage(prepared, config, device, generator, show_progress)
    textured, mesh_report = mesh_stage(gaussians, config, reference, times)
    with times.stage("write files"):
        files = _write_results(folder, gaussians, textured, reference, config)
    devices = {"density field": SPLATS_DEVICE.type, "everything else": SPLATS_DEVICE.type}
    if not config.load:
        devices = {"prior": device.type, "rasteriser": SPLATS_DEVICE.type, **devices}
    record = describe_run(config, str(source), devices, times.seconds, mesh_report, files)
    write_json(record, folder / "run.json")
    logger.info("%s: %s", folder, ", ".join([*files, "run.json"]))
    return folder


def run_folder(config: Config, source: Path) -> Path:
    """<outdir>/<save_path>; without a name, that of the input, less the `_rgba` that marks cut-out pictures."""
    return Path(config.outdir) / (config.save_path or source.stem.removesuffix("_rgba"))


def _check_names(config: Config) -> None:
    """Refuse unknown names before any work."""
    lookup(PRIORS, config.prior.name, "prior.name")
    lookup({"auto": None, **BACKENDS}, config.mesh.backend, "mesh.backend")
    lookup(ISOSURFACES, config.mesh.method, "mesh.method")
    if config.input and config.load:
        raise UserError(f"input={config.input} and load={config.load}: expected one of them, a picture or Gaussians")


def _write_results(
    folder: Path,
    gaussians: Gaussians,
    textured: TexturedMesh,
    reference: tuple[PreparedImage, Cameras] | None,
    config: Config,
) -> list[str]:
    """Write all files of a run but run.json; returns their names."""
    name = folder.name
    files = [
        f"{name}_gaussians.ply", f"{name}.obj", f"{name}.mtl", f"{name}_albedo.png", f"{name}.glb", f"{name}_mesh.ply",
        f"{name}_views.png",
    ]  # fmt: skip
    write_gaussians(gaussians, folder / files[0], config.output.sh_degree)
    for file in (f"{name}.obj", f"{name}.glb", f"{name}_mesh.ply"):  # the .obj writes its material and picture too
        export_mesh(textured, folder / file)
    picture = None if reference is None else reference[0].rgba
    sheet = views_sheet(picture, gaussians, textured, config.elevation)
    with whole_file(folder / f"{name}_views.png") as temporary:
        sheet.save(temporary)
    if config.output.turntable != "none":
        files.append(f"{name}_turntable.{config.output.turntable}")
        write_turntable(folder / files[-1], turntable_frames(textured))
    return files
