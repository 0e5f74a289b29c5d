"""MVDream and ImageDream once more, in NumPy and float64, one view, head and pixel offset at a time, from the papers.

Reads the weights by their public names. Nothing here is imported by the app, and nothing of the app is used here.
"""

import math

import numpy as np
from scipy.special import erf

Weights = dict[str, np.ndarray]


def schedule() -> np.ndarray:
    """Cumulative products of Stable Diffusion's 1000 steps."""
    product, out = 1.0, []
    for i in range(1000):
        root = math.sqrt(0.00085) + (math.sqrt(0.012) - math.sqrt(0.00085)) * i / 999
        product *= 1.0 - root * root
        out.append(product)
    return np.array(out)


def blender_camera(azimuth_deg: float, elevation_deg: float) -> np.ndarray:
    """The 16 numbers of a view: camera to world with z up, the azimuth 0 on -y, counted towards +x; unit distance."""
    a, e = math.radians(azimuth_deg), math.radians(elevation_deg)
    position = np.array([math.cos(e) * math.sin(a), -math.cos(e) * math.cos(a), math.sin(e)])
    right = np.cross([0.0, 0.0, 1.0], position)
    right /= np.linalg.norm(right)
    up = np.cross(position, right)
    matrix = np.eye(4)
    matrix[:3] = np.stack([right, up, position, position], axis=1)  # the camera looks along its -z
    return matrix.reshape(-1)


def silu(x):
    return x / (1 + np.exp(-x))


def gelu(x):
    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def linear(w: Weights, name: str, x):
    out = x @ w[f"{name}.weight"].T
    return out + w[f"{name}.bias"] if f"{name}.bias" in w else out


def layer_norm(w: Weights, name: str, x):
    mean, var = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) / np.sqrt(var + 1e-5) * w[f"{name}.weight"] + w[f"{name}.bias"]


def group_norm(w: Weights, name: str, x, eps):
    """x [C, H, W], 32 groups."""
    out = np.empty_like(x)
    size = x.shape[0] // 32
    for g in range(32):
        part = x[g * size : (g + 1) * size]
        out[g * size : (g + 1) * size] = (part - part.mean()) / np.sqrt(part.var() + eps)
    return out * w[f"{name}.weight"][:, None, None] + w[f"{name}.bias"][:, None, None]


def conv(w: Weights, name: str, x, stride=1):
    """x [C, H, W]; kernels of 3 with a border of zeros, or of 1."""
    kernel = w[f"{name}.weight"]
    side = kernel.shape[-1]
    _, height, width = x.shape
    padded = np.pad(x, ((0, 0), (side // 2,) * 2, (side // 2,) * 2))
    out = np.zeros((kernel.shape[0], len(range(0, height, stride)), len(range(0, width, stride))))
    for dy in range(side):
        for dx in range(side):
            shifted = padded[:, dy : dy + height : stride, dx : dx + width : stride]
            out += np.tensordot(kernel[:, :, dy, dx], shifted, 1)
    return out + w[f"{name}.bias"][:, None, None]


def attend(q, k, v, head_dim):
    """q [n, C], k and v [m, C], head by head."""
    out = np.zeros_like(q)
    for h in range(q.shape[1] // head_dim):
        part = slice(h * head_dim, (h + 1) * head_dim)
        scores = q[:, part] @ k[:, part].T / math.sqrt(head_dim)
        scores = np.exp(scores - scores.max(1, keepdims=True))
        out[:, part] = scores / scores.sum(1, keepdims=True) @ v[:, part]
    return out


def resampler(w: Weights, features):
    """Features [n, D] of one picture -> its tokens [q, C]."""
    w = {name.removeprefix("image_embed."): value for name, value in w.items() if name.startswith("image_embed.")}
    features, tokens = linear(w, "proj_in", features), w["latents"][0]
    for i in range(4):
        name = f"layers.{i}.0"
        x, y = layer_norm(w, f"{name}.norm1", features), layer_norm(w, f"{name}.norm2", tokens)
        keys_values = linear(w, f"{name}.to_kv", np.concatenate([x, y]))
        k, v = keys_values[:, : keys_values.shape[1] // 2], keys_values[:, keys_values.shape[1] // 2 :]
        tokens = tokens + linear(w, f"{name}.to_out", attend(linear(w, f"{name}.to_q", y), k, v, 64))
        h = layer_norm(w, f"layers.{i}.1.0", tokens)
        tokens = tokens + linear(w, f"layers.{i}.1.3", gelu(linear(w, f"layers.{i}.1.1", h)))
    return layer_norm(w, "norm_out", linear(w, "proj_out", tokens))


def res_block(w: Weights, name: str, views, embeddings):
    out = []
    for x, embedding in zip(views, embeddings, strict=True):
        h = conv(w, f"{name}.in_layers.2", silu(group_norm(w, f"{name}.in_layers.0", x, 1e-5)))
        h = h + linear(w, f"{name}.emb_layers.1", silu(embedding))[:, None, None]
        h = conv(w, f"{name}.out_layers.3", silu(group_norm(w, f"{name}.out_layers.0", h, 1e-5)))
        skip = conv(w, f"{name}.skip_connection", x) if f"{name}.skip_connection.weight" in w else x
        out.append(skip + h)
    return out


def transformer(w: Weights, name: str, views, text, image, head_dim):
    """text [n, C]; image [q, C] or None."""
    channels, height, width = views[0].shape
    tokens = []
    for x in views:
        flat = group_norm(w, f"{name}.norm", x, 1e-6).reshape(channels, -1).T
        tokens.append(linear(w, f"{name}.proj_in", flat))
    block = f"{name}.transformer_blocks.0"
    # all views of the object as one sequence
    x = np.concatenate([layer_norm(w, f"{block}.norm1", t) for t in tokens])
    q, k, v = (linear(w, f"{block}.attn1.to_{part}", x) for part in "qkv")
    mixed = np.split(linear(w, f"{block}.attn1.to_out.0", attend(q, k, v, head_dim)), len(tokens))
    out = []
    for view, t, m in zip(views, tokens, mixed, strict=True):
        t = t + m
        q = linear(w, f"{block}.attn2.to_q", layer_norm(w, f"{block}.norm2", t))
        seen = attend(q, linear(w, f"{block}.attn2.to_k", text), linear(w, f"{block}.attn2.to_v", text), head_dim)
        if image is not None:
            k, v = linear(w, f"{block}.attn2.to_k_ip", image), linear(w, f"{block}.attn2.to_v_ip", image)
            seen = seen + attend(q, k, v, head_dim)
        t = t + linear(w, f"{block}.attn2.to_out.0", seen)
        h = linear(w, f"{block}.ff.net.0.proj", layer_norm(w, f"{block}.norm3", t))
        value, gate = h[:, : h.shape[1] // 2], h[:, h.shape[1] // 2 :]
        t = t + linear(w, f"{block}.ff.net.2", value * gelu(gate))
        out.append(view + linear(w, f"{name}.proj_out", t).T.reshape(channels, height, width))
    return out


def unet(w: Weights, settings: dict, views, step: int, cameras, text, image=None):
    """Noise of one group.

    Args:
        settings: of unet/config.json.
        views: latents [C, H, W] each.
        cameras: 16 numbers each.
        text: [n, context_dim]; image: tokens of the resampler, or None.
    """
    half = settings["model_channels"] // 2
    angles = np.array([step * math.exp(-math.log(10000) * i / half) for i in range(half)])
    time = linear(w, "time_embed.2", silu(linear(w, "time_embed.0", np.concatenate([np.cos(angles), np.sin(angles)]))))
    embeddings = [time + linear(w, "camera_embed.2", silu(linear(w, "camera_embed.0", c))) for c in cameras]
    head_dim = settings["num_head_channels"]

    def layer(name, views):
        """Whatever lies under this name, told by the names of its weights."""
        for i in range(4):
            part = f"{name}.{i}"
            if f"{part}.in_layers.0.weight" in w:
                views = res_block(w, part, views, embeddings)
            elif f"{part}.proj_in.weight" in w:
                views = transformer(w, part, views, text, image, head_dim)
            elif f"{part}.op.weight" in w:
                views = [conv(w, f"{part}.op", x, stride=2) for x in views]
            elif f"{part}.conv.weight" in w:
                views = [conv(w, f"{part}.conv", x.repeat(2, axis=1).repeat(2, axis=2)) for x in views]
            elif f"{part}.weight" in w:
                views = [conv(w, part, x) for x in views]
        return views

    count = len({name.split(".")[1] for name in w if name.startswith("input_blocks.")})
    skips = []
    for i in range(count):
        views = layer(f"input_blocks.{i}", views)
        skips.append(views)
    views = layer("middle_block", views)
    for i in range(count):
        views = layer(f"output_blocks.{i}", [np.concatenate(pair) for pair in zip(views, skips.pop(), strict=True)])
    return [conv(w, "out.2", silu(group_norm(w, "out.0", x, 1e-5))) for x in views]


def guided_noise(w, settings, views, step, cameras, texts, images, picture_latents, scale):
    """u + s (c - u); of ImageDream's fifth view nothing is kept.

    Args:
        texts: (negative, positive); images: tokens (of nothing, of the picture), or (None, None).
        picture_latents: (zeros, of the picture), or None for a network of texts alone.
    """
    halves = []
    for text, image, latents in zip(texts, images, picture_latents or (None, None), strict=True):
        if latents is None:
            halves.append(unet(w, settings, views, step, cameras, text, image))
        else:
            more = unet(w, settings, [*views, latents], step, [*cameras, np.zeros(16)], text, image)
            halves.append(more[:-1])
    return [u + scale * (c - u) for u, c in zip(*halves, strict=True)]


def ddim(x, noise, a_here, a_there, eta, fresh):
    """Equation 12 of DDIM with sigma of equation 16; on the way up eta is 0."""
    clean = (x - math.sqrt(1 - a_here) * noise) / math.sqrt(a_here)
    sigma = eta * math.sqrt((1 - a_there) / (1 - a_here) * (1 - a_here / a_there)) if eta else 0.0
    return math.sqrt(a_there) * clean + math.sqrt(1 - a_there - sigma**2) * noise + sigma * fresh
