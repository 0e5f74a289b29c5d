"""The networks of a zero123 checkpoint, from its files: UNet, CLIP image encoder, the map to the token."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from errors import UserError
from priors.clip_networks import ClipConfig, ProjectedPictureEncoder
from priors.ldm_networks import Network, Predictions, Runtime
from priors.sd_unet import UNet
from priors.weights import Located, load_safetensors, read_settings

POSE_NUMBERS = 4  # of the relative camera, beside CLIP's embedding


def unet_network(part: Located, runtime: Runtime) -> tuple[Network, int]:
    """The UNet, and the side of the pictures that it was trained on."""
    settings = read_settings(part)
    channels = settings.get("in_channels"), settings.get("out_channels")
    if channels != (8, 4):
        raise UserError(
            f"{part.folder / 'config.json'}: a UNet from {channels[0]} to {channels[1]} channels, "
            f"expected from 8 (noisy latents, the picture's latents) to 4; {part.origin}"
        )

    def build(dtype: torch.dtype, device: torch.device) -> nn.Module:
        with torch.device("meta"):
            unet = UNet(settings, part.origin) if runtime.fused else diffusers_unet(settings)
        unet = load_safetensors(part, unet, dtype=dtype, device=device)
        return unet.fuse() if runtime.fused else unet

    return Network("unet", build, runtime), 8 * int(settings.get("sample_size", 32))


def diffusers_unet(settings: dict) -> nn.Module:
    """diffusers' own form, which ours is compared with."""
    from diffusers.models.unets.unet_2d_condition import UNet2DConditionModel

    return UNet2DConditionModel.from_config(settings)


def predict(unet: nn.Module, latents: Tensor, source: Tensor, steps: Tensor, tokens: Tensor) -> Tensor:
    """Noise in the latents [N, 4, S / 8, S / 8], beside the picture's latents, at N steps, attending to N tokens."""
    if isinstance(unet, UNet):
        return predict_and_keep(unet, latents, source, steps, tokens)[0]
    x = torch.cat([latents, source], dim=1)
    return unet(x, steps, encoder_hidden_states=tokens, return_dict=False)[0]


def predict_and_keep(
    unet: UNet, latents: Tensor, source: Tensor, steps: Tensor, tokens: Tensor
) -> tuple[Tensor, Tensor]:
    """`predict`, and the deep features."""
    return unet(torch.cat([latents, source], dim=1), steps, tokens)


def predict_from_kept(
    unet: UNet, latents: Tensor, source: Tensor, steps: Tensor, tokens: Tensor, deep: Tensor
) -> Tensor:
    """`predict` with the deep features of an earlier call."""
    return unet(torch.cat([latents, source], dim=1), steps, tokens, deep)[0]


PREDICTIONS = Predictions(predict, predict_and_keep, predict_from_kept)


def image_encoder_network(part: Located, runtime: Runtime) -> Network:
    """CLIP's image encoder with its projection."""
    config = ClipConfig.from_settings(read_settings(part), part.origin)

    def build(dtype: torch.dtype, device: torch.device) -> nn.Module:
        with torch.device("meta"):
            encoder = ProjectedPictureEncoder(config)
        # Older files hold a constant.
        return load_safetensors(part, encoder, dtype=dtype, device=device, ignore=(r".*\.position_ids",))

    return Network("image encoder", build, runtime)


def embed_picture(encoder: nn.Module, pixels: Tensor) -> Tensor:
    """CLIP's embedding of pictures [B, 3, 224, 224] -> [B, D]."""
    return encoder(pixels)


def read_projection(part: Located, unet: Located, image_encoder: Located, runtime: Runtime) -> nn.Linear:
    """The map from CLIP's embedding and the pose to the token; at least float32, since it is small.

    kxic's conversions call it `projection`, the others `proj`.
    """
    token, embedding = (
        read_settings(located).get(key)
        for located, key in ((unet, "cross_attention_dim"), (image_encoder, "projection_dim"))
    )
    if not isinstance(token, int) or not isinstance(embedding, int):
        raise UserError(
            f"{unet.folder / 'config.json'}: cross_attention_dim={token}, "
            f"{image_encoder.folder / 'config.json'}: projection_dim={embedding}; expected two numbers; {unet.origin}"
        )
    with torch.device("meta"):
        linear = nn.Linear(embedding + POSE_NUMBERS, token)
    return load_safetensors(
        part,
        linear,
        dtype=torch.promote_types(runtime.dtype, torch.float32),
        device=runtime.device,
        rename=lambda name: name.removeprefix("proj.").removeprefix("projection."),
    )
