# ruff: noqa: F403, F405 (the slots of layout.py are a vocabulary: imported whole)
"""Version 2: which families there are, how often, and how they are turned and lit.

What version 1's prior did badly on real pictures, after its list of failures: vehicles seen at three quarters, sharp
edges, thin handles and legs, hollow shapes, glossy white, print and faces, clothes and hats, finer texture, flat light.
"""

import math

from procedural.families_v2_figures import block_toys, mascots, people, pets
from procedural.families_v2_looks import light_v2, palette_v2
from procedural.families_v2_things import boxes, carved, thin_things, tokens
from procedural.families_v2_vehicles import cars, tanks, trucks
from procedural.families_v2_ware import handled, hollow, teapots
from procedural.layout import *
from procedural.parts import normal, side, uniform

# Builder and percent.
FAMILIES_V2 = (
    (cars, 7.0), (trucks, 6.0), (tanks, 7.0), (boxes, 6.0), (teapots, 7.0), (handled, 6.0), (hollow, 8.0),
    (thin_things, 6.0), (carved, 6.0), (tokens, 4.0), (people, 17.0), (block_toys, 6.0), (pets, 9.0), (mascots, 5.0),
)  # fmt: skip
NAMES_V2 = tuple(builder.__name__ for builder, _ in FAMILIES_V2)
SHARES_V2 = tuple(share for _, share in FAMILIES_V2)
_LONG = (cars, trucks, tanks, teapots, handled, hollow, pets)


def build_v2(w, family):
    """Build one object of a family (number in NAMES_V2) with palette, turn and light of version 2."""
    palette_v2(w)
    builder = FAMILIES_V2[family][0]
    builder(w)
    style, yaw = uniform(w, 0.0, 1.0), normal(w, 12.0)
    if builder in _LONG:
        if style < 0.25:
            yaw = side(w) * (90.0 + normal(w, 12.0))
        elif style < 0.75:
            yaw = side(w) * uniform(w, 20.0, 70.0)
    w.material[YAW] = math.radians(yaw)
    light_v2(w)
