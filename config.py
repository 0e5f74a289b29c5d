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


def _require(condition: bool, key: str, value, expected: str) -> None:
    if not condition:
        raise UserError(f"{key}={value} is out of range: expected {expected}")


def _require_between(key: str, value: float, low: float, high: float) -> None:
    _require(math.isfinite(value) and low <= value <= high, key, value, f"a number from {low:g} to {high:g}")


@dataclass
class PrepareConfig:
    background: str = "auto"  # auto: alpha channel if there is one, else cut out; keep: take the picture as it is
    border: float = 0.2  # share of the frame left free around the object; 0.2 is the priors' framing

    def __post_init__(self) -> None:
        choices = ("auto", "keep")
        _require(self.background in choices, "prepare.background", self.background, " or ".join(choices))
        _require_between("prepare.border", self.border, 0.0, 0.9)


@dataclass
class PriorConfig:
    name: str = "embedded"  # a name in priors.PRIORS
    weights: str = ""  # a weights file or folder; empty: the prior's own
    guidance: float = 2.0  # classifier-free guidance scale; 1 evaluates the conditional half alone

    def __post_init__(self) -> None:
        _require_between("prior.guidance", self.guidance, 0.0, 100.0)


@dataclass
class FitConfig:
    points: int = 5000  # Gaussians at the start

    def __post_init__(self) -> None:
        _require_between("fit.points", self.points, 1, 10_000_000)


@dataclass
class MeshConfig:
    method: str = "marching_cubes"  # a name in mesh_extract.ISOSURFACES
    backend: str = "auto"  # how the density field is computed: auto | cpu (Python loops) | numba
    resolution: int = 128  # grid nodes along the longest side
    iso: str = "auto"  # density threshold: auto or a number
    faces: int = 20000  # faces after decimation; 0 keeps all

    def __post_init__(self) -> None:
        _require_between("mesh.resolution", self.resolution, 2, 4096)
        _require_between("mesh.faces", self.faces, 0, 1_000_000_000)


@dataclass
class TextureConfig:
    size: int = 1024  # side of the albedo picture in pixels

    def __post_init__(self) -> None:
        _require_between("texture.size", self.size, 16, 16384)


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
    input: str = ""  # the picture; empty: the sample picture
    load: str = ""  # Gaussians (.ply) to mesh instead of fitting a picture
    save_path: str = ""  # name of the run's folder and files; empty: the name of the input
    outdir: str = "outputs"  # folder of all runs
    elevation: float = 0.0  # degrees from which the picture was taken; positive is above
    seed: int = 0  # of all random numbers: the same seed gives the same files
    cache_dir: str = ""  # folder of caches; empty: $XDG_CACHE_HOME/turbodreamer or ~/.cache/turbodreamer
    prepare: PrepareConfig = field(default_factory=PrepareConfig)
    prior: PriorConfig = field(default_factory=PriorConfig)
    fit: FitConfig = field(default_factory=FitConfig)
    mesh: MeshConfig = field(default_factory=MeshConfig)
    texture: TextureConfig = field(default_factory=TextureConfig)
    output: OutputConfig = field(default_factory=OutputConfig)

    def __post_init__(self) -> None:
        _require_between("elevation", self.elevation, -90.0, 90.0)
        _require_between("seed", self.seed, 0, 2**63 - 1)


def load_config(path: Path | None = None, overrides: Sequence[str] = ()) -> Config:
    """Defaults, then the YAML file, then `key=value` overrides, each over the one before.

    Raises:
        UserError: the file is not there or not YAML; a key is unknown; a value has the wrong type or is out of range.
    """
    layers = [OmegaConf.structured(Config)]
    try:
        if path is not None:
            layers.append(_read_yaml(Path(path)))
        layers.extend(_read_override(text) for text in overrides)
        return OmegaConf.to_object(OmegaConf.merge(*layers))
    except OmegaConfBaseException as error:
        raise UserError(_explain(error)) from error


def _read_yaml(path: Path):
    if not path.is_file():
        raise UserError(f"--config {path}: no such file; expected a YAML file such as configs/image.yaml")
    try:
        loaded = OmegaConf.load(path)
    except Exception as error:  # yaml's parser has no common base class that omegaconf exports
        raise UserError(f"--config {path}: not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(loaded, DictConfig):
        raise UserError(f"--config {path}: expected keys and values at the top level, such as `seed: 3`")
    return loaded


def _read_override(text: str):
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
            yield f"{prefix}{item.name}={item.default}", comments[item.name]
