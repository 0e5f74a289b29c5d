# ruff: noqa: F403, F405 (the slots of layout.py are a vocabulary: imported whole)
"""Sampling random objects: `sample_objects` and the dataclass it returns.

After the recipe of the embedded prior's training data: no data set, objects of up to 24 primitives in families
(families_v1.py, families_v2.py). An object depends on its seed and version alone.
"""

import math
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from procedural.families_v1 import NAMES_V1, SHARES_V1, build_v1
from procedural.families_v2 import NAMES_V2, SHARES_V2, build_v2
from procedural.frame import frame_objects
from procedural.layout import *
from procedural.parts import Workspace, normal, side, uniform
from registry import lookup

FAMILY_NAMES = NAMES_V1 + NAMES_V2
VERSIONS = ("v1", "v2", "train")
_SHARE_OF_V1_IN_TRAINING = 0.55
TRAINING_BELOW, HELD_OUT_FROM = 10**11, 10**12


@dataclass(frozen=True)
class Objects:
    """M random objects; slots of the rows: layout.py."""

    primitives: np.ndarray  # float32 [M, 24, PRIMITIVE_SLOTS]
    materials: np.ndarray  # float32 [M, MATERIAL_SLOTS], light and framing included
    family: np.ndarray  # int32 [M], number in FAMILY_NAMES
    version: str

    def __len__(self) -> int:
        return len(self.primitives)

    def __getitem__(self, index: slice | np.ndarray) -> "Objects":
        """Some of the objects, by slice, mask or index array."""
        return Objects(self.primitives[index], self.materials[index], self.family[index], self.version)


def _pick_share(u: float, shares: tuple[float, ...]) -> int:
    """Index of the share that u in [0, 1) falls into."""
    u *= sum(shares)
    for k, share in enumerate(shares):
        u -= share
        if u < 0.0:
            return k
    return len(shares) - 1


def _build(seeds: list[int], version: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Primitives, materials, family and target size (frame.frame_objects) of one object a seed."""
    m = len(seeds)
    primitives = np.zeros((m, MAX_PRIMITIVES, PRIMITIVE_SLOTS), np.float32)
    materials = np.zeros((m, MATERIAL_SLOTS), np.float32)
    family = np.zeros(m, np.int32)
    sizes = np.zeros(m)
    for k, seed in enumerate(seeds):
        old = version == "v1" or (version == "train" and Workspace(seed, 0).random() < _SHARE_OF_V1_IN_TRAINING)
        # Streams: 0 the mixture, 1 version 1, 2 and 3 views, 4 version 2.
        w = Workspace(seed, 1 if old else 4)
        kind = _pick_share(w.random(), SHARES_V1 if old else SHARES_V2)
        (build_v1 if old else build_v2)(w, kind)
        family[k] = kind if old else len(NAMES_V1) + kind
        sizes[k] = uniform(w, 0.6, 0.82)
        rows = w.rows[:MAX_PRIMITIVES]
        primitives[k, : len(rows)] = rows
        w.material[COUNT] = len(rows)
        yaw = w.material[YAW]  # the light is stored in the object frame
        s, c = math.sin(yaw), math.cos(yaw)
        x, z = w.material[LIGHT], w.material[LIGHT + 2]
        w.material[LIGHT], w.material[LIGHT + 2] = c * x - s * z, c * z + s * x
        materials[k] = w.material
    return primitives, materials, family, sizes


def sample_objects(seeds: np.ndarray, version: str = "v1", executor: Executor | None = None) -> Objects:
    """Make one random object a seed.

    Args:
        seeds: int64 [M].
        version: "v1" (frozen), "v2", or "train": 55 % of v1, 45 % of v2.
        executor: a process pool to share the work, for large M; this process alone if left out. Keep the pool for
            several calls: a worker's start imports torch and numba. One process makes about 5,000 objects a second.
    Returns:
        Objects; equal seeds and version give equal objects, whatever the batch or the executor.
    Raises:
        UserError: unknown version.
    """
    lookup({name: name for name in VERSIONS}, version, "version")
    seeds = [int(seed) for seed in np.asarray(seeds)]
    if executor is None:
        primitives, materials, family, sizes = _build(seeds, version)
    else:
        blocks = [seeds[k : k + 1024] for k in range(0, len(seeds), 1024)]
        results = list(executor.map(_build, blocks, [version] * len(blocks)))
        primitives, materials, family, sizes = (np.concatenate(column) for column in zip(*results, strict=True))
    frame_objects(primitives, materials, sizes)
    return Objects(primitives, materials, family, version)


def sample_view_angles(seeds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eight views an object, (azimuths_deg, elevations_deg) float32 [M, 8].

    The first four may be the source (elevation -10..40: one frontal, one at three quarters, two anywhere); the
    others lie anywhere about the object, elevation -30..60.
    """
    azimuths, elevations = np.zeros((2, len(seeds), 8), np.float32)
    for m, seed in enumerate(seeds):
        w = Workspace(int(seed), 2)
        azimuths[m, :2] = normal(w, 8.0), side(w) * uniform(w, 25.0, 60.0)
        azimuths[m, 2:] = [uniform(w, -180.0, 180.0) for _ in range(6)]
        elevations[m, :4] = [uniform(w, -10.0, 40.0) for _ in range(4)]
        elevations[m, 4:] = [uniform(w, -30.0, 60.0) for _ in range(4)]
    return azimuths, elevations


def held_out_source_angles(seeds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Source view of held-out objects: azimuth N(0, 35) and elevation U(0, 25), degrees, float32 [M] each."""
    azimuths, elevations = np.zeros((2, len(seeds)), np.float32)
    for m, seed in enumerate(seeds):
        w = Workspace(int(seed), 3)
        azimuths[m], elevations[m] = normal(w, 35.0), uniform(w, 0.0, 25.0)
    return azimuths, elevations


def held_out_seeds(version: str) -> np.ndarray:
    """The 256 seeds, int64, that no training may use: procedural/seeds/<version>.txt; all >= HELD_OUT_FROM."""
    lookup({"v1": "v1", "v2": "v2"}, version, "version")
    path = Path(__file__).with_name("seeds") / f"{version}.txt"
    lines = path.read_text(encoding="utf-8").splitlines()
    seeds = np.array([int(line) for line in lines if line and not line.startswith("#")], np.int64)
    assert len(seeds) == 256 and seeds.min() >= HELD_OUT_FROM
    return seeds
