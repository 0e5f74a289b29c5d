"""Sparse matrices: right against dense ones, and the same bits whenever asked."""

import pytest
import torch

from sparse_matrix import SparseMatrix


def entries(count: int, shape: tuple[int, int], generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Rows, columns and values; some places are hit twice, the last row and column never."""
    rows, columns = (torch.randint(size - 1, (count,), generator=generator) for size in shape)
    return rows, columns, torch.randn(count, generator=generator)


def dense(rows, columns, values, shape) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.float64).index_put_((rows, columns), values.double(), accumulate=True)


def worst_error(device: torch.device, generator: torch.Generator) -> float:
    shape = (40, 70)
    given = entries(900, shape, generator)
    right = torch.randn(70, 3, generator=generator)
    product = SparseMatrix(*(part.to(device) for part in given), shape) @ right.to(device)
    assert product.device.type == device.type and product.dtype == torch.float32 and product.shape == (40, 3)
    return float((product.cpu() - dense(*given, shape) @ right.double()).abs().max())


def test_a_product_is_that_of_the_dense_matrix(generator):
    assert worst_error(torch.device("cpu"), generator) < 2e-5  # measured 2e-6, of sums of about 20 terms


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (2, 3)])
def test_without_entries_a_product_is_zero(shape):
    nothing = torch.zeros(0, dtype=torch.long)
    product = SparseMatrix(nothing, nothing, torch.zeros(0), shape) @ torch.ones(shape[1], 3)
    assert product.shape == (shape[0], 3) and not product.any()


@pytest.mark.gpu
def test_a_gpu_agrees_and_repeats_its_bits(cuda, generator):
    assert worst_error(cuda, generator) < 2e-5
    shape = (5000, 60000)
    given = [part.to(cuda) for part in entries(1_000_000, shape, generator)]
    right = torch.randn(shape[1], 3, generator=generator).to(cuda)
    first, *others = (SparseMatrix(*given, shape) @ right for _ in range(5))
    assert all(torch.equal(first, other) for other in others)
    nothing = torch.zeros(0, dtype=torch.long, device=cuda)
    empty = SparseMatrix(nothing, nothing, torch.zeros(0, device=cuda), (2, 3)) @ torch.ones(3, 3, device=cuda)
    assert empty.shape == (2, 3) and not empty.any()
