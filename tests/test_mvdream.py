"""MVDream and ImageDream: their weights load strictly, their conventions, and a whole call against plain loops."""

import sys
from dataclasses import replace
from pathlib import Path

import mvdream_reference as reference
import numpy as np
import pytest
import torch
from mvdream_doubles import write_multiview
from safetensors.torch import load_file, save_file

from cameras import orbit_cameras
from config import PriorConfig
from errors import UserError
from prepare import PreparedImage
from priors.ldm_networks import Runtime
from priors.mvdream import ImageDreamPrior, MVDreamPrior, camera_rows
from priors.mvdream_unet import MultiViewUNet, UNetConfig
from priors.weights import read_settings
from sir import NoisePlan, target_views

CPU = torch.device("cpu")
KINDS = {"mvdream": MVDreamPrior, "imagedream": ImageDreamPrior}


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("weights")
    return {name: write_multiview(root / name, kind.takes_picture) for name, kind in KINDS.items()}


@pytest.fixture(scope="module")
def exact(folders) -> dict[str, MVDreamPrior]:
    """Both priors in float64, that have seen a picture and a text."""
    made = {}
    for name, kind in KINDS.items():
        config = PriorConfig(weights=str(folders[name]), guidance=2.5, prompt_suffix=", 3d asset")
        made[name] = kind(config, CPU, Runtime(CPU, torch.float64))
        show(made[name])
    return made


def picture(seed: int = 0) -> PreparedImage:
    rgb = torch.rand(64, 64, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return PreparedImage(rgb, torch.ones(64, 64))


def show(prior: MVDreamPrior, text: str = "a cat", negative: str = "a dog", seed: int = 0) -> None:
    prior.set_text(text, negative)
    prior.set_source(picture(seed) if prior.takes_picture else None, 0.0)


def four_views(elevation_deg: float = 10.0, first_deg: float = 20.0):
    azimuths = [first_deg + 90.0 * i for i in range(4)]
    return orbit_cameras(azimuths, elevation_deg, width=64, height=64, dtype=torch.float64)


class Spy:
    """Takes the place of a network's `run`; writes down what it is given."""

    def __init__(self, network, monkeypatch):
        self.calls = []
        run = network.run
        monkeypatch.setattr(
            network, "run", lambda method, *tensors, **kw: self.calls.append(tensors) or run(method, *tensors, **kw)
        )


@pytest.mark.parametrize("ip_dim, count, resampler", [(0, 867_572_164, 0), (16, 941_672_900, 48_541_696)])
def test_the_full_network_has_the_public_counts_of_parameters(ip_dim, count, resampler):
    with torch.device("meta"):
        unet = MultiViewUNet(UNetConfig(ip_dim=ip_dim))
    assert sum(value.numel() for value in unet.state_dict().values()) == count
    assert sum(value.numel() for name, value in unet.state_dict().items() if "image_embed" in name) == resampler


def test_names_and_shapes_of_the_full_network_are_the_public_ones():
    with torch.device("meta"):
        state = MultiViewUNet(UNetConfig(ip_dim=16)).state_dict()
    shapes = {name: list(value.shape) for name, value in state.items()}
    block = "input_blocks.4.1.transformer_blocks.0"
    expected = {
        "time_embed.0.weight": [1280, 320],
        "camera_embed.0.weight": [1280, 16],
        "camera_embed.2.bias": [1280],
        "input_blocks.0.0.weight": [320, 4, 3, 3],
        "input_blocks.3.0.op.weight": [320, 320, 3, 3],
        "input_blocks.4.0.in_layers.2.weight": [640, 320, 3, 3],
        "input_blocks.4.0.emb_layers.1.weight": [640, 1280],
        "input_blocks.4.0.out_layers.3.bias": [640],
        "input_blocks.4.0.skip_connection.weight": [640, 320, 1, 1],
        "input_blocks.4.1.proj_in.weight": [640, 640],
        f"{block}.attn1.to_q.weight": [640, 640],
        f"{block}.attn1.to_out.0.bias": [640],
        f"{block}.attn2.to_k.weight": [640, 1024],
        f"{block}.attn2.to_v_ip.weight": [640, 1024],
        f"{block}.ff.net.0.proj.weight": [5120, 640],
        f"{block}.ff.net.2.weight": [640, 2560],
        f"{block}.norm3.weight": [640],
        "middle_block.1.norm.weight": [1280],
        "output_blocks.2.1.conv.weight": [1280, 1280, 3, 3],
        "output_blocks.5.2.conv.weight": [1280, 1280, 3, 3],
        "output_blocks.8.2.conv.weight": [640, 640, 3, 3],
        "output_blocks.11.0.in_layers.0.weight": [640],
        "out.0.weight": [320],
        "out.2.weight": [4, 320, 3, 3],
        "image_embed.latents": [1, 16, 1024],
        "image_embed.proj_in.weight": [1024, 1280],
        "image_embed.layers.3.0.to_q.weight": [768, 1024],
        "image_embed.layers.3.0.to_kv.weight": [1536, 1024],
        "image_embed.layers.3.0.to_out.weight": [1024, 768],
        "image_embed.layers.3.1.1.weight": [4096, 1024],
        "image_embed.layers.3.1.3.weight": [1024, 4096],
        "image_embed.norm_out.bias": [1024],
    }
    assert {name: shapes.get(name) for name in expected} == expected
    # no attention at the lowest resolution but in the middle, none of its keys has a bias
    assert "input_blocks.10.1.norm.weight" not in shapes and "output_blocks.1.1.norm.weight" not in shapes
    assert f"{block}.attn1.to_k.bias" not in shapes and "image_embed.layers.0.1.1.bias" not in shapes


@pytest.mark.parametrize("name", KINDS)
def test_all_parts_load_strictly_and_without_torchvision(folders, name, monkeypatch):
    monkeypatch.setitem(sys.modules, "torchvision", None)
    prior = KINDS[name](PriorConfig(weights=str(folders[name])), CPU)
    assert prior.image_size == 64
    for network in (prior.unet, prior.vae, prior.text_encoder, *([prior.image_encoder] if prior.takes_picture else [])):
        assert all(value.dtype == torch.float32 for value in network.module.parameters())


@pytest.mark.parametrize("change", ["missing", "unexpected", "shape"])
def test_other_weights_are_refused(folders, tmp_path, change):
    folder = tmp_path / "copy"
    folder.mkdir()
    for part in folders["mvdream"].iterdir():
        if part.name != "unet":
            (folder / part.name).symlink_to(part)
    (folder / "unet").mkdir()
    source = folders["mvdream"] / "unet"
    (folder / "unet" / "config.json").write_text((source / "config.json").read_text())
    weights = load_file(source / "diffusion_pytorch_model.safetensors")
    if change == "missing":
        del weights["camera_embed.0.bias"]
    elif change == "unexpected":
        weights["label_emb.0.weight"] = torch.zeros(3)
    else:
        weights["camera_embed.0.weight"] = torch.zeros(128, 12)
    save_file(weights, folder / "unet" / "diffusion_pytorch_model.safetensors")
    prior = MVDreamPrior(PriorConfig(weights=str(folder)), CPU)
    with pytest.raises(UserError, match="label_emb.0" if change == "unexpected" else "camera_embed.0"):
        prior.unet.module  # noqa: B018  (read when it is first needed)


@pytest.mark.parametrize("name, other", [("mvdream", "imagedream"), ("imagedream", "mvdream")])
def test_the_other_models_weights_are_refused_before_they_are_read(folders, name, other):
    with pytest.raises(UserError, match="image_encoder|ip_dim=4, a UNet that sees a picture"):
        KINDS[name](PriorConfig(weights=str(folders[other])), CPU)


def test_camera_rows_turn_the_front_to_azimuth_90():
    front, right = camera_rows(orbit_cameras([0.0, 90.0], 0.0))
    # the networks' rows of azimuth 90 and 180: the picture's camera and the one to its right
    np.testing.assert_allclose(front, [0, 0, 1, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1], atol=1e-6)
    np.testing.assert_allclose(right, [-1, 0, 0, 0, 0, 0, 1, 1, 0, 1, 0, 0, 0, 0, 0, 1], atol=1e-6)


def test_a_camera_above_is_up_in_blenders_axes():
    """z is the third row: sin 30 degrees, at distance 1 whatever the orbit's radius."""
    (row,) = camera_rows(orbit_cameras([0.0], 30.0, radius=2.5))
    assert float(row[11]) == pytest.approx(0.5, abs=1e-6)
    assert float(row[[3, 7, 11]].norm()) == pytest.approx(1.0)


def test_camera_rows_equal_the_matrices():
    cameras = four_views(-25.0)
    poses = torch.linalg.inv(cameras.viewmats)
    right, down, forward, position = poses[:, :3].unbind(-1)
    turned = []
    for axis in (right, -down, -forward, position / 2.0):  # OpenGL's camera, then Blender's world after a quarter turn
        x, y, z = axis.unbind(-1)
        x, z = z, -x  # from azimuth 0 to 90
        turned.append(torch.stack([x, -z, y], dim=-1))
    expected = torch.stack(turned, dim=-1)
    torch.testing.assert_close(camera_rows(cameras)[:, :12].unflatten(1, (3, 4)), expected, rtol=0, atol=1e-12)


def test_the_picture_is_the_last_view_and_has_no_camera(exact, monkeypatch):
    prior = exact["imagedream"]
    spy = Spy(prior.unet, monkeypatch)
    latents = torch.randn(8, 4, 8, 8, dtype=torch.float64)
    cameras = orbit_cameras([0.0, 90, 180, 270, 45, 135, 225, 315], 0.0, dtype=torch.float64)
    assert prior.predict_noise(latents, 0.5, cameras, 1.0).shape == latents.shape
    ((x, steps, rows, context, source),) = spy.calls
    assert x.shape == (2, 4, 4, 8, 8) and steps.tolist() == [500.0, 500.0]
    assert rows.shape == (2, 5, 16) and rows[:, 4].abs().max() == 0 and (rows[:, :4, 15] == 1).all()
    torch.testing.assert_close(rows[0, :4], camera_rows(cameras)[:4])
    assert context.shape[:2] == (2, 77 + 4)
    torch.testing.assert_close(source, prior._source[:1].expand(2, -1, -1, -1))


def test_the_pictures_latents_are_scaled_and_zero_without_it(exact):
    prior = exact["imagedream"]
    pixels = picture().rgb.permute(2, 0, 1)[None]
    known, blank = prior._source
    torch.testing.assert_close(known, 0.18215 * prior.encode_unscaled(pixels)[0])
    assert blank.abs().max() == 0


def test_without_the_picture_zeros_pass_through_the_resampler(exact):
    prior = exact["imagedream"]
    unet = prior.unet.module
    tokens = unet.image_embed(torch.zeros(1, 17, 32, dtype=torch.float64))
    assert tokens.abs().min() > 0
    torch.testing.assert_close(prior._context[1:, 77:], tokens @ unet.image_weight.T)
    assert (prior._context[0, 77:] - prior._context[1, 77:]).abs().max() > 0.01


def test_features_are_those_of_the_last_layer_but_one(exact, folders):
    """As transformers computes them."""
    from transformers import CLIPVisionModel

    from priors.zero123 import clip_pixels

    prior = exact["imagedream"]
    unet = prior.unet.module
    encoder = CLIPVisionModel.from_pretrained(folders["imagedream"] / "image_encoder", dtype=torch.float64)

    pixels = clip_pixels(picture().rgb.permute(2, 0, 1)[None], prior.image_encoder)
    layers = encoder(pixel_values=pixels, output_hidden_states=True).hidden_states
    assert len(layers) == 4 and layers[2].shape == (1, 17, 32)
    torch.testing.assert_close(prior._context[:1, 77:], unet.image_embed(layers[2]) @ unet.image_weight.T)


def test_texts_are_padded_with_token_0(exact):
    """The files' `!`, not the end that CLIP's own tokenizer pads with."""
    ids = exact["mvdream"].tokenize(["a cat", ""])
    assert ids.shape == (2, 77)
    assert ids[0, :6].tolist() == [521, 320, 513, 522, 0, 0] and ids[1, :3].tolist() == [521, 522, 0]
    assert ids[:, 4:].abs().max() == 0


def test_a_long_text_is_cut_and_keeps_its_end(exact, caplog):
    (ids,) = exact["mvdream"].tokenize(["a cat " * 60])
    assert ids[-1] == 522 and (ids[1:-1] != 522).all() and ids[:3].tolist() == [521, 320, 513]
    assert "of 120 tokens the first 75 count" in caplog.text


@pytest.mark.parametrize("name", KINDS)
def test_the_negative_prompt_is_the_unconditional_half(exact, folders, name):
    """Encoded as transformers does."""
    from transformers import CLIPTextModel

    prior = exact[name]
    encoder = CLIPTextModel.from_pretrained(folders[name] / "text_encoder", dtype=torch.float64)
    with torch.no_grad():
        ids = prior.tokenize(["a cat, 3d asset", "a dog"])
        known, other = encoder(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    weight = prior.unet.module.text_weight
    torch.testing.assert_close(prior._context[0, :77], known @ weight.T)
    torch.testing.assert_close(prior._context[1, :77], other @ weight.T)


def test_an_empty_prompt_is_enough_for_a_picture(exact):
    prior = exact["imagedream"]
    try:
        show(prior, "", "")
        ids = prior.tokenize(prior._texts)
        assert prior._texts == ["", ""] and ids[:, :3].tolist() == [[521, 522, 0]] * 2
        latents = torch.randn(4, 4, 8, 8, dtype=torch.float64)
        noise = [prior.predict_noise(latents, 0.5, four_views(), g) for g in (0.0, 1.0)]
        assert (noise[0] - noise[1]).abs().max() > 1e-3  # the picture alone tells the halves apart
    finally:
        show(prior)


@pytest.mark.parametrize("name", KINDS)
def test_only_the_needed_half_is_evaluated(exact, name, monkeypatch):
    prior = exact[name]
    spy = Spy(prior.unet, monkeypatch)
    latents, cameras = torch.randn(4, 4, 8, 8, dtype=torch.float64), four_views()
    unconditional, conditional, guided = (prior.predict_noise(latents, 0.5, cameras, g) for g in (0.0, 1.0, 2.5))
    assert [len(tensors[0]) for tensors in spy.calls] == [1, 1, 2]
    torch.testing.assert_close(guided, unconditional + 2.5 * (conditional - unconditional))
    assert (conditional - unconditional).abs().max() > 1e-4


def test_what_is_asked_once_an_object_is_neither_recorded_nor_compiled(exact):
    prior = exact["imagedream"]
    show(prior)
    prior.predict_noise(torch.randn(4, 4, 8, 8, dtype=torch.float64), 0.5, four_views(), 1.0)
    assert [method.__name__ for method in prior.unet._calls] == ["predict_views_beside"]
    assert not prior.text_encoder._calls and not prior.image_encoder._calls


@pytest.mark.parametrize("count", [1, 6])
def test_views_come_in_groups_of_four(exact, count):
    prior = exact["mvdream"]
    cameras = orbit_cameras([10.0 * i for i in range(count)], 0.0)
    with pytest.raises(UserError, match=f"groups of 4, found {count}; expected a multiple of 4, such as fit.views=4"):
        prior.predict_noise(torch.zeros(count, 4, 8, 8), 0.5, cameras, 1.0)


@pytest.mark.parametrize("name", KINDS)
def test_target_views_against_plain_loops(exact, folders, name):
    """A whole call, renders to views: noise added, one step of inversion, one of sampling with fresh noise."""
    prior = exact[name]
    folder = folders[name]
    cameras = four_views()
    images = torch.rand(4, 3, 64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    plan = NoisePlan((0.301, 0.501), (0.501, 0.0))
    views = target_views(prior, images, cameras, plan, eta=0.5, generator=torch.Generator().manual_seed(2))

    weights = load_file(folder / "unet" / "diffusion_pytorch_model.safetensors")
    weights = {key: value.double().numpy() for key, value in weights.items()}
    settings = read_settings(reference_part(folder / "unet"))
    rows = [reference.blender_camera(20.0 + 90.0 * i + 90.0, 10.0) for i in range(4)]
    # The other networks are read by their own libraries.
    from diffusers import AutoencoderKL
    from transformers import CLIPTextModel, CLIPVisionModel

    vae = AutoencoderKL.from_pretrained(folder / "vae", torch_dtype=torch.float64).requires_grad_(False)
    ids = prior.tokenize(["a dog", "a cat, 3d asset"])
    with torch.no_grad():
        text_encoder = CLIPTextModel.from_pretrained(folder / "text_encoder", dtype=torch.float64)
        texts = text_encoder(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state.numpy()
    tokens, sources = (None, None), None
    if prior.takes_picture:
        from priors.zero123 import clip_pixels

        pixels = picture().rgb.permute(2, 0, 1)[None]
        encoder = CLIPVisionModel.from_pretrained(folder / "image_encoder", dtype=torch.float64).requires_grad_(False)
        features = encoder(clip_pixels(pixels, prior.image_encoder), output_hidden_states=True).hidden_states[-2][0]
        tokens = [reference.resampler(weights, f.numpy()) for f in (torch.zeros_like(features), features)]
        mean = vae.encode(2 * pixels - 1).latent_dist.mean[0].numpy()
        sources = [np.zeros_like(mean), 0.18215 * mean]

    def noise(x, step, scale):
        return reference.guided_noise(weights, settings, x, step, rows, texts, tokens, sources, scale)

    a = reference.schedule()
    generator = torch.Generator().manual_seed(2)
    first, fresh = (torch.randn(4, 4, 8, 8, generator=generator).double().numpy() for _ in range(2))
    clean = 0.18215 * vae.encode(2 * images - 1).latent_dist.mean.numpy()
    x = list(np.sqrt(a[301]) * clean + np.sqrt(1 - a[301]) * first)
    x = [reference.ddim(v, n, a[301], a[501], 0.0, 0.0) for v, n in zip(x, noise(x, 301, 0.0), strict=True)]
    found = noise(x, 501, 2.5)
    x = [reference.ddim(v, n, a[501], a[0], 0.5, f) for v, n, f in zip(x, found, fresh, strict=True)]
    decoded = vae.decode(torch.tensor(np.stack(x)) / 0.18215, return_dict=False)[0]
    # Measured: 4e-14.
    torch.testing.assert_close(views, (decoded / 2 + 0.5).clamp(0, 1), rtol=0, atol=1e-10)
    assert views.std() > 0.01


def reference_part(folder: Path):
    from priors.weights import Located

    return Located(folder, None, "")


def test_half_precision_is_near(exact, folders):
    """bfloat16 on the CPU takes every path that half precision takes on a GPU."""
    prior = ImageDreamPrior(
        PriorConfig(weights=str(folders["imagedream"]), prompt_suffix=", 3d asset"), CPU, Runtime(CPU, torch.bfloat16)
    )
    show(prior)
    latents, cameras = torch.randn(4, 4, 8, 8, generator=torch.Generator().manual_seed(4)), four_views()
    near, true = (p.predict_noise(latents.to(k), 0.951, cameras, 1.0) for p, k in
                  ((prior, torch.float32), (exact["imagedream"], torch.float64)))  # fmt: skip
    # Measured: 1.5 % of the noise's deviation; bfloat16 keeps 8 bits.
    assert float((near - true).std() / true.std()) < 0.05


@pytest.mark.gpu
@pytest.mark.parametrize("name", KINDS)
def test_a_gpu_in_half_precision_is_near(exact, folders, cuda, name):
    prior = KINDS[name](PriorConfig(weights=str(folders[name]), prompt_suffix=", 3d asset"), cuda)
    assert prior.unet.dtype == torch.float16
    show(prior)
    cameras = four_views()
    for seed in range(4):  # plain, recorded, replayed
        latents = torch.randn(4, 4, 8, 8, generator=torch.Generator().manual_seed(seed))
        for guidance in (0.0, 2.5):
            near = prior.predict_noise(latents.to(cuda), 0.951, cameras, guidance).cpu()
            true = exact[name].predict_noise(latents.double(), 0.951, cameras, guidance)
            assert float((near - true).std() / true.std()) < 0.02
    assert sum(call.graphs for call in prior.unet._calls.values()) >= 2


@pytest.mark.gpu
def test_a_call_does_not_wait_for_the_gpu(folders, cuda):
    prior = ImageDreamPrior(PriorConfig(weights=str(folders["imagedream"])), cuda)
    show(prior)
    latents, cameras = torch.randn(4, 4, 8, 8, device=cuda), four_views()
    for _ in range(3):
        prior.predict(latents, 0.5, cameras, 2.5)
    torch.cuda.set_sync_debug_mode("error")
    try:
        for t in (0.4, 0.3):
            prior.predict(latents, t, cameras, 2.5)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_settings_that_mean_nothing_are_refused(folders, tmp_path):
    from priors.mvdream_networks import read_unet_config
    from priors.weights import Located

    text = (
        (folders["mvdream"] / "unet" / "config.json")
        .read_text()
        .replace('"camera_dim"', '"num_heads": 8,\n"camera_dim"')
    )
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UserError, match="config.json: num_heads=8 means nothing here; of the hub"):
        read_unet_config(Located(tmp_path, None, "of the hub"), None)
    assert replace(UNetConfig(), ip_dim=16).image_dim == 1280
