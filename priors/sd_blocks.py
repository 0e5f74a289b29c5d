"""Blocks of Stable Diffusion's UNet and VAE, named and shaped as diffusers' files are, with few passes over memory.

What a block saves against the plain way of writing it:

| block         | instead of                                                                  | one                 |
|---------------|-----------------------------------------------------------------------------|---------------------|
| ResnetBlock   | two changes of layout, moments, norm, SiLU; bias; shift of the time         | group_norm, twice   |
|               | bias of the convolution, sum                                                | add_biased          |
| SelfAttention | products for queries, keys and values                                       | one product for all |

Pictures are channels_last on a GPU, so that they turn into tokens without a copy. diffusers itself is not imported:
that takes longer than everything else before the first call.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from errors import UserError
from priors.fused_ops import add_biased, geglu, group_norm


class ResnetBlock(nn.Module):
    """x + conv2(silu(norm2(conv1(silu(norm1(x))) + shift))); the shift is the time's, where there is one."""

    def __init__(self, channels: int, out_channels: int, groups: int, eps: float, time_dim: int = 0) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(groups, channels, eps)
        self.conv1 = nn.Conv2d(channels, out_channels, 3, padding=1)
        if time_dim:
            self.time_emb_proj = nn.Linear(time_dim, out_channels)
        self.norm2 = nn.GroupNorm(groups, out_channels, eps)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1)
        self.conv_shortcut = None if channels == out_channels else nn.Conv2d(channels, out_channels, 1)
        self.last_bias: nn.Parameter | None = None  # of `fuse`

    def fuse(self) -> None:
        """One bias for the sum at the end."""
        layers = [self.conv2] if self.conv_shortcut is None else [self.conv2, self.conv_shortcut]
        self.last_bias = nn.Parameter(sum(layer.bias for layer in layers).detach().clone(), requires_grad=False)

    def forward(self, x: Tensor, shift: Tensor | None = None) -> Tensor:
        """x [B, C, H, W]; shift [B, out_channels]: of the time, conv1's bias included; None: that bias alone."""
        if shift is None:
            shift = self.conv1.bias.expand(len(x), -1)
        hidden = F.conv2d(group_norm(x, self.norm1, silu=True), self.conv1.weight, padding=1)
        hidden = F.conv2d(group_norm(hidden, self.norm2, silu=True, shift=shift), self.conv2.weight, padding=1)
        if self.conv_shortcut is not None:
            x = F.conv2d(x, self.conv_shortcut.weight)
        return add_biased(x, hidden, self.last_bias)


class SelfAttention(nn.Module):
    """Attention among tokens [B, L, C]; `attend` leaves out the product that ends it."""

    def __init__(self, dim: int, heads: int, bias: bool) -> None:
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(dim, dim, bias)
        self.to_k = nn.Linear(dim, dim, bias)
        self.to_v = nn.Linear(dim, dim, bias)
        self.to_out = nn.Sequential(nn.Linear(dim, dim))
        self.joined_weight: nn.Parameter | None = None
        self.joined_bias: nn.Parameter | None = None

    def fuse(self) -> None:
        """One matrix for queries, keys and values."""
        layers = [self.to_q, self.to_k, self.to_v]
        self.joined_weight = joined([layer.weight for layer in layers])
        if self.to_q.bias is not None:
            self.joined_bias = joined([layer.bias for layer in layers])
        del self.to_q, self.to_k, self.to_v

    def attend(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        parts = F.linear(x, self.joined_weight, self.joined_bias).view(batch, length, 3, self.heads, -1)
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind(0)  # [B, heads, L, D] each
        return F.scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(batch, length, -1)


class Downsample(nn.Module):
    """Half the side."""

    def __init__(self, channels: int, padded_on_one_side: bool = False) -> None:
        super().__init__()
        self.padded_on_one_side = padded_on_one_side
        self.conv = nn.Conv2d(channels, channels, 3, stride=2, padding=0 if padded_on_one_side else 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.pad(x, (0, 1, 0, 1)) if self.padded_on_one_side else x)


class Upsample(nn.Module):
    """Twice the side."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


class GatedLinear(nn.Module):
    """GEGLU (arXiv:2002.05202): one half of a linear map, gated by the other."""

    def __init__(self, dim: int, inner: int) -> None:
        super().__init__()
        self.proj = nn.Linear(dim, 2 * inner)

    def forward(self, x: Tensor) -> Tensor:
        return geglu(self.proj(x))


class Level(nn.Module):
    """What happens at one resolution: residual blocks, attention after each of them where there is any, resampling."""

    def __init__(self, resnets, attentions=(), down: nn.Module | None = None, up: nn.Module | None = None) -> None:
        super().__init__()
        self.resnets = nn.ModuleList(resnets)
        if attentions:
            self.attentions = nn.ModuleList(attentions)
        if down is not None:
            self.downsamplers = nn.ModuleList([down])
        if up is not None:
            self.upsamplers = nn.ModuleList([up])


def joined(weights: list[Tensor]) -> nn.Parameter:
    return nn.Parameter(torch.cat([weight.detach() for weight in weights]), requires_grad=False)


def fuse_parts(network: nn.Module) -> None:
    """`fuse` of all blocks inside; after loading, for the state dict has other names afterwards."""
    for module in list(network.modules()):
        if isinstance(module, (ResnetBlock, SelfAttention)):
            module.fuse()


def require_fields(settings: dict, expected: dict, origin: str) -> None:
    """Raise a UserError where a config asks for what the networks here do not have; a field that is absent is fine."""
    for field, value in expected.items():
        found = settings.get(field, value)
        if found != value:
            raise UserError(f"config.json: {field}={found}, expected {value}; {origin}")
