"""Public weights: which files are read and which are not, and what a person is told."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from checkpoint_doubles import FULL, SCHEDULER, clip_vision_config, vae_config, write_zero123, zero123_unet_config
from safetensors.torch import load_file, save_file
from torch import nn

from config import PriorConfig
from errors import UserError
from priors import weights_fetch
from priors.weights import Located, load_safetensors, locate, read_settings
from priors.weights_fetch import Remote, choose, fetch, verify
from priors.weights_registry import REPOSITORIES, accepted_names
from priors.zero123 import Zero123Prior
from scripts import fetch_weights

STABLE = REPOSITORIES["stable-zero123"]
UNET = "unet/diffusion_pytorch_model.safetensors"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    return write_zero123(tmp_path_factory.mktemp("weights"))


def copied(checkpoint: Path, folder: Path) -> Path:
    """The checkpoint by hard links; files can be replaced without touching the original."""
    for path in checkpoint.rglob("*"):
        if path.is_file():
            target = folder / path.relative_to(checkpoint)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.hardlink_to(path)
    return folder


def test_every_repository_is_pinned_and_lists_no_code():
    assert set(REPOSITORIES) == {"stable-zero123", "zero123-xl", "zero123-xl-bennyguo", "imagedream", "mvdream"}
    for repository in REPOSITORIES.values():
        assert re.fullmatch(r"[0-9a-f]{40}", repository.revision)
        assert repository.licence and repository.shown_size
        for component in repository.components:
            assert component.weights is None or component.weights.name.endswith(".safetensors")
            assert all(file.name.endswith((".json", ".txt")) for file in component.settings)


def test_the_doubles_have_the_public_files_sizes():
    """Field for field: the bytes of the settings files are those that the repositories' pages show."""
    sizes = {
        "vae": (vae_config(FULL), 601),
        "image_encoder": (clip_vision_config(FULL), 585),
        "scheduler": (SCHEDULER, 502),
    }
    for fields, size in sizes.values():
        assert len(json.dumps(fields, indent=2, sort_keys=True)) + 1 == size
    # Of 1778 bytes and 67 lines; the name of a folder on someone's disk, which the file carries along, is not known.
    assert len(json.dumps(zero123_unet_config(FULL), indent=2, sort_keys=True).splitlines()) == 67


def test_the_full_size_has_the_public_numbers_of_parameters():
    from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL
    from diffusers.models.unets.unet_2d_condition import UNet2DConditionModel
    from transformers.models.clip.configuration_clip import CLIPVisionConfig
    from transformers.models.clip.modeling_clip import CLIPVisionModelWithProjection

    with torch.device("meta"):
        modules = (
            UNet2DConditionModel.from_config(zero123_unet_config(FULL)),
            AutoencoderKL.from_config(vae_config(FULL)),
            CLIPVisionModelWithProjection(CLIPVisionConfig.from_dict(clip_vision_config(FULL))),
        )
    counts = [sum(p.numel() for p in module.parameters()) for module in modules]
    assert counts == [859_532_484, 83_653_863, 303_966_208]


def test_a_folder_s_parts_are_found(checkpoint):
    parts = locate("stable-zero123", str(checkpoint))
    assert set(parts) == {"unet", "vae", "image_encoder", "scheduler", "clip_camera_projection"}
    assert parts["unet"].weights == checkpoint / UNET
    assert parts["scheduler"].weights is None and parts["scheduler"].folder == checkpoint / "scheduler"


def test_half_precision_comes_first():
    """bennyguo's folders hold both."""
    assert accepted_names("model.safetensors") == (
        "model.fp16.safetensors",
        "model.safetensors",
        "model.fp16_ema.safetensors",
    )


def test_a_missing_file_is_one_line_that_says_all(checkpoint, tmp_path):
    folder = copied(checkpoint, tmp_path)
    (folder / UNET).unlink()
    with pytest.raises(UserError) as caught:
        locate("stable-zero123", str(folder))
    message = str(caught.value)
    for words in (
        str(folder / UNET), "no such file", "ashawkey/stable-zero123-diffusers", "1.72 GB", "non-commercial",
        "python scripts/fetch_weights.py stable-zero123",
    ):  # fmt: skip
        assert words in message
    assert "\n" not in message


def test_a_missing_settings_file_and_a_missing_folder_are_named(checkpoint, tmp_path):
    folder = copied(checkpoint, tmp_path / "a")
    (folder / "scheduler" / "scheduler_config.json").unlink()
    with pytest.raises(UserError, match=r"scheduler_config.json: no such file; .*502 bytes.* belongs to ashawkey"):
        locate("stable-zero123", str(folder))
    with pytest.raises(UserError, match=r"no such folder; .*2.5 GB.*fetch_weights.py zero123-xl"):
        locate("zero123-xl", str(tmp_path / "nothing here"))


@pytest.mark.parametrize("name", ["diffusion_pytorch_model.bin", "model.ckpt"])
def test_pickles_are_refused(checkpoint, tmp_path, name):
    folder = copied(checkpoint, tmp_path)
    (folder / UNET).rename(folder / "unet" / name)
    with pytest.raises(UserError, match=rf"found {name}, a pickle, which may run code and is not read"):
        locate("stable-zero123", str(folder))
    with pytest.raises(UserError, match=r"found a pickle, which may run code; expected a folder .*safetensors"):
        locate("stable-zero123", str(folder / "unet" / name))


def test_unknown_models_and_repositories_are_named():
    with pytest.raises(UserError, match="choose from stable-zero123, zero123-xl, imagedream, mvdream"):
        locate("sv3d", "")
    with pytest.raises(
        UserError, match="no repository of zero123-xl with a pinned revision; known are ashawkey/.*benny"
    ):
        locate("zero123-xl", "someone/zero123-xl")


def test_nothing_of_the_weights_is_run(checkpoint):
    """clip_camera_projection/zero123.py in the folder would end the program."""
    assert "SystemExit" in (checkpoint / "clip_camera_projection" / "zero123.py").read_text()
    Zero123Prior(PriorConfig(name="zero123", variant="zero123-xl", weights=str(checkpoint)), torch.device("cpu"))


def small_part(tmp_path: Path, tensors: dict) -> Located:
    save_file(tensors, str(tmp_path / "part.safetensors"))
    return Located(tmp_path, tmp_path / "part.safetensors", "it belongs to x/y")


def load(part: Located, **options) -> nn.Module:
    with torch.device("meta"):
        linear = nn.Linear(3, 2)
    return load_safetensors(part, linear, dtype=torch.float64, device=torch.device("cpu"), **options)


def test_loading_is_strict_both_ways(tmp_path):
    good = {"weight": torch.rand(2, 3).half(), "bias": torch.rand(2).half()}
    linear = load(small_part(tmp_path, good))
    assert torch.equal(linear.weight, good["weight"].double()) and not linear.weight.requires_grad
    bad = (
        ({"weight": good["weight"]}, r"part.safetensors: 1 tensors are missing, the first is bias; it belongs to x/y"),
        ({**good, "scale": torch.rand(2)}, r"tensor scale is not the network's; it belongs to x/y"),
        ({**good, "bias": torch.rand(3)}, r"tensor bias is \[3\], expected \[2\]; it belongs to x/y"),
    )
    for tensors, words in bad:
        with pytest.raises(UserError, match=words):
            load(small_part(tmp_path, tensors))


def test_names_of_other_layouts_and_constants_are_named_by_the_caller(tmp_path):
    part = small_part(tmp_path, {"p.weight": torch.rand(2, 3), "p.bias": torch.rand(2), "position_ids": torch.rand(1)})
    load(part, rename=lambda name: name.removeprefix("p."), ignore=(r"position_ids",))
    with pytest.raises(UserError, match="position_ids is not the network's"):
        load(part, rename=lambda name: name.removeprefix("p."))


def test_a_truncated_file_is_named(tmp_path):
    part = small_part(tmp_path, {"weight": torch.rand(2, 3), "bias": torch.rand(2)})
    part.weights.write_bytes(part.weights.read_bytes()[:-5])
    with pytest.raises(UserError, match=r"part.safetensors: damaged or incomplete .* it belongs to x/y"):
        load(part)
    part.weights.write_text("<html>not found</html>")
    with pytest.raises(UserError, match="damaged or incomplete"):
        load(part)


def test_settings_that_are_no_json_are_named(tmp_path):
    part = Located(tmp_path, None, "it belongs to x/y")
    for text in ("{", "[]"):
        (tmp_path / "config.json").write_text(text)
        with pytest.raises(UserError, match=r"config.json: expected .*json.* it belongs to x/y"):
            read_settings(part)


def test_another_model_s_weights_are_refused(checkpoint, tmp_path):
    """Settings of one network beside the weights of another."""
    folder = copied(checkpoint, tmp_path)
    tensors = load_file(folder / UNET)
    (folder / UNET).unlink()
    save_file({name: tensor for name, tensor in tensors.items() if "attn2" not in name}, str(folder / UNET))
    config = PriorConfig(name="zero123", variant="zero123-xl", weights=str(folder))
    with pytest.raises(UserError, match=r"tensors are missing, the first is .*attn2.*fetch_weights.py zero123-xl"):
        Zero123Prior(config, torch.device("cpu")).unet.module  # noqa: B018


# The hub, played by a listing and a function that writes files.


def listing(repository=STABLE, **sizes: int) -> dict[str, Remote]:
    """What the hub says of ashawkey's repository, code and pictures included."""
    paths = [f"{component.folder}/{file.name}" for component in repository.components for file in component.files]
    known = {
        f"{component.folder}/{file.name}": file.size
        for component in repository.components
        for file in component.files
        if file.size
    }
    extra = ["clip_camera_projection/zero123.py", "README.md", "unet/diffusion_pytorch_model.bin", "model_index.json"]
    return {path: Remote(path, sizes.get(path, known.get(path, 4)), None) for path in [*paths, *extra]}


def test_of_a_repository_the_listed_files_alone_are_fetched():
    paths = [file.path for file in choose(STABLE, listing())]
    assert len(paths) == 9 and UNET in paths
    assert not [path for path in paths if not path.endswith((".json", ".safetensors"))]


def test_one_weights_file_a_part_is_fetched_and_the_smaller_one():
    bennyguo = REPOSITORIES["zero123-xl-bennyguo"]
    listed = listing(bennyguo)
    for path in list(listed):
        if path.endswith(".safetensors"):
            for suffix in (".fp16", ".fp16_ema"):
                other = path.replace(".safetensors", f"{suffix}.safetensors")
                listed[other] = Remote(other, 4, None)
    paths = [file.path for file in choose(bennyguo, listed)]
    assert len(paths) == 9 and "unet/diffusion_pytorch_model.fp16.safetensors" in paths
    assert all(".fp16.safetensors" in path for path in paths if not path.endswith(".json"))


def test_sizes_that_are_not_the_listed_ones_are_refused():
    path = "clip_camera_projection/diffusion_pytorch_model.safetensors"
    with pytest.raises(UserError, match=rf"{path} has 7 bytes, expected 1187512"):
        choose(STABLE, listing(**{path: 7}))
    listed = listing()
    del listed[UNET]
    with pytest.raises(UserError, match=r"ashawkey/stable-zero123-diffusers@a6c09344 has no unet/"):
        choose(STABLE, listed)


def test_fetched_files_are_checked(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"1234")
    sha256 = "03ac674216f3e15c761ee1a5e255f067953623c8b388b4459e13f978d7c846f4"
    verify(path, Remote("f", 4, sha256), STABLE, with_hash=True)
    verify(path, Remote("f", 4, "0" * 64), STABLE, with_hash=False)
    with pytest.raises(UserError, match="4 bytes, expected 5"):
        verify(path, Remote("f", 5, None), STABLE, with_hash=False)
    with pytest.raises(UserError, match="its hash is not the hub's"):
        verify(path, Remote("f", 4, "0" * 64), STABLE, with_hash=True)


class Hub:
    """Stands in for huggingface_hub: serves a listing at the pinned revision, and counts."""

    def __init__(self, monkeypatch, listed: dict[str, Remote], offline: bool = False) -> None:
        import huggingface_hub

        self.listed, self.downloads, self.cache = listed, [], None
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", offline)
        monkeypatch.setattr(huggingface_hub, "snapshot_download", self.snapshot)
        monkeypatch.setattr(huggingface_hub, "HfApi", lambda: SimpleNamespace(model_info=self.info))

    def info(self, repo_id: str, revision: str, files_metadata: bool):
        assert (repo_id, revision, files_metadata) == (STABLE.repo_id, STABLE.revision, True)
        files = [SimpleNamespace(rfilename=f.path, size=f.size, lfs=None) for f in self.listed.values()]
        return SimpleNamespace(siblings=files)

    def snapshot(self, repo_id, *, revision, allow_patterns=None, local_files_only=False, local_dir=None):
        from huggingface_hub.errors import LocalEntryNotFoundError

        assert (repo_id, revision) == (STABLE.repo_id, STABLE.revision)
        if local_files_only:
            if self.cache is None:
                raise LocalEntryNotFoundError("nothing there")
            return str(self.cache)
        self.downloads.append(allow_patterns)
        root = Path(local_dir) if local_dir else self.cache
        for pattern in allow_patterns:
            path = root / pattern
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                file.truncate(self.listed[pattern].size)
        return str(root)


def test_fetching_takes_the_listed_files_once(monkeypatch, tmp_path):
    hub = Hub(monkeypatch, listing())
    root = fetch(STABLE, tmp_path / "w")
    assert root == tmp_path / "w" and len(hub.downloads) == 1 and len(hub.downloads[0]) == 9
    assert not list(root.rglob("*.py")) and not list(root.rglob("*.bin"))
    assert fetch(STABLE, tmp_path / "w") == root and len(hub.downloads) == 1
    assert (root / "clip_camera_projection" / "diffusion_pytorch_model.safetensors").stat().st_size == 1_187_512
    # Asked to check, it looks again, and a file of another size is refused.
    with (root / UNET).open("ab") as file:
        file.write(b"!")
    monkeypatch.setattr(hub, "snapshot", lambda *args, **kwargs: str(root))
    monkeypatch.setattr("huggingface_hub.snapshot_download", hub.snapshot)
    with pytest.raises(UserError, match=r"5 bytes, expected 4; delete it, then: .*fetch_weights.py stable-zero123"):
        fetch(STABLE, tmp_path / "w", check=True)


def test_offline_nothing_is_asked(monkeypatch, tmp_path):
    hub = Hub(monkeypatch, listing(), offline=True)
    with pytest.raises(UserError) as caught:
        locate("stable-zero123", "")
    message = str(caught.value)
    for words in ("HF_HUB_OFFLINE", STABLE.repo_id, "2.5 GB", "non-commercial", "fetch_weights.py stable-zero123"):
        assert words in message
    assert hub.downloads == []


def test_the_hub_s_cache_is_enough(monkeypatch, checkpoint):
    hub = Hub(monkeypatch, listing(), offline=True)
    hub.cache = checkpoint
    assert locate("stable-zero123", "")["unet"].weights == checkpoint / UNET
    assert locate("stable-zero123", STABLE.repo_id)["unet"].weights == checkpoint / UNET
    assert hub.downloads == []


def test_a_hub_that_cannot_be_reached_is_one_line(monkeypatch, tmp_path):
    hub = Hub(monkeypatch, listing())

    def refuse(*args, **kwargs):
        raise OSError("name resolution failed\nfor the second time")

    monkeypatch.setattr(hub, "info", refuse)
    with pytest.raises(
        UserError, match=r"cannot be fetched: name resolution failed for the second time; fetch it with"
    ):
        fetch(STABLE, tmp_path)


def test_the_script_lists_fetches_and_refuses(monkeypatch, tmp_path, capsys):
    Hub(monkeypatch, listing())
    assert fetch_weights.main([]) == 0
    listed = capsys.readouterr().out
    assert all(repository.repo_id in listed and repository.licence in listed for repository in REPOSITORIES.values())
    assert fetch_weights.main(["stable-zero123", "--folder", str(tmp_path)]) == 0
    assert (tmp_path / "stable-zero123" / UNET).is_file()
    assert fetch_weights.main(["sv3d"]) == 2
    assert "NAME='sv3d' is unknown; choose from stable-zero123" in capsys.readouterr().err
    assert weights_fetch.fetch is fetch


def test_a_hub_that_is_not_reached_is_one_line(monkeypatch, tmp_path):
    from huggingface_hub.errors import HTTPError

    hub = Hub(monkeypatch, listing())

    def unreached(*args, **options):
        raise HTTPError("[Errno -2] Name or service not known")

    monkeypatch.setattr("huggingface_hub.HfApi", lambda: SimpleNamespace(model_info=unreached))
    with pytest.raises(UserError, match="cannot be fetched: .*Name or service not known; fetch it with"):
        fetch(STABLE, tmp_path / "w")
    assert not hub.downloads
