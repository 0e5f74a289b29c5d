"""The measures against closed forms and against scikit-image."""

import numpy as np
import pytest
import torch

from evaluation.metrics import alpha_iou, chamfer_and_fscore, psnr, sample_surface, ssim


def noisy_pair(generator, size=(2, 3, 24, 31, 3)):
    """A smooth picture and a disturbed copy, both in [0, 1]."""
    truth = torch.rand(*size, generator=generator)
    return (truth + 0.2 * torch.randn(*size, generator=generator)).clamp(0, 1), truth


def test_psnr_has_its_closed_form_and_keeps_the_batch():
    truth = torch.full((2, 3, 8, 9, 3), 0.5)
    shifts = torch.tensor([[0.1, 0.01, 0.5], [0.2, 0.0, 0.25]])
    result = psnr(truth + shifts[:, :, None, None, None], truth)
    expected = -20 * torch.log10(shifts.clamp_min(1e-5))  # the floor: 100 dB for equal pictures
    assert torch.allclose(result, expected, atol=2e-4)  # measured 5e-5: (0.5 + 0.01) - 0.5 in float32


def test_psnr_agrees_with_scikit_image(generator):
    from skimage.metrics import peak_signal_noise_ratio

    pictures, truth = noisy_pair(generator)
    expected = peak_signal_noise_ratio(truth[1, 2].numpy(), pictures[1, 2].numpy(), data_range=1)
    assert float(psnr(pictures, truth)[1, 2]) == pytest.approx(expected, abs=1e-4)


def test_ssim_agrees_with_scikit_image(generator):
    from skimage.metrics import structural_similarity

    pictures, truth = noisy_pair(generator)
    result = ssim(pictures, truth)
    assert result.shape == (2, 3)
    for i, j in np.ndindex(2, 3):
        expected = structural_similarity(
            truth[i, j].double().numpy(),
            pictures[i, j].double().numpy(),
            channel_axis=-1,
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
            data_range=1.0,
        )
        assert float(result[i, j]) == pytest.approx(expected, abs=1e-6)


def test_ssim_of_a_picture_with_itself_is_one_and_falls_with_noise(generator):
    truth = torch.rand(16, 16, 3, generator=generator)
    noise = torch.randn(16, 16, 3, generator=generator)
    values = [float(ssim((truth + amount * noise).clamp(0, 1), truth)) for amount in (0.0, 0.05, 0.2)]
    assert values[0] == pytest.approx(1.0, abs=1e-12) and values[0] > values[1] > values[2]


def test_ssim_refuses_a_picture_smaller_than_its_window():
    with pytest.raises(ValueError, match="at least 11 pixels"):
        ssim(torch.zeros(10, 30, 3), torch.zeros(10, 30, 3))


def test_alpha_iou_of_overlapping_squares():
    first, second = torch.zeros(2, 10, 10), torch.zeros(2, 10, 10)
    first[0, :4, :4] = 0.5  # the threshold itself counts as inside
    second[0, 2:6, :4] = 1.0
    second[0, 9, 9] = 0.49
    # 8 pixels shared of 24; the second pair is empty twice
    assert alpha_iou(first, second).tolist() == pytest.approx([8 / 24, 1.0])


def square(z: float) -> tuple[np.ndarray, np.ndarray]:
    """A unit square at height z of two triangles of unequal area, and a triangle without area."""
    vertices = np.array([[0, 0, z], [1, 0, z], [1, 1, z], [0, 1, z]], dtype=np.float32)
    return vertices, np.array([[0, 1, 2], [0, 2, 3], [0, 0, 1]])


def test_sampled_points_lie_evenly_on_the_surface():
    vertices, faces = square(0.25)
    points = sample_surface(vertices, faces, 20_000, seed=3)
    assert np.array_equal(points, sample_surface(vertices, faces, 20_000, seed=3))
    assert (points[:, 2] == 0.25).all() and points.min() >= 0 and points.max() <= 1
    counts, _, _ = np.histogram2d(points[:, 0], points[:, 1], bins=4, range=[[0, 1], [0, 1]])
    # 1250 a cell expected, standard deviation 34; measured at most 2.1 of them with this seed
    assert np.abs(counts - 1250).max() < 4 * 34


def test_chamfer_and_fscore_of_parallel_squares():
    truth = sample_surface(*square(0.0), 5_000, seed=0)
    near, far = truth + [0, 0, 0.04], truth + [0, 0, 0.06]
    chamfer, fscore = chamfer_and_fscore(near, truth)
    # A little less than 0.04 is impossible, since every distance has that height
    assert chamfer == pytest.approx(0.04, abs=1e-9) and fscore == 1.0
    chamfer, fscore = chamfer_and_fscore(far, truth)
    assert chamfer == pytest.approx(0.06, abs=1e-9) and fscore == 0.0


def test_fscore_is_the_harmonic_mean_of_precision_and_recall():
    line = np.stack([np.linspace(0, 1, 1001), np.zeros(1001), np.zeros(1001)], axis=1)
    half = line[:500]
    chamfer, fscore = chamfer_and_fscore(half, line, distance=0.0)
    recall = 500 / 1001
    assert fscore == pytest.approx(2 * recall / (1 + recall))
    assert chamfer == pytest.approx(0.5 * np.arange(1, 502).sum() * 0.001 / 1001)


def test_a_mesh_without_faces_has_a_finite_bad_score():
    truth = sample_surface(*square(0.5), 1_000, seed=0)
    nothing = sample_surface(np.zeros((0, 3)), np.zeros((0, 3), dtype=int), 1_000, seed=0)
    chamfer, fscore = chamfer_and_fscore(nothing, truth)
    assert chamfer > 0.5 and fscore == 0.0
