"""Stable Diffusion's UNet (arXiv:2112.10752) where a single token is attended to, as zero123's is.

A softmax over one key is 1: what cross attention adds is the token's value, whatever asks for it. So queries, keys and
their norm are read from the files, and left out. The shifts of all residual blocks come of one product.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from errors import UserError
from priors.fused_ops import group_norm
from priors.sd_blocks import (
    Downsample,
    GatedLinear,
    Level,
    ResnetBlock,
    SelfAttention,
    Upsample,
    fuse_parts,
    joined,
    require_fields,
)

_ATTENTION = {
    "CrossAttnDownBlock2D": True, "DownBlock2D": False, "CrossAttnUpBlock2D": True, "UpBlock2D": False,
}  # fmt: skip
_EXPECTED = {
    "act_fn": "silu", "addition_embed_type": None, "center_input_sample": False, "class_embed_type": None,
    "conv_in_kernel": 3, "conv_out_kernel": 3, "cross_attention_norm": None, "downsample_padding": 1,
    "dual_cross_attention": False, "encoder_hid_dim": None, "flip_sin_to_cos": True, "freq_shift": 0,
    "mid_block_scale_factor": 1, "mid_block_type": "UNetMidBlock2DCrossAttn", "num_attention_heads": None,
    "only_cross_attention": False, "resnet_out_scale_factor": 1.0, "resnet_skip_time_act": False,
    "resnet_time_scale_shift": "default", "time_embedding_act_fn": None, "time_embedding_dim": None,
    "time_embedding_type": "positional", "timestep_post_act": None, "transformer_layers_per_block": 1,
    "use_linear_projection": False,
}  # fmt: skip


class SingleTokenAttention(nn.Module):
    """Cross attention to one token."""

    def __init__(self, dim: int, token_dim: int) -> None:
        super().__init__()
        self.to_q = nn.Linear(dim, dim, bias=False)
        self.to_k = nn.Linear(token_dim, dim, bias=False)
        self.to_v = nn.Linear(token_dim, dim, bias=False)
        self.to_out = nn.Sequential(nn.Linear(dim, dim))

    def forward(self, token: Tensor) -> Tensor:
        return self.to_out(self.to_v(token))


class FeedForward(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.net = nn.Sequential(GatedLinear(dim, 4 * dim), nn.Identity(), nn.Linear(4 * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class TransformerBlock(nn.Module):
    def __init__(self, dim: int, heads: int, token_dim: int) -> None:
        super().__init__()
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attn1 = SelfAttention(dim, heads, bias=False)
        self.attn2 = SingleTokenAttention(dim, token_dim)
        self.ff = FeedForward(dim)

    def forward(self, tokens: Tensor, known: Tensor) -> Tensor:
        """tokens [B, L, C], which may be overwritten; known [B, 1, token_dim]."""
        out = self.attn1.to_out[0]
        attended = self.attn1.attend(self.norm1(tokens))
        # The sum within the product; its bias goes with the token's value, which is as short.
        tokens = _added(tokens, attended, out.weight) + (self.attn2(known) + out.bias)
        return tokens + self.ff(self.norm3(tokens))


class Transformer(nn.Module):
    """A transformer block over the pixels of each picture, around a residual."""

    def __init__(self, channels: int, heads: int, token_dim: int, groups: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels, eps=1e-6)
        self.proj_in = nn.Conv2d(channels, channels, 1)
        self.transformer_blocks = nn.ModuleList([TransformerBlock(channels, heads, token_dim)])
        self.proj_out = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor, known: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        tokens = group_norm(x, self.norm).permute(0, 2, 3, 1).reshape(batch, height * width, channels)
        tokens = _pointwise(self.proj_in, tokens)
        for block in self.transformer_blocks:
            tokens = block(tokens, known)
        tokens = _pointwise(self.proj_out, tokens)
        return tokens.reshape(batch, height, width, channels).permute(0, 3, 1, 2) + x


class TimeEmbedding(nn.Module):
    def __init__(self, channels: int, dim: int) -> None:
        super().__init__()
        self.linear_1, self.linear_2 = nn.Linear(channels, dim), nn.Linear(dim, dim)

    def forward(self, features: Tensor) -> Tensor:
        return self.linear_2(F.silu(self.linear_1(features)))


class UNet(nn.Module):
    """Noise in latents, at steps, attending to a token each."""

    def __init__(self, settings: dict, origin: str = "") -> None:
        """
        Args:
            settings: of the public config.json.
        Raises:
            UserError: they ask for another network.
        """
        super().__init__()
        require_fields(settings, _EXPECTED, origin)
        widths, depth = list(settings["block_out_channels"]), settings["layers_per_block"]
        groups, eps = settings["norm_num_groups"], settings["norm_eps"]
        heads = settings["attention_head_dim"]  # of this generation of files: their number
        token_dim, time_dim = settings["cross_attention_dim"], 4 * widths[0]
        if not isinstance(heads, int) or not isinstance(depth, int):
            raise UserError(f"config.json: attention_head_dim={heads}, layers_per_block={depth}, expected numbers")

        def resnet(channels: int, width: int) -> ResnetBlock:
            return ResnetBlock(channels, width, groups, eps, time_dim)

        def attention(width: int) -> Transformer:
            return Transformer(width, heads, token_dim, groups)

        def attentions(kind: str, width: int, count: int) -> list[Transformer]:
            if kind not in _ATTENTION:
                raise UserError(f"config.json: block {kind}, expected one of {', '.join(_ATTENTION)}; {origin}")
            return [attention(width) for _ in range(count)] if _ATTENTION[kind] else []

        self.channels = widths[0]
        self.time_embedding = TimeEmbedding(widths[0], time_dim)
        self.conv_in = nn.Conv2d(settings["in_channels"], widths[0], 3, padding=1)
        channels, skips, last = widths[0], [widths[0]], len(widths) - 1
        downs = []
        for i, (kind, width) in enumerate(zip(settings["down_block_types"], widths, strict=True)):
            resnets = [resnet(channels if j == 0 else width, width) for j in range(depth)]
            down = Downsample(width) if i < last else None
            downs.append(Level(resnets, attentions(kind, width, depth), down=down))
            skips += [width] * (depth + (down is not None))
            channels = width
        self.down_blocks = nn.ModuleList(downs)
        self.mid_block = Level([resnet(channels, channels) for _ in range(2)], [attention(channels)])
        ups = []
        for i, (kind, width) in enumerate(zip(settings["up_block_types"], reversed(widths), strict=True)):
            resnets = [resnet((channels if j == 0 else width) + skips.pop(), width) for j in range(depth + 1)]
            up = Upsample(width) if i < last else None
            ups.append(Level(resnets, attentions(kind, width, depth + 1), up=up))
            channels = width
        self.up_blocks = nn.ModuleList(ups)
        self.conv_norm_out = nn.GroupNorm(groups, channels, eps)
        self.conv_out = nn.Conv2d(channels, settings["out_channels"], 3, padding=1)
        # Of `fuse`:
        self.shift_weight: nn.Parameter | None = None
        self.shift_bias: nn.Parameter | None = None

    def fuse(self) -> UNet:
        """Join what is multiplied together, drop what is not needed; once, after loading, before the first call."""
        fuse_parts(self)
        blocks = [resnet for level in self._levels() for resnet in level.resnets]
        self.shift_weight = joined([block.time_emb_proj.weight for block in blocks])
        self.shift_bias = joined([block.time_emb_proj.bias + block.conv1.bias for block in blocks])
        self._shift_sizes = [block.time_emb_proj.out_features for block in blocks]
        for block in blocks:
            del block.time_emb_proj
        for module in list(self.modules()):
            if isinstance(module, TransformerBlock):
                del module.norm2, module.attn2.to_q, module.attn2.to_k
        return self

    def _levels(self) -> list[Level]:
        """In the order in which `forward` visits them."""
        return [*self.down_blocks, self.mid_block, *self.up_blocks]

    def forward(
        self, latents: Tensor, steps: Tensor, token: Tensor, deep: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Noise [N, 4, H, W] in latents [N, 8, H, W] at steps [N], attending to token [N, 1, D].

        Args:
            deep: deep features of another call; only the first convolution and the last block run then.
        Returns:
            The noise, and the deep features [N, C, H, W]: what enters the last block, but for the first one's skip.
        """
        assert self.shift_weight is not None, "fuse comes first"
        time = self.time_embedding(time_features(steps, self.channels).to(latents.dtype))
        shifts = F.linear(F.silu(time), self.shift_weight, self.shift_bias).split(self._shift_sizes, dim=1)
        first = self.conv_in(latents)
        if deep is None:
            deep = self._deep(first, iter(shifts), token)
        x = _block(self.up_blocks[-1], -1, torch.cat([deep, first], dim=1), shifts[-1], token)
        return self.conv_out(group_norm(x, self.conv_norm_out, silu=True)), deep

    def _deep(self, x: Tensor, shifts: Iterator[Tensor], token: Tensor) -> Tensor:
        """All blocks but the last one, after the first convolution."""

        def block(level: Level, i: int, x: Tensor) -> Tensor:
            return _block(level, i, x, next(shifts), token)

        skips = []
        for level in self.down_blocks:
            for i in range(len(level.resnets)):
                x = block(level, i, x)
                skips.append(x)
            if hasattr(level, "downsamplers"):
                x = level.downsamplers[0](x)
                skips.append(x)
        x = block(self.mid_block, 0, x)
        x = self.mid_block.resnets[1](x, next(shifts))
        for level in self.up_blocks:
            for i in range(min(len(level.resnets), len(skips))):  # one skip too few: the last block is not meant
                x = block(level, i, torch.cat([x, skips.pop()], dim=1))
            if hasattr(level, "upsamplers"):
                x = level.upsamplers[0](x)
        return x


def _block(level: Level, i: int, x: Tensor, shift: Tensor, token: Tensor) -> Tensor:
    """A level's residual block, and its attention where it has any."""
    x = level.resnets[i](x, shift)
    return level.attentions[i](x, token) if hasattr(level, "attentions") else x


def time_features(steps: Tensor, dim: int, longest: float = 10_000.0) -> Tensor:
    """cos(t w_i), then sin(t w_i), with w_i = longest^(-2 i / dim) [N, dim], of steps t [N]; in float32."""
    half = dim // 2
    rates = torch.exp(-math.log(longest) * torch.arange(half, dtype=torch.float32, device=steps.device) / half)
    angles = steps.float()[:, None] * rates
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


def _pointwise(layer: nn.Conv2d, tokens: Tensor) -> Tensor:
    """A convolution of 1 x 1 pixel, over tokens."""
    return F.linear(tokens, layer.weight.flatten(1), layer.bias)


def _added(tokens: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """tokens + x weight^T, within the product; changes `tokens`, which nobody else needs any more."""
    return tokens.view(-1, tokens.shape[-1]).addmm_(x.view(-1, x.shape[-1]), weight.t()).view_as(tokens)
