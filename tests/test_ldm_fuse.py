"""Networks with fewer passes over memory give what they gave before."""

from pathlib import Path

import pytest
import torch
from checkpoint_doubles import write_zero123

from config import PriorConfig
from priors.ldm_fuse import fuse
from priors.ldm_networks import Runtime
from priors.zero123 import Zero123Prior

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_zero123(tmp_path_factory.mktemp("fuse"))


def made(folder: Path, dtype: torch.dtype, fused: bool, device: torch.device = CPU) -> Zero123Prior:
    config = PriorConfig(name="zero123", variant="zero123-xl", weights=str(folder))
    return Zero123Prior(config, device, Runtime(device, dtype, fused=fused))


def questions(dtype: torch.dtype, device: torch.device = CPU) -> dict:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(device, dtype)

    steps = torch.tensor([901.0, 501.0, 1.0], device=device)
    return {"latents": normal(3, 8, 8, 8), "token": normal(3, 1, 24), "steps": steps, "pictures": normal(2, 3, 64, 64)}


def answers(prior: Zero123Prior, asked: dict) -> list[torch.Tensor]:
    unet, vae = prior.unet.module, prior.vae.module
    with torch.no_grad():
        noise = unet(asked["latents"], asked["steps"], encoder_hidden_states=asked["token"]).sample
        mean = vae.encode(asked["pictures"]).latent_dist.mean
        return [noise, mean, vae.decode(mean).sample]


def test_fused_networks_compute_the_same(folder):
    """In float64, twice over, at other times each: nothing is kept from call to call."""
    plain, fused = made(folder, torch.float64, False), made(folder, torch.float64, True)
    block = fused.unet.module.down_blocks[0].attentions[0].transformer_blocks[0]
    assert block.attn1.to_q is None  # it is fused
    for step in (1.0, 700.0):
        asked = questions(torch.float64)
        asked["steps"] = torch.full((3,), step)
        for expected, actual in zip(answers(plain, asked), answers(fused, asked), strict=True):
            assert expected.std() > 0.05
            # 1e-14 was measured.
            torch.testing.assert_close(actual, expected, rtol=0, atol=1e-11)


def test_what_is_not_stable_diffusion_s_is_left_alone():
    """A resampling block, a time that scales."""
    from diffusers.models.resnet import ResnetBlock2D

    for options in ({"up": True}, {"time_embedding_norm": "scale_shift"}, {"output_scale_factor": 2.0}):
        block = ResnetBlock2D(in_channels=8, temb_channels=16, groups=4, **options)
        before = block.forward
        fuse(torch.nn.Sequential(block))
        assert block.forward == before


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_fused_networks_are_as_exact_in_half_precision(cuda, folder, dtype):
    exact = answers(made(folder, torch.float64, False), questions(torch.float64))
    plain, fused = (answers(made(folder, dtype, fused, cuda), questions(dtype, cuda)) for fused in (False, True))
    for truth, one, other in zip(exact, plain, fused, strict=True):
        errors = [float((value.cpu().double() - truth).abs().mean()) for value in (one, other)]
        assert errors[1] < 1.5 * errors[0] + 1e-4 * float(truth.std())
