import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import pipeline
from cameras import orbit_cameras
from config import Config, load_config
from errors import UserError
from gaussians import Gaussians
from mesh_extract import GridSpec, Mesh, extract_fields, smooth_field
from mesh_extract.carve import LEVEL
from prepare import PreparedImage
from priors.base import Prior
from scenes import ball, shell
from stages import StageTimes


def dense_ball(generator: torch.Generator) -> Gaussians:
    gaussians = ball(1500, generator)
    gaussians.log_scales += math.log(2.5)
    return gaussians


def dense_shell(generator: torch.Generator) -> Gaussians:
    gaussians = shell(1500, generator)
    gaussians.log_scales += math.log(2.5)
    return gaussians


def hausdorff(a: Mesh, b: Mesh) -> float:
    """Two-sided: the largest distance of a vertex of one mesh from the surface of the other, or a hair more."""
    from scipy.spatial import cKDTree
    from trimesh.triangles import closest_point

    def one_sided(mesh: Mesh, other: Mesh) -> float:
        triangles = other.vertices[other.faces].astype(np.float64)  # [F, 3, 3]
        _, near = cKDTree(triangles.mean(axis=1)).query(mesh.vertices, k=12)  # [V, 12]; the closest is among them
        points = np.repeat(mesh.vertices.astype(np.float64), 12, axis=0)
        distances = np.linalg.norm(closest_point(triangles[near.reshape(-1)], points) - points, axis=1)
        return float(distances.reshape(-1, 12).min(axis=1).max())

    return max(one_sided(a, b), one_sided(b, a))


def clear_threshold(gaussians: Gaussians, config: Config, near: float) -> float:
    """A threshold close to `near` from which every node is more than 1e-4 away."""
    grid = GridSpec.around(gaussians, config.mesh.resolution)
    field = smooth_field(extract_fields(gaussians, grid, "numba"), config.mesh.smooth).numpy()
    values = np.unique(field[np.abs(field - near) < 0.3 * near])
    gaps = np.diff(values)
    middles = (values[1:] + values[:-1]) / 2
    wide = gaps > 2.5e-4
    assert wide.any(), "no threshold is clear of the nodes"
    return float(middles[wide][np.abs(middles[wide] - near).argmin()])


@pytest.mark.parametrize("scene", [dense_ball, dense_shell])
def test_backends_give_one_mesh(scene, generator):
    """The Python loops and the fast CPU path, through the stages that the command line runs."""
    gaussians = scene(generator)
    tiny = ["texture.size=128", "texture.passes=0", "texture.render_size=64"]
    config = load_config(None, ["mesh.resolution=48", "mesh.faces=3000", *tiny])
    config.mesh.iso = repr(clear_threshold(gaussians, config, 0.3))
    raw, final = [], []
    for backend in ("cpu", "numba"):
        settings = replace(config, mesh=replace(config.mesh, backend=backend))
        mesh, _, iso = pipeline.surface(gaussians, settings.mesh, StageTimes())
        assert iso == float(config.mesh.iso)
        raw.append(mesh)
        textured, report = pipeline.mesh_stage(gaussians, settings, None, StageTimes())
        assert report["backend"] == backend
        assert report["raw"] == {"vertices": len(mesh.vertices), "faces": len(mesh.faces)}
        final.append(textured.mesh)
    size = float(np.ptp(raw[0].vertices, axis=0).max())
    assert (len(raw[0].vertices), len(raw[0].faces)) == (len(raw[1].vertices), len(raw[1].faces))
    # Measured: 6e-8 of the size for the raw meshes, 7e-8 for the final ones: the same decisions throughout.
    assert hausdorff(*raw) <= 1e-3 * size
    assert hausdorff(*final) <= 5e-3 * size


def test_backends_choose_one_threshold(generator):
    gaussians = dense_shell(generator)
    settings = [load_config(None, ["mesh.resolution=32", f"mesh.backend={name}"]).mesh for name in ("cpu", "numba")]
    found = [pipeline.surface(gaussians, each, StageTimes()) for each in settings]
    (cpu, cpu_grid, cpu_iso), (numba, numba_grid, numba_iso) = found
    assert cpu_grid == numba_grid
    assert cpu_iso == pytest.approx(numba_iso, rel=1e-5)
    # A node within 1e-4 of the threshold may change sides: few of the 13,000 faces.
    assert abs(len(cpu.faces) - len(numba.faces)) <= 40


def test_a_low_threshold_gets_a_grid_that_reaches_it():
    """One Gaussian: the surface at iso has the radius sigma sqrt(2 ln(opacity / iso)), whole and inside the grid."""
    sigma, iso = 0.1, 5e-4
    gaussians = Gaussians.create(torch.zeros(1, 3), torch.full((1, 3), sigma), torch.tensor([0.99]))
    settings = load_config(None, ["mesh.resolution=40", f"mesh.iso={iso}", "mesh.smooth=0"]).mesh
    mesh, grid, _ = pipeline.surface(gaussians, settings, StageTimes())
    radius = sigma * math.sqrt(2 * math.log(0.99 / iso))
    assert grid.upper[0] > radius
    radii = np.linalg.norm(mesh.vertices, axis=1)
    assert radii.min() > radius - grid.voxel_size and radii.max() < radius + grid.voxel_size


def test_a_number_gives_its_level_set_and_carving_the_silhouette():
    """One Gaussian of opacity o: alpha at distance r from its centre is o exp(-r^2 / 2 sigma^2), as its density is."""
    sigma = 0.2
    gaussians = Gaussians.create(torch.zeros(1, 3), torch.full((1, 3), sigma), torch.tensor([0.999]))

    def radius(*overrides: str) -> float:
        settings = load_config(None, ["mesh.resolution=48", "mesh.smooth=0", *overrides]).mesh
        return float(np.linalg.norm(pipeline.surface(gaussians, settings, StageTimes())[0].vertices, axis=1).mean())

    voxel = 0.03  # and a little more
    silhouette = sigma * math.sqrt(2 * math.log(1 / LEVEL))  # where the coverage falls to LEVEL
    assert radius("mesh.iso=0.2") == pytest.approx(sigma * math.sqrt(2 * math.log(5)), abs=voxel)
    assert radius("mesh.iso=0.2", "mesh.carve=true") == pytest.approx(silhouette, abs=voxel)
    assert radius() == radius("mesh.carve=true") == pytest.approx(silhouette, abs=voxel)


@pytest.mark.parametrize(
    "overrides, expected",
    [
        ([], 2 * 2 * math.tan(math.radians(49.1) / 2) / 128),  # of the embedded prior, at the object's middle
        (["load=splats.ply"], 0.0),
        (["load=splats.ply", "mesh.pixel=0.02"], 0.02),
        (["mesh.pixel=0"], 0.0),
    ],
)
def test_the_mesh_stage_knows_the_pixels_of_the_fit(monkeypatch, overrides, expected):
    seen, inner = [], pipeline.surface

    class Stop(Exception): ...

    def surface(gaussians, settings, times, elevation_deg, pixel, picture):
        seen.append(pixel)
        return inner(gaussians, settings, times, elevation_deg, pixel, picture)

    def bake_texture(mesh, gaussians, settings, picture, elevation_deg, pixel):
        seen.append(pixel)
        raise Stop

    monkeypatch.setattr(pipeline, "surface", surface)
    monkeypatch.setattr(pipeline, "bake_texture", bake_texture)
    config = load_config(None, ["mesh.resolution=24", *overrides])
    with pytest.raises(Stop):
        pipeline.mesh_stage(dense_ball(torch.Generator().manual_seed(0)), config, None, StageTimes())
    assert seen == pytest.approx([expected, expected])


def test_an_impossible_threshold_names_the_range_and_proposes_one_that_works(generator):
    gaussians = dense_ball(generator)
    settings = load_config(None, ["mesh.resolution=24", "mesh.iso=1000"]).mesh
    with pytest.raises(UserError, match=r"mesh.iso=1000.*ranges from 0 to \S+; try mesh.iso=") as caught:
        pipeline.surface(gaussians, settings, StageTimes())
    proposed = str(caught.value).rpartition("=")[2]
    mesh, _, _ = pipeline.surface(gaussians, replace(settings, iso=proposed), StageTimes())
    assert mesh.volume > 0


def test_a_grid_beyond_the_memory_is_refused_before_it_is_made(monkeypatch, generator):
    monkeypatch.setattr("memory.available_memory", lambda: 1_000_000)
    monkeypatch.setattr("pipeline.extract_fields", lambda *arguments: pytest.fail("the field was computed"))
    with pytest.raises(UserError, match=r"mesh.resolution=32 \(\d+ x \d+ x \d+ nodes\) needs about 0.0 GB"):
        pipeline.surface(dense_ball(generator), load_config(None, ["mesh.resolution=32"]).mesh, StageTimes())


@pytest.mark.parametrize(
    "overrides, expected_deg",
    [
        ([], pipeline.SAMPLE_ELEVATION_DEG),
        (["elevation=null"], pipeline.SAMPLE_ELEVATION_DEG),
        (["elevation=0"], 0.0),
        (["elevation=-20"], -20.0),
        (["input=cat.png"], 0.0),
        (["input=cat.png", "elevation=30"], 30.0),
        (["load=cat.ply"], 0.0),
        (["prompt=a cat"], 0.0),
    ],
)
def test_the_sample_picture_knows_its_elevation_and_a_picture_of_the_users_is_level(overrides, expected_deg):
    assert pipeline.source_elevation(load_config(None, overrides)) == expected_deg


class NoPrior(Prior):
    """Stands in where the fit does."""

    def __init__(self, config, device):
        super().__init__(device)

    def set_source(self, prepared, elevation_deg): ...
    def alpha_sigma(self, t): ...
    def predict_noise(self, latents, t, cameras, guidance): ...


class RefiningPrior(NoPrior):
    refines = True


class TextPrior(NoPrior):
    takes_picture, takes_text = False, True

    def set_text(self, prompt, negative_prompt=""):
        self.text = prompt, negative_prompt


class BothPrior(TextPrior):
    takes_picture = True
    group_size = 4


PRIOR_KINDS = {"embedded": RefiningPrior, "text": TextPrior, "both": BothPrior}


def know_kinds(monkeypatch) -> None:
    """Let the app find these instead of its priors."""
    monkeypatch.setattr("pipeline.PRIORS", PRIOR_KINDS)
    monkeypatch.setattr("pipeline.make_prior", lambda settings, device: PRIOR_KINDS[settings.name](settings, device))


def test_a_text_alone_needs_no_picture(tmp_path, monkeypatch, generator):
    seen = []
    fitted = dense_ball(generator)
    monkeypatch.setattr(
        "pipeline.fit_gaussians", lambda p, prior, c, deg, *rest: seen.append((p, prior.text, deg)) or fitted
    )
    know_kinds(monkeypatch)
    tiny = ["mesh.resolution=16", "texture.size=32", "texture.render_size=16", "texture.passes=0"]
    overrides = ["prior.name=text", "prompt=a cat, sitting!", "negative_prompt=dogs", f"outdir={tmp_path}"]
    config = load_config(None, [*tiny, "output.turntable=none", *overrides])
    folder = pipeline.run(config, torch.device("cpu"), show_progress=False)
    assert seen == [(None, ("a cat, sitting!", "dogs"), 0.0)]
    assert folder == tmp_path / "a_cat_sitting" and (folder / "a_cat_sitting.glb").is_file()
    record = json.loads((folder / "run.json").read_text())
    assert record["source"] == record["config"]["prompt"] == "a cat, sitting!"
    with Image.open(folder / "a_cat_sitting_views.png") as sheet:
        assert sheet.size == (8 * 256, 2 * 256)  # no column for a picture


@pytest.mark.parametrize(
    "overrides, message",
    [
        (["prompt=a cat"], "prompt='a cat': prior.name=embedded takes no text; choose from text, both"),
        (["prior.name=text"], "prompt='': prior.name=text needs a text, such as prompt=\"a cat\""),
        (["prior.name=text", "prompt= ,"], "needs a text"),
        (["prior.name=text", "prompt=a cat", "input=cat.png"], "input=cat.png: prior.name=text takes a text and no"),
        (["prior.name=both", "prompt=a cat"], "prompt='a cat': prior.name=both needs a picture too: input=FILE"),
        (["prior.name=both", "fit.views=6"], "fit.views=6: prior.name=both expects a multiple of 4"),
        (["prior.name=both", "refinement.views=5"], "refinement.views=5: prior.name=both expects a multiple of 4"),
    ],
)
def test_what_the_prior_does_not_take_is_refused(tmp_path, monkeypatch, overrides, message):
    monkeypatch.setattr("pipeline.PRIORS", PRIOR_KINDS)
    with pytest.raises(UserError) as caught:
        pipeline.run(load_config(None, [*overrides, f"outdir={tmp_path}"]), torch.device("cpu"))
    assert message in str(caught.value)


def test_which_priors_refine_textures_by_default():
    assert {name for name, kind in pipeline.PRIORS.items() if kind.refines} == {"embedded"}


@pytest.mark.parametrize(
    "name, refine, refined",
    [
        ("embedded", "true", 1),
        ("embedded", "null", 1),
        ("embedded", "false", 0),
        ("embedded, no rounds", "true", 0),
        ("embedded, no picture", "true", 0),
        ("embedded, no picture", "null", 0),
        ("text", "true", 1),
        ("text", "null", 0),
    ],
)
def test_the_texture_is_refined_with_the_runs_picture_or_text(monkeypatch, generator, name, refine, refined):
    """The mesh stage alone, as the evaluation calls it too."""
    seen = []
    know_kinds(monkeypatch)
    monkeypatch.setattr("pipeline.refine_texture", lambda textured, *rest: seen.append(rest) or textured)
    overrides = ["mesh.resolution=16", "texture.size=32", "texture.render_size=16", "texture.passes=0"]
    kind = name.partition(",")[0]
    if kind == "text":
        overrides.append("prompt=a cat")
    if name.endswith("no rounds"):
        overrides.append("refinement.rounds=0")
    config = load_config(None, [*overrides, f"prior.name={kind}", f"refine={refine}", "elevation=12"])
    camera = orbit_cameras(0.0, 12.0, width=20, height=20)
    picture = PreparedImage(torch.rand(20, 20, 3), torch.ones(20, 20))
    reference = (picture, camera) if name == "embedded" else None
    pipeline.mesh_stage(dense_ball(generator), config, reference, StageTimes())
    assert len(seen) == refined
    for prior, settings, _, shown, elevation_deg, device in seen:
        assert settings == config.refinement and device == torch.device("cpu")
        assert elevation_deg == pytest.approx(12.0)
        if kind == "text":
            assert prior.text == ("a cat", "") and shown is None
        else:
            torch.testing.assert_close(shown[0], picture.rgba)
            assert shown[1] is camera


@pytest.mark.parametrize(
    "prompt, name",
    [
        ("a cat", "a_cat"),
        ("  ein Käfer / テスト  ", "ein_Käfer_テスト"),
        ("../../etc", "etc"),
        ("x" * 90, "x" * 40),
        ("a small wooden rocking horse with a red saddle and bells", "a_small_wooden_rocking_horse_with_a_red"),
    ],
)
def test_a_prompt_names_its_run(prompt, name):
    assert pipeline.run_folder(load_config(None, [f"prompt={prompt}", "outdir=out"]), None) == Path("out", name)


@pytest.mark.parametrize("overrides, expected_deg", [([], 10.0), (["input={sample}"], 0.0), (["elevation=25"], 25.0)])
def test_fit_previews_and_record_agree_on_the_elevation(tmp_path, monkeypatch, generator, overrides, expected_deg):
    seen = []
    fitted = dense_ball(generator)
    monkeypatch.setattr("pipeline.fit_gaussians", lambda p, prior, c, deg, *rest: seen.append(deg) or fitted)
    monkeypatch.setattr("pipeline.PRIORS", {"embedded": NoPrior})
    monkeypatch.setattr("priors.make.PRIORS", {"embedded": NoPrior})

    def views(picture, gaussians, textured, elevation_deg):
        seen.append(elevation_deg)
        return sheet(picture, gaussians, textured, elevation_deg, 16)

    sheet = pipeline.views_sheet
    monkeypatch.setattr("pipeline.views_sheet", views)
    overrides = [text.format(sample=pipeline.SAMPLE_PICTURE) for text in overrides]
    tiny = ["mesh.resolution=16", "texture.size=32", "texture.render_size=16", "texture.passes=0"]
    config = load_config(None, [*tiny, "output.turntable=none", *overrides, f"outdir={tmp_path}"])
    folder = pipeline.run(config, torch.device("cpu"), show_progress=False)
    record = json.loads((folder / "run.json").read_text())
    assert seen == [expected_deg, expected_deg]
    assert record["config"]["elevation"] == expected_deg
    assert record["config"]["refine"] is False and "refine texture" not in record["ran_on"]


@pytest.mark.parametrize(
    "source, save_path, expected",
    [
        ("a/photo.v2.png", "", "out/photo.v2"),
        ("cat_rgba.png", "", "out/cat"),
        ("cat_rgba.png", "dog", "out/dog"),
        ("cat.png", "a/b c", "out/a/b c"),
        ("cat.png", "a/", "out/a"),
        ("cat.png", "../up", "out/../up"),
        ("_rgba.png", "", "out/asset"),  # else the name would be that of the outdir
        ("...png", "", "out/asset"),
        ("a\nb.png", "", "out/a_b"),
    ],
)
def test_the_run_folder(source, save_path, expected):
    config = load_config(None, ["outdir=out", f"save_path={save_path}"])
    assert str(pipeline.run_folder(config, Path(source))) == expected


def test_a_tilde_is_the_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    assert pipeline.run_folder(load_config(None, ["outdir=~/a"]), Path("cat.png")) == tmp_path / "a" / "cat"
    with pytest.raises(UserError, match="home.ply: no such file") as caught:
        pipeline.run(load_config(None, ["load=~/home.ply", f"outdir={tmp_path}"]), torch.device("cpu"))
    assert str(tmp_path) in str(caught.value)


def test_a_gpu_without_enough_memory_is_one_line(monkeypatch, generator):
    def fail(*arguments):
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate ...")

    monkeypatch.setattr("pipeline.fit_gaussians", fail)
    monkeypatch.setattr("pipeline.PRIORS", {"embedded": NoPrior})
    monkeypatch.setattr("priors.make.PRIORS", {"embedded": NoPrior})
    with pytest.raises(UserError, match="prior.name=embedded needs more memory than cuda has; try"):
        pipeline.fit_stage(None, Config(), torch.device("cuda"), generator, False)


def test_the_seed_and_the_camera_are_told(tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.setattr("pipeline.fit_stage", lambda *arguments: (_ for _ in ()).throw(UserError("enough")))
    with pytest.raises(UserError, match="enough"):
        pipeline.run(load_config(None, ["seed=5", "elevation=-20", f"outdir={tmp_path}"]), torch.device("cpu"))
    assert "seed: 5" in caplog.messages
    assert "the picture counts as taken from -20 degrees (+ is above)" in caplog.messages
