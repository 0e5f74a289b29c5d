"""Random checkpoints in exactly the layouts of the public ones: names of files and tensors, config fields, fp16.

The config fields are those of the public files, legacy ones included; "tiny" differs from them in sizes alone, "full"
in nothing but the tensors' values.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

TINY, FULL = "tiny", "full"

SCHEDULER = {
    "_class_name": "DDIMScheduler",
    "_diffusers_version": "0.24.0",
    "beta_end": 0.012,
    "beta_schedule": "scaled_linear",
    "beta_start": 0.00085,
    "clip_sample": False,
    "clip_sample_range": 1.0,
    "dynamic_thresholding_ratio": 0.995,
    "num_train_timesteps": 1000,
    "prediction_type": "epsilon",
    "rescale_betas_zero_snr": False,
    "sample_max_value": 1.0,
    "set_alpha_to_one": False,
    "steps_offset": 1,
    "thresholding": False,
    "timestep_spacing": "leading",
    "trained_betas": None,
}
FEATURE_EXTRACTOR = {
    "crop_size": {"height": 224, "width": 224},
    "do_center_crop": True,
    "do_convert_rgb": True,
    "do_normalize": True,
    "do_rescale": True,
    "do_resize": True,
    "feature_extractor_type": "CLIPFeatureExtractor",
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_processor_type": "CLIPImageProcessor",
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "resample": 3,
    "rescale_factor": 0.00392156862745098,
    "size": {"shortest_edge": 224},
    "use_square_size": False,
}
ZERO123_INDEX = {
    "_class_name": "Zero123Pipeline",
    "_diffusers_version": "0.24.0",
    "clip_camera_projection": ["zero123", "CLIPCameraProjection"],
    "feature_extractor": ["transformers", "CLIPImageProcessor"],
    "image_encoder": ["transformers", "CLIPVisionModelWithProjection"],
    "requires_safety_checker": False,
    "safety_checker": [None, None],
    "scheduler": ["diffusers", "DDIMScheduler"],
    "unet": ["diffusers", "UNet2DConditionModel"],
    "vae": ["diffusers", "AutoencoderKL"],
}


def zero123_unet_config(size: str) -> dict:
    tiny = size == TINY
    return {
        "_class_name": "UNet2DConditionModel",
        "_name_or_path": "unet",
        "_diffusers_version": "0.24.0",
        "act_fn": "silu",
        "addition_embed_type": None,
        "addition_embed_type_num_heads": 64,
        "addition_time_embed_dim": None,
        "attention_head_dim": 2 if tiny else 8,
        "attention_type": "default",
        "block_out_channels": [32, 64, 64, 64] if tiny else [320, 640, 1280, 1280],
        "center_input_sample": False,
        "class_embed_type": None,
        "class_embeddings_concat": False,
        "conv_in_kernel": 3,
        "conv_out_kernel": 3,
        "cross_attention_dim": 24 if tiny else 768,
        "cross_attention_norm": None,
        "down_block_types": [
            "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D",
        ],
        "downsample_padding": 1,
        "dropout": 0.0,
        "dual_cross_attention": False,
        "encoder_hid_dim": None,
        "encoder_hid_dim_type": None,
        "flip_sin_to_cos": True,
        "freq_shift": 0,
        "in_channels": 8,
        "layers_per_block": 1 if tiny else 2,
        "mid_block_scale_factor": 1,
        "mid_block_type": "UNetMidBlock2DCrossAttn",
        "norm_eps": 1e-05,
        "norm_num_groups": 8 if tiny else 32,
        "num_attention_heads": None,
        "num_class_embeds": None,
        "only_cross_attention": False,
        "out_channels": 4,
        "projection_class_embeddings_input_dim": None,
        "resnet_out_scale_factor": 1.0,
        "resnet_skip_time_act": False,
        "resnet_time_scale_shift": "default",
        "reverse_transformer_layers_per_block": None,
        "sample_size": 8 if tiny else 32,
        "time_cond_proj_dim": None,
        "time_embedding_act_fn": None,
        "time_embedding_dim": None,
        "time_embedding_type": "positional",
        "timestep_post_act": None,
        "transformer_layers_per_block": 1,
        "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"],
        "upcast_attention": None,
        "use_linear_projection": False,
    }  # fmt: skip


def vae_config(size: str) -> dict:
    tiny = size == TINY
    return {
        "_class_name": "AutoencoderKL",
        "_diffusers_version": "0.24.0",
        "act_fn": "silu",
        "block_out_channels": [8, 16, 16, 16] if tiny else [128, 256, 512, 512],
        "down_block_types": ["DownEncoderBlock2D"] * 4,
        "force_upcast": True,
        "in_channels": 3,
        "latent_channels": 4,
        "layers_per_block": 1 if tiny else 2,
        "norm_num_groups": 4 if tiny else 32,
        "out_channels": 3,
        "sample_size": 64 if tiny else 256,
        "scaling_factor": 0.18215,
        "up_block_types": ["UpDecoderBlock2D"] * 4,
    }


def clip_vision_config(size: str) -> dict:
    """ViT-L/14."""
    tiny = size == TINY
    return {
        "_name_or_path": "lambdalabs/sd-image-variations-diffusers",
        "architectures": ["CLIPVisionModelWithProjection"],
        "attention_dropout": 0.0,
        "dropout": 0.0,
        "hidden_act": "quick_gelu",
        "hidden_size": 32 if tiny else 1024,
        "image_size": 56 if tiny else 224,
        "initializer_factor": 1.0,
        "initializer_range": 0.02,
        "intermediate_size": 64 if tiny else 4096,
        "layer_norm_eps": 1e-05,
        "model_type": "clip_vision_model",
        "num_attention_heads": 2 if tiny else 16,
        "num_channels": 3,
        "num_hidden_layers": 2 if tiny else 24,
        "patch_size": 14,
        "projection_dim": 16 if tiny else 768,
        "torch_dtype": "float16",
        "transformers_version": "4.35.2",
    }


def write_zero123(
    folder: Path, size: str = TINY, layout: str = "ashawkey", seed: int = 0, device: str = "cpu", **changes: dict
) -> Path:
    """A checkpoint folder of zero123.

    Args:
        layout: "ashawkey" (half precision, no suffix, code beside the weights), "bennyguo" (float32, and half precision
            with the suffix .fp16; older tensor names) or "kxic" (other names of the projection, as safetensors).
        device: where the random numbers are made.
        changes: per component, config fields that differ.
    """
    from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
    from diffusers.models.unets.unet_2d_condition import UNet2DConditionModel
    from transformers.models.clip.configuration_clip import CLIPVisionConfig
    from transformers.models.clip.modeling_clip import CLIPVisionModelWithProjection

    configs = {"unet": zero123_unet_config(size), "vae": vae_config(size), "image_encoder": clip_vision_config(size)}
    for name, fields in changes.items():
        configs[name].update(fields)
    token, embedding = configs["unet"]["cross_attention_dim"], configs["image_encoder"]["projection_dim"]
    with torch.device("meta"):
        modules = {
            "unet": UNet2DConditionModel.from_config(configs["unet"]),
            "vae": AutoencoderKL.from_config(configs["vae"]),
            "image_encoder": CLIPVisionModelWithProjection(CLIPVisionConfig.from_dict(configs["image_encoder"])),
            "clip_camera_projection": nn.Linear(embedding + 4, token),
        }
    generator = torch.Generator(device).manual_seed(seed)
    weights = {name: random_weights(module, generator) for name, module in modules.items()}
    encoder = weights["image_encoder"]  # files of transformers 4 hold this constant
    patches = (configs["image_encoder"]["image_size"] // configs["image_encoder"]["patch_size"]) ** 2
    encoder["vision_model.embeddings.position_ids"] = torch.arange(patches + 1)[None]
    prefix, projection = ("projection", "cc_projection") if layout == "kxic" else ("proj", "clip_camera_projection")
    weights[projection] = {f"{prefix}.{name}": tensor for name, tensor in weights.pop("clip_camera_projection").items()}
    if layout == "bennyguo":
        weights["vae"] = {_old_attention(name): tensor for name, tensor in weights["vae"].items()}
    configs[projection] = {"_class_name": "CLIPCameraProjection", "_diffusers_version": "0.24.0"}
    if layout != "kxic":
        configs[projection] |= {"additional_embeddings": 4, "embedding_dim": embedding}
    for name, config in configs.items():
        write_json(folder / name / "config.json", config)
        write_weights(folder / name, weights[name], name == "image_encoder", layout)
    write_json(folder / "scheduler" / "scheduler_config.json", SCHEDULER)
    write_json(folder / "feature_extractor" / "preprocessor_config.json", FEATURE_EXTRACTOR)
    write_json(folder / "model_index.json", ZERO123_INDEX)
    if layout == "ashawkey":
        trap = "raise SystemExit('code that came with weights was run')\n"
        (folder / "clip_camera_projection" / "zero123.py").write_text(trap)
    return folder


def random_weights(module: nn.Module, generator: torch.Generator) -> dict[str, Tensor]:
    """Half-precision values for every tensor of a module on the meta device: something happens at every layer."""
    weights = {}
    for name, tensor in module.state_dict().items():
        noise = torch.randn(tuple(tensor.shape), generator=generator, device=generator.device)
        if tensor.dim() >= 2 and "embedding.weight" not in name:
            noise = noise / math.sqrt(tensor[0].numel())
        elif "norm" in name and name.endswith("weight"):
            noise = 1 + 0.1 * noise
        elif tensor.dim() == 1:
            noise = 0.1 * noise
        weights[name] = noise.half().cpu().contiguous()
    return weights


def _old_attention(name: str) -> str:
    """The VAE's attention under its names before diffusers 0.15."""
    for new, old in (("to_q", "query"), ("to_k", "key"), ("to_v", "value"), ("to_out.0", "proj_attn")):
        name = name.replace(f".{new}.", f".{old}.")
    return name


def write_weights(folder: Path, weights: dict[str, Tensor], transformers: bool, layout: str) -> None:
    """The component's safetensors files, as the layout names them."""
    stem = "model" if transformers else "diffusion_pytorch_model"
    if layout == "bennyguo":
        save_file(weights, str(folder / f"{stem}.fp16.safetensors"), metadata={"format": "pt"})
        weights = {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in weights.items()}
    save_file(weights, str(folder / f"{stem}.safetensors"), metadata={"format": "pt"})


def write_json(path: Path, fields: dict) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n")
