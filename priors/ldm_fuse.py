"""Stable Diffusion's networks with fewer passes over memory: the same tensors and results, other kernels in between.

`fuse` gives the blocks of a diffusers UNet or VAE forward passes of their own. What it saves, a block:

| block       | instead of                                                                  | one                 |
|-------------|-----------------------------------------------------------------------------|---------------------|
| ResnetBlock | two changes of layout, moments, norm, SiLU; bias; shift of the time         | group_norm, twice   |
|             | bias of the convolution, sum, division by 1                                 | add_biased          |
| Transformer | changes of layout; products for q, k and v; norm and query before attention | one product for all |
|             | to a single token (which needs neither); GELU, product                      | geglu               |
"""

from __future__ import annotations

import types

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from priors.fused_ops import add_biased, geglu, group_norm


def fuse(network: nn.Module) -> nn.Module:
    """Give a UNet with a single token to attend to, or a VAE, its faster passes, in place; for inference alone.

    What is not as Stable Diffusion has it (a time that scales, resampling within a block, other norms) is left alone.
    """
    from diffusers.models.resnet import ResnetBlock2D
    from diffusers.models.transformers.transformer_2d import Transformer2DModel

    timed = []
    for module in list(network.modules()):
        if isinstance(module, ResnetBlock2D) and _is_plain_resnet(module):
            _fuse_resnet(module)
            if module.time_emb_proj is not None:
                timed.append(module)
        elif isinstance(module, Transformer2DModel) and _is_plain_transformer(module):
            for block in module.transformer_blocks:
                _join_projections(block.attn1)
            module.forward = types.MethodType(_transformer_forward, module)
        elif isinstance(getattr(module, "conv_norm_out", None), nn.GroupNorm) and isinstance(module.conv_act, nn.SiLU):
            module.conv_norm_out.forward = types.MethodType(_norm_and_silu, module.conv_norm_out)
            module.conv_act = nn.Identity()
    if timed:
        _project_time_at_once(network, timed)
    return network


def _norm_and_silu(norm: nn.GroupNorm, x: Tensor) -> Tensor:
    return group_norm(x, norm, silu=True)


def _is_plain_resnet(block: nn.Module) -> bool:
    return (
        block.upsample is None
        and block.downsample is None
        and block.output_scale_factor == 1.0
        and isinstance(block.nonlinearity, nn.SiLU)
        and (block.time_emb_proj is None or (block.time_embedding_norm == "default" and not block.skip_time_act))
    )


def _fuse_resnet(block: nn.Module) -> None:
    """x + conv2(silu(norm2(conv1(silu(norm1(x))) + time))), with the biases moved to where a pass is anyway."""
    last_bias = block.conv2.bias.detach()
    if block.conv_shortcut is not None and block.conv_shortcut.bias is not None:
        last_bias = last_bias + block.conv_shortcut.bias.detach()
    block.register_buffer("last_bias", last_bias.clone(), persistent=False)
    block.shift = None  # [N, C] for this call, where there is a time: conv1's bias is in it
    block.forward = types.MethodType(_resnet_forward, block)


def _resnet_forward(block: nn.Module, x: Tensor, time: Tensor | None = None, *unused, **unused_too) -> Tensor:
    hidden = group_norm(x, block.norm1, silu=True)
    hidden = F.conv2d(hidden, block.conv1.weight, None, padding=1)
    shift = block.conv1.bias.expand(len(x), -1) if block.time_emb_proj is None else block.shift
    hidden = group_norm(hidden, block.norm2, silu=True, shift=shift)
    hidden = F.conv2d(hidden, block.conv2.weight, None, padding=1)
    if block.conv_shortcut is not None:
        x = F.conv2d(x, block.conv_shortcut.weight)
    return add_biased(x, hidden, block.last_bias)


def _project_time_at_once(unet: nn.Module, blocks: list[nn.Module]) -> None:
    """One product for the shifts of all blocks, as soon as the time is embedded."""
    weight = torch.cat([block.time_emb_proj.weight.detach() for block in blocks])
    bias = torch.cat([block.time_emb_proj.bias.detach() + block.conv1.bias.detach() for block in blocks])
    unet.register_buffer("shift_weight", weight, persistent=False)
    unet.register_buffer("shift_bias", bias, persistent=False)
    sizes = [len(block.time_emb_proj.bias) for block in blocks]

    def hand_out(embedding: nn.Module, arguments: tuple, time: Tensor) -> None:
        shifts = F.linear(F.silu(time), unet.shift_weight, unet.shift_bias).split(sizes, dim=1)
        for block, shift in zip(blocks, shifts, strict=True):
            block.shift = shift

    unet.time_embedding.register_forward_hook(hand_out)


def _is_plain_transformer(module: nn.Module) -> bool:
    from diffusers.models.activations import GEGLU

    def plain(block: nn.Module) -> bool:
        return block.norm_type == "layer_norm" and block.attn2 is not None and isinstance(block.ff.net[0], GEGLU)

    return isinstance(module.norm, nn.GroupNorm) and all(plain(block) for block in module.transformer_blocks)


def _join_projections(attention: nn.Module) -> None:
    """One matrix for queries, keys and values."""
    parts = [attention.to_q, attention.to_k, attention.to_v]
    joined = nn.Linear(parts[0].in_features, sum(part.out_features for part in parts), bias=False, device="meta")
    joined.weight = nn.Parameter(torch.cat([part.weight.detach() for part in parts]), requires_grad=False)
    attention.joined = joined
    attention.to_q = attention.to_k = attention.to_v = None


def _self_attention(attention: nn.Module, x: Tensor) -> Tensor:
    """Attention within tokens [B, L, C], before the product that ends it."""
    batch, length, _ = x.shape
    joined = attention.joined(x).view(batch, length, 3, attention.heads, -1)
    query, key, value = joined.permute(2, 0, 3, 1, 4).unbind(0)  # [B, heads, L, D] each
    attended = F.scaled_dot_product_attention(query, key, value)
    return attended.transpose(1, 2).reshape(batch, length, -1)


def _transformer_forward(module: nn.Module, x: Tensor, encoder_hidden_states: Tensor, **unused) -> tuple[Tensor]:
    """Self attention, the single token's value, feed forward, on channels_last pictures without a change of layout."""
    assert encoder_hidden_states.shape[1] == 1
    batch, channels, height, width = x.shape
    tokens = group_norm(x, module.norm).permute(0, 2, 3, 1).reshape(batch, height * width, channels)
    tokens = _pointwise(module.proj_in, tokens)
    for block in module.transformer_blocks:
        first, second = block.attn1.to_out[0], block.attn2.to_out[0]
        # A softmax over one key is 1: what is attended to is the token's value, whatever asks for it.
        value = second(block.attn2.to_v(encoder_hidden_states))  # [B, 1, C]
        attended = _self_attention(block.attn1, block.norm1(tokens))
        tokens = _added(tokens, attended, first.weight) + (value + first.bias)
        hidden = geglu(block.ff.net[0].proj(block.norm3(tokens)))
        tokens = tokens + block.ff.net[2](hidden)
    tokens = _pointwise(module.proj_out, tokens)
    return (tokens.reshape(batch, height, width, channels).permute(0, 3, 1, 2) + x,)


def _pointwise(layer: nn.Linear | nn.Conv2d, tokens: Tensor) -> Tensor:
    """A linear layer, or a convolution of 1 x 1 pixel, over tokens."""
    return F.linear(tokens, layer.weight.flatten(1), layer.bias)


def _added(tokens: Tensor, x: Tensor, weight: Tensor) -> Tensor:
    """tokens + x weight^T, within the product; changes `tokens`, which nobody else needs any more."""
    return tokens.view(-1, tokens.shape[-1]).addmm_(x.view(-1, x.shape[-1]), weight.t()).view_as(tokens)
