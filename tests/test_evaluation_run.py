"""The run over all objects, with doubles of the pipeline: it resumes, repeats, survives failures, runs in parallel."""

import json
import shutil
from dataclasses import replace

import evaluation_doubles as doubles
import pytest
from evaluation_doubles import DOUBLES, small_truth
from PIL import Image

from config import load_config
from errors import UserError
from evaluation import fingerprint
from evaluation.run import Settings, evaluate
from scripts import evaluate as script

CHANGES = ("seconds", "median_seconds", "peak_memory_mb", "wall_s", "evaluated_now", "machine", "commit")


def settings_for(folder, **changes) -> Settings:
    return Settings(**{"out": folder / "out", "samples": folder / "samples", "objects": 3} | changes)


def without_times(value):
    """The numbers that must repeat."""
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k not in CHANGES and not k.startswith("seconds.")}
    return value


@pytest.fixture(scope="module", autouse=True)
def same_code():
    """The code may be edited while the tests run: they look at one state of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fingerprint, "code_hash", lambda names: "this code")
        yield


@pytest.fixture(scope="module")
def truth():
    return small_truth(3)


@pytest.fixture(scope="module")
def whole(truth, tmp_path_factory):
    """A run that nothing disturbs: its folder and its summary."""
    folder = tmp_path_factory.mktemp("whole")
    doubles.calls.clear()
    summary = evaluate(load_config(), settings_for(folder), DOUBLES, truth)
    assert doubles.calls == [0.0, 5.0, 10.0]  # every object once, at its own elevation
    return folder, summary


@pytest.fixture(scope="module")
def plain(truth, tmp_path_factory):
    """As `whole`, without the baselines that cost time."""
    folder = tmp_path_factory.mktemp("plain")
    return folder, evaluate(load_config(), settings_for(folder, baselines=False), DOUBLES, truth)


def interrupted_fit(picture, config, device, generator):
    """Stops the run at the second object."""
    if config.elevation > 0:
        raise KeyboardInterrupt
    return doubles.fit(picture, config, device, generator)


def failing_fit(picture, config, device, generator):
    if config.elevation == 5.0:
        raise UserError("no Gaussian is left")
    return doubles.fit(picture, config, device, generator)


def no_surface(gaussians, config, reference, times):
    raise UserError("no surface at mesh.iso=0.5")


def test_measures_find_the_ball(whole):
    _, summary = whole
    mean = summary["mean"]
    # The double's splats lie on the ball, its mesh is the ball without colours; measured 29, 19 dB, IoU 0.95, 0.98.
    assert mean["splats.psnr"] > 20 and mean["splats.iou"] > 0.9 and mean["mesh.iou"] > 0.95
    assert mean["splats.psnr"] > mean["mesh.psnr"] + 3
    assert mean["reference.splats.psnr"] > 20
    assert mean["surface.mesh.chamfer"] < 0.03 and mean["surface.mesh.fscore"] > 0.99
    assert mean["surface.visual_hull.fscore"] > 0.9
    assert mean["mesh.closed"] == mean["mesh.outward"] == mean["mesh.components_equal"] == 1
    # A ball coloured by its normals looks different from behind.
    assert mean["copy.psnr"] < mean["samples.psnr"]
    by_azimuth = summary["by_azimuth"]["copy"]["psnr"]
    assert by_azimuth["40"] > by_azimuth["80"] > by_azimuth["120"]


def test_an_interrupted_run_goes_on_and_ends_the_same(plain, truth, tmp_path):
    _, undisturbed = plain
    doubles.calls.clear()
    with pytest.raises(KeyboardInterrupt):
        evaluate(load_config(), settings_for(tmp_path, baselines=False), replace(DOUBLES, fit=interrupted_fit), truth)
    assert doubles.calls == [0.0] and not (tmp_path / "out" / "summary-v1.json").exists()
    assert not [p for p in (tmp_path / "out").rglob("*") if p.name.startswith(".part-")]
    summary = evaluate(load_config(), settings_for(tmp_path, baselines=False), DOUBLES, truth)
    assert doubles.calls == [0.0, 5.0, 10.0]  # the first object is not fitted again
    assert summary["evaluated_now"] == 2
    assert without_times(summary) == without_times(undisturbed)


def test_a_finished_run_measures_nothing_again_unless_settings_or_code_change(plain, truth, tmp_path, monkeypatch):
    folder = tmp_path / "copy"
    shutil.copytree(plain[0], folder)

    def evaluated(accept_old_code=False, overrides=()) -> int:
        settings = settings_for(folder, baselines=False, accept_old_code=accept_old_code, only=(1,))
        return evaluate(load_config(None, overrides), settings, DOUBLES, truth)["evaluated_now"]

    assert evaluated() == 0
    assert evaluated(overrides=["outdir=elsewhere"]) == 0  # says where a run writes, not what
    monkeypatch.setattr(fingerprint, "code_hash", lambda names: "other code")
    assert evaluated(accept_old_code=True) == 0
    assert evaluated() == 1
    assert evaluated(overrides=["seed=1"]) == 1


def test_weights_are_known_by_their_own_bytes(tmp_path, monkeypatch):
    weights = tmp_path / "own.safetensors"
    weights.write_bytes(b"one")
    monkeypatch.setattr(fingerprint, "DEFAULT_WEIGHTS", weights)
    before = fingerprint.weights_hash("")
    (tmp_path / "sample.png").write_bytes(b"a picture beside them")
    assert fingerprint.weights_hash("") == before
    weights.write_bytes(b"two")
    assert fingerprint.weights_hash("") != before


def test_one_object_alone_gives_what_it_gives_among_all(whole, truth, tmp_path):
    folder, _ = whole
    evaluate(load_config(), settings_for(tmp_path, only=(2,)), DOUBLES, truth)
    alone, among = (json.loads((f / "out/objects/v1-002.json").read_text()) for f in (tmp_path, folder))
    assert without_times(alone) == without_times(among)


def test_processes_give_what_one_process_gives(plain, truth, tmp_path):
    _, serial = plain
    settings = settings_for(tmp_path, baselines=False, jobs=2, threads_per_job=1)
    parallel = evaluate(load_config(), settings, DOUBLES, truth)
    assert without_times(parallel) == without_times(serial)


def test_an_object_that_fails_is_told_and_the_others_go_on(truth, tmp_path):
    settings = settings_for(tmp_path, baselines=False)
    summary = evaluate(load_config(), settings, replace(DOUBLES, fit=failing_fit), truth)
    assert summary["failed"] == {"1": "no Gaussian is left"} and list(summary["per_object"]) == ["0", "2"]


def test_splats_without_a_surface_count_as_an_empty_mesh(truth, tmp_path):
    settings = settings_for(tmp_path, baselines=False, only=(0,))
    summary = evaluate(load_config(), settings, replace(DOUBLES, mesh=no_surface), truth)
    mean = summary["mean"]
    assert not summary["failed"]
    assert mean["mesh.iou"] == 0 and mean["mesh.closed"] == 0 and mean["mesh.components_equal"] == 0
    assert mean["surface.mesh.fscore"] == 0 and mean["surface.mesh.chamfer"] > 0.4


def test_files_and_the_form_of_a_result(whole):
    folder, summary = whole
    objects = folder / "out" / "objects"
    assert sorted(p.name for p in objects.iterdir()) == [
        f"v1-00{i}{suffix}" for i in range(3) for suffix in (".json", ".npz", ".png")
    ]
    one = json.loads((objects / "v1-001.json").read_text())
    assert set(one) == {
        "format", "version", "index", "seed", "azimuth_deg", "elevation_deg", "views", "reference", "surfaces", "mesh",
        "gaussians", "seconds", "peak_memory_mb", "made_by",
    }  # fmt: skip
    meshes = {"mesh", "mesh_finely", "mesh_filtered"}
    assert set(one["views"]) == meshes | {"splats", "copy", "mean_object", "samples", "fused_samples"}
    assert all(set(m) == {"psnr", "ssim", "iou"} and {len(v) for v in m.values()} == {8} for m in one["views"].values())
    assert set(one["surfaces"]) == {"mesh", "fused_samples", "visual_hull", "mean_object"}
    assert all(set(m) == {"chamfer", "fscore"} for m in one["surfaces"].values())
    assert set(one["mesh"]) == {
        "components", "closed", "outward", "euler_number", "vertices", "faces", "volume", "true_components", "failure",
        "report",
    }  # fmt: skip
    assert {"fit", "mesh", "extract", "measure", "pipeline"} <= set(one["seconds"])
    assert set(summary) == {
        "format", "version", "objects", "mean", "median_seconds", "by_azimuth", "targets", "peak_memory_mb",
        "per_object", "failed", "config", "baselines", "device", "made_by", "commit", "machine", "wall_s",
        "evaluated_now",
    }  # fmt: skip
    assert json.loads((folder / "out" / "summary-v1.json").read_text()) == summary
    assert "| splats |" in (folder / "out" / "summary-v1.md").read_text()
    with Image.open(objects / "v1-001.png") as sheet, Image.open(folder / "out" / "overview-v1.png") as overview:
        assert sheet.width == 9 * 34 and sheet.height == 4 * 48 and overview.size == (3 * 5 * 34, 3 * 48)


def test_wrong_options_are_one_line(capsys, tmp_path):
    assert script.main(["--compare", str(tmp_path / "none.json"), str(tmp_path / "none.json")]) == 2
    assert script.main(["--only", "3,x"]) == 2
    assert script.main(["--only", "40"]) == 2
    assert script.main(["fit.nonsense=1"]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 4 and all(line.startswith("error: ") for line in lines)


def test_the_script_compares_two_runs(whole, capsys, tmp_path):
    path = whole[0] / "out" / "summary-v1.json"
    assert script.main(["--compare", str(path), str(path)]) == 0
    assert "| splats.iou |" in capsys.readouterr().out
