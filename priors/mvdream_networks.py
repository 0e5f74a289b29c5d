"""The networks of an MVDream or ImageDream checkpoint, from its files: UNet, text encoder, tokenizer, image encoder."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import fields, replace

import torch
from torch import Tensor, nn

from errors import UserError
from priors.clip_networks import ClipConfig, PictureEncoder, TextEncoder
from priors.ldm_networks import Network, Predictions, Runtime
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
    return unet(latents, steps, cameras, context)[0]


def keep_views(unet: MultiViewUNet, *tensors: Tensor) -> tuple[Tensor, Tensor]:
    """`predict_views`, and the deep features."""
    return unet(*tensors)


def predict_views_from_kept(unet: MultiViewUNet, *tensors: Tensor) -> Tensor:
    """`predict_views` with the deep features of an earlier call, the last tensor."""
    return unet(*tensors)[0]


def predict_views_beside(
    unet: MultiViewUNet, latents: Tensor, steps: Tensor, cameras: Tensor, context: Tensor, picture: Tensor
) -> Tensor:
    """ImageDream's: the picture's latents [b, 4, H, W] are one more view, the last, whose noise nobody needs.

    cameras: [b, F + 1, 16], that of the last view 0.
    """
    return keep_views_beside(unet, latents, steps, cameras, context, picture)[0]


def keep_views_beside(
    unet: MultiViewUNet,
    latents: Tensor,
    steps: Tensor,
    cameras: Tensor,
    context: Tensor,
    picture: Tensor,
    deep: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`predict_views_beside`, and the deep features; those of an earlier call may be given."""
    noise, deep = unet(torch.cat([latents, picture[:, None]], dim=1), steps, cameras, context, deep)
    return noise[:, :-1], deep


def predict_views_beside_from_kept(unet: MultiViewUNet, *tensors: Tensor) -> Tensor:
    """`predict_views_beside` with the deep features of an earlier call, the last tensor."""
    return keep_views_beside(unet, *tensors)[0]


VIEWS = Predictions(predict_views, keep_views, predict_views_from_kept)
VIEWS_BESIDE = Predictions(predict_views_beside, keep_views_beside, predict_views_beside_from_kept)


def embed_text(unet: MultiViewUNet, text: Tensor) -> Tensor:
    """Keys and values of all cross attentions, for encoded texts."""
    return unet.embed_context(text)


def embed_text_and_picture(unet: MultiViewUNet, text: Tensor, features: Tensor) -> Tensor:
    """Keys and values of all cross attentions, for encoded texts and pictures."""
    return unet.embed_context(text, features)


def text_encoder_network(part: Located, runtime: Runtime) -> Network:
    """CLIP's text encoder."""
    return _clip_network("text encoder", TextEncoder, "text_model.", part, runtime)


def encode_text(encoder: TextEncoder, ids: Tensor) -> Tensor:
    """Ids of tokens [b, n] -> [b, n, C]: the last hidden states, normalised."""
    return encoder(ids)


def image_encoder_network(part: Located, runtime: Runtime) -> Network:
    """CLIP's image encoder, without a projection."""
    return _clip_network("image encoder", PictureEncoder, "vision_model.", part, runtime)


def encode_picture(encoder: PictureEncoder, pixels: Tensor) -> Tensor:
    """Pictures [b, 3, 224, 224], normalised -> features of their patches [b, n, D]: the last hidden states but one."""
    return encoder(pixels, skipped=1)


def _clip_network(
    name: str, kind: Callable[[ClipConfig], nn.Module], prefix: str, part: Located, runtime: Runtime
) -> Network:
    """An encoder of CLIP; the public files name its tensors with a prefix."""
    config = ClipConfig.from_settings(read_settings(part), part.origin)

    def build(dtype: torch.dtype, device: torch.device) -> nn.Module:
        with torch.device("meta"):
            encoder = kind(config)
        rename, ignore = (lambda name: name.removeprefix(prefix)), (r".*\.position_ids",)  # older files hold a constant
        return load_safetensors(part, encoder, dtype=dtype, device=device, rename=rename, ignore=ignore)

    return Network(name, build, runtime)


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
