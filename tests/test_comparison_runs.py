"""Whole runs by two backends: what is measured, kept and compared; the scripts that do it."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from comparison import article, run, whole_run
from comparison.assets import asset_distance, read_asset
from config import load_config
from errors import UserError
from mesh_extract import BACKENDS, GridSpec, extract_fields
from scenes import shell
from scripts import article_runs, compare_backends
from splat_ply import read_gaussians, write_gaussians

ROOT = Path(article_runs.__file__).resolve().parent.parent
CPU = torch.device("cpu")
TINY = (
    "mesh.resolution=24", "mesh.seal=0", "mesh.faces=600", "texture.size=64", "texture.render_size=32",
    "texture.passes=0", "texture.unwrap=simple", "output.turntable=none",
)  # fmt: skip


@pytest.fixture(scope="module")
def splats(tmp_path_factory) -> Path:
    """A closed shell of 300 wide Gaussians in a .ply."""
    gaussians = shell(300, torch.Generator().manual_seed(0))
    gaussians.log_scales += 1.3
    path = tmp_path_factory.mktemp("splats") / "shell.ply"
    write_gaussians(gaussians, path)
    return path


@pytest.fixture(scope="module", autouse=True)
def same_code():
    """The code may be edited while the tests run: they look at one state of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(whole_run, "code_hash", lambda names: "this code")
        yield


@pytest.fixture(scope="module")
def compared(splats, tmp_path_factory) -> Path:
    """The output folder of a small comparison, whole runs included."""
    out = tmp_path_factory.mktemp("compared")
    options = ["--resolution", "20", "--sizes", "12", "20", "--repeats", "2", "--seconds", "2", "--iso", "0.2"]
    arguments = [str(splats), "--backends", "cpu", "numba", *options, "--out", str(out), "--config"]
    settings = out / "tiny.yaml"
    settings.write_text("")
    assert compare_backends.main([*arguments, str(settings), "--set", f"load={splats}", *TINY]) == 0
    return out


def test_the_comparison_leaves_tables_a_record_and_three_figures(compared):
    record = json.loads((compared / "comparison.json").read_text())
    assert [row["name"] for row in record["fields"]] == ["cpu", "numba"]
    assert all(row["error"]["excess"] <= 1 and row["timing"]["repeats"] >= 1 for row in record["fields"])
    assert record["fields"][1]["distance"]["hausdorff"] < 1e-3 * record["voxel_size"]
    assert {(row["name"], row["resolution"]) for row in record["scaling"]} == {
        (name, size) for name in ("cpu", "numba") for size in (12, 20)
    }
    (account,) = record["accounts"]
    slow, fast = (record["runs"][name] for name in ("cpu", "numba"))
    assert account["measured"] == pytest.approx(slow["total_s"] / fast["total_s"])
    assert account["share"] == pytest.approx(slow["field_s"] / slow["total_s"])
    for path in ("comparison.md", "figure_6_times.svg", "figure_7_amdahl.svg", "figure_8_gustafson.svg"):
        assert (compared / path).stat().st_size > 500
    # The field is a part of its stage, and that of the whole.
    for measured in (slow, fast):
        assert 0 < measured["field_s"] <= measured["stages"]["density field"] <= measured["total_s"]


def test_a_finished_run_is_taken_up_and_another_one_is_not(compared, splats):
    config = load_config(None, [f"load={splats}", *TINY])
    out = compared / "runs"
    kept = whole_run.kept_run(config, "numba", CPU, out)
    assert (
        kept is not None
        and kept.total_s == json.loads((compared / "comparison.json").read_text())["runs"]["numba"]["total_s"]
    )
    assert whole_run.kept_run(replace(config, seed=1), "numba", CPU, out) is None
    assert whole_run.kept_run(config, "numba", torch.device("cuda"), out) is None
    assert whole_run.kept_run(config, "numba", CPU, out / "elsewhere") is None
    (out / "warm-up" / "numba" / "measured.json").write_text("{")
    assert whole_run.kept_run(config, "numba", CPU, out / "warm-up") is None


def test_of_repeated_runs_the_median_counts_and_is_kept(monkeypatch, tmp_path):
    config = load_config(None, [])
    seconds = {"cpu": iter([9.0, 3.0, 5.0]), "numba": iter([99.0, 2.0, 1.0, 4.0])}  # the first of numba warms up
    order = []

    def measured(config, backend, device, out):
        order.append(backend)
        return whole_run.WholeRun(backend, next(seconds[backend]), 0.5, "cpu", {}, {}, str(tmp_path))

    monkeypatch.setattr(run, "whole_run", measured)
    found = run.run_all(config, ["cpu", "numba"], CPU, tmp_path, repeats=3)
    assert {name: each.total_s for name, each in found.items()} == {"cpu": 5.0, "numba": 2.0}
    assert order == ["numba", *["cpu", "numba"] * 3], "in turns: what the machine does besides falls on both"
    (tmp_path / "run.json").write_text("{}")
    assert whole_run.kept_run(config, "cpu", CPU, tmp_path).total_s == 5.0


def test_the_field_alone_is_timed_and_the_backend_put_back(generator):
    original = BACKENDS["numba"]
    gaussians = shell(50, generator)
    with pytest.raises(KeyError), whole_run.timed_backend("numba") as calls:
        extract_fields(gaussians, GridSpec.cube(-1, 1, 5), "numba")
        extract_fields(gaussians, GridSpec.cube(-1, 1, 9), "numba")
        extract_fields(gaussians, GridSpec.cube(-1, 1, 9), "cpu")
        raise KeyError
    assert BACKENDS["numba"] is original
    assert calls.nodes == [125, 729] and calls.field_s == calls.seconds[1]


def test_assets_of_both_backends_are_one(compared):
    apart = asset_distance(*(compared / "runs" / name for name in ("cpu", "numba")))
    assert apart.splats == 0
    # One or another node may change sides: measured 2e-7 of the size, and pictures equal but for rounding.
    assert apart.hausdorff < 5e-3 * apart.size and apart.views < 0.5 and apart.views_psnr_db > 40
    itself = asset_distance(*(compared / "runs" / "cpu",) * 2)
    assert (itself.splats, itself.views, itself.texture) == (0, 0, 0) and itself.hausdorff < 1e-9


def test_assets_that_differ_are_told_apart(compared, tmp_path):
    """A second asset that is moved, of other splats and another texture."""
    from mesh_extract import export_mesh

    asset = read_asset(compared / "runs" / "cpu")
    assert len(asset.mesh.faces) <= 600 and asset.texture.shape == (64, 64, 3)
    moved = replace(asset.mesh, vertices=asset.mesh.vertices + np.array([0.05, 0, 0]))
    export_mesh(replace(asset, mesh=moved, texture=255 - asset.texture), tmp_path / "b.glb")
    gaussians = read_gaussians(compared / "runs" / "cpu" / "cpu_gaussians.ply")
    write_gaussians(gaussians[1:], tmp_path / "b_gaussians.ply")
    apart = asset_distance(compared / "runs" / "cpu", tmp_path)
    assert apart.splats is None and apart.texture > 10 and apart.views > 5 and apart.views_psnr_db < 30
    # Faces that the shift leaves in their own plane are not moved at all.
    assert 0.045 < apart.hausdorff < 0.0501 and 0.01 < apart.mean < 0.05
    with pytest.raises(UserError, match="expected one .* of a run"):
        asset_distance(compared, tmp_path)


def test_the_articles_runs_count_their_iterations():
    for count in (20, 80):
        config = load_config(ROOT / "configs" / f"article_{count}.yaml")
        assert article.iterations(config.fit) == count and config.refine is False


def test_the_articles_runs_are_measured_compared_and_resumed(splats, tmp_path, capsys, monkeypatch):
    empty = tmp_path / "tiny.yaml"
    empty.write_text("")
    out = tmp_path / "out"
    arguments = ["--backends", "cpu", "numba", "--timed-config", str(empty), "--validation-config", str(empty)]
    arguments += ["--out", str(out), f"load={splats}", *TINY]
    assert article_runs.main([*arguments, "--device", "cpu"]) == 0
    first = capsys.readouterr().out
    record = json.loads((out / "article.json").read_text())
    assert record["validation"]["whole_runs"]["splats"] == 0 and "same_splats" not in record["validation"]
    assert len(record["timed"]["accounts"]) == 1 and record["timed"]["runs"]["cpu"]["field_device"] == "cpu"
    assert "How far the two assets are apart." in first

    def never(*_):
        raise AssertionError("nothing is left to run")

    monkeypatch.setattr(run, "whole_run", never)
    assert article_runs.main([*arguments, "--device", "cpu"]) == 0
    assert re.sub("Measured on:.*", "", capsys.readouterr().out) == re.sub("Measured on:.*", "", first)


def test_where_two_fits_differ_one_of_them_is_meshed_by_both(splats, compared, tmp_path, monkeypatch):
    """On a GPU equal seeds need not give equal splats: what the backends do is then measured apart from that."""
    runs = {
        name: whole_run.WholeRun(name, 1.0, 0.5, "cpu", {}, {}, str(compared / "runs" / name))
        for name in ("cpu", "numba")
    }
    asked = []

    def run_all(config, backends, device, out, *_, **__):
        asked.append((config.load, config.input, out.name))
        return runs

    distances = iter([1e-3, 0.0])
    original = article.asset_distance
    monkeypatch.setattr(article, "run_all", run_all)
    monkeypatch.setattr(article, "asset_distance", lambda *f: replace(original(*f), splats=next(distances)))
    config = load_config(None, ["input=cat.png"])
    wanted = article.ArticleRuns(tmp_path, ("cpu", "numba"), ("cpu", "numba"))
    record = article.repeat_article(None, config, wanted, CPU)
    assert asked[0] == ("", "cat.png", "validation")
    assert asked[1] == (str(compared / "runs" / "cpu" / "cpu_gaussians.ply"), "", "validation-mesh")
    assert record["validation"]["whole_runs"]["splats"] == 1e-3 and record["validation"]["same_splats"]["splats"] == 0
    assert "the same splats meshed by both" in (tmp_path / "article.md").read_text()


@pytest.mark.parametrize(
    ("script", "arguments", "message"),
    [
        (compare_backends, ["missing.ply"], "missing.ply: no such file"),
        (compare_backends, ["--backends", "cdua"], "--backends='cdua' is unknown"),
        (compare_backends, ["--points", "0"], "--points 0"),
        (compare_backends, ["--set", "mesh.smoth=1"], "mesh.smoth"),
        (compare_backends, ["--config", "missing.yaml"], "missing.yaml: no such file"),
        (compare_backends, ["--backends", "numba", "--points", "9", "--iso", "90", "--sizes"], "no surface at mesh"),
        (article_runs, ["--backends", "cdua", "cpu"], "--backends='cdua' is unknown"),
        (article_runs, ["--backends", "cpu"], "expected two at least"),
        (article_runs, ["--backends", "cpu", "numba", "input=missing.png", "--device", "cpu"], "missing.png"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_line(script, arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert script.main([*arguments, "--out", "out"]) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    assert len(errors) == 1 and message in errors[0]


def test_a_backend_that_is_not_there_is_refused_by_name_where_it_was_asked_for(tmp_path, monkeypatch, capsys):
    from errors import BackendUnavailable

    def unavailable(gaussians, grid):
        raise BackendUnavailable("no driver")

    monkeypatch.setitem(BACKENDS, "double", unavailable)
    assert article_runs.main(["--backends", "cpu", "double", "--out", str(tmp_path)]) == 2
    assert "--backends double: no driver" in capsys.readouterr().err
    assert compare_backends.main(["--backends", "double", "--out", str(tmp_path), "--no-whole-runs"]) == 2
    assert "none of the backends runs here: double: no driver" in capsys.readouterr().err


def test_a_wrong_backend_ends_the_comparison_with_1(tmp_path, monkeypatch):
    monkeypatch.setitem(BACKENDS, "double", lambda gaussians, grid: BACKENDS["numba"](gaussians, grid) * 1.001)
    arguments = ["--backends", "numba", "double", "--points", "200", "--resolution", "16", "--sizes", "--iso", "0.05"]
    assert compare_backends.main([*arguments, "--no-whole-runs", "--repeats", "1", "--out", str(tmp_path)]) == 1
    assert "wrong: not timed" in (tmp_path / "comparison.md").read_text()
