# ruff: noqa: F403, F405 (the slots of layout.py are a vocabulary: imported whole)
"""Version 1: blobs, quadrupeds, characters, birds. FROZEN, as families_v1.py says."""

import math

from procedural.layout import *
from procedural.parts import (
    ball,
    blend,
    box,
    chance,
    cone,
    dome,
    egg,
    eyes,
    limb,
    mirror,
    normal,
    operation,
    part,
    pick,
    random_texture,
    same_texture,
    torus,
    turn,
    uniform,
)


def blobs(w):
    """Random assemblies of balls, boxes, cones and rings."""
    k = uniform(w, 0.0, 0.25)
    x, y, z = 0.0, 0.0, 0.0
    for n in range(2 + pick(w, 7)):
        if n > 0:  # near one of the parts so far, so that most things hang together
            near = w.rows[pick(w, n)]
            x, y, z = near[CX] + normal(w, 0.14), near[CY] + normal(w, 0.14), near[CZ] + normal(w, 0.14)
        a, b, c = uniform(w, 0.15, 0.5), uniform(w, 0.15, 0.5), uniform(w, 0.15, 0.5)
        kind, colour = pick(w, 7), pick(w, 6)
        if kind <= 2:
            i = egg(w, x, y, z, a, b, c, k, colour)
        elif kind == 3:
            i = box(w, x, y, z, a, b, c, uniform(w, 0.01, 0.12), colour)
        elif kind == 4:
            i = part(w, ROUND_CONE, x, y, z, 0.6 * a, 0.35 * b, 0.4 + c, 0.0, k, colour)
        elif kind == 5:
            i = cone(w, x, y, z, a, b, c * uniform(w, 0.2, 1.0), 0.02, colour)
        else:
            i = torus(w, x, y, z, a, 0.3 * b, colour)
        turn(w, i, uniform(w, 0, 360), uniform(w, -90, 90), uniform(w, 0, 360))
        blend(w, i, k)
        random_texture(w, i, 0.25)
        if chance(w, 0.3):
            mirror(w, i, 1)
    if chance(w, 0.35):
        i = ball(w, normal(w, 0.3), normal(w, 0.3), normal(w, 0.3), uniform(w, 0.15, 0.35), 0.02, pick(w, 6))
        operation(w, i, SUBTRACT, 0.02)
    if chance(w, 0.4):
        i = ball(w, normal(w, 0.3), normal(w, 0.3), normal(w, 0.3), uniform(w, 0.2, 0.5), 0.0, pick(w, 6))
        operation(w, i, PAINT, 0.0)


def quadrupeds(w):
    """Cats, dogs, cows, horses and their like."""
    long, fat = uniform(w, 0.28, 0.55), uniform(w, 0.2, 0.36)
    tall = 0.8 * fat + uniform(w, 0.12, 0.45)
    thick = uniform(w, 0.05, 0.12)
    body = limb(w, 0, tall, -long, 0, tall + normal(w, 0.04), long, fat * uniform(w, 0.8, 1.1), fat, 0.1, 0)
    random_texture(w, body, 0.35)
    if chance(w, 0.4):
        i = egg(w, 0, tall - 0.7 * fat, 0, fat * 0.8, fat * 0.6, long, 0.0, 1)
        operation(w, i, PAINT, 0.0)
    for end in range(2):
        z = long * uniform(w, 0.8, 1.0) * (1.0 if end == 0 else -1.0)
        i = limb(w, 0.65 * fat, tall - 0.3 * fat, z, 0.7 * fat, thick, z + normal(w, 0.06), thick * 1.3, thick, 0.06, 0)
        mirror(w, i, 1)
        same_texture(w, i, body)
        if chance(w, 0.5):
            i = egg(
                w,
                0.7 * fat,
                0.6 * thick,
                z + 0.3 * thick,
                1.2 * thick,
                0.7 * thick,
                1.5 * thick,
                0.02,
                (1, 3)[pick(w, 2)],
            )
            mirror(w, i, 1)
    neck = uniform(w, 0.05, 0.6)
    hy, hz, hr = tall + fat * 0.6 + neck, long + 0.4 * fat + uniform(w, 0.0, 0.4) * neck, fat * uniform(w, 0.65, 1.15)
    i = limb(w, 0, tall + 0.2 * fat, long * 0.9, 0, hy, hz, fat * 0.75, hr * 0.6, 0.1, 0)
    same_texture(w, i, body)
    i = egg(w, 0, hy, hz, hr, hr * uniform(w, 0.8, 1.0), hr, 0.08, 0)
    same_texture(w, i, body)
    snout = uniform(w, 0.2, 1.0) * hr
    i = limb(
        w,
        0,
        hy - 0.25 * hr,
        hz + 0.6 * hr,
        0,
        hy - 0.35 * hr,
        hz + 0.7 * hr + snout,
        0.5 * hr,
        0.35 * hr,
        0.05,
        pick(w, 2),
    )
    i = egg(w, 0, hy - 0.2 * hr, hz + 0.75 * hr + snout + 0.2 * hr, 0.2 * hr, 0.14 * hr, 0.12 * hr, 0.0, 3)
    eyes(w, 0.45 * hr, hy + 0.25 * hr, hz + 0.8 * hr, hr * uniform(w, 0.1, 0.2), pick(w, 2))
    ear = pick(w, 3)
    if ear == 0:
        i = cone(w, 0.6 * hr, hy + 0.95 * hr, hz, 0.4 * hr, 0.3 * hr, 0.05 * hr, 0.02, 0)
        turn(w, i, 0, 0, -20)
        mirror(w, i, 1)
    elif ear == 1:
        i = egg(w, 0.95 * hr, hy + 0.3 * hr, hz, 0.18 * hr, 0.55 * hr, 0.35 * hr, 0.03, 1)
        turn(w, i, 0, 0, uniform(w, -10, 40))
        mirror(w, i, 1)
    else:
        i = ball(w, 0.75 * hr, hy + 0.75 * hr, hz, 0.35 * hr, 0.03, 0)
        mirror(w, i, 1)
    if chance(w, 0.25):
        i = limb(w, 0.4 * hr, hy + 0.8 * hr, hz, 0.8 * hr, hy + 1.6 * hr, hz, 0.12 * hr, 0.04 * hr, 0.0, 4)
        mirror(w, i, 1)
    tail = uniform(w, 0.1, 0.7)
    angle = uniform(w, -1.0, 1.3)
    limb(
        w, 0, tall + 0.4 * fat, -long - 0.5 * fat, normal(w, 0.1), tall + 0.4 * fat + tail * math.sin(angle),
        -long - 0.7 * fat - tail * math.cos(angle), 0.07, uniform(w, 0.03, 0.14), 0.05, pick(w, 2),
    )  # fmt: skip


def characters(w):
    """Teddies, dolls, robots: upright, with head, arms and legs."""
    fat, tall = uniform(w, 0.2, 0.36), uniform(w, 0.28, 0.5)
    leg, hr = uniform(w, 0.15, 0.5), uniform(w, 0.22, 0.42)
    stance, thick = uniform(w, 0.08, 0.2), uniform(w, 0.07, 0.15)
    skin, cloth = (0, 0, 5)[pick(w, 3)], (0, 1, 2)[pick(w, 3)]
    boxy = chance(w, 0.15)
    y = leg + 0.8 * tall
    if boxy:
        body = box(w, 0, y, 0, fat, tall, 0.7 * fat, 0.04, cloth)
    else:
        body = egg(w, 0, y, 0, fat, tall, fat * uniform(w, 0.75, 1.0), 0.05, cloth)
    random_texture(w, body, 0.3)
    i = limb(
        w,
        stance,
        leg + 0.15,
        0,
        stance + uniform(w, 0.0, 0.1),
        thick,
        uniform(w, 0.0, 0.1),
        thick * 1.1,
        thick,
        0.04,
        (skin, 1, 3)[pick(w, 3)],
    )
    mirror(w, i, 1)
    i = egg(
        w,
        stance + 0.05,
        0.6 * thick,
        0.5 * thick + 0.05,
        thick,
        0.75 * thick,
        1.6 * thick,
        0.02,
        (skin, 2, 3)[pick(w, 3)],
    )
    mirror(w, i, 1)
    # arms: mirrored, or each for itself
    reach, lift = uniform(w, 0.25, 0.55), uniform(w, -1.3, 1.2)
    shoulder = y + 0.6 * tall
    both = chance(w, 0.6)
    for arm in range(1 if both else 2):
        sx = 1.0 if arm == 0 else -1.0
        if arm == 1:
            lift = uniform(w, -1.3, 1.2)
        ex, ey, ez = (
            sx * (0.75 * fat + reach * math.cos(lift)),
            shoulder + reach * math.sin(lift),
            uniform(w, -0.05, 0.25),
        )
        i = limb(w, sx * 0.75 * fat, shoulder, 0, ex, ey, ez, thick, 0.8 * thick, 0.04, (skin, cloth)[pick(w, 2)])
        if both:
            mirror(w, i, 1)
        i = ball(w, ex, ey, ez, thick * uniform(w, 0.9, 1.3), 0.02, skin)
        if both:
            mirror(w, i, 1)
    if chance(w, 0.5):
        i = egg(w, 0, y - 0.1 * tall, 0.75 * fat, 0.7 * fat, 0.7 * tall, 0.5 * fat, 0.0, (1, 4)[pick(w, 2)])
        operation(w, i, PAINT, 0.0)
    if chance(w, 0.3):
        i = box(w, 0, leg, 0, 1.0, 0.3 * tall, 1.0, 0.0, (1, 2, 3)[pick(w, 3)])
        operation(w, i, PAINT, 0.0)
    hy = y + 0.85 * tall + 0.75 * hr
    if boxy:
        box(w, 0, hy, 0, hr, 0.8 * hr, 0.8 * hr, 0.05, skin)
        face = 0.8 * hr
    else:
        egg(w, 0, hy, 0.02, hr * uniform(w, 0.9, 1.15), hr * uniform(w, 0.85, 1.1), hr * 0.95, 0.04, skin)
        face = 0.85 * hr
    eyes(w, 0.36 * hr, hy + 0.15 * hr, face + 0.02, hr * uniform(w, 0.09, 0.22), pick(w, 2))
    if chance(w, 0.6):
        egg(w, 0, hy - 0.2 * hr, face + 0.03, 0.4 * hr, 0.3 * hr, 0.3 * hr, 0.03, (1, 4)[pick(w, 2)])
        egg(w, 0, hy - 0.08 * hr, face + 0.03 + 0.25 * hr, 0.13 * hr, 0.1 * hr, 0.1 * hr, 0.0, 3)
    elif chance(w, 0.7):
        ball(w, 0, hy - 0.08 * hr, face + 0.08 * hr, 0.13 * hr, 0.02, (skin, 2)[pick(w, 2)])
        i = egg(w, 0, hy - 0.42 * hr, face, 0.3 * hr, 0.07 * hr, 0.3 * hr, 0.0, (2, 3)[pick(w, 2)])
        operation(w, i, PAINT, 0.0)
    top = pick(w, 6)
    if top == 0:
        i = ball(w, 0.72 * hr, hy + 0.72 * hr, 0, hr * uniform(w, 0.3, 0.45), 0.03, skin)
        mirror(w, i, 1)
        i = ball(w, 0.72 * hr, hy + 0.72 * hr, 0.3 * hr, 0.24 * hr, 0.0, 1)
        mirror(w, i, 1)
    elif top == 1:
        i = egg(w, 0.4 * hr, hy + 1.3 * hr, 0, 0.2 * hr, uniform(w, 0.5, 0.8) * hr, 0.14 * hr, 0.03, skin)
        turn(w, i, 0, 0, -12)
        mirror(w, i, 1)
    elif top == 2:
        i = dome(w, 0, hy + 0.15 * hr, -0.04, 1.12 * hr, 1.1 * hr, 1.1 * hr, 0.0, (2, 3)[pick(w, 2)])
        turn(w, i, 0, -15, 0)
    elif top == 3:
        cone(w, 0, hy + 0.85 * hr, 0, 0.05, 1.2 * hr, 1.2 * hr, 0.02, 2)
        cone(w, 0, hy + 1.2 * hr, 0, 0.4 * hr, 0.7 * hr, uniform(w, 0.4, 0.7) * hr, 0.03, 2)
    elif top == 4:
        i = egg(w, 0, hy + 0.2 * hr, -0.15 * hr, 1.1 * hr, 1.0 * hr, 1.05 * hr, 0.0, 3)
        turn(w, i, 0, -25, 0)
        operation(w, i, PAINT, 0.0)


def birds(w):
    """Birds, chicks, ducks, penguins."""
    fat = uniform(w, 0.28, 0.45)
    tilt = uniform(w, -0.1, 0.5)
    body = limb(w, 0, 0.5, -0.25, 0, 0.5 + tilt, 0.2, fat * uniform(w, 0.6, 1.0), fat, 0.08, 0)
    random_texture(w, body, 0.3)
    if chance(w, 0.5):
        i = egg(w, 0, 0.4 + 0.5 * tilt, 0.3, 0.8 * fat, fat, 0.9 * fat, 0.0, 1)
        operation(w, i, PAINT, 0.0)
    hr = uniform(w, 0.2, 0.3)
    hy, hz = 0.5 + tilt + fat * 0.7 + uniform(w, 0.05, 0.35), 0.25 + uniform(w, 0.0, 0.2)
    i = limb(w, 0, 0.55 + tilt, 0.2, 0, hy, hz, 0.7 * fat, 0.7 * hr, 0.1, 0)
    ball(w, 0, hy, hz, hr, 0.06, (0, 0, 1)[pick(w, 3)])
    eyes(w, 0.7 * hr, hy + 0.2 * hr, hz + 0.6 * hr, 0.17 * hr, pick(w, 2))
    if chance(w, 0.5):
        i = cone(w, 0, hy - 0.05, hz + hr + 0.1, 0.14, 0.09, 0.01, 0.005, 5)
        turn(w, i, 0, 90, 0)
    else:
        egg(w, 0, hy - 0.07, hz + hr + 0.04, 0.12, 0.04, 0.15, 0.01, 5)
    i = egg(w, 0.85 * fat, 0.5 + 0.6 * tilt, -0.05, 0.09, 0.6 * fat, 0.35 + 0.4 * fat, 0.03, (0, 1, 2)[pick(w, 3)])
    turn(w, i, uniform(w, -5, 15), uniform(w, -30, 10), uniform(w, 0, 40))
    mirror(w, i, 1)
    random_texture(w, i, 0.3)
    i = egg(
        w, 0, 0.5 + uniform(w, -0.1, 0.2), -0.4 - fat, uniform(w, 0.1, 0.25), 0.06, 0.35, 0.05, (0, 1, 3)[pick(w, 3)]
    )
    turn(w, i, 0, uniform(w, -10, 35), 0)
    if chance(w, 0.7):
        length = uniform(w, 0.2, 0.45)
        i = limb(w, 0.13, 0.3, 0.0, 0.15, 0.2 - length, 0.05, 0.04, 0.035, 0.0, 5)
        mirror(w, i, 1)
        i = egg(w, 0.15, 0.18 - length, 0.12, 0.09, 0.035, 0.14, 0.0, 5)
        mirror(w, i, 1)
    if chance(w, 0.3):
        egg(w, 0, hy + hr, hz, 0.04, 0.13, 0.12, 0.02, 2)
