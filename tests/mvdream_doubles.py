"""Random checkpoints in exactly the layouts of the public MVDream and ImageDream.

The public tokenizer's tables are not among them: its double knows the same bytes under the same first numbers, and a
few words.
"""

from __future__ import annotations

from pathlib import Path

import torch
from checkpoint_doubles import (
    FEATURE_EXTRACTOR,
    SCHEDULER,
    TINY,
    clip_vision_config,
    random_weights,
    vae_config,
    write_json,
    write_weights,
)

from priors.mvdream_unet import MultiViewUNet, UNetConfig

START, END = "<|startoftext|>", "<|endoftext|>"
WORDS = ("a</w>", "cat</w>", "dog</w>", "3d</w>", "asset</w>", ",</w>")


def unet_config(size: str, with_picture: bool) -> dict:
    tiny = size == TINY
    config = {
        "_class_name": "MultiViewUNetModel",
        "_diffusers_version": "0.25.0",
        "attention_resolutions": [2, 1] if tiny else [4, 2, 1],
        "camera_dim": 16,
        "channel_mult": [1, 2, 2] if tiny else [1, 2, 4, 4],
        "context_dim": 32 if tiny else 1024,
        "image_size": 8 if tiny else 32,
        "in_channels": 4,
        "ip_dim": 4 if tiny else 16,
        "model_channels": 32 if tiny else 320,
        "num_head_channels": 16 if tiny else 64,
        "num_res_blocks": 1 if tiny else 2,
        "out_channels": 4,
        "transformer_depth": 1,
    }
    if not with_picture:
        del config["ip_dim"]
    return config


def text_config(size: str, words: int) -> dict:
    """OpenCLIP's ViT-H/14 as Stable Diffusion 2.1 uses it: without the last layer."""
    tiny = size == TINY
    return {
        "_name_or_path": "stabilityai/stable-diffusion-2-1",
        "architectures": ["CLIPTextModel"],
        "attention_dropout": 0.0,
        "bos_token_id": 0,  # wrong in the public file too: only the pooled output, which nobody uses, depends on them
        "dropout": 0.0,
        "eos_token_id": 2,
        "hidden_act": "gelu",
        "hidden_size": 32 if tiny else 1024,
        "initializer_factor": 1.0,
        "initializer_range": 0.02,
        "intermediate_size": 64 if tiny else 4096,
        "layer_norm_eps": 1e-05,
        "max_position_embeddings": 77,
        "model_type": "clip_text_model",
        "num_attention_heads": 2 if tiny else 16,
        "num_hidden_layers": 2 if tiny else 23,
        "pad_token_id": 1,
        "projection_dim": 512,
        "torch_dtype": "float16",
        "transformers_version": "4.35.2",
        "vocab_size": words if tiny else 49408,
    }


def image_config(size: str) -> dict:
    """ViT-H/14."""
    config = clip_vision_config(size)
    config |= {
        "_name_or_path": "laion/CLIP-ViT-H-14-laion2B-s32B-b79K",
        "architectures": ["CLIPVisionModel"],
        "hidden_act": "gelu",
        "num_hidden_layers": 3 if size == TINY else 32,
    }
    if size != TINY:
        config |= {"hidden_size": 1280, "intermediate_size": 5120, "num_attention_heads": 16, "projection_dim": 1024}
    return config


def write_multiview(folder: Path, with_picture: bool, size: str = TINY, seed: int = 0, device: str = "cpu") -> Path:
    """A checkpoint folder of ImageDream (`with_picture`) or MVDream."""
    from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
    from transformers.models.clip.configuration_clip import CLIPTextConfig, CLIPVisionConfig
    from transformers.models.clip.modeling_clip import CLIPTextModel, CLIPVisionModel

    words = write_tokenizer(folder / "tokenizer")
    configs = {
        "unet": unet_config(size, with_picture),
        "vae": vae_config(size),
        "text_encoder": text_config(size, words),
    }
    if with_picture:
        configs["image_encoder"] = image_config(size)
    fields = {key: value for key, value in configs["unet"].items() if not key.startswith("_")}
    if with_picture:
        fields["image_dim"] = configs["image_encoder"]["hidden_size"]
    with torch.device("meta"):
        modules = {
            "unet": MultiViewUNet(UNetConfig(**fields)),
            "vae": AutoencoderKL.from_config(configs["vae"]),
            "text_encoder": CLIPTextModel(CLIPTextConfig.from_dict(configs["text_encoder"])),
        }
        if with_picture:
            modules["image_encoder"] = CLIPVisionModel(CLIPVisionConfig.from_dict(configs["image_encoder"]))
    generator = torch.Generator(device).manual_seed(seed)
    for name, module in modules.items():
        weights = random_weights(module, generator)
        if name in ("text_encoder", "image_encoder"):  # as transformers 4 named them
            prefix = "text_model." if name == "text_encoder" else "vision_model."
            weights = {name if name.startswith(prefix) else prefix + name: value for name, value in weights.items()}
        write_json(folder / name / "config.json", configs[name])
        write_weights(folder / name, weights, name in ("text_encoder", "image_encoder"), "ashawkey")
    write_json(folder / "scheduler" / "scheduler_config.json", SCHEDULER)
    index = {
        "_class_name": "MVDreamPipeline",
        "_diffusers_version": "0.25.0",
        "feature_extractor": ["transformers", "CLIPImageProcessor"] if with_picture else [None, None],
        "image_encoder": ["transformers", "CLIPVisionModel"] if with_picture else [None, None],
        "requires_safety_checker": False,
        "scheduler": ["diffusers", "DDIMScheduler"],
        "text_encoder": ["transformers", "CLIPTextModel"],
        "tokenizer": ["transformers", "CLIPTokenizer"],
        "unet": ["mv_unet", "MultiViewUNetModel"],
        "vae": ["diffusers", "AutoencoderKL"],
    }
    write_json(folder / "model_index.json", index)
    if with_picture:
        write_json(folder / "feature_extractor" / "preprocessor_config.json", FEATURE_EXTRACTOR)
    for trap in (folder / "unet" / "mv_unet.py", folder / "pipeline_mvdream.py"):
        trap.write_text("raise SystemExit('code that came with weights was run')\n")
    return folder


def write_tokenizer(folder: Path) -> int:
    """CLIP's tokenizer over bytes and a few words; returns the number of tokens."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    letters = [chr(byte) for byte in printable] + [chr(256 + i) for i in range(256 - len(printable))]
    tokens = letters + [f"{letter}</w>" for letter in letters]  # as in the public tables: "!" is number 0
    merges = []
    for word in WORDS:
        parts = [*word.removesuffix("</w>")[:-1], f"{word.removesuffix('</w>')[-1]}</w>"]
        while len(parts) > 1:
            merges.append(f"{parts[0]} {parts[1]}")
            parts = [parts[0] + parts[1], *parts[2:]]
            tokens += [parts[0]] if parts[0] not in tokens else []
    tokens += [START, END]
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "vocab.json", {token: i for i, token in enumerate(tokens)})
    lines = list(dict.fromkeys(merges))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(lines) + "\n")
    special = {
        name: {
            "content": token,
            "lstrip": False,
            "normalized": name != "pad_token",
            "rstrip": False,
            "single_word": False,
        }
        for name, token in (("bos_token", START), ("eos_token", END), ("unk_token", END))
    }
    write_json(folder / "special_tokens_map.json", special | {"pad_token": "!"})
    settings = {
        "add_prefix_space": False,
        "bos_token": START,
        "clean_up_tokenization_spaces": True,
        "do_lower_case": True,
        "eos_token": END,
        "errors": "replace",
        "model_max_length": 77,
        "pad_token": "!",
        "tokenizer_class": "CLIPTokenizer",
        "unk_token": END,
    }
    write_json(folder / "tokenizer_config.json", settings)
    return len(tokens)
