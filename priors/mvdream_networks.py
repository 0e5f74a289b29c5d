"""The networks of an MVDream or ImageDream checkpoint, from its files: UNet, text encoder, tokenizer, image encoder."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import fields, replace

import torch
from torch import Tensor, nn

from errors import UserError
from priors.ldm_networks import Network, Runtime
from priors.mvdream_unet import MultiViewUNet, UNetConfig
from priors.weights import Located, load_safetensors, read_settings

logger = logging.getLogger(__name__)

MAX_TOKENS = 77  # of every text, padding included


def read_unet_config(part: Located, image_encoder: Located | None) -> UNetConfig:
    """Of unet/config.json; UserError for a network that this program does not know."""
    path = part.folder / "config.json"
    settings = {key: value for key, value in read_settings(part).items() if not key.startswith("_")}
    known = {field.name for field in fields(UNetConfig)} - {"image_dim"}
    unknown = sorted(settings.keys() - known)
    if unknown:
        raise UserError(f"{path}: {unknown[0]}={settings[unknown[0]]} means nothing here; {part.origin}")
    config = UNetConfig(**{key: tuple(v) if isinstance(v, list) else v for key, v in settings.items()})
    if config.in_channels != 4 or config.out_channels != 4:
        found = f"{config.in_channels} to {config.out_channels}"
        raise UserError(f"{path}: a UNet from {found} channels, expected from 4 to 4; {part.origin}")
    if (config.ip_dim > 0) != (image_encoder is not None):
        found = "sees a picture (ImageDream's)" if config.ip_dim else "sees no picture (MVDream's)"
        raise UserError(f"{path}: ip_dim={config.ip_dim}, a UNet that {found}; {part.origin}")
    if image_encoder is not None:
        config = replace(config, image_dim=int(read_settings(image_encoder)["hidden_size"]))
    return config


def unet_network(part: Located, config: UNetConfig, runtime: Runtime) -> Network:
    def build(dtype: torch.dtype, device: torch.device) -> nn.Module:
        with torch.device("meta"):
            unet = MultiViewUNet(config)
        return load_safetensors(part, unet, dtype=dtype, device=device).fuse()

    return Network("unet", build, runtime)


def predict_views(unet: MultiViewUNet, latents: Tensor, steps: Tensor, cameras: Tensor, context: Tensor) -> Tensor:
    """MVDream's noise in groups of views [b, F, 4, H, W]."""
    return unet(latents, steps, cameras, context)


def predict_views_beside(
    unet: MultiViewUNet, latents: Tensor, steps: Tensor, cameras: Tensor, context: Tensor, picture: Tensor
) -> Tensor:
    """ImageDream's: the picture's latents [b, 4, H, W] are one more view, the last, whose noise nobody needs.

    cameras: [b, F + 1, 16], that of the last view 0.
    """
    return unet(torch.cat([latents, picture[:, None]], dim=1), steps, cameras, context)[:, :-1]


def embed_text(unet: MultiViewUNet, text: Tensor) -> Tensor:
    """Keys and values of all cross attentions, for encoded texts."""
    return unet.embed_context(text)


def embed_text_and_picture(unet: MultiViewUNet, text: Tensor, features: Tensor) -> Tensor:
    """Keys and values of all cross attentions, for encoded texts and pictures."""
    return unet.embed_context(text, features)


def text_encoder_network(part: Located, runtime: Runtime) -> Network:
    """CLIP's text encoder."""

    def build(dtype: torch.dtype, device: torch.device) -> nn.Module:
        from transformers.models.clip.configuration_clip import CLIPTextConfig
        from transformers.models.clip.modeling_clip import CLIPTextModel

        with torch.device("meta"):
            encoder = CLIPTextModel(CLIPTextConfig.from_dict(read_settings(part)))
        return _load_clip(part, encoder, "text_model.", dtype, device)

    return Network("text encoder", build, runtime)


def encode_text(encoder: nn.Module, ids: Tensor) -> Tensor:
    """Ids of tokens [b, n] -> [b, n, C]: the last hidden states, normalised."""
    return encoder(input_ids=ids).last_hidden_state


def image_encoder_network(part: Located, runtime: Runtime) -> Network:
    """CLIP's image encoder, without a projection."""

    def build(dtype: torch.dtype, device: torch.device) -> nn.Module:
        from transformers.models.clip.configuration_clip import CLIPVisionConfig
        from transformers.models.clip.modeling_clip import CLIPVisionModel

        with torch.device("meta"):
            encoder = CLIPVisionModel(CLIPVisionConfig.from_dict(read_settings(part)))
        return _load_clip(part, encoder, "vision_model.", dtype, device)

    return Network("image encoder", build, runtime)


def encode_picture(encoder: nn.Module, pixels: Tensor) -> Tensor:
    """Pictures [b, 3, 224, 224], normalised -> features of their patches [b, n, D]: the last hidden states but one."""
    return encoder(pixel_values=pixels, output_hidden_states=True).hidden_states[-2]


def _load_clip(part: Located, encoder: nn.Module, prefix: str, dtype: torch.dtype, device: torch.device) -> nn.Module:
    """Fill an encoder of CLIP; the public files name it with a prefix that transformers 5 has dropped."""
    own = encoder.state_dict().keys()
    for module in encoder.modules():
        if hasattr(module, "position_ids"):  # a constant that is not in the file (older ones do hold it)
            module.position_ids = torch.arange(module.position_embedding.num_embeddings)[None]
    return load_safetensors(
        part,
        encoder,
        dtype=dtype,
        device=device,
        rename=lambda name: name if name in own else name.removeprefix(prefix),
        ignore=(r".*\.position_ids",),
    )


def read_tokenizer(part: Located) -> Callable[[list[str]], Tensor]:
    """Texts -> ids of their tokens [b, 77]: start, words, end, then padding.

    The padding is the token that the files name: `!`, number 0, not the end that CLIP's own tokenizer pads with. The
    text encoder masks nothing out, so that the network was trained to see these very tokens.
    """
    from transformers.models.clip.tokenization_clip import CLIPTokenizer

    pad = read_settings(part, "special_tokens_map.json").get("pad_token")
    pad = pad.get("content") if isinstance(pad, dict) else pad
    if not isinstance(pad, str):
        path = part.folder / "special_tokens_map.json"
        raise UserError(f"{path}: pad_token={pad!r}, expected a token; {part.origin}")
    tables = (str(part.folder / name) for name in ("vocab.json", "merges.txt"))
    vocabulary = read_settings(part, "vocab.json")
    tokenizer = CLIPTokenizer(*tables, model_max_length=MAX_TOKENS, pad_token=pad)

    def tokenize(texts: list[str]) -> Tensor:
        rows = []
        for text in texts:
            ids = tokenizer(text).input_ids
            if len(ids) > MAX_TOKENS:
                logger.warning("prompt: of %d tokens the first %d count", len(ids) - 2, MAX_TOKENS - 2)
                ids = [*ids[: MAX_TOKENS - 1], ids[-1]]
            rows.append(ids + [vocabulary[pad]] * (MAX_TOKENS - len(ids)))
        return torch.tensor(rows)

    return tokenize
