"""Stable-Zero123 in the app: from a picture to files; and its hyper-parameters on a prior that knows the object."""

import json

import pytest
import torch
from checkpoint_doubles import write_zero123
from oracle_prior import OraclePrior, painted_object

import pipeline
from cameras import orbit_cameras
from config import load_config
from fit import fit_gaussians
from gs_renderer import render
from main import main

CONFIG = pipeline.Path(pipeline.__file__).parent / "configs" / "image_sai.yaml"
TINY = [
    "fit.views=2", "fit.rounds=1", "fit.denoise_steps=5", "fit.points=1500", "fit.init_steps=3", "fit.round_steps=3",
    "mesh.resolution=24", "texture.size=32", "texture.render_size=16", "texture.passes=0", "output.turntable=none",
]  # fmt: skip


def test_from_a_picture_to_files(tmp_path):
    weights = write_zero123(tmp_path / "weights")
    config = load_config(CONFIG, [f"prior.weights={weights}", f"outdir={tmp_path}", *TINY])
    folder = pipeline.run(config, torch.device("cpu"), show_progress=False)
    assert (folder / "sample.glb").stat().st_size > 0 and (folder / "sample_gaussians.ply").stat().st_size > 0
    record = json.loads((folder / "run.json").read_text())
    assert record["config"]["prior"]["variant"] == "stable-zero123" and record["mesh"]["closed"]


def test_missing_weights_are_one_line(capsys, tmp_path):
    arguments = ["--config", str(CONFIG), f"prior.weights={tmp_path / 'none'}", f"outdir={tmp_path}"]
    assert main([*arguments, "--device", "cpu", "--quiet"]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    for words in (str(tmp_path / "none"), "ashawkey/stable-zero123-diffusers", "2.5 GB", "non-commercial", "fetch_w"):
        assert words in line


@pytest.mark.parametrize("variant", ["", "stable", "imagedream"])
def test_the_variant_has_to_be_named(capsys, tmp_path, variant):
    arguments = ["prior.name=zero123", f"prior.variant={variant}", f"outdir={tmp_path}", "--quiet"]
    assert main(arguments) == 2
    assert "expected stable-zero123 or zero123-xl" in capsys.readouterr().err


def test_the_official_numbers_find_the_object_from_colours_alone():
    """The fit of image_sai.yaml, shortened, on views without coverage: shape and colours come out, without haze."""
    truth = painted_object(400)
    prior = OraclePrior(truth, image_size=48, channels=3)
    config = load_config(CONFIG, ["fit.rounds=8", "fit.points=1500", "fit.denoise_steps=5"]).fit
    found = fit_gaussians(prior.picture(10.0), prior, config, 10.0, torch.Generator().manual_seed(0))
    cameras = orbit_cameras([45.0, 135.0, 225.0, 315.0], 10.0, width=48, height=48)
    with torch.no_grad():
        seen, expected = render(found, cameras), render(truth, cameras)
    covered, meant = seen.alpha > 0.5, expected.alpha > 0.5
    overlap = float((covered & meant).sum() / (covered | meant).sum())
    error = float((seen.rgb - expected.rgb).abs().mean())
    # 0.991 and 0.0061 were measured.
    assert overlap > 0.96 and error < 0.015
