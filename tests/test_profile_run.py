"""Profiles of a run: a trace that holds the stages, tables of where the time went."""

import gzip
import json
import pstats
import sys

import pytest

import pipeline
from comparison.profile import Cost, by_self, by_total, cost_table, stage_table
from profiling import profiled
from scenes import shell
from scripts import profile_run
from splat_ply import write_gaussians

TINY = (
    "mesh.resolution=16", "mesh.seal=0", "mesh.faces=200", "texture.size=64", "texture.render_size=32",
    "texture.passes=0", "texture.unwrap=simple", "output.turntable=none",
)  # fmt: skip


@pytest.fixture
def arguments(tmp_path, generator) -> list[str]:
    gaussians = shell(100, generator)
    gaussians.log_scales += 1.6
    write_gaussians(gaussians, tmp_path / "shell.ply")
    return [f"load={tmp_path / 'shell.ply'}", *TINY, "--device", "cpu", "--out", str(tmp_path / "out"), "--top", "5"]


def test_torchs_profile_has_stages_operators_and_a_trace(arguments, tmp_path, capsys):
    assert profile_run.main([*arguments, "--backend", "cpu"]) == 0
    out = tmp_path / "out"
    text = capsys.readouterr().out
    assert text == (out / "profile.md").read_text(encoding="utf-8")
    for words in ("| density field |", "| texture |", "Operators of torch", "| `aten::"):
        assert words in text
    events = json.loads(gzip.decompress((out / "trace.json.gz").read_bytes()))["traceEvents"]
    stages = {event["name"]: event for event in events if event.get("cat") == "user_annotation"}
    assert {"density field", "isosurface", "texture"} <= set(stages)
    # The loops of this backend call torch: their operators lie inside their stage.
    stage = stages["density field"]
    inside = [
        event
        for event in events
        if event["name"] == "aten::exp_" and stage["ts"] <= event["ts"] <= stage["ts"] + stage["dur"]
    ]
    assert inside and (out / "run" / "run.json").is_file()


def test_functions_that_the_app_marks_are_a_table_of_their_own(arguments, capsys, monkeypatch):
    def clean_and_mark(*args):
        return original(*args)

    original = pipeline.clean_mesh
    monkeypatch.setattr(pipeline, "clean_mesh", profiled(clean_and_mark))
    assert profile_run.main([*arguments, "--top", "50"]) == 0
    marked = capsys.readouterr().out.partition("Functions of the app that are marked.")[2].partition("Operators")[0]
    assert "clean_and_mark` | 1 |" in marked


@pytest.mark.skipif(sys.version_info >= (3, 12) and sys.monitoring.get_tool(2) is not None, reason="profiled already")
def test_pythons_profile_names_functions_by_file(arguments, tmp_path, capsys):
    assert profile_run.main([*arguments, "--python"]) == 0
    text = capsys.readouterr().out
    assert "`pipeline.py:" in text and "| density field |" in text and str(tmp_path) not in text
    files = {file for file, _, _ in pstats.Stats(str(tmp_path / "out" / "run.pstats")).stats}
    assert any(file.endswith("pipeline.py") for file in files)


def test_tables_are_sorted_and_cut():
    costs = [Cost("a", 1, 0.1, 3.0), Cost("b", 2, 0.3, 0.3), Cost("c", 10_000, 0.2, 1.0)]
    assert [cost.name for cost in by_self(costs)] == ["b", "c", "a"]
    assert [cost.name for cost in by_total(costs)] == ["a", "c", "b"]
    assert cost_table(by_self(costs), 2).splitlines()[2:] == [
        "| `b` | 2 | 300.0 | 300.0 |", "| `c` | 10,000 | 200.0 | 1,000.0 |",
    ]  # fmt: skip
    assert "| fit | 3.00 | 75% |" in stage_table({"fit": 3.0, "texture": 1.0})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["input=missing.png"], "missing.png"),
        (["--backend", "cdua"], "mesh.backend='cdua' is unknown"),
        (["mesh.smoth=1"], "mesh.smoth"),
    ],
)
def test_what_is_wrong_is_one_line(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert profile_run.main([*arguments, "--device", "cpu", "--out", "out"]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert sum(line.startswith("error:") for line in errors) == 1 and message in errors[-1]
