"""Condenses the features of an image encoder to a few tokens: the perceiver of Flamingo (arXiv:2204.14198)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Of the public weights; their config.json does not say.
DEPTH = 4
HEADS = 12
HEAD_DIM = 64
FF_MULTIPLE = 4


class LatentAttention(nn.Module):
    """Learned tokens look at the features and at themselves."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.to_q = nn.Linear(dim, HEADS * HEAD_DIM, bias=False)
        self.to_kv = nn.Linear(dim, 2 * HEADS * HEAD_DIM, bias=False)
        self.to_out = nn.Linear(HEADS * HEAD_DIM, dim, bias=False)

    def forward(self, features: Tensor, tokens: Tensor) -> Tensor:
        """features [b, n, dim], tokens [b, q, dim]."""
        tokens = self.norm2(tokens)
        k, v = self.to_kv(torch.cat([self.norm1(features), tokens], dim=1)).chunk(2, dim=-1)
        q, k, v = (t.unflatten(-1, (HEADS, HEAD_DIM)).transpose(1, 2) for t in (self.to_q(tokens), k, v))
        return self.to_out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Resampler(nn.Module):
    """[b, n, image_dim] -> [b, count, dim]."""

    def __init__(self, dim: int, image_dim: int, count: int) -> None:
        super().__init__()
        self.latents = nn.Parameter(torch.zeros(1, count, dim))
        self.proj_in = nn.Linear(image_dim, dim)
        self.proj_out = nn.Linear(dim, dim)
        self.norm_out = nn.LayerNorm(dim)
        self.layers = nn.ModuleList(
            nn.ModuleList(
                [
                    LatentAttention(dim),
                    nn.Sequential(
                        nn.LayerNorm(dim),
                        nn.Linear(dim, FF_MULTIPLE * dim, bias=False),
                        nn.GELU(),
                        nn.Linear(FF_MULTIPLE * dim, dim, bias=False),
                    ),
                ]
            )
            for _ in range(DEPTH)
        )

    def forward(self, features: Tensor) -> Tensor:
        features = self.proj_in(features)
        tokens = self.latents.expand(features.shape[0], -1, -1)
        for attention, feed_forward in self.layers:
            tokens = tokens + attention(features, tokens)
            tokens = tokens + feed_forward(tokens)
        return self.norm_out(self.proj_out(tokens))
