"""Distances and parts of shapes made of nodes against scipy, and on a GPU against the CPU; the blur too."""

import numpy as np
import pytest
import torch
from scipy import ndimage

from mesh_extract.blur import gaussian_blur
from mesh_extract.morphology import parts_with, squared_distances

SHAPES = [(1, 1, 1), (13, 1, 3), (9, 7, 70), (33, 40, 21), (2, 130, 5)]
SHARES = [0.003, 0.05, 0.5, 0.97]


def noise(shape: tuple[int, ...], share: float) -> torch.Tensor:
    marked = np.random.default_rng(1).random(shape) < share
    marked.flat[-1] = True
    return torch.from_numpy(marked)


def blobs(shape: tuple[int, ...]) -> torch.Tensor:
    """Round shapes with narrow bridges: long parts whose pieces are joined late."""
    field = ndimage.gaussian_filter(np.random.default_rng(2).normal(size=shape), 1.5)
    return torch.from_numpy(field > 0)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("share", SHARES)
def test_distances_are_exact(shape, share):
    marked = noise(shape, share)
    expected = np.rint(ndimage.distance_transform_edt(~marked.numpy()) ** 2)
    assert np.array_equal(squared_distances(marked).numpy(), expected)


def test_nothing_marked_is_far_from_everything():
    assert (squared_distances(torch.zeros(3, 4, 5, dtype=torch.bool)) == 1 << 30).all()


@pytest.mark.parametrize("corners", [False, True])
def test_parts_are_those_that_hold_a_seed(corners):
    """A chain that only corners join, a block away from it, and a seed outside the mask."""
    mask = torch.zeros(8, 8, 8, dtype=torch.bool)
    chain = torch.arange(4)
    mask[chain, chain, chain] = True
    mask[6:, 6:, 6:] = True
    seeds = torch.zeros_like(mask)
    seeds[0, 0, 0] = seeds[5, 0, 5] = True
    expected = torch.zeros_like(mask)
    expected[chain[: 4 if corners else 1], chain[: 4 if corners else 1], chain[: 4 if corners else 1]] = True
    assert torch.equal(parts_with(mask, seeds, corners), expected)
    seeds[7, 6, 7] = True
    expected[6:, 6:, 6:] = True
    assert torch.equal(parts_with(mask, seeds, corners), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", SHAPES)
def test_the_gpu_finds_the_same_distances_and_parts(cuda, shape):
    masks = [noise(shape, share) for share in SHARES] + [torch.zeros(shape, dtype=torch.bool), blobs(shape)]
    for mask in masks:
        assert torch.equal(squared_distances(mask.to(cuda)).cpu(), squared_distances(mask))
        seeds = noise(shape, 0.01)
        for corners in (False, True):
            there = parts_with(mask.to(cuda), seeds.to(cuda), corners).cpu()
            assert torch.equal(there, parts_with(mask, seeds, corners))


@pytest.mark.gpu
def test_a_gpu_that_is_not_the_current_one(other_gpu):
    mask, seeds = blobs((33, 40, 21)), noise((33, 40, 21), 0.01)
    distances = squared_distances(mask.to(other_gpu))
    assert distances.device == other_gpu and torch.equal(distances.cpu(), squared_distances(mask))
    parts = parts_with(mask.to(other_gpu), seeds.to(other_gpu))
    assert parts.device == other_gpu and torch.equal(parts.cpu(), parts_with(mask, seeds))
    blurred = gaussian_blur(mask.float().to(other_gpu), 0.7, (0, 1, 2), truncate=3.0)
    assert torch.equal(blurred.cpu(), gaussian_blur(mask.float(), 0.7, (0, 1, 2), truncate=3.0))


@pytest.mark.gpu
def test_long_parts_on_the_gpu(cuda):
    """A spiral through a whole grid is one part; cut in the middle, half of it."""
    spiral = torch.zeros(64, 64, 64, dtype=torch.bool)
    spiral[::2] = True  # planes, each joined to the next at one of two opposite corners
    for plane in range(1, 63, 2):
        spiral[(plane, 0, 0) if plane % 4 == 1 else (plane, 63, 63)] = True
    seeds = torch.zeros_like(spiral)
    seeds[0, 5, 5] = True
    assert torch.equal(parts_with(spiral.to(cuda), seeds.to(cuda)).cpu(), spiral)
    cut = spiral.clone()
    cut[31] = False
    expected = cut.clone()
    expected[31:] = False
    for _ in range(5):  # other orders of threads
        assert torch.equal(parts_with(cut.to(cuda), seeds.to(cuda)).cpu(), expected)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sigma", [0.3, 0.7, 2.3])
def test_the_gpu_blurs_alike(cuda, dtype, sigma):
    """Bit for bit: the same sums in the same order; of pictures over two of the three axes."""
    values = torch.rand(21, 34, 5, dtype=dtype, generator=torch.Generator().manual_seed(0))
    for axes in ((0, 1, 2), (0, 1)):
        here, there = (gaussian_blur(v, sigma, axes, truncate=3.0) for v in (values, values.to(cuda)))
        assert torch.equal(there.cpu(), here) and here.dtype == dtype
