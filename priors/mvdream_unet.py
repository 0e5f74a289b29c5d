"""The UNet of MVDream (arXiv:2308.16512) and ImageDream (arXiv:2312.02201).

The blocks are those of Stable Diffusion 2.1; all views of an object attend to each other, and each knows its camera.

Modules are named and shaped as the public weights are, so that these load strictly. `fuse` then joins matrices that are
multiplied with the same tokens. Inside, pictures are channels_last: they turn into tokens without a copy.

| here                       | papers                                                                  |
|----------------------------|-------------------------------------------------------------------------|
| group                      | one object's F views, denoised together                                 |
| SelfAttention              | MVDream, section 3.1: "3D self-attention", over the tokens of all views |
| camera_embed               | MVDream, section 3.1: added to the embedding of the time step           |
| CrossAttention, `*_ip`     | ImageDream, section 3.2: "local controller", decoupled as in IP-Adapter |
| Resampler                  | there too: the features of the image encoder, condensed to 16 tokens    |
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from priors.fused_ops import add_biased, group_norm
from priors.mvdream_resampler import Resampler
from priors.sd_blocks import GatedLinear, Upsample

GROUPS = 32  # of every GroupNorm
TIME_MULTIPLE = 4  # width of the time embedding over model_channels

# What one cross attention looks at [b, n, C] each: keys and values of the text, then of the picture where there is one.
KeyValues = list[Tensor]


@dataclass(frozen=True)
class UNetConfig:
    """The fields of the public unet/config.json, and the width of the image features, which is not in it.

    ip_dim: tokens of the picture; 0: the network knows texts alone (MVDream).
    """

    image_size: int = 32
    in_channels: int = 4
    out_channels: int = 4
    model_channels: int = 320
    num_res_blocks: int = 2
    attention_resolutions: tuple[int, ...] = (4, 2, 1)
    channel_mult: tuple[int, ...] = (1, 2, 4, 4)
    num_head_channels: int = 64
    transformer_depth: int = 1
    context_dim: int = 1024
    camera_dim: int = 16
    ip_dim: int = 0
    image_dim: int = 1280


class ResBlock(nn.Module):
    """Two convolutions, the embedding of time and camera added between them."""

    def __init__(self, channels: int, embed_dim: int, out_channels: int) -> None:
        super().__init__()
        self.in_layers = nn.Sequential(
            nn.GroupNorm(GROUPS, channels), nn.SiLU(), nn.Conv2d(channels, out_channels, 3, padding=1)
        )
        self.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(embed_dim, out_channels))
        self.out_layers = nn.Sequential(
            nn.GroupNorm(GROUPS, out_channels),
            nn.SiLU(),
            nn.Identity(),  # dropout, in training
            nn.Conv2d(out_channels, out_channels, 3, padding=1),
        )
        same = channels == out_channels
        self.skip_connection = nn.Identity() if same else nn.Conv2d(channels, out_channels, 1)
        self.last_bias: nn.Parameter | None = None  # of `fuse`

    def forward(self, x: Tensor, shift: Tensor) -> Tensor:
        """x [B, C, H, W]; shift [B, out_channels]: emb_layers of the embedding, and the first convolution's bias."""
        first, last = self.in_layers[2], self.out_layers[3]
        h = F.conv2d(group_norm(x, self.in_layers[0], silu=True), first.weight, padding=1)
        h = F.conv2d(group_norm(h, self.out_layers[0], silu=True, shift=shift), last.weight, padding=1)
        if isinstance(self.skip_connection, nn.Conv2d):
            x = F.conv2d(x, self.skip_connection.weight)
        return add_biased(x, h, self.last_bias)

    def fuse(self) -> None:
        """One bias for the sum at the end."""
        biases = [layer.bias for layer in (self.out_layers[3], self.skip_connection) if isinstance(layer, nn.Conv2d)]
        self.last_bias = nn.Parameter(sum(biases).detach(), requires_grad=False)


class SelfAttention(nn.Module):
    """Attention among all tokens of a group."""

    def __init__(self, dim: int, head_dim: int) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.to_q = nn.Linear(dim, dim, bias=False)
        self.to_k = nn.Linear(dim, dim, bias=False)
        self.to_v = nn.Linear(dim, dim, bias=False)
        self.to_out = nn.Sequential(nn.Linear(dim, dim))
        self.to_qkv: nn.Parameter | None = None

    def fuse(self) -> None:
        """One matrix for queries, keys and values."""
        joined = torch.cat([self.to_q.weight, self.to_k.weight, self.to_v.weight])
        self.to_qkv = nn.Parameter(joined.detach(), requires_grad=False)
        del self.to_q, self.to_k, self.to_v

    def forward(self, x: Tensor) -> Tensor:
        """x [b, n, C]."""
        q, k, v = F.linear(x, self.to_qkv).unflatten(-1, (3, -1, self.head_dim)).permute(2, 0, 3, 1, 4)
        return self.to_out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class CrossAttention(nn.Module):
    """Attention to the text, plus, with weights of its own, to the picture."""

    def __init__(self, dim: int, head_dim: int, context_dim: int, with_image: bool) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.to_q = nn.Linear(dim, dim, bias=False)
        self.to_k = nn.Linear(context_dim, dim, bias=False)
        self.to_v = nn.Linear(context_dim, dim, bias=False)
        if with_image:
            self.to_k_ip = nn.Linear(context_dim, dim, bias=False)
            self.to_v_ip = nn.Linear(context_dim, dim, bias=False)
        self.to_out = nn.Sequential(nn.Linear(dim, dim))

    def _heads(self, tokens: Tensor) -> Tensor:
        return tokens.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)  # [b, heads, n, head_dim]

    def forward(self, x: Tensor, context: KeyValues) -> Tensor:
        """x [b, n, C]: the tokens of a group's views, for all of them look at the same."""
        q = self._heads(self.to_q(x))
        k, v, *image = (self._heads(tokens) for tokens in context)
        out = F.scaled_dot_product_attention(q, k, v)
        if image:
            out = out + F.scaled_dot_product_attention(q, *image)
        return self.to_out(out.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, dim: int, multiple: int = 4) -> None:
        super().__init__()
        self.net = nn.Sequential(GatedLinear(dim, multiple * dim), nn.Identity(), nn.Linear(multiple * dim, dim))

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)


class TransformerBlock(nn.Module):
    def __init__(self, dim: int, config: UNetConfig) -> None:
        super().__init__()
        self.attn1 = SelfAttention(dim, config.num_head_channels)
        self.attn2 = CrossAttention(dim, config.num_head_channels, config.context_dim, config.ip_dim > 0)
        self.ff = FeedForward(dim)
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(dim), nn.LayerNorm(dim), nn.LayerNorm(dim)

    def forward(self, x: Tensor, context: KeyValues) -> Tensor:
        x = x + self.attn1(self.norm1(x))
        x = x + self.attn2(self.norm2(x), context)
        return x + self.ff(self.norm3(x))


class SpatialTransformer(nn.Module):
    """Transformer blocks over the pixels of all views of a group, around a residual."""

    def __init__(self, channels: int, config: UNetConfig) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, channels, eps=1e-6)
        self.proj_in = nn.Linear(channels, channels)
        self.transformer_blocks = nn.ModuleList(
            TransformerBlock(channels, config) for _ in range(config.transformer_depth)
        )
        self.proj_out = nn.Linear(channels, channels)

    def forward(self, x: Tensor, views: int, contexts: Iterator[KeyValues]) -> Tensor:
        """x [b views, C, H, W]; the next of `contexts` is each block's own."""
        b, c, h, w = x.shape
        tokens = group_norm(x, self.norm).permute(0, 2, 3, 1).reshape(b // views, views * h * w, c)
        tokens = self.proj_in(tokens)
        for block in self.transformer_blocks:
            tokens = block(tokens, next(contexts))
        return x + self.proj_out(tokens).reshape(b, h, w, c).permute(0, 3, 1, 2)


class Downsample(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.op = nn.Conv2d(channels, channels, 3, stride=2, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.op(x)


class MultiViewUNet(nn.Module):
    """Noise in the latents of groups of views; see the head of this file."""

    def __init__(self, config: UNetConfig) -> None:
        super().__init__()
        self.config = config
        width = config.model_channels
        embed_dim = TIME_MULTIPLE * width
        self.time_embed = nn.Sequential(nn.Linear(width, embed_dim), nn.SiLU(), nn.Linear(embed_dim, embed_dim))
        self.camera_embed = nn.Sequential(
            nn.Linear(config.camera_dim, embed_dim), nn.SiLU(), nn.Linear(embed_dim, embed_dim)
        )
        if config.ip_dim:
            self.image_embed = Resampler(config.context_dim, config.image_dim, config.ip_dim)

        self.input_blocks = nn.ModuleList([nn.ModuleList([nn.Conv2d(config.in_channels, width, 3, padding=1)])])
        channels, skips, resolution = width, [width], 1  # resolution: the latents' side over this level's
        last = len(config.channel_mult) - 1
        for level, multiple in enumerate(config.channel_mult):
            for _ in range(config.num_res_blocks):
                self.input_blocks.append(self._layer(channels, embed_dim, multiple * width, resolution))
                channels = multiple * width
                skips.append(channels)
            if level < last:
                self.input_blocks.append(nn.ModuleList([Downsample(channels)]))
                skips.append(channels)
                resolution *= 2
        self.middle_block = nn.ModuleList(
            [
                ResBlock(channels, embed_dim, channels),
                SpatialTransformer(channels, config),
                ResBlock(channels, embed_dim, channels),
            ]
        )
        self.output_blocks = nn.ModuleList()
        for level, multiple in reversed(list(enumerate(config.channel_mult))):
            for i in range(config.num_res_blocks + 1):
                layer = self._layer(channels + skips.pop(), embed_dim, multiple * width, resolution)
                channels = multiple * width
                if level > 0 and i == config.num_res_blocks:
                    layer.append(Upsample(channels))
                    resolution //= 2
                self.output_blocks.append(layer)
        self.out = nn.Sequential(
            nn.GroupNorm(GROUPS, channels), nn.SiLU(), nn.Conv2d(channels, config.out_channels, 3, padding=1)
        )
        # Of `fuse`:
        self.shift_weight: nn.Parameter | None = None
        self.shift_bias: nn.Parameter | None = None
        self.text_weight: nn.Parameter | None = None
        self.image_weight: nn.Parameter | None = None

    def _layer(self, channels: int, embed_dim: int, out_channels: int, resolution: int) -> nn.ModuleList:
        """A residual block, and attention at the resolutions that have it."""
        parts: list[nn.Module] = [ResBlock(channels, embed_dim, out_channels)]
        if resolution in self.config.attention_resolutions:
            parts.append(SpatialTransformer(out_channels, self.config))
        return nn.ModuleList(parts)

    def _in_order(self) -> list[nn.Module]:
        """All blocks in the order in which `forward` visits them."""
        layers = [*self.input_blocks, self.middle_block, *self.output_blocks]
        return [part for layer in layers for part in layer]

    @torch.no_grad()
    def fuse(self) -> MultiViewUNet:
        """Join matrices that meet the same input. To be called once, after loading and before `forward`.

        From then on the state dict has other names than the public weights.
        """

        def join(weights: list[Tensor]) -> nn.Parameter:
            return nn.Parameter(torch.cat(weights), requires_grad=False)

        blocks = [part for part in self._in_order() if isinstance(part, ResBlock)]
        self.shift_weight = join([block.emb_layers[1].weight for block in blocks])
        self.shift_bias = join([block.emb_layers[1].bias + block.in_layers[2].bias for block in blocks])
        self._shift_sizes = [block.emb_layers[1].out_features for block in blocks]
        for block in blocks:
            block.fuse()
            del block.emb_layers
        transformers = [part for part in self._in_order() if isinstance(part, SpatialTransformer)]
        attentions = [block.attn2 for part in transformers for block in part.transformer_blocks]
        self._context_sizes = [size for a in attentions for size in (a.to_k.out_features, a.to_v.out_features)]
        self.text_weight = join([linear.weight for a in attentions for linear in (a.to_k, a.to_v)])
        if self.config.ip_dim:
            self.image_weight = join([linear.weight for a in attentions for linear in (a.to_k_ip, a.to_v_ip)])
        for attention in attentions:
            for name in ("to_k", "to_v", "to_k_ip", "to_v_ip")[: 4 if self.config.ip_dim else 2]:
                delattr(attention, name)
        for part in list(self.modules()):
            if isinstance(part, SelfAttention):
                part.fuse()
        return self

    def embed_context(self, text: Tensor, features: Tensor | None = None) -> Tensor:
        """Keys and values of every cross attention; once an object, for they know neither time nor view.

        Args:
            text: encoded prompts [b, n, context_dim].
            features: of the image encoder [b, n', image_dim]; zeros for the half without a picture, which pass through
                the Resampler like any others.
        Returns:
            [b, n (+ ip_dim), all channels]: of each token of the text, then of the picture, one attention's keys and
            values after the other's.
        """
        context = F.linear(text, self.text_weight)
        if features is None:
            return context
        return torch.cat([context, F.linear(self.image_embed(features), self.image_weight)], dim=1)

    def _split_context(self, context: Tensor) -> Iterator[KeyValues]:
        """What `embed_context` joined, an attention at a time."""
        count = context.shape[1] - self.config.ip_dim
        parts = [context[:, :count]] if self.config.ip_dim == 0 else [context[:, :count], context[:, count:]]
        pieces = [part.split(self._context_sizes, dim=-1) for part in parts]
        for i in range(0, len(self._context_sizes), 2):
            yield [piece for part in pieces for piece in part[i : i + 2]]

    def forward(
        self, latents: Tensor, steps: Tensor, cameras: Tensor, context: Tensor, deep: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Predicted noise, like `latents`, and deep features [b, F, C', H, W]: what enters the last layer.

        Args:
            latents: [b, F, C, H, W], b groups of F views.
            steps: [b], of the 1000 that the network was trained on.
            cameras: [b, F, camera_dim].
            context: of `embed_context`.
            deep: deep features of another call; only the first and the last layer run then.
        """
        assert self.shift_weight is not None, "fuse comes first"
        b, views = latents.shape[:2]
        dtype = self.shift_weight.dtype
        time = self.time_embed(time_features(steps, self.config.model_channels).to(dtype))
        embedding = (time[:, None] + self.camera_embed(cameras.to(dtype))).flatten(0, 1)  # [b F, E]
        shifts = F.linear(F.silu(embedding), self.shift_weight, self.shift_bias).split(self._shift_sizes, dim=1)
        contexts = list(self._split_context(context))

        x = latents.to(dtype).flatten(0, 1).contiguous(memory_format=torch.channels_last)
        first = self.input_blocks[0][0](x)
        if deep is None:
            x = self._deep(first, views, iter(shifts), iter(contexts))
        else:
            x = deep.flatten(0, 1).contiguous(memory_format=torch.channels_last)
        deep = x.unflatten(0, (b, views))
        last_contexts = iter(contexts[-self.config.transformer_depth :])
        x = _through(self.output_blocks[-1], torch.cat([x, first], dim=1), views, iter(shifts[-1:]), last_contexts)
        noise = self.out[2](group_norm(x, self.out[0], silu=True))
        return noise.reshape(b, views, *latents.shape[2:]).to(latents.dtype), deep

    def _deep(self, x: Tensor, views: int, shifts: Iterator[Tensor], contexts: Iterator[KeyValues]) -> Tensor:
        """All layers but the first and the last."""
        skips = []
        for layer in self.input_blocks[1:]:
            x = _through(layer, x, views, shifts, contexts)
            skips.append(x)
        x = _through(self.middle_block, x, views, shifts, contexts)
        for layer in self.output_blocks[:-1]:
            x = _through(layer, torch.cat([x, skips.pop()], dim=1), views, shifts, contexts)
        return x


def _through(
    layer: nn.ModuleList, x: Tensor, views: int, shifts: Iterator[Tensor], contexts: Iterator[KeyValues]
) -> Tensor:
    """The parts of a layer; each takes the next of what is its own."""
    for part in layer:
        if isinstance(part, ResBlock):
            x = part(x, next(shifts))
        elif isinstance(part, SpatialTransformer):
            x = part(x, views, contexts)
        else:
            x = part(x)
    return x


def time_features(steps: Tensor, dim: int, longest: float = 10_000.0) -> Tensor:
    """cos(t w_i), then sin(t w_i), with w_i = longest^(-2 i / dim) [b, dim], of steps t [b]; their dtype."""
    half = dim // 2
    rates = torch.exp(torch.arange(half, device=steps.device, dtype=steps.dtype) * (-math.log(longest) / half))
    angles = steps[:, None] * rates[None]
    return torch.cat([angles.cos(), angles.sin()], dim=-1)
