"""The truth: pictures and surface of a held-out object lie in one frame, the pipeline's."""

import numpy as np
import pytest
import torch
from plain_meshes import render_plain

from errors import UserError
from evaluation.metrics import alpha_iou
from evaluation.objects import NOVEL_AZIMUTHS_DEG, held_out, load_truth, render_truth, save_truth, true_surface


@pytest.fixture(scope="module")
def truth():
    return render_truth("v1", 2)


def test_the_first_held_out_objects_from_nine_sides(truth):
    import procedural

    assert truth.seeds.tolist() == procedural.held_out_seeds("v1")[:2].tolist()
    assert truth.sources.shape == (2, 256, 256, 4) and truth.views.shape == (2, 9, 128, 128, 4)
    covered = (truth.views[..., 3] > 127).mean(axis=(2, 3))
    assert covered.min() > 0.02 and covered.max() < 0.7


@pytest.mark.parametrize("index", [0, 1])
def test_the_source_is_the_reference_view_at_twice_the_size(truth, index):
    item = held_out(truth, index)
    assert item.picture.size == 256
    halved = item.picture.resized(128)
    assert float(alpha_iou(halved.alpha, item.alpha[0])) > 0.97  # measured 0.99: sampled apart at the outline
    assert (halved.rgb - item.rgb[0]).abs().mean() < 0.01


@pytest.mark.parametrize("index", [0, 1])
def test_the_true_surface_has_the_outlines_of_the_true_pictures(truth, index):
    item = held_out(truth, index)
    mesh, parts = true_surface(item, resolution=96)
    assert mesh.is_closed() and mesh.volume > 0 and parts >= 1
    drawn = render_plain(mesh, item.cameras)
    outlines = alpha_iou(drawn.alpha, item.alpha)
    assert float(outlines.min()) > 0.95, outlines
    # Not just a symmetric object: seen from elsewhere it does not fit.
    wrong = alpha_iou(drawn.alpha[1:].flip(0), item.alpha[1:])
    assert float(wrong.min()) < float(outlines.min()) - 0.05
    assert item.cameras.orbit_angles()[0].tolist() == pytest.approx([0.0, *NOVEL_AZIMUTHS_DEG], abs=1e-3)


def test_truth_is_kept_for_the_code_that_rendered_it(truth, tmp_path):
    save_truth(truth, tmp_path / "truth.npz", "this code")
    kept = load_truth(tmp_path / "truth.npz", "this code")
    assert kept.version == "v1" and all(np.array_equal(getattr(kept, n), getattr(truth, n)) for n in ("views", "seeds"))
    assert torch.equal(held_out(kept, 1).rgb, held_out(truth, 1).rgb)
    assert load_truth(tmp_path / "truth.npz", "other code") is None
    assert load_truth(tmp_path / "none.npz", "this code") is None


def test_unknown_versions_and_too_many_objects():
    with pytest.raises(UserError, match="version v9 is unknown"):
        render_truth("v9", 1)
    with pytest.raises(UserError, match="256 held-out objects"):
        render_truth("v1", 257)
