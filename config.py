"""The typed configuration: one dataclass a stage, read from YAML and `key=value` overrides.

A key that is not here, a value of the wrong type or out of range is one line of error before any work is done. The
comment behind each key is what `--help` prints.
"""

import inspect
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from errors import UserError

MAX_ELEVATION_DEG = 89.0


def _require(condition: bool, key: str, value, expected: str) -> None:
    if not condition:
        raise UserError(f"{key}={value} is out of range: expected {expected}")


def _require_between(key: str, value: float, low: float, high: float) -> None:
    _require(math.isfinite(value) and low <= value <= high, key, value, f"a number from {low:g} to {high:g}")


@dataclass
class PrepareConfig:
    background: str = "auto"  # auto: alpha channel if there is one, else cut out; keep: neither cut out nor reframed
    border: float = 0.2  # share of the frame left free along the object's longer side; 0.2 is the priors' framing

    def __post_init__(self) -> None:
        choices = ("auto", "keep")
        _require(self.background in choices, "prepare.background", self.background, " or ".join(choices))
        _require_between("prepare.border", self.border, 0.0, 0.9)


@dataclass
class PriorConfig:
    name: str = "embedded"  # a name in priors.PRIORS
    variant: str = ""  # which model its weights are, for prior.name=zero123: stable-zero123 | zero123-xl
    weights: str = ""  # a weights file or folder, or a repository of the hub; empty: the prior's own
    guidance: float = 1.0  # classifier-free guidance scale; 1 evaluates the conditional half alone
    guidance_every: int = 1  # steps that one difference of the guided halves serves; 2 saves every other unconditional
    features_every: int = 1  # steps of a walk that one run of the networks' inner layers serves; 2 skips every other
    joint: bool = True  # views denoise in groups that see each other, where the prior can
    prompt_suffix: str = ""  # put after a prompt that is not empty
    # How the networks of the public priors run
    precision: str = "auto"  # auto: half on a GPU, where it overflows bf16, float32 on a CPU | fp16 | bf16 | fp32
    compile: bool = False  # let torch.compile fuse their kernels: faster, but slow to start the first time
    memory_gb: float = 0.0  # GPU memory that they may take; 0: what is free; little makes them run in parts

    def __post_init__(self) -> None:
        variants = ("stable-zero123", "zero123-xl") if self.name == "zero123" else ("",)
        _require(self.variant in variants, "prior.variant", self.variant or "''", " or ".join(variants) or "none")
        _require_between("prior.guidance", self.guidance, 0.0, 100.0)
        _require_between("prior.guidance_every", self.guidance_every, 1, 1000)
        _require_between("prior.features_every", self.features_every, 1, 1000)
        choices = ("auto", "fp16", "bf16", "fp32")
        _require(self.precision in choices, "prior.precision", self.precision, " | ".join(choices))
        _require_between("prior.memory_gb", self.memory_gb, 0.0, 10_000.0)


@dataclass
class FitConfig:
    # The first Gaussians
    init: str = "hull"  # hull (carved from the first views) | ball (grey, radius 0.5)
    hull_agreement: float = 0.9  # share of the first views that must cover a point of the hull
    points: int = 8000  # Gaussians at the start
    init_opacity: float = 0.5  # their opacity
    # The views that the prior imagines, and their noise levels
    views: int = 8  # views a round
    elevation_low: float = -10.0  # lowest elevation of the views, degrees relative to the picture's
    elevation_high: float = 20.0  # and the highest
    plan: str = "continuous"  # how the noise levels are spaced: continuous | grid (the official code's)
    denoise_steps: int = 2  # DDIM steps from noise level 1 to 0; a part of the way takes its share
    init_denoise_steps: int = 0  # DDIM steps of the initial views; few give the blurred mean; 0: denoise_steps
    rounds: int = 10  # SIR rounds after the initial one
    t_start: float = 0.9  # noise level of the first round
    t_end: float = 0.3  # and of the last
    inversion_ratio: float = 1.0  # share of the noise level reached by adding noise, the rest by DDIM inversion
    inversion_guidance: float = 0.0  # 0: invert with the unconditional half alone; 1: the conditional one
    eta: float = 0.0  # randomness of the DDIM sampling
    guidance_low: float = 0.3  # guidance applies from this noise level; elsewhere it is 1, at half the price
    guidance_high: float = 1.0  # up to this one
    # The optimisation
    init_steps: int = 80  # Adam steps on the initial views
    round_steps: int = 50  # Adam steps a round
    batch_views: int = 4  # views a step, besides the picture itself; 0: all
    memory: int = 2  # rounds whose views are kept as targets
    loss: str = "l1"  # of colours: l1 | l2
    alpha_loss: str = "l1"  # of coverage: l1 | l2
    view_alpha: float = 0.5  # weight of the coverage of the imagined views; that of their colours is 1
    reference_rgb: float = 0.12  # weight of the picture's colours
    reference_alpha: float = 0.25  # weight of the picture's coverage
    lr_means: float = 0.004  # learning rate of the positions at first; it falls exponentially
    lr_means_end: float = 0.0004  # learning rate of the positions at the end
    lr_means_steps: int = 0  # steps until it gets there; 0: all steps of the fit
    lr_colours: float = 0.02  # learning rate of the colours
    lr_opacities: float = 0.05  # learning rate of the opacities
    lr_scales: float = 0.01  # learning rate of the scales
    lr_quats: float = 0.01  # learning rate of the quats
    # Number and shape of the Gaussians
    densify_every: int = 75  # steps; 0: never
    densify_until: int = 250  # last step at which it happens
    densify_grad: float = 0.0004  # pull (loss by half an image) above which a Gaussian is cloned or split
    split_scale: float = 0.03  # standard deviation above which it is split rather than cloned
    max_points: int = 12000  # never more Gaussians
    prune_opacity: float = 0.02  # Gaussians below are dropped while fitting
    prune_scale: float = 0.4  # Gaussians above are dropped while fitting
    final_opacity: float = 0.1  # Gaussians below are dropped at the end
    final_scale: float = 0.1  # Gaussians above are dropped at the end
    white_scale: float = 0.0  # white Gaussians above, with nothing behind them, are dropped at the end; 0: none
    max_scale: float = 0.03  # standard deviations are clipped to this after every step
    max_ratio: float = 8.0  # longest over shortest standard deviation of a Gaussian, clipped too
    entropy: float = 0.02  # weight, in the last rounds, of the opacities' entropy: drives them to 0 or 1
    entropy_rounds: int = 2  # how many last rounds
    graphs: bool = True  # on a GPU: replay the optimiser's steps as CUDA graphs, where the rasteriser can

    def __post_init__(self) -> None:
        for key, choices in (
            ("init", ("hull", "ball")),
            ("plan", ("continuous", "grid")),
            ("loss", ("l1", "l2")),
            ("alpha_loss", ("l1", "l2")),
        ):
            value = getattr(self, key)
            _require(value in choices, f"fit.{key}", value, " or ".join(choices))
        for key in ("points", "views", "denoise_steps", "memory", "max_points"):
            _require_between(f"fit.{key}", getattr(self, key), 1, 10_000_000)
        for key in (
            "rounds", "init_denoise_steps", "init_steps", "round_steps", "batch_views", "lr_means_steps",
            "densify_every", "densify_until",
            "entropy_rounds",
        ):  # fmt: skip
            _require_between(f"fit.{key}", getattr(self, key), 0, 10_000_000)
        for key in (
            "inversion_guidance", "eta", "guidance_low", "guidance_high", "prune_opacity", "final_opacity",
            "hull_agreement",
        ):  # fmt: skip
            _require_between(f"fit.{key}", getattr(self, key), 0.0, 1.0)
        for key in ("t_start", "t_end", "inversion_ratio", "init_opacity"):
            _require_between(f"fit.{key}", getattr(self, key), 0.01, 1.0)
        for key in (
            "view_alpha", "reference_rgb", "reference_alpha", "white_scale", "lr_means", "lr_means_end", "lr_colours",
            "lr_opacities", "lr_scales", "lr_quats", "densify_grad", "entropy",
        ):  # fmt: skip
            _require_between(f"fit.{key}", getattr(self, key), 0.0, 1000.0)
        for key in ("split_scale", "prune_scale", "final_scale", "max_scale"):
            _require_between(f"fit.{key}", getattr(self, key), 1e-4, 1000.0)
        _require_between("fit.max_ratio", self.max_ratio, 1.0, 1e6)
        _require_between("fit.elevation_low", self.elevation_low, -90.0, self.elevation_high)
        _require_between("fit.elevation_high", self.elevation_high, self.elevation_low, 90.0)
        if self.plan == "grid":
            _require(1000 % self.denoise_steps == 0, "fit.denoise_steps", self.denoise_steps, "a divisor of 1000")


@dataclass
class MeshConfig:
    method: str = "marching_cubes"  # a name in mesh_extract.ISOSURFACES
    backend: str = "auto"  # of the density field: auto | cpu (Python loops) | numba | cuda | cuda-coeff | cuda-fused
    resolution: int = 128  # grid nodes along the longest side
    iso: str = "auto"  # density threshold: auto or a number
    carve: bool | None = None  # cut off what stands out beyond the splats' silhouettes; null: with iso=auto, lower then
    pixel: float | None = None  # side of a pixel of the fit, world units; 0: unknown; null: the prior's, 0 with load=
    smooth: float = 0.7  # standard deviation, in voxels, of the blur of the field; 0: none
    seal: int = 3  # hollows behind pinholes up to twice as many voxels wide are filled; 0: only those wholly shut off
    floaters: float = 0.1  # parts smaller than this share of the largest one's diagonal are dropped
    smooth_iterations: int = 5  # of Taubin smoothing of the mesh
    faces: int = 20000  # faces after decimation; 0 keeps all

    def __post_init__(self) -> None:
        _require_between("mesh.resolution", self.resolution, 2, 4096)
        _require_between("mesh.smooth", self.smooth, 0.0, 100.0)
        if self.pixel is not None:
            _require_between("mesh.pixel", self.pixel, 0.0, 1e6)
        _require_between("mesh.seal", self.seal, 0, 64)
        _require_between("mesh.floaters", self.floaters, 0.0, 0.99)
        _require_between("mesh.smooth_iterations", self.smooth_iterations, 0, 1000)
        if self.iso != "auto":
            try:
                threshold = float(self.iso)
            except ValueError:
                raise UserError(f"mesh.iso={self.iso!r} is neither `auto` nor a number") from None
            _require(math.isfinite(threshold) and threshold > 0, "mesh.iso", self.iso, "`auto` or a number above 0")
        _require(
            self.faces == 0 or 4 <= self.faces <= 1_000_000_000, "mesh.faces", self.faces,
            "0 or at least 4, the faces of a tetrahedron",
        )  # fmt: skip


@dataclass
class TextureConfig:
    size: int = 1024  # side of the albedo picture in pixels
    unwrap: str = "auto"  # auto: uvunwrap, or the simple atlas where that fails | uvunwrap | simple
    render_size: int = 256  # side in pixels of the views that the texture is taken from
    passes: int = 2  # rounds that draw the textured mesh, compare and correct; 0: the blend of the views alone
    reference: bool = True  # let the front keep the detail of the source picture

    def __post_init__(self) -> None:
        _require_between("texture.size", self.size, 16, 8192)
        choices = ("auto", "uvunwrap", "simple")
        _require(self.unwrap in choices, "texture.unwrap", self.unwrap, ", ".join(choices))
        _require_between("texture.render_size", self.render_size, 16, 4096)
        _require_between("texture.passes", self.passes, 0, 100)


@dataclass
class RefineConfig:
    rounds: int = 2  # times that the mesh is drawn, improved by the prior, and its texture fitted; 0: not refined
    views: int = 8  # views a round, evenly spaced
    elevation: float | None = None  # of them, degrees; null: the picture's
    level: float = 0.9  # noise level up to which the prior changes them, the embedded one; 0.181 in the official code
    denoise_steps: int = 2  # DDIM steps from there down
    guidance: float = 1.0  # classifier-free guidance scale
    solver: str = "backproject"  # how the texture follows them: backproject | adam (the official code's)
    pull: float = 2.0  # of backproject: weight of the texture as it was, against 1 of a view that sees it straight
    steps: int = 30  # of adam
    rate: float = 0.2  # learning rate of adam

    def __post_init__(self) -> None:
        _require_between("refinement.rounds", self.rounds, 0, 1000)
        _require_between("refinement.views", self.views, 1, 1000)
        if self.elevation is not None:
            _require_between("refinement.elevation", self.elevation, -MAX_ELEVATION_DEG, MAX_ELEVATION_DEG)
        _require_between("refinement.level", self.level, 0.01, 1.0)
        _require_between("refinement.denoise_steps", self.denoise_steps, 1, 1000)
        _require_between("refinement.guidance", self.guidance, 0.0, 100.0)
        choices = ("backproject", "adam")
        _require(self.solver in choices, "refinement.solver", self.solver, " or ".join(choices))
        _require_between("refinement.steps", self.steps, 0, 100_000)
        _require_between("refinement.pull", self.pull, 0.0, 1e6)
        _require_between("refinement.rate", self.rate, 0.0, 1000.0)


@dataclass
class OutputConfig:
    sh_degree: int = -1  # pad the .ply splats to this degree for viewers that insist on 3; -1: as fitted
    turntable: str = "gif"  # gif | mp4 (needs imageio-ffmpeg) | none

    def __post_init__(self) -> None:
        _require(self.sh_degree in (-1, 0, 1, 2, 3), "output.sh_degree", self.sh_degree, "-1, 0, 1, 2 or 3")
        choices = ("gif", "mp4", "none")
        _require(self.turntable in choices, "output.turntable", self.turntable, " or ".join(choices))


@dataclass
class Config:
    input: str = ""  # the picture; empty: the sample picture, or none where the prior takes a text alone
    prompt: str = ""  # what the object is, for priors that take a text
    negative_prompt: str = ""  # what it is not
    load: str = ""  # Gaussians (.ply) to mesh instead of fitting a picture
    save_path: str = ""  # name of the run's folder and files; empty: the name of the input
    outdir: str = "outputs"  # folder of all runs
    elevation: float | None = None  # degrees from which the picture was taken, positive is above; null: 0, sample 10
    seed: int = 0  # of all random numbers: the same seed, machine and number of threads give the same files
    deterministic: bool = False  # on a GPU too the same seed gives the same files; slower there, always so on a CPU
    profile: str = "stage"  # what profilers see by name: stage | function (stages and the functions in them)
    refine: bool | None = None  # the prior goes over the texture, see `refinement`; null: the embedded does
    cache_dir: str = ""  # folder of caches; empty: $TURBODREAMER_CACHE_DIR, else in $XDG_CACHE_HOME or ~/.cache
    prepare: PrepareConfig = field(default_factory=PrepareConfig)
    prior: PriorConfig = field(default_factory=PriorConfig)
    fit: FitConfig = field(default_factory=FitConfig)
    mesh: MeshConfig = field(default_factory=MeshConfig)
    texture: TextureConfig = field(default_factory=TextureConfig)
    refinement: RefineConfig = field(default_factory=RefineConfig)
    output: OutputConfig = field(default_factory=OutputConfig)

    def __post_init__(self) -> None:
        if self.elevation is not None:  # from straight above or below, no direction of the picture is up
            _require_between("elevation", self.elevation, -MAX_ELEVATION_DEG, MAX_ELEVATION_DEG)
        _require_between("seed", self.seed, 0, 2**63 - 1)
        _require(self.profile in ("stage", "function"), "profile", self.profile, "stage or function")
        if self.input and self.load:
            raise UserError(f"input={self.input} and load={self.load}: expected one of them, a picture or Gaussians")
        if self.refine and self.load:
            raise UserError(f"refine=true with load={self.load}: the prior needs the picture or the text, not splats")


def load_config(path: Path | None = None, overrides: Sequence[str] = ()) -> Config:
    """Defaults, then the YAML file, then `key=value` overrides, each over the one before.

    Raises:
        UserError: the file is not there or not YAML; a key is unknown; a value has the wrong type or is out of range;
            keys contradict each other.
    """
    layers = [OmegaConf.structured(Config)]
    try:
        given = [_read_override(text) for text in overrides]
        if path is not None:
            layers.append(_read_yaml(Path(path)))
            for key in OmegaConf.missing_keys(layers[-1]):  # `key: ???`, which a merge would pass over
                if not any(OmegaConf.select(layer, key) for layer in given):
                    raise UserError(f"--config {path} needs {key}=: give it on the command line")
        layers.extend(given)
        return OmegaConf.to_object(OmegaConf.merge(*layers))
    except OmegaConfBaseException as error:
        raise UserError(_explain(error)) from error


def _read_yaml(path: Path) -> DictConfig:
    """The keys and values of a YAML file."""
    if not path.is_file():
        found = "a folder" if path.is_dir() else "no such file"
        raise UserError(f"--config {path}: {found}; expected a YAML file such as configs/image.yaml")
    try:
        loaded = OmegaConf.load(path)
    except Exception as error:  # yaml's parser has no common base class that omegaconf exports
        raise UserError(f"--config {path}: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(loaded, DictConfig):
        raise UserError(f"--config {path}: expected keys and values at the top level, such as `seed: 3`")
    return loaded


def _read_override(text: str) -> DictConfig:
    """`a.b=value` as a config; for a key of type str the value stands as given (file names may hold `#` or `[`)."""
    key, separator, value = text.partition("=")
    if not separator or not key:
        raise UserError(f"{text!r} is not an override; expected key=value, such as seed=3 or mesh.resolution=64")
    declared = OmegaConf.select(OmegaConf.structured(Config), key, throw_on_missing=False)
    if isinstance(declared, str):
        config = OmegaConf.create()
        # A value is data here: an escaped interpolation stays the text that was given.
        OmegaConf.update(config, key, value.replace("${", "\\${"))
        return config
    try:
        return OmegaConf.from_dotlist([text])
    except Exception as error:  # yaml's scanner and parser errors; omegaconf exports no common class
        raise UserError(f"{key}={value!r} cannot be read: {' '.join(str(error).split())}") from error


def _explain(error: OmegaConfBaseException) -> str:
    """One line: the full key, and what is wrong with it."""
    message = str(error).splitlines()[0]
    key = getattr(error, "full_key", None)
    if message.startswith("Merge error:"):  # a value where a section belongs; omegaconf does not say which
        return f"{message}; a section takes keys, such as mesh.resolution=64"
    return f"{key}: {message}" if key else message


def describe_keys() -> str:
    """Every key with its default and meaning, a line each, as read from the comments of this file."""
    rows = list(_described_keys(Config, ""))
    width = max(len(key) for key, _ in rows)
    return "\n".join(f"  {key:<{width}}  {meaning}" for key, meaning in rows)


def _described_keys(section: type, prefix: str) -> Iterator[tuple[str, str]]:
    comments = dict(re.findall(r"^    (\w+): .*?  # (.*)$", inspect.getsource(section), flags=re.MULTILINE))
    for item in fields(section):
        if is_dataclass(item.type):
            yield from _described_keys(item.type, f"{prefix}{item.name}.")
        else:
            default = "null" if item.default is None else item.default
            yield f"{prefix}{item.name}={default}", comments[item.name]
