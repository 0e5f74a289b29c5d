"""CLIP's encoders of pictures and of texts (arXiv:2103.00020), named as transformers' files are.

transformers itself is not imported for them: that takes longer than reading the weights and encoding the picture.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from errors import UserError


def quick_gelu(x: Tensor) -> Tensor:
    """OpenAI's approximation of GELU."""
    return x * torch.sigmoid(1.702 * x)


_ACTIVATIONS = {"quick_gelu": quick_gelu, "gelu": F.gelu}


@dataclass(frozen=True)
class ClipConfig:
    """What is used of a public config.json."""

    hidden_size: int
    intermediate_size: int
    num_attention_heads: int
    num_hidden_layers: int
    hidden_act: str = "quick_gelu"
    layer_norm_eps: float = 1e-5
    image_size: int = 224
    patch_size: int = 32
    projection_dim: int = 512
    vocab_size: int = 49408
    max_position_embeddings: int = 77

    @classmethod
    def from_settings(cls, settings: dict, origin: str) -> ClipConfig:
        known = {name: settings[name] for name in cls.__dataclass_fields__ if name in settings}
        try:
            config = cls(**known)
        except TypeError as error:
            raise UserError(f"config.json of CLIP: {error}; {origin}") from error
        if config.hidden_act not in _ACTIVATIONS:
            choices = " or ".join(_ACTIVATIONS)
            raise UserError(f"config.json: hidden_act={config.hidden_act}, expected {choices}; {origin}")
        return config


class Attention(nn.Module):
    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        dim = config.hidden_size
        self.heads = config.num_attention_heads
        self.q_proj, self.k_proj = nn.Linear(dim, dim), nn.Linear(dim, dim)
        self.v_proj, self.out_proj = nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x: Tensor, causal: bool) -> Tensor:
        layers = self.q_proj, self.k_proj, self.v_proj
        q, k, v = (layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in layers)
        return self.out_proj(F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        self.activation = _ACTIVATIONS[config.hidden_act]
        self.fc1 = nn.Linear(config.hidden_size, config.intermediate_size)
        self.fc2 = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.activation(self.fc1(x)))


class Layer(nn.Module):
    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        self.self_attn = Attention(config)
        self.mlp = FeedForward(config)
        self.layer_norm1 = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)
        self.layer_norm2 = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)

    def forward(self, x: Tensor, causal: bool) -> Tensor:
        x = x + self.self_attn(self.layer_norm1(x), causal)
        return x + self.mlp(self.layer_norm2(x))


class Layers(nn.Module):
    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_hidden_layers))


class Table(nn.Module):
    """nn.Embedding, without the random numbers: on the meta device torch imports sympy for them, 2 s."""

    def __init__(self, count: int, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(count, dim))

    def forward(self, ids: Tensor) -> Tensor:
        return F.embedding(ids, self.weight)


class PictureEmbeddings(nn.Module):
    """A token a patch, behind the token of the whole."""

    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        patch, patches = config.patch_size, (config.image_size // config.patch_size) ** 2
        self.class_embedding = nn.Parameter(torch.empty(config.hidden_size))
        self.patch_embedding = nn.Conv2d(3, config.hidden_size, patch, patch, bias=False)
        self.position_embedding = Table(1 + patches, config.hidden_size)

    def forward(self, pixels: Tensor) -> Tensor:
        patches = self.patch_embedding(pixels).flatten(2).transpose(1, 2)
        whole = self.class_embedding.expand(len(pixels), 1, -1)
        return torch.cat([whole, patches], dim=1) + self.position_embedding.weight


class PictureEncoder(nn.Module):
    """Pictures [B, 3, S, S], normalised -> tokens [B, 1 + patches, D]."""

    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = PictureEmbeddings(config)
        self.pre_layrnorm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)  # so it is called in the files
        self.encoder = Layers(config)
        self.post_layernorm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)

    def forward(self, pixels: Tensor, skipped: int = 0) -> Tensor:
        """Hidden states before the last norm; skipped: of the layers, at the end."""
        x = self.pre_layrnorm(self.embeddings(pixels))
        for layer in self.encoder.layers[: len(self.encoder.layers) - skipped]:
            x = layer(x, causal=False)
        return x


class ProjectedPictureEncoder(nn.Module):
    """Pictures -> one embedding each [B, projection_dim]."""

    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        self.config = config
        self.vision_model = PictureEncoder(config)
        self.visual_projection = nn.Linear(config.hidden_size, config.projection_dim, bias=False)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.visual_projection(self.vision_model.post_layernorm(self.vision_model(pixels)[:, 0]))


class TextEmbeddings(nn.Module):
    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        self.token_embedding = Table(config.vocab_size, config.hidden_size)
        self.position_embedding = Table(config.max_position_embeddings, config.hidden_size)

    def forward(self, ids: Tensor) -> Tensor:
        return self.token_embedding(ids) + self.position_embedding.weight[: ids.shape[1]]


class TextEncoder(nn.Module):
    """Ids of tokens [B, n] -> hidden states [B, n, D], normalised; a token knows those before it alone."""

    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = TextEmbeddings(config)
        self.encoder = Layers(config)
        self.final_layer_norm = nn.LayerNorm(config.hidden_size, config.layer_norm_eps)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embeddings(ids)
        for layer in self.encoder.layers:
            x = layer(x, causal=True)
        return self.final_layer_norm(x)
