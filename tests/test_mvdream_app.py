"""MVDream and ImageDream in the app: from a text, or a picture with a text, to files."""

import json
from pathlib import Path

import pytest
import torch
from mvdream_doubles import write_multiview

import pipeline
from config import load_config
from main import main
from priors import PRIORS
from sir import PLANS

TINY = [
    "fit.views=4", "fit.rounds=1", "fit.plan=grid", "fit.denoise_steps=2", "fit.t_start=0.6", "fit.t_end=0.6",
    "fit.inversion_ratio=0.5", "fit.init=ball", "fit.points=2000", "fit.init_steps=3", "fit.round_steps=3",
    "mesh.resolution=24", "texture.size=32", "texture.render_size=16", "texture.passes=0", "output.turntable=none",
]  # fmt: skip


@pytest.mark.parametrize(
    "name, extra, expected",
    [
        ("mvdream", ["prompt=A cat, red!"], "A_cat_red"),
        ("imagedream", [f"input={pipeline.SAMPLE_PICTURE}", "prompt=a cat"], "sample"),
        ("imagedream", [], "sample"),
    ],
)
def test_from_words_to_files(tmp_path, name, extra, expected):
    weights = write_multiview(tmp_path / "weights", with_picture=name == "imagedream")
    overrides = [f"prior.name={name}", f"prior.weights={weights}", "prior.guidance=2", *extra, *TINY]
    config = load_config(None, [*overrides, f"outdir={tmp_path}"])
    folder = pipeline.run(config, torch.device("cpu"), show_progress=False)
    assert folder == tmp_path / expected
    assert (folder / f"{expected}.glb").stat().st_size > 0
    record = json.loads((folder / "run.json").read_text())
    assert record["config"]["prompt"] == config.prompt and record["mesh"]["closed"]


def test_a_missing_checkpoint_is_one_line(capsys, tmp_path):
    """Which file, of which repository, how large, under which licence, and how to get it."""
    arguments = ["prior.name=mvdream", "prompt=a cat", f"prior.weights={tmp_path / 'none'}", f"outdir={tmp_path}"]
    assert main([*arguments, "--device", "cpu", "--quiet"]) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    for words in (str(tmp_path / "none"), "ashawkey/mvdream-sd2.1-diffusers", "2.6 GB", "OpenRAIL", "fetch_weights.py"):
        assert words in line


def test_imagedreams_config_takes_the_official_calls():
    """285 as counted of the official code, 77 of them up; 50 + 30 x 15 steps of the optimiser."""
    config = load_config(Path(__file__).resolve().parent.parent / "configs" / "imagedream.yaml")
    fit = config.fit
    plans = PLANS[fit.plan](fit.denoise_steps, fit.rounds, fit.t_start, fit.t_end, fit.inversion_ratio)
    assert sum(plan.calls for plan in plans) == 285
    assert sum(len(plan.inversion) - 1 for plan in plans) == 77
    assert fit.init_steps + fit.rounds * fit.round_steps == 500
    assert fit.views == 4 and PRIORS[config.prior.name].group_size == 4
