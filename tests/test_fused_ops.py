"""Fused passes of networks: the definition by numbers, the kernels against float64."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cuda_ext import compile_kernels
from priors.fused_ops import add_biased, geglu, group_norm

HALVES = (torch.float16, torch.bfloat16)


def made_norm(channels: int, groups: int) -> nn.GroupNorm:
    generator = torch.Generator().manual_seed(1)
    norm = nn.GroupNorm(groups, channels, eps=1e-6)
    for parameter in norm.parameters():
        nn.init.normal_(parameter, generator=generator)
    return norm.requires_grad_(False)


def pictures(*shape: int, seed: int = 0) -> Tensor:
    values = 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 1
    return values.contiguous(memory_format=torch.channels_last) if len(shape) == 4 else values


def test_group_norm_by_numbers():
    """One group of 1 and 3, shifted by 10 and 12: 11 and 15, of mean 13 and deviation 2: -1 and 1."""
    x = torch.tensor([1.0, 3.0], dtype=torch.float64).reshape(1, 2, 1, 1)
    norm = nn.GroupNorm(1, 2, eps=0.0, dtype=torch.float64)
    shift = torch.tensor([[10.0, 12.0]], dtype=torch.float64)
    assert group_norm(x, norm, shift=shift).flatten().tolist() == pytest.approx([-1.0, 1.0])
    assert group_norm(x, norm, True, shift).flatten().tolist() == pytest.approx([-0.268941, 0.731059], abs=1e-6)


def test_geglu_and_sum_by_numbers():
    """gelu(1) = 0.841345."""
    assert geglu(torch.tensor([[2.0, 1.0]])).tolist() == [[pytest.approx(1.68269, abs=1e-5)]]
    ones = torch.ones(1, 2, 1, 1)
    assert add_biased(ones, 2 * ones, torch.tensor([0.5, -3.0])).flatten().tolist() == [3.5, 0.0]


@pytest.mark.parametrize("name", ["group_norm", "network_ops"])
def test_the_kernels_compile_for_bfloat16_too(name):
    """Turing has no instructions for it; every other test compiles them for float16."""
    pytest.importorskip("cuda.bindings.nvrtc")
    assert compile_kernels(name, 75, {"BFLOAT": 1})


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("silu", [False, True])
@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize(
    "shape, groups",
    [
        ((12, 320, 32, 32), 32),
        ((2, 1280, 8, 8), 32),
        ((1, 2560, 7, 5), 32),
        ((1, 128, 256, 256), 32),
        ((3, 32, 1, 1), 4),
    ],
)
def test_group_norm_kernels_round_the_exact_result(cuda, dtype, silu, shifted, shape, groups):
    norm, x = made_norm(shape[1], groups).to(dtype), pictures(*shape).to(dtype)
    shift = pictures(*shape[:2], seed=2).to(dtype) if shifted else None
    exact = group_norm(
        x.double(), made_norm(shape[1], groups).to(dtype).double(), silu, None if shift is None else shift.double()
    )
    fast = group_norm(x.to(cuda), norm.to(cuda), silu, None if shift is None else shift.to(cuda))
    assert fast.dtype == dtype and fast.is_contiguous(memory_format=torch.channels_last)
    error = ((fast.cpu().double() - exact).abs() / (1 + exact.abs())).max()
    # Half a unit in the last place is 2^-11 (2^-8) of the value; 0.0004 and 0.0033 were measured.
    assert error < {torch.float16: 2**-11, torch.bfloat16: 2**-8}[dtype]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", HALVES)
def test_other_kernels_round_the_exact_result(cuda, dtype):
    a, b, bias = pictures(2, 320, 9, 5).to(dtype), pictures(2, 320, 9, 5, seed=1).to(dtype), pictures(320).to(dtype)
    unit = {torch.float16: 2**-11, torch.bfloat16: 2**-8}[dtype]
    x = pictures(2, 33, 640).to(dtype)
    for function, arguments in ((add_biased, (a, b, bias)), (geglu, (x,))):
        exact = function(*(t.double() for t in arguments))
        fast = function(*(t.to(cuda) for t in arguments)).cpu()
        assert ((fast.double() - exact).abs() / (1 + exact.abs())).max() < unit


@pytest.mark.gpu
def test_kernels_pass_on_what_is_no_number(cuda):
    """So that an overflow is seen."""
    norm = made_norm(64, 4).half().to(cuda)
    x = pictures(1, 64, 8, 8).half().to(cuda)
    x[0, 3, 2, 1] = float("inf")
    assert not group_norm(x, norm).isfinite().all()
    assert not geglu(torch.full((1, 16), float("nan"), device=cuda, dtype=torch.float16)).isfinite().any()


@pytest.mark.gpu
def test_kernels_can_be_replayed(cuda):
    from cuda_ext.graphs import GraphedCall

    norm = made_norm(64, 4).half().to(cuda)
    call = GraphedCall(lambda x: group_norm(x, norm, True), cuda)
    inputs = [pictures(2, 64, 8, 8, seed=seed).half().to(cuda) for seed in range(4)]
    results = [call(x) for x in inputs]
    assert call.graphs == 1
    for x, result in zip(inputs, results, strict=True):
        assert torch.equal(result, group_norm(x, norm, True))
        plain = F.silu(F.group_norm(x.float(), 4, norm.weight.float(), norm.bias.float(), norm.eps))
        torch.testing.assert_close(result.float(), plain, rtol=1e-3, atol=2e-3)
