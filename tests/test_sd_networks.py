"""Our form of Stable Diffusion's networks and of CLIP against the libraries' own, on the same weights."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from checkpoint_doubles import clip_vision_config, vae_config, write_zero123, zero123_unet_config

from config import PriorConfig
from errors import UserError
from priors.clip_networks import ClipConfig, ProjectedPictureEncoder
from priors.ldm import decode_mean, encode_mean
from priors.ldm_networks import Runtime
from priors.sd_unet import UNet
from priors.sd_vae import Autoencoder
from priors.zero123 import Zero123Prior
from priors.zero123_networks import predict, predict_and_keep, predict_from_kept

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return write_zero123(tmp_path_factory.mktemp("networks"))


def made(folder: Path, dtype: torch.dtype, fused: bool, device: torch.device = CPU) -> Zero123Prior:
    config = PriorConfig(name="zero123", variant="zero123-xl", weights=str(folder))
    return Zero123Prior(config, device, Runtime(device, dtype, fused=fused))


def questions(dtype: torch.dtype, device: torch.device = CPU) -> dict:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(device, dtype)

    steps = torch.tensor([901.0, 501.0, 1.0], device=device)
    halves = normal(3, 4, 8, 8), normal(3, 4, 8, 8)
    return {"latents": halves, "token": normal(3, 1, 24), "steps": steps, "pictures": normal(2, 3, 64, 64)}


def answers(prior: Zero123Prior, asked: dict) -> list[torch.Tensor]:
    unet, vae = prior.unet.module, prior.vae.module
    with torch.no_grad():
        mean = encode_mean(vae, asked["pictures"])
        return [predict(unet, *asked["latents"], asked["steps"], asked["token"]), mean, decode_mean(vae, mean)]


def test_networks_compute_what_diffusers_computes(folder):
    """In float64, twice over, at other times each: nothing is kept from call to call."""
    theirs, ours = made(folder, torch.float64, False), made(folder, torch.float64, True)
    assert isinstance(ours.unet.module, UNet) and not isinstance(theirs.unet.module, UNet)
    for step in (1.0, 700.0):
        asked = questions(torch.float64)
        asked["steps"] = torch.full((3,), step)
        for expected, actual in zip(answers(theirs, asked), answers(ours, asked), strict=True):
            assert expected.std() > 0.05
            # 1e-14 was measured.
            torch.testing.assert_close(actual, expected, rtol=0, atol=1e-11)


def test_full_size_networks_have_the_names_and_shapes_of_the_public_files():
    """Those that diffusers and transformers give them."""
    from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
    from diffusers.models.unets.unet_2d_condition import UNet2DConditionModel
    from transformers.models.clip.configuration_clip import CLIPVisionConfig
    from transformers.models.clip.modeling_clip import CLIPVisionModelWithProjection

    unet, vae, clip = zero123_unet_config("full"), vae_config("full"), clip_vision_config("full")
    with torch.device("meta"):
        pairs = (
            (UNet(unet), UNet2DConditionModel.from_config(unet)),
            (Autoencoder(vae), AutoencoderKL.from_config(vae)),
            (
                ProjectedPictureEncoder(ClipConfig.from_settings(clip, "")),
                CLIPVisionModelWithProjection(CLIPVisionConfig.from_dict(clip)),
            ),
        )
    for ours, theirs in pairs:
        names = [{name: value.shape for name, value in module.state_dict().items()} for module in (ours, theirs)]
        assert names[0] == names[1]


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"unet": {"resnet_time_scale_shift": "scale_shift"}}, "resnet_time_scale_shift=scale_shift, expected default"),
        ({"unet": {"use_linear_projection": True}}, "use_linear_projection=True, expected False"),
        ({"vae": {"use_quant_conv": False}}, "use_quant_conv=False, expected True"),
        ({"image_encoder": {"hidden_act": "silu"}}, "hidden_act=silu, expected quick_gelu or gelu"),
    ],
)
def test_other_networks_are_refused(folder, changes, words):
    (name, fields), *_ = changes.items()
    configs = {"unet": zero123_unet_config, "vae": vae_config, "image_encoder": clip_vision_config}
    kinds = {
        "unet": UNet,
        "vae": Autoencoder,
        "image_encoder": lambda settings, origin: ProjectedPictureEncoder(ClipConfig.from_settings(settings, origin)),
    }
    with pytest.raises(UserError, match=words), torch.device("meta"):
        kinds[name](configs[name]("tiny") | fields, "of somebody's")


def test_a_job_imports_no_heavy_library(folder):
    """8 of the 28 s of a job's first run were the import of diffusers and transformers; torch's meta device may take
    sympy, 2 s more."""
    program = (
        "import sys, torch; from config import PriorConfig; from prepare import PreparedImage; "
        "from priors.zero123 import Zero123Prior; "
        f"c = PriorConfig(name='zero123', variant='zero123-xl', weights={str(folder)!r}); "
        "p = Zero123Prior(c, torch.device('cpu')); "
        "p.set_source(PreparedImage(torch.rand(64, 64, 3), torch.ones(64, 64)), 0.0); "
        "x = torch.rand(1, 4, 8, 8); p.decode(p.predict(x, 0.5, p.orbit([0.0], 0.0), 3.0)[0]); "
        "print([name for name in ('diffusers', 'transformers', 'sympy') if name in sys.modules])"
    )
    root = Path(__file__).resolve().parent.parent
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=root)
    assert ended.stdout.strip() == "[]", ended.stderr


def test_the_compiler_takes_whole_networks(folder):
    """Without a break: what prior.compile=true hands to the code generator, which is not asked here."""
    prior, asked = made(folder, torch.float32, True), questions(torch.float32)
    unet, noisy = prior.unet.module, (*asked["latents"], asked["steps"], asked["token"])
    with torch.no_grad():
        deep = predict_and_keep(unet, *noisy)[1]
    calls = (
        (predict, unet, noisy),
        (predict_and_keep, unet, noisy),
        (predict_from_kept, unet, (*noisy, deep)),
        (encode_mean, prior.vae.module, (asked["pictures"],)),
        (decode_mean, prior.vae.module, (asked["latents"][0],)),
    )
    for method, module, inputs in calls:
        compiled = torch.compile(lambda *tensors: method(module, *tensors), backend="eager", fullgraph=True)  # noqa: B023
        with torch.no_grad():
            torch.testing.assert_close(compiled(*inputs), method(module, *inputs))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_networks_are_as_exact_in_half_precision(cuda, folder, dtype):
    exact = answers(made(folder, torch.float64, False), questions(torch.float64))
    theirs, ours = (answers(made(folder, dtype, fused, cuda), questions(dtype, cuda)) for fused in (False, True))
    for truth, one, other in zip(exact, theirs, ours, strict=True):
        errors = [float((value.cpu().double() - truth).abs().mean()) for value in (one, other)]
        assert errors[1] < 1.5 * errors[0] + 1e-4 * float(truth.std())
