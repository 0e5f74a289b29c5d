"""The benchmark of whole runs times nothing that is wrong."""

import json
import sys
from pathlib import Path

import pytest
import trimesh

from errors import UserError

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))

from bench_pipeline import checked, summary


@pytest.fixture
def finished(tmp_path) -> Path:
    """A folder as a run leaves it: a closed mesh, a picture, the record."""
    trimesh.creation.icosphere(1).export(tmp_path / "a_mesh.ply")
    (tmp_path / "a_views.png").write_bytes(b"picture")
    record = {
        "files": ["a_mesh.ply", "a_views.png"], "ran_on": {"rasteriser": "cpu"}, "seconds": {"fit": 2.0},
        "total_seconds": 3.0,
    }  # fmt: skip
    (tmp_path / "run.json").write_text(json.dumps(record))
    return tmp_path


def test_a_good_run_gives_its_seconds(finished):
    assert checked(finished, "cpu") == checked(finished, "auto") == {"fit": 2.0, "whole run": 3.0}


def test_a_run_that_is_not_what_it_should_be_is_refused(finished):
    with pytest.raises(UserError, match="not on cuda"):
        checked(finished, "cuda")
    mesh = trimesh.creation.icosphere(1)
    mesh.invert()
    mesh.export(finished / "a_mesh.ply")
    with pytest.raises(UserError, match="turned inside out"):
        checked(finished, "cpu")
    mesh.update_faces(range(len(mesh.faces) - 1))
    mesh.export(finished / "a_mesh.ply")
    with pytest.raises(UserError, match="not closed"):
        checked(finished, "cpu")
    (finished / "a_views.png").write_bytes(b"")
    with pytest.raises(UserError, match="a_views.png missing or empty"):
        checked(finished, "cpu")


def test_medians_with_their_spread():
    assert (summary([]), summary([1.0]), summary([3.0, 1.0, 2.0])) == ("-", "1.00", "2.00 [1.00 3.00]")
