"""Which public weights there are: repositories, pinned revisions, the files that may be read, sizes, licences.

Sizes and revisions are what the repositories' pages showed; a size in bytes stands only where a page gave bytes. What
is not known here is asked of the hub when the files are fetched, and checked then (priors/weights_fetch.py).
"""

from __future__ import annotations

from dataclasses import dataclass

DIFFUSERS_WEIGHTS = "diffusion_pytorch_model.safetensors"
TRANSFORMERS_WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class WeightsFile:
    """A file of a repository: its name within the component's folder, and what is known of its size."""

    name: str
    shown_size: str = "size not known"  # as its page shows it
    size: int | None = None  # bytes, where a page gave them


@dataclass(frozen=True)
class Component:
    """A folder of a repository that holds one part of the model.

    settings: its small files (json, the tokenizer's tables); all are needed.
    weights: its safetensors file; None: a part without weights.
    aliases: names of the folder in other layouts.
    """

    folder: str
    settings: tuple[WeightsFile, ...]
    weights: WeightsFile | None = None
    aliases: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[WeightsFile, ...]:
        return self.settings if self.weights is None else (*self.settings, self.weights)


@dataclass(frozen=True)
class Repository:
    """A public repository of one model in the diffusers layout, at one revision.

    name: what scripts/fetch_weights.py calls it; also the `prior.variant` that it serves, unless `serves` says another.
    """

    name: str
    repo_id: str
    revision: str
    shown_size: str
    licence: str
    components: tuple[Component, ...]
    serves: str = ""

    @property
    def variant(self) -> str:
        return self.serves or self.name


def _json(name: str, size: int | None = None) -> WeightsFile:
    return WeightsFile(name, f"{size} bytes" if size else "under 10 kB", size)


def _zero123_components(unet: str, vae: str, image_encoder: str, projection: int | None) -> tuple[Component, ...]:
    """The parts of every zero123; sizes of the weights as shown."""
    shown = f"{projection / 1e6:.1f} MB" if projection else "about 1 to 2 MB"
    return (
        Component("unet", (_json("config.json", 1778),), WeightsFile(DIFFUSERS_WEIGHTS, unet)),
        Component("vae", (_json("config.json", 601),), WeightsFile(DIFFUSERS_WEIGHTS, vae)),
        Component("image_encoder", (_json("config.json"),), WeightsFile(TRANSFORMERS_WEIGHTS, image_encoder)),
        Component("scheduler", (_json("scheduler_config.json", 502),)),
        Component(
            "clip_camera_projection",
            (_json("config.json", 132),),
            WeightsFile(DIFFUSERS_WEIGHTS, shown, projection),
            aliases=("cc_projection",),  # the name in kxic's conversions
        ),
    )


def _multiview_components(unet: WeightsFile, unet_config: int, with_image: bool) -> tuple[Component, ...]:
    """The parts of MVDream and ImageDream."""
    text = WeightsFile(TRANSFORMERS_WEIGHTS, "680.8 MB", 680_820_392)
    tables = tuple(
        _json(name) for name in ("vocab.json", "merges.txt", "special_tokens_map.json", "tokenizer_config.json")
    )
    image = WeightsFile(TRANSFORMERS_WEIGHTS, "1.26 GB", 1_261_595_704)
    return (
        Component("unet", (_json("config.json", unet_config),), unet),
        Component("vae", (_json("config.json"),), WeightsFile(DIFFUSERS_WEIGHTS, "167 MB", 167_335_342)),
        Component("text_encoder", (_json("config.json"),), text),
        Component("tokenizer", tables),
        Component("scheduler", (_json("scheduler_config.json"),)),
        *((Component("image_encoder", (_json("config.json"),), image),) if with_image else ()),
    )


_STABILITY = (
    "treat as non-commercial: the port is tagged MIT, but stabilityai/stable-zero123, from which it comes, is under "
    "Stability AI's non-commercial community licence"
)
_ZERO123 = "MIT tag; Stable Diffusion v1 heritage, whose OpenRAIL use restrictions the card quotes"

REPOSITORIES: dict[str, Repository] = {
    repository.name: repository
    for repository in (
        Repository(
            "stable-zero123",
            "ashawkey/stable-zero123-diffusers",
            "a6c09344fbd45843d35f2095c203c4a8e55b4dbb",
            "2.5 GB",
            _STABILITY,
            _zero123_components("1.72 GB", "167 MB", "0.61 GB", 1_187_512),
        ),
        Repository(
            "zero123-xl",
            "ashawkey/zero123-xl-diffusers",
            "10e9e8e75adaa3bf77f5ac9c381419016fed68c7",
            "2.5 GB",
            _ZERO123,
            _zero123_components("1.72 GB", "167 MB", "0.61 GB", 1_187_512),
        ),
        Repository(
            "zero123-xl-bennyguo",
            "bennyguo/zero123-xl-diffusers",
            "ae385edfaf74c677408f96bd04b513483bd326ac",
            "2.5 GB for the fp16 files",
            _ZERO123,
            _zero123_components("1.72 GB", "167 MB", "608 MB", None),
            serves="zero123-xl",
        ),
        Repository(
            "imagedream",
            "ashawkey/imagedream-ipmv-diffusers",
            "73a034178e748421506492e91790cc62d6aefef5",
            "3.99 GB",
            "OpenRAIL tag; the code of ImageDream is MIT",
            _multiview_components(WeightsFile(DIFFUSERS_WEIGHTS, "1.88 GB", 1_883_435_904), 403, with_image=True),
        ),
        Repository(
            "mvdream",
            "ashawkey/mvdream-sd2.1-diffusers",
            "503bb19fc2b2bc542c2afdb7d73ac87a7cbc2253",
            "about 2.6 GB",
            "OpenRAIL, as MVDream's page says",
            _multiview_components(WeightsFile(DIFFUSERS_WEIGHTS, "1.74 GB"), 387, with_image=False),
        ),
    )
}


def repositories_for(variant: str) -> list[Repository]:
    """Those that hold this model, the default one first."""
    return [repository for repository in REPOSITORIES.values() if repository.variant == variant]


def accepted_names(name: str) -> tuple[str, ...]:
    """Names under which a weights file may lie in a folder, half precision first.

    ashawkey's conversions hold half precision without a suffix; bennyguo's hold `.fp16`, `.fp16_ema` and, without a
    suffix, float32.
    """
    stem, dot, suffix = name.rpartition(".")
    return f"{stem}.fp16{dot}{suffix}", name, f"{stem}.fp16_ema{dot}{suffix}"
