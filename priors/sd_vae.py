"""Stable Diffusion's autoencoder (arXiv:2112.10752): the mean of its posterior, and back."""

from __future__ import annotations

from types import SimpleNamespace

from torch import Tensor, nn

from priors.fused_ops import group_norm
from priors.sd_blocks import Downsample, Level, ResnetBlock, SelfAttention, Upsample, fuse_parts, require_fields

EPS = 1e-6  # of every GroupNorm
_EXPECTED = {
    "act_fn": "silu", "use_quant_conv": True, "use_post_quant_conv": True, "mid_block_add_attention": True,
    "shift_factor": None, "latents_mean": None, "latents_std": None,
}  # fmt: skip


class PixelAttention(SelfAttention):
    """Attention among the pixels of a picture, around a residual."""

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__(channels, heads=1, bias=True)
        self.group_norm = nn.GroupNorm(groups, channels, EPS)

    def forward(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        tokens = group_norm(x, self.group_norm).permute(0, 2, 3, 1).reshape(batch, height * width, channels)
        tokens = self.to_out(self.attend(tokens))
        return x + tokens.reshape(batch, height, width, channels).permute(0, 3, 1, 2)


class Coder(nn.Module):
    """What encoder and decoder share: the lowest resolution, and the end."""

    def __init__(self, channels: int, last: int, out_channels: int, groups: int) -> None:
        super().__init__()
        self.mid_block = Level(
            [ResnetBlock(channels, channels, groups, EPS) for _ in range(2)], [PixelAttention(channels, groups)]
        )
        self.conv_norm_out = nn.GroupNorm(groups, last, EPS)
        self.conv_out = nn.Conv2d(last, out_channels, 3, padding=1)

    def middle(self, x: Tensor) -> Tensor:
        first, second = self.mid_block.resnets
        return second(self.mid_block.attentions[0](first(x)))

    def end(self, x: Tensor) -> Tensor:
        return self.conv_out(group_norm(x, self.conv_norm_out, silu=True))


class Encoder(Coder):
    def __init__(self, widths: list[int], blocks: int, latent_channels: int, groups: int) -> None:
        super().__init__(widths[-1], widths[-1], 2 * latent_channels, groups)
        self.conv_in = nn.Conv2d(3, widths[0], 3, padding=1)
        levels, channels = [], widths[0]
        for i, width in enumerate(widths):
            resnets = [ResnetBlock(channels if j == 0 else width, width, groups, EPS) for j in range(blocks)]
            down = Downsample(width, padded_on_one_side=True) if i < len(widths) - 1 else None
            levels.append(Level(resnets, down=down))
            channels = width
        self.down_blocks = nn.ModuleList(levels)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv_in(x)
        for i, level in enumerate(self.down_blocks):
            for resnet in level.resnets:
                x = resnet(x)
            if i < len(self.down_blocks) - 1:
                x = level.downsamplers[0](x)
        return self.end(self.middle(x))


class Decoder(Coder):
    def __init__(self, widths: list[int], blocks: int, latent_channels: int, groups: int) -> None:
        super().__init__(widths[-1], widths[0], 3, groups)
        self.conv_in = nn.Conv2d(latent_channels, widths[-1], 3, padding=1)
        levels, channels = [], widths[-1]
        for i, width in enumerate(reversed(widths)):
            resnets = [ResnetBlock(channels if j == 0 else width, width, groups, EPS) for j in range(blocks + 1)]
            levels.append(Level(resnets, up=Upsample(width) if i < len(widths) - 1 else None))
            channels = width
        self.up_blocks = nn.ModuleList(levels)

    def forward(self, x: Tensor) -> Tensor:
        x = self.middle(self.conv_in(x))
        for i, level in enumerate(self.up_blocks):
            for resnet in level.resnets:
                x = resnet(x)
            if i < len(self.up_blocks) - 1:
                x = level.upsamplers[0](x)
        return self.end(x)


class Autoencoder(nn.Module):
    """Pictures [B, 3, S, S] in [-1, 1] <-> latents [B, 4, S / 8, S / 8], unscaled."""

    def __init__(self, settings: dict, origin: str = "") -> None:
        """
        Args:
            settings: of the public config.json.
        Raises:
            UserError: they ask for another network.
        """
        super().__init__()
        require_fields(settings, _EXPECTED, origin)
        widths, latent_channels = list(settings["block_out_channels"]), settings["latent_channels"]
        shape = widths, settings["layers_per_block"], latent_channels, settings["norm_num_groups"]
        self.config = SimpleNamespace(scaling_factor=settings.get("scaling_factor", 0.18215))
        self.encoder, self.decoder = Encoder(*shape), Decoder(*shape)
        self.quant_conv = nn.Conv2d(2 * latent_channels, 2 * latent_channels, 1)
        self.post_quant_conv = nn.Conv2d(latent_channels, latent_channels, 1)

    def fuse(self) -> Autoencoder:
        """Join what is multiplied together; once, after loading and before the first call."""
        fuse_parts(self)
        return self

    def encode_mean(self, images: Tensor) -> Tensor:
        return self.quant_conv(self.encoder(images)).chunk(2, dim=1)[0]

    def decode_mean(self, latents: Tensor) -> Tensor:
        return self.decoder(self.post_quant_conv(latents))
