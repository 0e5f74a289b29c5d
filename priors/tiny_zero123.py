"""The embedded prior's network: one picture in, the same object from other cameras out.

A small diffusion network after Zero-1-to-3 (arXiv:2303.11328) in purpose and after DiT / PixArt-alpha
(arXiv:2212.09748, arXiv:2310.00426) in form: convolutions at the ends, 16 x 16 tokens through transformer blocks with
adaLN-single in the middle. Source and target views go through the same weights. Source tokens attend to themselves
alone, so their keys and values are computed once a picture (`encode_source`) and reused at every denoising step and
for every view.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CAMERA_RADIUS = 2.0
CAMERA_FOVY_DEG = 49.1
WORKING_SIZE = 64  # pictures larger than this enter and leave through a pixel-(un)shuffle
RAY_FEATURES = 30  # 6 Pluecker coordinates, and sin and cos of 3x and 6x
CAMERA_FEATURES = 11
TIME_FREQUENCIES = 32
# Blocks that run although deep features are given. Without them views of held-out object 0 lost 1.5 dB where they lose
# 0.3 with them (8 views sampled in 2 steps, the second from features of the first).
OUTER_BLOCKS = 2


@dataclass(frozen=True)
class TinyZero123Config:
    """Sizes of the network; the defaults are the embedded prior."""

    image_size: int = 128  # side of the pictures, pixels: 128, 64, or smaller in tests
    width: int = 320  # channels of a token
    depth: int = 8  # transformer blocks
    heads: int = 5
    stem_channels: int = 48  # at the working size
    middle_channels: int = 96  # at half of it
    mlp_ratio: int = 4

    def __post_init__(self) -> None:
        if self.image_size % (4 * self.shuffle):
            raise ValueError(f"image_size must be a multiple of {4 * self.shuffle}, got {self.image_size}")
        if self.width % self.heads:
            raise ValueError(f"width must be a multiple of heads={self.heads}, got {self.width}")

    @property
    def shuffle(self) -> int:
        """Factor of the pixel-unshuffle at the input."""
        return max(1, self.image_size // WORKING_SIZE)

    @property
    def grid(self) -> int:
        """Tokens along a side of the picture."""
        return self.image_size // self.shuffle // 4

    def to_dict(self) -> dict[str, int]:
        return asdict(self)


@dataclass(frozen=True)
class SourceCache:
    """Keys and values of the source tokens, one pair a block, each [B, heads, T, width / heads]."""

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]

    def expand(self, batch: int) -> SourceCache:
        """Repeat a cache of one picture (B = 1) for `batch` of them, without a copy."""
        return SourceCache(
            tuple(k.expand(batch, -1, -1, -1) for k in self.keys),
            tuple(v.expand(batch, -1, -1, -1) for v in self.values),
        )

    @staticmethod
    def cat(caches: list[SourceCache]) -> SourceCache:
        """Join caches along the batch: conditional and unconditional halves of one guided evaluation, say."""
        return SourceCache(
            tuple(torch.cat(parts) for parts in zip(*(c.keys for c in caches), strict=True)),
            tuple(torch.cat(parts) for parts in zip(*(c.values for c in caches), strict=True)),
        )


def blank_source(batch: int, image_size: int, device: torch.device | str | None = None) -> Tensor:
    """The picture that stands for "no source": white, zero coverage. [B, 4, S, S] in [-1, 1]."""
    blank = torch.ones(batch, 4, image_size, image_size, device=device)
    blank[:, 3] = -1.0
    return blank


def token_rays(azimuth_deg: Tensor, elevation_deg: Tensor, grid: int) -> Tensor:
    """Pluecker coordinates of the rays through the centres of a grid of tokens.

    Cameras look at the origin from CAMERA_RADIUS; azimuth 0 is at +z and grows to +x, elevation is positive above.

    Args:
        azimuth_deg, elevation_deg: [N], degrees.
        grid: tokens along a side, rows from the top.
    Returns:
        [N, grid * grid, 6]: unit direction d and moment o x d.
    """
    azimuth, elevation = torch.deg2rad(azimuth_deg), torch.deg2rad(elevation_deg)
    sin_a, cos_a, sin_e, cos_e = azimuth.sin(), azimuth.cos(), elevation.sin(), elevation.cos()
    backward = torch.stack([cos_e * sin_a, sin_e, cos_e * cos_a], -1)  # [N, 3], from the origin to the camera
    right = torch.stack([cos_a, torch.zeros_like(sin_a), -sin_a], -1)
    up = torch.stack([-sin_e * sin_a, cos_e, -sin_e * cos_a], -1)
    half = math.tan(math.radians(CAMERA_FOVY_DEG) / 2)
    steps = (torch.arange(grid, device=azimuth.device, dtype=azimuth.dtype) + 0.5) * (2 * half / grid) - half
    x = steps.repeat(grid)[None, :, None]  # [1, T, 1], columns run fastest
    y = -steps.repeat_interleave(grid)[None, :, None]
    directions = F.normalize(right[:, None] * x + up[:, None] * y - backward[:, None], dim=-1)  # [N, T, 3]
    origins = (CAMERA_RADIUS * backward)[:, None].expand_as(directions)
    return torch.cat([directions, torch.linalg.cross(origins, directions)], -1)


def camera_features(azimuth_deg: Tensor, elevation_deg: Tensor, source_elevation_deg: Tensor) -> Tensor:
    """What the conditioning vector hears of the camera, besides the is-source flag: [N] each -> [N, 10]."""
    a, e, s = (torch.deg2rad(x) for x in (azimuth_deg, elevation_deg, source_elevation_deg))
    return torch.stack(
        [a.sin(), a.cos(), (2 * a).sin(), (2 * a).cos(), e.sin(), e.cos(), 2 * e, s.sin(), s.cos(), 2 * s], -1
    )


def time_features(t: Tensor) -> Tensor:
    """Sines and cosines of the noise level, [N] in [0, 1] -> [N, 2 * TIME_FREQUENCIES]."""
    # Half a turn to 64 turns over the range: the network must tell t = .98 from t = 1.
    exponents = torch.linspace(0.0, math.log(128.0), TIME_FREQUENCIES, device=t.device, dtype=torch.float32)
    angles = t[:, None].float() * (math.pi * exponents.exp())
    return torch.cat([angles.sin(), angles.cos()], -1)


class ResBlock(nn.Module):
    """Two 3 x 3 convolutions whose middle is scaled and shifted by the conditioning vector (FiLM, arXiv:1709.07871)."""

    def __init__(self, channels: int, condition_width: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(8, channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.film = nn.Linear(condition_width, 2 * channels)
        self.norm2 = nn.GroupNorm(8, channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        for layer in (self.film, self.conv2):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        scale, shift = self.film(condition)[:, :, None, None].chunk(2, 1)
        h = self.conv1(F.silu(self.norm1(x)))
        h = F.silu(self.norm2(h) * (1 + scale) + shift)
        return x + self.conv2(h)


class Embed(nn.Module):
    """Picture and camera -> tokens, skip connections, conditioning vector and the blocks' shared modulation."""

    def __init__(self, config: TinyZero123Config) -> None:
        super().__init__()
        self.config = config
        c1, c2, d = config.stem_channels, config.middle_channels, config.width
        self.condition = nn.Sequential(
            nn.Linear(2 * TIME_FREQUENCIES + CAMERA_FEATURES, d), nn.SiLU(), nn.Linear(d, d), nn.SiLU()
        )
        self.modulation = nn.Linear(d, 6 * d)
        self.stem = nn.Conv2d(4 * config.shuffle**2, c1, 3, padding=1)
        self.res1 = ResBlock(c1, d)
        self.down1 = nn.Conv2d(4 * c1, c2, 1)
        self.res2 = ResBlock(c2, d)
        self.down2 = nn.Conv2d(4 * c2, d, 1)
        self.rays = nn.Linear(RAY_FEATURES, d)
        self.position = nn.Parameter(torch.randn(1, config.grid**2, d) * 0.02)
        nn.init.zeros_(self.modulation.weight)
        nn.init.zeros_(self.modulation.bias)

    def forward(
        self,
        pictures: Tensor,
        t: Tensor,
        azimuth_deg: Tensor,
        elevation_deg: Tensor,
        source_elevation_deg: Tensor,
        is_source: bool,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """pictures [N, 4, S, S], the rest [N] -> tokens [N, T, d], skips, condition [N, d], modulation [N, 6, d]."""
        n = pictures.shape[0]
        flag = torch.full_like(t, float(is_source))[:, None]
        cameras = camera_features(azimuth_deg, elevation_deg, source_elevation_deg)
        condition = self.condition(torch.cat([time_features(t), cameras, flag], -1))
        modulation = self.modulation(condition).view(n, 6, -1)

        x = F.pixel_unshuffle(pictures, self.config.shuffle) if self.config.shuffle > 1 else pictures
        skip1 = self.res1(self.stem(x.contiguous(memory_format=torch.channels_last)), condition)
        skip2 = self.res2(self.down1(F.pixel_unshuffle(skip1, 2)), condition)
        tokens = self.down2(F.pixel_unshuffle(skip2, 2)).flatten(2).transpose(1, 2)  # [N, T, d]

        rays = token_rays(azimuth_deg, elevation_deg, self.config.grid)
        rays = torch.cat([rays, (3 * rays).sin(), (3 * rays).cos(), (6 * rays).sin(), (6 * rays).cos()], -1)
        tokens = tokens + self.rays(rays) + self.position
        return tokens, skip1, skip2, condition, modulation


class Block(nn.Module):
    """Transformer block with adaLN-single; keys and queries are normalised (QK norm)."""

    def __init__(self, width: int, heads: int, mlp_ratio: int) -> None:
        super().__init__()
        self.width, self.heads = width, heads
        self.table = nn.Parameter(torch.zeros(6, width))
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.query_scale = nn.Parameter(torch.ones(width // heads))
        self.key_scale = nn.Parameter(torch.ones(width // heads))
        self.out = nn.Linear(width, width, bias=False)
        self.up = nn.Linear(width, mlp_ratio * width)
        self.down = nn.Linear(mlp_ratio * width, width)
        with torch.no_grad():  # gates open, residual branches silent: the block starts as the identity
            self.table[2] = 1.0
            self.table[5] = 1.0
        for layer in (self.out, self.down):
            nn.init.zeros_(layer.weight)
        for layer in (self.up, self.down):
            nn.init.zeros_(layer.bias)

    def forward(
        self, x: Tensor, modulation: Tensor, source_key: Tensor | None, source_value: Tensor | None, joint: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Mix tokens [N, T, d] among themselves and with the source's.

        Args:
            modulation: [N, 6, d], shared by the blocks.
            source_key, source_value: [B, heads, T, d / heads], N = B * V; None in the source's own pass.
            joint: tokens of the V views of a picture attend to each other.
        Returns:
            Tokens [N, T, d], and the keys and values [N, heads, T, d / heads] of this block.
        """
        n, tokens, d = x.shape
        shift1, scale1, gate1, shift2, scale2, gate2 = (modulation + self.table).unsqueeze(2).unbind(1)  # [N, 1, d]

        h = F.layer_norm(x, (d,)) * (1 + scale1) + shift1
        q, k, v = self.qkv(h).view(n, tokens, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        q = F.rms_norm(q.float(), q.shape[-1:], self.query_scale, 1e-6).to(v.dtype)
        k = F.rms_norm(k.float(), k.shape[-1:], self.key_scale, 1e-6).to(v.dtype)
        if source_key is None:
            mixed = F.scaled_dot_product_attention(q, k, v)
        else:
            q, all_k, all_v = gather_context(q, k, v, source_key, source_value, joint)
            mixed = F.scaled_dot_product_attention(q, all_k, all_v)
        mixed = mixed.transpose(1, 2).reshape(n, tokens, d)  # from [N, heads, T, c], or [B, heads, V * T, c] if joint
        x = x + gate1 * self.out(mixed)
        h = F.layer_norm(x, (d,)) * (1 + scale2) + shift2
        x = x + gate2 * self.down(F.gelu(self.up(h), approximate="tanh"))
        return x, k, v


def gather_context(
    q: Tensor, k: Tensor, v: Tensor, source_key: Tensor, source_value: Tensor, joint: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Put the source's keys and values before the targets' own; see Block.forward for the shapes."""
    n, heads, tokens, c = q.shape
    batch = source_key.shape[0]
    views = n // batch
    if joint:  # one long sequence a picture

        def one_sequence(x: Tensor) -> Tensor:
            return x.view(batch, views, heads, tokens, c).transpose(1, 2).reshape(batch, heads, views * tokens, c)

        q, k, v = one_sequence(q), one_sequence(k), one_sequence(v)
    elif views > 1:

        def for_each_view(x: Tensor) -> Tensor:
            return x[:, None].expand(-1, views, -1, -1, -1).reshape(n, heads, x.shape[2], c)

        source_key, source_value = for_each_view(source_key), for_each_view(source_value)
    return q, torch.cat([source_key.to(k.dtype), k], 2), torch.cat([source_value.to(v.dtype), v], 2)


class Decode(nn.Module):
    """Tokens and skip connections -> picture."""

    def __init__(self, config: TinyZero123Config) -> None:
        super().__init__()
        self.config = config
        c1, c2, d = config.stem_channels, config.middle_channels, config.width
        self.norm = nn.LayerNorm(d)
        self.up2 = nn.Linear(d, 4 * c2)
        self.merge2 = nn.Conv2d(2 * c2, c2, 1)
        self.res2 = ResBlock(c2, d)
        self.up1 = nn.Conv2d(c2, 4 * c1, 1)
        self.merge1 = nn.Conv2d(2 * c1, c1, 1)
        self.res1 = ResBlock(c1, d)
        self.norm_out = nn.GroupNorm(8, c1)
        self.conv_out = nn.Conv2d(c1, 4 * config.shuffle**2, 3, padding=1)
        nn.init.zeros_(self.conv_out.weight)
        nn.init.zeros_(self.conv_out.bias)

    def forward(self, tokens: Tensor, skip1: Tensor, skip2: Tensor, condition: Tensor) -> Tensor:
        """tokens [N, T, d], skip1 [N, c1, S', S'], skip2 [N, c2, S'/2, S'/2], condition [N, d] -> [N, 4, S, S]."""
        n, grid = tokens.shape[0], self.config.grid
        x = self.up2(self.norm(tokens)).view(n, grid, grid, -1).permute(0, 3, 1, 2)  # channels last in memory
        x = self.res2(self.merge2(torch.cat([F.pixel_shuffle(x, 2), skip2], 1)), condition)
        x = self.res1(self.merge1(torch.cat([F.pixel_shuffle(self.up1(x), 2), skip1], 1)), condition)
        x = self.conv_out(F.silu(self.norm_out(x)))
        return F.pixel_shuffle(x, self.config.shuffle) if self.config.shuffle > 1 else x


class TinyZero123(nn.Module):
    """The network; pictures are RGBA in [-1, 1], colour composited over white, coverage in the fourth channel."""

    def __init__(self, config: TinyZero123Config | None = None) -> None:
        super().__init__()
        self.config = config or TinyZero123Config()
        self.embed = Embed(self.config)
        self.blocks = nn.ModuleList(
            Block(self.config.width, self.config.heads, self.config.mlp_ratio) for _ in range(self.config.depth)
        )
        self.decode = Decode(self.config)
        self.interpret_regions()

    def interpret_regions(self) -> None:
        """Run the network as written: the state after construction, and the way back from `compile_regions`."""
        self._embed: Callable = Embed.forward
        self._block: Callable = Block.forward
        self._decode: Callable = Decode.forward

    def compile_regions(self, backend: str = "inductor") -> None:
        """Compile the three kinds of region, not the whole network: a block is then compiled once, not 8 times."""
        self._embed, self._block, self._decode = (
            torch.compile(part.forward, dynamic=False, fullgraph=True, backend=backend)
            for part in (Embed, Block, Decode)
        )

    def encode_source(self, source_rgba: Tensor, source_elevation_deg: Tensor) -> SourceCache:
        """Run source pictures [B, 4, S, S] (elevations [B], degrees) through the trunk; once a picture is enough."""
        self._check_pictures("source_rgba", source_rgba, 4)
        zeros = torch.zeros_like(source_elevation_deg)
        x, _, _, _, modulation = self._embed(
            self.embed, source_rgba, zeros, zeros, source_elevation_deg, source_elevation_deg, True
        )
        keys, values = [], []
        for block in self.blocks:
            x, k, v = self._block(block, x, modulation, None, None, False)
            keys.append(k)
            values.append(v)
        return SourceCache(tuple(keys), tuple(values))

    def denoise(
        self,
        x_t: Tensor,
        t: Tensor,
        relative_azimuth_deg: Tensor,
        elevation_deg: Tensor,
        source_elevation_deg: Tensor,
        cache: SourceCache,
        joint: bool,
    ) -> Tensor:
        """Predict the velocity v = alpha eps - sigma x0 of noisy target views.

        Args:
            x_t: [B, V, 4, S, S], alpha x0 + sigma eps.
            t: noise level in [0, 1], [B], or [B, V] where each view has its own (joint=False only makes sense so).
            relative_azimuth_deg: target minus source azimuth, [B, V], degrees.
            elevation_deg: [B, V]; source_elevation_deg: [B], degrees.
            cache: of the B sources, from `encode_source`.
            joint: the V views of a picture attend to each other; if not, the result is that of V separate calls.
        Returns:
            v [B, V, 4, S, S].
        Raises:
            ValueError: a shape does not fit; the message names the argument.
        """
        return self.denoise_and_keep(x_t, t, relative_azimuth_deg, elevation_deg, source_elevation_deg, cache, joint)[0]

    def denoise_and_keep(
        self,
        x_t: Tensor,
        t: Tensor,
        relative_azimuth_deg: Tensor,
        elevation_deg: Tensor,
        source_elevation_deg: Tensor,
        cache: SourceCache,
        joint: bool,
        deep: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """`denoise`, and the deep features [B V, T, d]: what all blocks but the last ones add to the tokens.

        deep: that of another call; these blocks are then left out.
        """
        self._check_pictures("x_t", x_t, 5)
        batch, views = x_t.shape[:2]
        for name, value in (("relative_azimuth_deg", relative_azimuth_deg), ("elevation_deg", elevation_deg)):
            if value.shape != (batch, views):
                raise ValueError(f"{name} must be [B, V] = [{batch}, {views}] to match x_t, got {list(value.shape)}")
        if cache.keys[0].shape[0] != batch:
            raise ValueError(f"cache must hold B = {batch} sources to match x_t, got {cache.keys[0].shape[0]}")

        def per_view(x: Tensor) -> Tensor:
            return (x if x.dim() == 2 else x[:, None]).expand(batch, views).reshape(-1)

        x, skip1, skip2, condition, modulation = self._embed(
            self.embed,
            x_t.flatten(0, 1),
            per_view(t),
            per_view(relative_azimuth_deg),
            per_view(elevation_deg),
            per_view(source_elevation_deg),
            False,
        )
        layers = list(zip(self.blocks, cache.keys, cache.values, strict=True))
        inner = layers[:-OUTER_BLOCKS]
        if deep is None:
            before = x
            for block, k, v in inner:
                x, _, _ = self._block(block, x, modulation, k, v, joint)
            deep = x - before
        else:
            x = x + deep
        for block, k, v in layers[len(inner) :]:
            x, _, _ = self._block(block, x, modulation, k, v, joint)
        return self._decode(self.decode, x, skip1, skip2, condition).unflatten(0, (batch, views)), deep

    def trunk_matrices(self) -> list[nn.Parameter]:
        """The weights for Muon: matrices inside the blocks."""
        return [p for block in self.blocks for name, p in block.named_parameters() if name.endswith("weight")]

    def _check_pictures(self, name: str, pictures: Tensor, dims: int) -> None:
        size = self.config.image_size
        if pictures.dim() != dims or pictures.shape[-3:] != (4, size, size):
            expected = f"{dims} dimensions ending in [4, {size}, {size}]"
            raise ValueError(f"{name} must have {expected}, got {list(pictures.shape)}")
