# ruff: noqa: F403, F405 (the slots of layout.py are a vocabulary: imported whole)
"""The 14 families of version 1. FROZEN: held-out figures refer to them; new ideas go to families_v2*.py.

Every family builds into the workspace `w` of parts.py, facing +z, the ground being wherever it ends.
"""

import math

from procedural.families_v1_built import flyers, furniture, gadgets, houses, vehicles
from procedural.families_v1_creatures import birds, blobs, characters, quadrupeds
from procedural.families_v1_things import food, mushrooms, plants, singles, vessels
from procedural.layout import *
from procedural.parts import chance, normal, pick, set_hsv, side, uniform


def palette_v1(w):
    """Six correlated colours: half natural, half vivid."""
    p = w.palette
    if chance(w, 0.45):
        h, s, v = uniform(w, 0.02, 0.14), uniform(w, 0.05, 0.75), uniform(w, 0.25, 0.95)
    else:
        h, s, v = uniform(w, 0.0, 1.0), uniform(w, 0.45, 0.95), uniform(w, 0.45, 0.98)
    if chance(w, 0.12):
        s *= 0.1
    if chance(w, 0.08):
        v *= 0.25
    set_hsv(p, 0, h, s, v)
    kind = pick(w, 3)
    if kind == 0:
        set_hsv(p, 1, h + normal(w, 0.03), s * uniform(w, 0.2, 0.7), v + uniform(w, 0.1, 0.35))
    elif kind == 1:
        set_hsv(p, 1, h + uniform(w, -0.12, 0.12), s, v * uniform(w, 0.4, 0.8))
    else:
        set_hsv(p, 1, uniform(w, 0.0, 1.0), uniform(w, 0.4, 0.95), uniform(w, 0.4, 0.95))
    set_hsv(p, 2, h + (0.5, 0.33, 0.67, 0.15)[pick(w, 4)] + normal(w, 0.04), uniform(w, 0.5, 1.0), uniform(w, 0.5, 1.0))
    set_hsv(p, 3, h + normal(w, 0.1), uniform(w, 0.0, 0.6), uniform(w, 0.06, 0.28))
    set_hsv(p, 4, h + normal(w, 0.1), uniform(w, 0.0, 0.25), uniform(w, 0.85, 1.0))
    set_hsv(p, 5, uniform(w, 0.04, 0.13), uniform(w, 0.35, 0.85), uniform(w, 0.45, 1.0))
    set_hsv(p, 6, 0.0, 0.0, uniform(w, 0.02, 0.1))
    set_hsv(p, 7, 0.0, 0.0, uniform(w, 0.9, 1.0))


def light_v1(w, material):
    """Light and material of version 1: dimmer ambient light, 60 % lit from the front."""
    azimuth = normal(w, 40.0) if chance(w, 0.6) else uniform(w, 0.0, 360.0)
    elevation = uniform(w, 20.0, 75.0)
    a, e = math.radians(azimuth), math.radians(elevation)
    material[LIGHT], material[LIGHT + 1], material[LIGHT + 2] = (
        math.cos(e) * math.sin(a),
        math.sin(e),
        math.cos(e) * math.cos(a),
    )
    warm = normal(w, 0.04)
    material[LIGHT_COLOUR], material[LIGHT_COLOUR + 1], material[LIGHT_COLOUR + 2] = 1.0 + warm, 1.0, 1.0 - warm
    ambient = uniform(w, 0.5, 0.85)
    material[AMBIENT] = ambient
    material[DIRECT] = (1.1 - ambient) * uniform(w, 0.8, 1.3)
    material[HEMISPHERE] = uniform(w, 0.0, 0.3)
    material[OCCLUSION] = uniform(w, 0.3, 0.8)
    if chance(w, 0.25):
        material[SPECULAR] = uniform(w, 0.15, 0.5)
    material[SHININESS] = math.exp(uniform(w, math.log(8.0), math.log(70.0)))
    material[NOISE_SEED] = pick(w, 100000)
    if chance(w, 0.5):
        material[ALBEDO_NOISE] = uniform(w, 0.03, 0.16)
        material[ALBEDO_FREQUENCY] = uniform(w, 3.0, 20.0)
    if chance(w, 0.12):
        material[BUMP_HEIGHT] = uniform(w, 0.005, 0.015)
        material[BUMP_FREQUENCY] = uniform(w, 8.0, 22.0)


# Percent of each family, in the order of BUILDERS_V1.
SHARES_V1 = (13.0, 14.0, 18.0, 8.0, 12.0, 5.0, 6.0, 5.0, 5.0, 3.0, 3.5, 3.5, 2.5, 1.5)
NAMES_V1 = (
    "blobs", "quadrupeds", "characters", "birds", "vessels", "mushrooms", "furniture", "houses", "vehicles", "flyers",
    "plants", "food", "gadgets", "singles",
)  # fmt: skip
BUILDERS_V1 = (
    blobs, quadrupeds, characters, birds, vessels, mushrooms, furniture, houses, vehicles, flyers,
    plants, food, gadgets, singles,
)  # fmt: skip


def build_v1(w, family):
    """Build one object of a family (number in NAMES_V1) with palette, turn and light of version 1."""
    palette_v1(w)
    BUILDERS_V1[family](w)
    # Long things are seen from the side or at three quarters as often as from the front.
    style = uniform(w, 0.0, 1.0)
    yaw = normal(w, 12.0)
    if family in (1, 3, 4, 8, 9):
        if style < 0.4:
            yaw = side(w) * (90.0 + normal(w, 12.0))
        elif style < 0.75:
            yaw = side(w) * uniform(w, 20.0, 65.0)
    w.material[YAW] = math.radians(yaw)
    light_v1(w, w.material)
