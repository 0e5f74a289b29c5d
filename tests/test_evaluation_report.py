"""Means, targets, tables and the difference of two runs."""

import copy

import pytest

from errors import UserError
from evaluation import report

AZIMUTHS = (-80.0, -40.0, 40.0, 80.0)


def measures(psnr, ssim=0.7, iou=0.9):
    psnr = [psnr] * 4 if isinstance(psnr, (int, float)) else psnr
    return {"psnr": psnr, "ssim": [ssim] * 4, "iou": [iou] * 4}


def result(index: int = 0, splats=20.0, mesh=19.8, samples=18.0, copied=15.0, splats_iou=0.87, mesh_iou=0.865) -> dict:
    """A result that reaches every target."""
    return {
        "index": index,
        "views": {
            "splats": measures(splats, iou=splats_iou),
            "mesh": measures(mesh, iou=mesh_iou),
            "copy": measures(copied),
            "samples": measures(samples),
        },
        "reference": {name: {"psnr": 25.0, "ssim": 0.9, "iou": 0.95} for name in ("splats", "mesh")},
        "surfaces": {"mesh": {"chamfer": 0.03, "fscore": 0.8}},
        "mesh": {"components": 1, "true_components": 1, "closed": True, "outward": True},
        "seconds": {"fit": 10.0, "pipeline": 15.0},
        "peak_memory_mb": {"host": 100.0 + index},
    }


def verdicts(results: list[dict]) -> dict[str, bool | None]:
    return {t["name"]: t["passed"] for t in report.summarise(results, AZIMUTHS)["targets"]}


def test_means_are_over_all_views_and_objects():
    summary = report.summarise([result(1, splats=[10.0, 20.0, 30.0, 40.0]), result(0, splats=15.0)], AZIMUTHS)
    assert summary["objects"] == 2 and list(summary["per_object"]) == ["0", "1"]
    assert summary["mean"]["splats.psnr"] == 20.0
    assert summary["by_azimuth"]["splats"]["psnr"] == {"40": 20.0, "80": 20.0}
    assert summary["mean"]["surface.mesh.fscore"] == 0.8 and summary["mean"]["seconds.pipeline"] == 15.0
    assert summary["median_seconds"] == {"fit": 10.0, "pipeline": 15.0}
    assert summary["peak_memory_mb"] == {"host": 101.0}


def test_views_on_both_sides_are_one_row_of_the_table_by_azimuth():
    summary = report.summarise([result(splats=[10.0, 20.0, 30.0, 40.0])], AZIMUTHS)
    assert summary["by_azimuth"]["splats"]["psnr"] == {"40": 25.0, "80": 25.0}
    summary = report.summarise([result(splats=[10.0, 20.0, 22.0, 14.0])], AZIMUTHS)
    assert summary["by_azimuth"]["splats"]["psnr"] == {"40": 21.0, "80": 12.0}


def test_every_target_passes_and_each_can_fail_alone():
    assert set(verdicts([result()]).values()) == {True}
    failing = {
        "splats above copy": result(copied=15.6),
        "splats above independent samples": result(samples=18.8),
        "splats' silhouettes (IoU)": result(splats_iou=0.859, mesh_iou=0.86),
        "mesh against splats": result(mesh=19.69),
        "mesh against splats (IoU)": result(mesh_iou=0.859),
        "closed meshes": result() | {"mesh": result()["mesh"] | {"closed": False}},
        "outward meshes": result() | {"mesh": result()["mesh"] | {"outward": False}},
        "meshes with the true number of parts": result() | {"mesh": result()["mesh"] | {"components": 2}},
    }
    for name, one in failing.items():
        found = verdicts([one])
        assert [n for n, passed in found.items() if not passed] == [name]
    assert set(failing) == set(found)


def test_bounds_themselves_pass():
    # 20 - 18.7 in floating point is below 1.3, 19.7 - 20 below -0.3, 0.85 - 0.86 below -0.01
    exact = result(splats=20.0, mesh=19.7, samples=18.7, copied=15.5, splats_iou=0.86, mesh_iou=0.85)
    assert set(verdicts([exact]).values()) == {True}


def test_seven_of_eight_meshes_with_the_true_parts_are_enough():
    results = [result(i) for i in range(8)]
    results[3]["mesh"]["components"] = 5
    assert verdicts(results)["meshes with the true number of parts"]
    results[4]["mesh"]["components"] = 2
    assert not verdicts(results)["meshes with the true number of parts"]


def test_what_was_not_measured_neither_passes_nor_fails():
    one = result()
    del one["views"]["samples"]
    assert verdicts([one])["splats above independent samples"] is None
    assert verdicts([one, result(1)])["splats above independent samples"] is None  # a mean over some would mislead


def test_no_result_is_an_error():
    with pytest.raises(UserError, match="nothing to summarise"):
        report.summarise([], AZIMUTHS)


def summary_of(results: list[dict], version: str = "v1") -> dict:
    return {"format": 3, "version": version} | report.summarise(results, AZIMUTHS)


def test_table_tells_misses_and_failures():
    text = report.markdown(summary_of([result(copied=17.0)]) | {"failed": {"7": "no splats left"}})
    assert "| splats | 20.00 | 0.700 | 0.870 |" in text
    assert "| splats above copy | 3.000 | >= 4.5 dB | FAIL |" in text
    assert "| closed meshes | 1.000 | >= 1 | pass |" in text
    assert "7: no splats left" in text


def test_comparison_is_paired_over_the_objects_of_both():
    before = summary_of([result(0, splats=20.0), result(1, splats=22.0), result(2, splats=5.0)])
    after = summary_of([result(0, splats=21.0), result(1, splats=23.0), result(9, splats=50.0)])
    text = report.compare(before, after)
    assert text.startswith("2 objects of both runs (v1)")
    assert "| splats.psnr | 21.0000 | 22.0000 | +1.0000 ± 0.0000 | 2 of 2 |" in text


def test_comparison_knows_what_is_better_when_lower():
    before, faster = result(0), copy.deepcopy(result(0))
    faster["seconds"]["pipeline"] = 5.0
    text = report.compare(summary_of([before]), summary_of([faster]))
    assert "| seconds.pipeline | 15.0000 | 5.0000 | -10.0000 ± nan | 1 of 1 |" in text


def test_runs_that_cannot_be_compared():
    with pytest.raises(UserError, match="differ in version"):
        report.compare(summary_of([result()]), summary_of([result()], "v2"))
    with pytest.raises(UserError, match="no object in common"):
        report.compare(summary_of([result(0)]), summary_of([result(1)]))
