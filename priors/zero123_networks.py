"""The networks of a zero123 checkpoint, from its files: UNet, CLIP image encoder, the map to the token."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from errors import UserError
from priors.ldm_fuse import fuse
from priors.ldm_networks import Network, Runtime
from priors.weights import Located, load_safetensors, read_settings

POSE_NUMBERS = 4  # of the relative camera, beside CLIP's embedding


class SingleTokenAttention:
    """Cross attention to one token: the softmax over one key is 1, so that the result is the value for every query.

    Exact, and leaves out the queries, the keys and the attention itself of every block.
    """

    def __call__(self, attention: nn.Module, hidden_states: Tensor, encoder_hidden_states: Tensor, **unused) -> Tensor:
        assert encoder_hidden_states.shape[1] == 1
        value = attention.to_out[0](attention.to_v(encoder_hidden_states))  # [B, 1, C]
        return value.expand(-1, hidden_states.shape[1], -1)


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
        from diffusers.models.unets.unet_2d_condition import UNet2DConditionModel

        with torch.device("meta"):
            unet = UNet2DConditionModel.from_config(settings)
        unet = load_safetensors(part, unet, dtype=dtype, device=device)
        if runtime.fused:
            return fuse(unet)
        processors = unet.attn_processors
        unet.set_attn_processor(
            {
                name: SingleTokenAttention() if name.endswith("attn2.processor") else processor
                for name, processor in processors.items()
            }
        )
        return unet

    return Network("unet", build, runtime), 8 * int(settings.get("sample_size", 32))


def predict(unet: nn.Module, latents: Tensor, source: Tensor, steps: Tensor, tokens: Tensor) -> Tensor:
    """Noise in the latents [N, 4, S / 8, S / 8], beside the picture's latents, at N steps, attending to N tokens."""
    return unet(torch.cat([latents, source], dim=1), steps, encoder_hidden_states=tokens, return_dict=False)[0]


def image_encoder_network(part: Located, runtime: Runtime) -> Network:
    """CLIP's image encoder with its projection."""

    def build(dtype: torch.dtype, device: torch.device) -> nn.Module:
        from transformers.models.clip.configuration_clip import CLIPVisionConfig
        from transformers.models.clip.modeling_clip import CLIPVisionModelWithProjection

        with torch.device("meta"):
            encoder = CLIPVisionModelWithProjection(CLIPVisionConfig.from_dict(read_settings(part)))
        # A constant that is not in the file (older ones do hold it).
        embeddings = encoder.vision_model.embeddings
        embeddings.position_ids = torch.arange(embeddings.num_positions)[None]
        return load_safetensors(part, encoder, dtype=dtype, device=device, ignore=(r".*\.position_ids",))

    return Network("image encoder", build, runtime)


def embed_picture(encoder: nn.Module, pixels: Tensor) -> Tensor:
    """CLIP's embedding of pictures [B, 3, 224, 224] -> [B, D]."""
    return encoder(pixel_values=pixels).image_embeds


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
