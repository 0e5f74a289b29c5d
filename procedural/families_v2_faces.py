# ruff: noqa: F403, F405 (the slots of layout.py are a vocabulary: imported whole)
"""Version 2: faces, ears, hats and hair for the figures."""

from procedural.families_v2_looks import detail
from procedural.layout import *
from procedural.parts import (
    ball,
    box,
    chance,
    choose,
    cone,
    dome,
    egg,
    limb,
    mirror,
    normal,
    operation,
    pick,
    shine,
    texture,
    torus,
    turn,
    uniform,
)


def painted(w, i, planes):
    """Make primitive i paint, mirrored across `planes`."""
    operation(w, i, PAINT, 0.0)
    mirror(w, i, planes)
    return i


def human_face(w, y, z, r, skin):
    """Eyes, brows, nose, mouth or moustache on a head of radius r whose front is at z."""
    ex, ey = uniform(w, 0.3, 0.42) * r, y + uniform(w, 0.0, 0.2) * r
    if chance(w, 0.6):
        painted(w, egg(w, ex, ey, z, 0.17 * r, uniform(w, 0.15, 0.28) * r, 0.4 * r, 0.0, 7), 1)
        painted(
            w, egg(w, ex, ey - 0.02 * r, z, 0.1 * r, uniform(w, 0.1, 0.18) * r, 0.4 * r, 0.0, choose(w, 6, 3, 2)), 1
        )
    else:
        painted(w, egg(w, ex, ey, z, 0.1 * r, uniform(w, 0.1, 0.2) * r, 0.4 * r, 0.0, 6), 1)
    if chance(w, 0.5):
        i = box(w, ex, ey + 0.3 * r, z, 0.16 * r, 0.04 * r, 0.4 * r, 0.0, 3)
        turn(w, i, 0, 0, uniform(w, -20, 20))
        painted(w, i, 1)
    if chance(w, 0.7):
        egg(w, 0, y - 0.1 * r, z + 0.02, uniform(w, 0.1, 0.2) * r, 0.13 * r, 0.15 * r, 0.03, skin)
    kind = pick(w, 3)
    if kind == 0:
        i = egg(w, 0.2 * r, y - 0.33 * r, z, 0.24 * r, 0.1 * r, 0.12 * r, 0.0, 3)
        turn(w, i, 0, 0, -12)
        mirror(w, i, 1)
    elif kind == 1:  # smile: a dark disc, its upper half painted back
        painted(w, egg(w, 0, y - 0.35 * r, z, 0.3 * r, 0.2 * r, 0.5 * r, 0.0, choose(w, 2, 3)), 0)
        painted(w, egg(w, 0, y - 0.27 * r, z, 0.33 * r, 0.17 * r, 0.6 * r, 0.0, skin), 0)
    else:
        painted(w, egg(w, 0, y - 0.42 * r, z, 0.2 * r, 0.05 * r, 0.5 * r, 0.0, choose(w, 2, 3)), 0)


def animal_face(w, y, z, r, fur_colour):
    """Muzzle, nose, eyes, mouth of a bear, cat or dog."""
    muzzle = uniform(w, 0.25, 0.5)
    pale = choose(w, 1, 4, fur_colour)
    egg(w, 0, y - 0.25 * r, z - 0.02, uniform(w, 0.35, 0.5) * r, 0.32 * r, muzzle * r, 0.04, pale)
    i = egg(w, 0, y - 0.12 * r, z + (muzzle - 0.05) * r, 0.16 * r, 0.11 * r, 0.1 * r, 0.0, choose(w, 6, 3, 3))
    shine(w, i, 2.0)
    if chance(w, 0.6):
        painted(w, egg(w, 0, y - 0.4 * r, z + muzzle * r, 0.2 * r, 0.035 * r, 0.3 * r, 0.0, 3), 0)
    ex, ey = uniform(w, 0.32, 0.45) * r, y + uniform(w, 0.12, 0.25) * r
    if chance(w, 0.6):
        i = egg(w, ex, ey, z - 0.12 * r, 0.15 * r, 0.17 * r, 0.12 * r, 0.0, 7)
        mirror(w, i, 1)
        i = ball(w, 0.97 * ex, ey, z - 0.03 * r, 0.09 * r, 0.0, choose(w, 6, 6, 3))
    else:
        i = ball(w, ex, ey, z - 0.1 * r, 0.12 * r, 0.0, 6)
    shine(w, i, 2.5)
    mirror(w, i, 1)


def ears(w, y, r, colour, kind):
    """Round, pointed, long or hanging ears on a head of radius r."""
    if kind == 0:
        i = ball(w, 0.72 * r, y + 0.72 * r, -0.05, uniform(w, 0.26, 0.4) * r, 0.03, colour)
        mirror(w, i, 1)
        if chance(w, 0.6):
            i = ball(w, 0.74 * r, y + 0.74 * r, 0.14 * r, 0.22 * r, 0.0, 1)
    elif kind == 1:
        i = cone(w, 0.58 * r, y + 0.95 * r, 0, uniform(w, 0.25, 0.4) * r, 0.3 * r, 0.04 * r, 0.02, colour)
        turn(w, i, 0, 0, -18)
    elif kind == 2:
        i = egg(w, 0.38 * r, y + 1.3 * r, 0, 0.19 * r, uniform(w, 0.5, 0.8) * r, 0.13 * r, 0.03, colour)
        turn(w, i, 0, 0, uniform(w, -20, 0))
    else:
        i = egg(w, 0.98 * r, y + 0.1 * r, 0, 0.15 * r, uniform(w, 0.45, 0.65) * r, 0.3 * r, 0.03, choose(w, colour, 1))
        turn(w, i, 0, 0, uniform(w, 0, 30))
    mirror(w, i, 1)


def hat(w, y, r):
    """A hat on a head of radius r centred at height y: cowboy, top, cap, beanie, witch, helmet, crown."""
    kind, colour = choose(w, 0, 0, 0, 1, 2, 2, 3, 4, 5, 6), choose(w, 2, 3, 3, 1)
    base = y + uniform(w, 0.5, 0.68) * r
    band = choose(w, 2, 4, 1, 3)
    if kind == 0:  # cowboy: brim with both sides rolled up, dented crown
        wide = uniform(w, 1.35, 1.8) * r
        i = egg(w, 0, base, 0, 0.75 * wide, 0.07 * r, wide, 0.03, colour)
        i = egg(w, 0.72 * wide, base + 0.17 * r, 0, 0.42 * wide, 0.06 * r, 0.8 * wide, 0.05, colour)
        turn(w, i, 0, 0, uniform(w, 22, 48))
        mirror(w, i, 1)
        i = cone(w, 0, base + 0.45 * r, 0, 0.45 * r, 0.88 * r, 0.66 * r, 0.12 * r, colour)
        detail(w, i, 0.3)
        i = egg(w, 0, base + 1.0 * r, 0, 0.18 * r, 0.22 * r, 0.7 * r, 0.0, colour)
        operation(w, i, SUBTRACT, 0.04)
        cone(w, 0, base + 0.13 * r, 0, 0.09 * r, 0.91 * r, 0.88 * r, 0.01, band)
    elif kind == 1:
        cone(w, 0, base, 0, 0.05 * r, 1.35 * r, 1.35 * r, 0.01, colour)
        cone(w, 0, base + uniform(w, 0.4, 0.6) * r, 0, 0.6 * r, 0.8 * r, uniform(w, 0.75, 0.95) * r, 0.03, colour)
        cone(w, 0, base + 0.15 * r, 0, 0.11 * r, 0.84 * r, 0.84 * r, 0.01, band)
    elif kind == 2:  # cap with peak and badge
        dome(w, 0, base - 0.3 * r, -0.03 * r, 1.1 * r, uniform(w, 0.85, 1.05) * r, 1.12 * r, 0.0, colour)
        i = egg(w, 0, base - 0.26 * r, 1.0 * r, 0.7 * r, 0.08 * r, 0.6 * r, 0.02, choose(w, colour, colour, band))
        turn(w, i, 0, 10, 0)
        if chance(w, 0.6):
            painted(w, egg(w, 0, base + 0.22 * r, 0.95 * r, 0.26 * r, 0.24 * r, 0.3 * r, 0.0, choose(w, 4, 7)), 0)
            i = painted(w, egg(w, 0, base + 0.22 * r, 0.95 * r, 0.2 * r, 0.17 * r, 0.3 * r, 0.0, choose(w, 4, 7)), 0)
            texture(w, i, LETTERS, 2.2 / r, 0.0, colour)
    elif kind == 3:  # beanie with bobble
        i = dome(w, 0, base - 0.25 * r, 0, 1.08 * r, 0.95 * r, 1.08 * r, 0.0, colour)
        detail(w, i, 0.6)
        torus(w, 0, base - 0.2 * r, 0, 1.0 * r, 0.15 * r, choose(w, colour, band))
        if chance(w, 0.7):
            ball(w, 0, base + 0.8 * r, 0, 0.24 * r, 0.0, band)
    elif kind == 4:  # witch, party or gnome
        if chance(w, 0.5):
            egg(w, 0, base, 0, 1.6 * r, 0.06 * r, 1.6 * r, 0.0, colour)
        i = cone(w, normal(w, 0.05), base + 0.75 * r, 0, 0.75 * r, 0.9 * r, 0.06 * r, 0.02, colour)
        detail(w, i, 0.6)
        cone(w, 0, base + 0.1 * r, 0, 0.1 * r, 0.93 * r, 0.85 * r, 0.01, band)
    elif kind == 5:  # helmet
        dome(w, 0, base - 0.45 * r, -0.02, 1.16 * r, 1.25 * r, 1.16 * r, 0.0, colour)
        cone(w, 0, base - 0.42 * r, 0, 0.07 * r, 1.28 * r, 1.2 * r, 0.01, choose(w, colour, band))
        if chance(w, 0.4):
            i = limb(w, 1.0 * r, base, 0, 1.7 * r, base + 0.6 * r, 0, 0.18 * r, 0.03, 0.0, 4)
            mirror(w, i, 1)
    else:  # crown
        i = cone(w, 0, base + 0.2 * r, 0, 0.25 * r, 0.72 * r, 0.85 * r, 0.01, 5)
        shine(w, i, 2.0)
        i = cone(w, 0, base + 0.5 * r, 0.72 * r, 0.15 * r, 0.17 * r, 0.02, 0.005, 5)
        w.rows[i][REPEAT] = 6.0


def hair(w, y, r):
    """Hair on a head: painted cap, shaggy or long, with buns or tails."""
    colour = choose(w, 3, 3, 2, 1, 6)
    i = egg(w, 0, y + 0.12 * r, -0.14 * r, 1.12 * r, uniform(w, 1.0, 1.15) * r, 1.08 * r, 0.0, colour)
    texture(w, i, FUR, 5.0 / r, 0.3, choose(w, 3, 4))
    # The face is cut free again by the skin-coloured front, a flat ball.
    egg(w, 0, y - 0.18 * r, 0.12 * r, 0.86 * r, uniform(w, 0.75, 0.85) * r, 0.92 * r, 0.02, 5)
    kind = pick(w, 4)
    if kind == 0:
        i = egg(w, 0, y - 0.5 * r, -0.45 * r, 0.95 * r, uniform(w, 0.7, 1.3) * r, 0.5 * r, 0.05, colour)
    elif kind == 1:
        i = ball(w, 0.85 * r, y + 0.75 * r, -0.1, uniform(w, 0.3, 0.42) * r, 0.0, colour)
        mirror(w, i, 1)
    elif kind == 2:
        i = limb(w, 0.95 * r, y + 0.1 * r, -0.1, 1.3 * r, y - 1.1 * r, -0.1, 0.25 * r, 0.12 * r, 0.0, colour)
        mirror(w, i, 1)
