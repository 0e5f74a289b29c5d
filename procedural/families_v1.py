# ruff: noqa: F403, F405 (the slots of layout.py are a vocabulary: imported whole)
"""The 14 families of version 1. FROZEN: held-out figures refer to them; new ideas go to families_v2*.py.

Every family builds into the workspace `w` of parts.py, facing +z, the ground being wherever it ends.
"""

import math

from procedural.layout import *
from procedural.parts import (
    aim,
    arc,
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
    ring,
    row,
    same_texture,
    set_hsv,
    side,
    texture,
    torus,
    turn,
    uniform,
)


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


def vessels(w):
    """Vases, cups, teapots, hydrants: turned bodies with handles and spouts."""
    kind = pick(w, 4)
    if kind == 0:  # vase
        r = uniform(w, 0.25, 0.45)
        body = egg(w, 0, 0, 0, r, uniform(w, 0.35, 0.6), r, 0.08, 0)
        random_texture(w, body, 0.6)
        neck = uniform(w, 0.1, 0.25)
        i = cone(w, 0, 0.55, 0, 0.3, neck, neck * uniform(w, 0.9, 1.6), 0.02, (0, 1)[pick(w, 2)])
        blend(w, i, 0.08)
        cone(w, 0, -0.5, 0, 0.08, 0.6 * r, 0.5 * r, 0.02, (0, 2)[pick(w, 2)])
        i = cone(w, 0, 0.75, 0, 0.3, 0.6 * neck, 0.85 * neck, 0.0, 3)
        operation(w, i, SUBTRACT, 0.01)
        if chance(w, 0.4):
            i = arc(w, r * 0.75, 0.35, 0, 0.2, 0.04, 120, (0, 2)[pick(w, 2)])
            aim(w, i, 1, 0, 0)
            mirror(w, i, 1)
    elif kind == 1:  # cup
        r, h = uniform(w, 0.3, 0.45), uniform(w, 0.3, 0.5)
        body = cone(w, 0, 0, 0, h, r * uniform(w, 0.7, 1.0), r, 0.04, 0)
        random_texture(w, body, 0.6)
        i = cone(w, 0, 0.1, 0, h, 0.75 * r, 0.85 * r, 0.03, (1, 3, 4)[pick(w, 3)])
        operation(w, i, SUBTRACT, 0.01)
        if chance(w, 0.8):
            i = arc(w, 0.92 * r, 0, 0, 0.6 * h, uniform(w, 0.03, 0.06), 100, (0, 2)[pick(w, 2)])
            aim(w, i, 1, 0, 0)
    elif kind == 2:  # teapot
        r, h = uniform(w, 0.38, 0.5), uniform(w, 0.28, 0.42)
        body = egg(w, 0, 0, 0, r, h, r, 0.05, 0)
        random_texture(w, body, 0.4)
        cone(w, 0, -0.9 * h, 0, 0.05, 0.55 * r, 0.5 * r, 0.02, 0)
        i = egg(w, 0, 0.85 * h, 0, 0.45 * r, 0.25 * h, 0.45 * r, 0.02, (0, 1)[pick(w, 2)])
        ball(w, 0, 1.2 * h, 0, 0.07, 0.02, (0, 2)[pick(w, 2)])
        limb(w, 0.8 * r, -0.1, 0, r + 0.28, 0.75 * h, 0, 0.11, 0.05, 0.06, 0)
        i = arc(w, -0.9 * r, 0, 0, 0.7 * h, uniform(w, 0.035, 0.06), 115, (0, 2)[pick(w, 2)])
        aim(w, i, -1, 0, 0)
    else:  # hydrant
        r = uniform(w, 0.18, 0.26)
        cone(w, 0, 0, 0, 0.5, r, r * 0.95, 0.02, 0)
        cone(w, 0, -0.5, 0, 0.06, 1.5 * r, 1.4 * r, 0.02, (0, 3)[pick(w, 2)])
        cone(w, 0, 0.45, 0, 0.05, 1.25 * r, 1.25 * r, 0.02, (0, 1)[pick(w, 2)])
        dome(w, 0, 0.48, 0, r, r, r, 0.0, (0, 1)[pick(w, 2)])
        cone(w, 0, 0.48 + r, 0, 0.06, 0.06, 0.05, 0.01, 2)
        i = cone(w, r, 0.15, 0, 0.12, 0.5 * r, 0.5 * r, 0.02, (0, 2)[pick(w, 2)])
        aim(w, i, 1, 0, 0)
        mirror(w, i, 1)
        i = cone(w, 0, 0.05, r, 0.12, 0.6 * r, 0.6 * r, 0.02, (0, 2)[pick(w, 2)])
        aim(w, i, 0, 0, 1)


def mushrooms(w):
    """Mushrooms, plain and spotted, at times two."""
    r, h = uniform(w, 0.4, 0.75), uniform(w, 0.25, 0.6)
    stem, tall = uniform(w, 0.1, 0.25), uniform(w, 0.3, 0.8)
    i = limb(w, 0, 0, 0, normal(w, 0.05), tall, 0, stem * uniform(w, 0.9, 1.7), stem, 0.03, 4)
    random_texture(w, i, 0.2)
    cap = dome(w, 0, tall - 0.05, 0, r, h, r, 0.0, 0)
    if chance(w, 0.5):
        texture(w, cap, DOTS, uniform(w, 3.0, 6.0), uniform(w, 0.25, 0.42), 4)
    else:
        random_texture(w, cap, 0.5)
    i = egg(w, 0, tall - 0.05, 0, 0.97 * r, uniform(w, 0.04, 0.15), 0.97 * r, 0.02, (1, 4)[pick(w, 2)])
    if chance(w, 0.25):
        torus(w, 0, 0.6 * tall, 0, stem * 1.1, 0.05, 4)
    if chance(w, 0.3):
        x = side(w) * (stem + 0.3)
        limb(w, x, 0, 0.1, x * 1.1, 0.4 * tall, 0.1, 0.5 * stem, 0.5 * stem, 0.02, 4)
        i = dome(w, x * 1.1, 0.4 * tall, 0.1, 0.45 * r, 0.5 * h, 0.45 * r, 0.0, 0)
        same_texture(w, i, cap)


def furniture(w):
    """Chairs, tables, stools, lamps, cabinets, sofas."""
    kind = pick(w, 5)
    if kind == 0:  # chair
        s, h, t = uniform(w, 0.25, 0.4), uniform(w, 0.25, 0.5), uniform(w, 0.025, 0.05)
        i = box(w, 0, h, 0, s, t, s, 0.02, 0)
        random_texture(w, i, 0.3)
        i = box(w, 0, h + 0.4, -s + t, s, uniform(w, 0.2, 0.45), t, 0.02, (0, 1)[pick(w, 2)])
        random_texture(w, i, 0.3)
        if chance(w, 0.6):
            i = limb(w, 0.85 * s, h, 0.85 * s, 0.9 * s, 0, 0.9 * s, t, t, 0.0, (0, 1, 3)[pick(w, 3)])
            mirror(w, i, 3)
        else:
            cone(w, 0, 0.5 * h, 0, 0.5 * h, 0.06, 0.05, 0.01, 3)
            cone(w, 0, 0, 0, 0.04, 0.8 * s, 0.5 * s, 0.02, 3)
        if chance(w, 0.3):
            i = box(w, s, h + 0.2, 0, 0.03, 0.03, 0.8 * s, 0.01, 1)
            mirror(w, i, 1)
    elif kind == 1:  # table or stool
        a, b, h = uniform(w, 0.3, 0.7), uniform(w, 0.3, 0.5), uniform(w, 0.3, 0.6)
        if chance(w, 0.5):
            i = box(w, 0, h, 0, a, 0.05, b, 0.02, 0)
        else:
            b = a
            i = cone(w, 0, h, 0, 0.05, a, a, 0.02, 0)
        random_texture(w, i, 0.4)
        if chance(w, 0.6):
            i = limb(w, 0.6 * a, h, 0.6 * b, 0.7 * a, 0, 0.7 * b, 0.05, 0.035, 0.0, (0, 1, 5)[pick(w, 3)])
            mirror(w, i, 3)
        else:
            cone(w, 0, 0.5 * h, 0, 0.5 * h, 0.09, 0.06, 0.02, 1)
            cone(w, 0, 0, 0, 0.04, 0.5 * a, 0.4 * a, 0.02, 1)
    elif kind == 2:  # lamp
        h, r = uniform(w, 0.3, 0.7), uniform(w, 0.2, 0.4)
        cone(w, 0, 0, 0, 0.05, 0.25, 0.22, 0.02, 1)
        cone(w, 0, 0.5 * h, 0, 0.5 * h, 0.05, 0.035, 0.01, (1, 3)[pick(w, 2)])
        i = cone(w, 0, h + 0.2, 0, 0.25, r, r * uniform(w, 0.4, 0.9), 0.01, 0)
        random_texture(w, i, 0.4)
    elif kind == 3:  # cabinet
        a, b, c = uniform(w, 0.25, 0.5), uniform(w, 0.3, 0.6), uniform(w, 0.2, 0.35)
        i = box(w, 0, 0, 0, a, b, c, 0.02, 0)
        random_texture(w, i, 0.3)
        n = 2 + pick(w, 3)
        i = box(w, 0, 0, c, 0.88 * a, 0.8 * b / n, 0.02, 0.01, 1)
        row(w, i, n, 1.9 * b / n, 1)
        i = ball(w, 0, 0, c + 0.04, 0.035, 0.0, (2, 3)[pick(w, 2)])
        row(w, i, n, 1.9 * b / n, 1)
        i = box(w, 0.85 * a, -b - 0.06, 0.8 * c, 0.04, 0.07, 0.04, 0.01, 3)
        mirror(w, i, 3)
    else:  # sofa
        a, b, r = uniform(w, 0.35, 0.75), uniform(w, 0.25, 0.35), uniform(w, 0.03, 0.1)
        i = box(w, 0, 0, 0, a, 0.15, b, r, 0)
        random_texture(w, i, 0.3)
        box(w, 0, 0.25, -b + 0.05, a, 0.35, 0.12, r, 0)
        i = box(w, a, 0.12, 0, 0.1, 0.25, b, r, (0, 1)[pick(w, 2)])
        mirror(w, i, 1)
        i = box(w, 0.5 * a, 0.18, 0.05, 0.46 * a, 0.07, 0.85 * b, 0.05, (0, 1)[pick(w, 2)])
        mirror(w, i, 1)


def houses(w):
    """Houses with roof, door, windows and chimney."""
    a, h, c = uniform(w, 0.3, 0.6), uniform(w, 0.2, 0.5), uniform(w, 0.3, 0.6)
    wall = box(w, 0, h, 0, a, h, c, 0.01, 0)
    random_texture(w, wall, 0.3)
    i = box(w, 0, 0.35 * h, c, 0.12, 0.35 * h, 0.03, 0.005, (2, 3, 5)[pick(w, 3)])
    n = 1 + pick(w, 3)
    i = box(w, 0, 1.35 * h, c, 0.5 * a / (n + 0.5), 0.2 * h, 0.02, 0.005, (4, 3)[pick(w, 2)])
    row(w, i, n, 1.7 * a / n, 0)
    mirror(w, i, 2)
    i = box(w, a, 1.1 * h, 0, 0.02, 0.25 * h, 0.2 * c, 0.005, (4, 3)[pick(w, 2)])
    mirror(w, i, 1)
    row(w, i, 2, c, 2)
    ridge = uniform(w, 0.2, 0.5)
    if chance(w, 0.75):
        i = part(w, ROOF, 0, 2 * h, 0, a + 0.1, ridge, c + 0.1, 0.0, 0.0, 1)
        if chance(w, 0.5):
            i = part(w, ROOF, 0, 2 * h, 0, c + 0.1, ridge, a + 0.1, 0.0, 0.0, 1)
            turn(w, i, 90, 0, 0)
    else:
        i = cone(w, 0, 2 * h + 0.5 * ridge, 0, 0.5 * ridge, 1.45 * max(a, c), 0.02, 0.0, 1)
    random_texture(w, i, 0.4)
    if chance(w, 0.6):
        box(
            w,
            0.5 * a * side(w),
            2 * h + 0.5 * ridge,
            -0.3 * c,
            0.07,
            0.4 * ridge + 0.12,
            0.07,
            0.01,
            (2, 3, 5)[pick(w, 3)],
        )
    if chance(w, 0.4):
        box(w, 0, -0.03, 0, a + 0.2, 0.04, c + 0.2, 0.01, (4, 5)[pick(w, 2)])


def vehicles(w):
    """Cars and trucks, some with a gun or a load."""
    a, long, h = uniform(w, 0.22, 0.36), uniform(w, 0.45, 0.75), uniform(w, 0.1, 0.2)
    r = uniform(w, 0.11, 0.2)
    body = box(w, 0, r + h, 0, a, h, long, uniform(w, 0.02, 0.09), 0)
    random_texture(w, body, 0.25)
    cz, cl, ch = uniform(w, -0.3, 0.3) * long, uniform(w, 0.3, 0.6) * long, uniform(w, 0.1, 0.22)
    box(w, 0, r + 2 * h + ch, cz, 0.85 * a, ch, cl, uniform(w, 0.02, 0.1), (0, 0, 1, 4)[pick(w, 4)])
    i = box(w, 0, r + 2 * h + 1.1 * ch, cz, 0.7 * a, 0.55 * ch, cl + 0.02, 0.01, 3)
    i = box(w, 0, r + 2 * h + 1.1 * ch, cz, 0.87 * a, 0.55 * ch, 0.4 * cl, 0.01, 3)
    row(w, i, 2, 0.95 * cl, 2)
    i = cone(w, a, r, 0.62 * long, 0.08, r, r, 0.03, 3)
    turn(w, i, 0, 0, 90)
    mirror(w, i, 3)
    i = cone(w, a + 0.06, r, 0.62 * long, 0.04, 0.55 * r, 0.5 * r, 0.01, (4, 2)[pick(w, 2)])
    turn(w, i, 0, 0, 90)
    mirror(w, i, 3)
    i = ball(w, 0.7 * a, r + h, long, 0.06, 0.0, (4, 2)[pick(w, 2)])
    mirror(w, i, 1)
    box(w, 0, r + 0.5 * h, long, 0.95 * a, 0.05, 0.06, 0.02, (3, 4)[pick(w, 2)])
    extra = pick(w, 4)
    if extra == 0:
        limb(w, 0, r + 2 * h + 1.8 * ch, cz, 0, r + 2 * h + 2.2 * ch, cz + 0.6, 0.06, 0.045, 0.0, 2)
    elif extra == 1:
        box(w, 0, r + 2.6 * h, -0.6 * long, 0.9 * a, 0.8 * h, 0.35 * long, 0.02, (1, 2)[pick(w, 2)])


def flyers(w):
    """Rockets and planes."""
    if chance(w, 0.5):
        r, h = uniform(w, 0.12, 0.25), uniform(w, 0.45, 0.8)
        body = cone(w, 0, 0, 0, h, r, r * uniform(w, 0.8, 1.0), 0.02, 0)
        random_texture(w, body, 0.4)
        cone(w, 0, h + 0.2, 0, 0.2, r, 0.02, 0.005, (1, 2)[pick(w, 2)])
        i = box(w, 0, -h, r + 0.1, 0.025, uniform(w, 0.15, 0.3), 0.16, 0.01, (1, 2)[pick(w, 2)])
        ring(w, i, 3 + pick(w, 3))
        cone(w, 0, -h - 0.08, 0, 0.08, 0.8 * r, 0.5 * r, 0.01, 3)
        i = ball(w, 0, 0.4 * h, r, 0.4 * r, 0.0, (3, 4)[pick(w, 2)])
    else:
        r, long, span = uniform(w, 0.1, 0.2), uniform(w, 0.45, 0.7), uniform(w, 0.5, 0.9)
        body = limb(w, 0, 0, -long, 0, 0, long, 0.5 * r, r, 0.0, 0)
        random_texture(w, body, 0.3)
        i = box(w, 0, uniform(w, -0.5, 0.8) * r, 0.15, span, 0.03, uniform(w, 0.1, 0.2), 0.02, (0, 1, 2)[pick(w, 3)])
        random_texture(w, i, 0.3)
        box(w, 0, 0.3 * r, -long, 0.4 * span, 0.02, 0.1, 0.01, (0, 1, 2)[pick(w, 3)])
        box(w, 0, 0.2, -long, 0.02, 0.2, 0.1, 0.01, (0, 1, 2)[pick(w, 3)])
        egg(w, 0, 0.8 * r, 0.5 * long, 0.6 * r, 0.5 * r, 0.2, 0.02, 3)
        if chance(w, 0.5):
            i = cone(w, 0.5 * span, -0.05, 0.2, 0.14, 0.06, 0.07, 0.01, 2)
            aim(w, i, 0, 0, 1)
            mirror(w, i, 1)
        else:
            ball(w, 0, 0, long + r, 0.05, 0.0, 2)
            i = box(w, 0, 0, long + r + 0.02, 0.3, 0.035, 0.015, 0.005, 3)
            turn(w, i, 0, 0, uniform(w, 0, 180))


def plants(w):
    """Trees, cacti, flowers, potted plants."""
    kind = pick(w, 3)
    for k in range(3):  # foliage is green for the most part
        if chance(w, 0.7):
            set_hsv(w.palette, k, uniform(w, 0.2, 0.42), uniform(w, 0.4, 0.9), uniform(w, 0.3, 0.8))
    if kind == 0:  # tree
        h = uniform(w, 0.3, 0.6)
        i = cone(w, 0, 0.5 * h, 0, 0.5 * h, 0.1, 0.07, 0.01, 5)
        if chance(w, 0.5):
            for n in range(3):
                cone(w, 0, h + 0.15 + 0.3 * n, 0, 0.22, 0.45 - 0.12 * n, 0.05, 0.02, pick(w, 2))
        else:
            for _ in range(2 + pick(w, 4)):
                i = ball(
                    w, normal(w, 0.2), h + uniform(w, 0.1, 0.6), normal(w, 0.2), uniform(w, 0.2, 0.4), 0.08, pick(w, 2)
                )
                random_texture(w, i, 0.3)
    elif kind == 1:  # cactus in a pot
        cone(w, 0, 0, 0, 0.18, 0.2, 0.28, 0.02, 5)
        h = uniform(w, 0.4, 0.9)
        i = limb(w, 0, 0.2, 0, 0, h, 0, 0.16, 0.15, 0.02, 0)
        random_texture(w, i, 0.4)
        if chance(w, 0.7):
            y = uniform(w, 0.4, 0.8) * h
            s = side(w)
            limb(w, 0, y, 0, s * 0.32, y, 0, 0.07, 0.08, 0.03, 0)
            limb(w, s * 0.32, y, 0, s * 0.34, y + 0.28, 0, 0.08, 0.07, 0.03, 0)
        if chance(w, 0.5):
            ball(w, 0, h + 0.18, 0, 0.07, 0.0, 2)
    else:  # flower
        h = uniform(w, 0.4, 0.8)
        set_hsv(w.palette, 2, uniform(w, 0.0, 1.0), uniform(w, 0.4, 1.0), uniform(w, 0.6, 1.0))
        limb(w, 0, 0, 0, 0, h, 0, 0.04, 0.035, 0.0, 0)
        i = egg(w, 0, h, 0.2, 0.1, 0.035, 0.16, 0.01, 2)
        turn(w, i, 0, uniform(w, -40, 10), 0)
        ring(w, i, 5 + pick(w, 5))
        ball(w, 0, h + 0.02, 0, 0.11, 0.01, 5)
        i = egg(w, 0, 0.3 * h, 0.2, 0.07, 0.02, 0.18, 0.0, 1)
        turn(w, i, 0, -25, 0)
        ring(w, i, 2 + pick(w, 2))
        if chance(w, 0.6):
            cone(w, 0, -0.1, 0, 0.16, 0.16, 0.22, 0.02, 5)


def food(w):
    """Ice creams, fruit, cakes, burgers, doughnuts."""
    kind = pick(w, 5)
    if kind == 0:  # ice cream
        i = cone(w, 0, -0.35, 0, 0.4, 0.03, 0.24, 0.01, 5)
        random_texture(w, i, 0.5)
        n = 1 + pick(w, 3)
        for k in range(n):
            i = ball(w, 0, 0.12 + 0.25 * k, 0, 0.27 - 0.03 * k, 0.02, k)
            random_texture(w, i, 0.3)
        if chance(w, 0.5):
            ball(w, 0, 0.2 + 0.25 * n, 0, 0.07, 0.0, 2)
    elif kind == 1:  # fruit
        r = uniform(w, 0.35, 0.5)
        i = egg(w, 0, 0, 0, r, r * uniform(w, 0.75, 1.3), r, 0.05, 0)
        random_texture(w, i, 0.4)
        i = ball(w, 0, r * 1.05, 0, 0.12, 0.1, 0)
        operation(w, i, SUBTRACT, 0.12)
        limb(w, 0, 0.75 * r, 0, 0.06, 1.25 * r, 0, 0.03, 0.025, 0.0, 3)
        if chance(w, 0.6):
            i = egg(w, 0.17, 1.15 * r, 0, 0.15, 0.02, 0.08, 0.0, 2)
            turn(w, i, uniform(w, 0, 360), 0, 20)
    elif kind == 2:  # cake
        r, h = uniform(w, 0.35, 0.55), uniform(w, 0.12, 0.25)
        i = cone(w, 0, 0, 0, h, r, r, 0.03, 0)
        random_texture(w, i, 0.3)
        i = cone(w, 0, 2 * h, 0, h, 0.7 * r, 0.7 * r, 0.03, 1)
        random_texture(w, i, 0.3)
        i = ball(w, 0, 3.1 * h, 0.5 * r, 0.06, 0.0, 2)
        ring(w, i, 4 + pick(w, 5))
        cone(w, 0, -h, 0, 0.03, 1.25 * r, 1.25 * r, 0.01, 4)
    elif kind == 3:  # burger
        r = uniform(w, 0.4, 0.5)
        cone(w, 0, -0.2, 0, 0.09, r, r, 0.07, 5)
        cone(w, 0, -0.06, 0, 0.06, r * 1.03, r * 1.03, 0.05, 3)
        cone(w, 0, 0.02, 0, 0.03, r * 1.1, r * 1.1, 0.02, pick(w, 3))
        i = dome(w, 0, 0.05, 0, r, uniform(w, 0.25, 0.4), r, 0.0, 5)
        texture(w, i, DOTS, uniform(w, 8.0, 12.0), 0.2, 4)
    else:  # doughnut
        i = torus(w, 0, 0, 0, 0.38, uniform(w, 0.13, 0.22), 5)
        i = torus(w, 0, 0.03, 0, 0.38, uniform(w, 0.15, 0.2), 0)
        random_texture(w, i, 0.6)
        if chance(w, 0.5):
            w.rows[i][OP] = PAINT


def gadgets(w):
    """Radios, cameras, clocks, controllers: boxes with knobs, screens and buttons."""
    a, b, c = uniform(w, 0.3, 0.6), uniform(w, 0.2, 0.5), uniform(w, 0.1, 0.3)
    i = box(w, 0, 0, 0, a, b, c, uniform(w, 0.01, 0.09), 0)
    random_texture(w, i, 0.25)
    kind = pick(w, 3)
    if kind == 0:
        box(w, -0.25 * a, 0.15 * b, c, 0.55 * a, 0.6 * b, 0.02, 0.01, 3)
        i = cone(w, 0.65 * a, 0, c, 0.04, 0.1, 0.09, 0.01, 2)
        aim(w, i, 0, 0, 1)
        row(w, i, 2, 0.8 * b, 1)
    elif kind == 1:
        for k in range(2):
            i = cone(w, 0, 0, c + 0.05 * k, 0.1, (0.75 - 0.25 * k) * b, (0.7 - 0.25 * k) * b, 0.02, 3 - k)
            aim(w, i, 0, 0, 1)
        box(w, 0.6 * a, b, 0, 0.1, 0.05, 0.1, 0.01, 2)
    else:
        i = ball(w, 0, -0.3 * b, c, 0.07, 0.0, 2)
        row(w, i, 3 + pick(w, 2), 0.4 * a, 0)
        box(w, 0, 0.4 * b, c, 0.75 * a, 0.35 * b, 0.02, 0.01, (3, 4)[pick(w, 2)])
    if chance(w, 0.4):
        limb(w, 0.8 * a, b, 0, 0.95 * a, b + uniform(w, 0.2, 0.6), 0, 0.025, 0.02, 0.0, 3)
    if chance(w, 0.4):
        i = box(w, 0.7 * a, -b - 0.04, 0, 0.08, 0.06, 0.6 * c, 0.01, 3)
        mirror(w, i, 1)


def singles(w):
    """One primitive."""
    kind = pick(w, 6)
    if kind == 0:
        i = ball(w, 0, 0, 0, 0.5, 0.0, 0)
    elif kind == 1:
        i = box(w, 0, 0, 0, uniform(w, 0.3, 0.5), uniform(w, 0.3, 0.5), uniform(w, 0.3, 0.5), uniform(w, 0.0, 0.1), 0)
    elif kind == 2:
        i = torus(w, 0, 0, 0, 0.4, uniform(w, 0.1, 0.2), 0)
    elif kind == 3:
        i = cone(w, 0, 0, 0, uniform(w, 0.2, 0.6), 0.4, uniform(w, 0.02, 0.4), 0.02, 0)
    elif kind == 4:
        i = egg(w, 0, 0, 0, uniform(w, 0.3, 0.5), uniform(w, 0.3, 0.5), uniform(w, 0.3, 0.5), 0.0, 0)
    else:
        i = dome(w, 0, 0, 0, 0.5, uniform(w, 0.3, 0.6), 0.5, 0.0, 0)
    random_texture(w, i, 0.6)
    if chance(w, 0.5):
        turn(w, i, uniform(w, 0, 360), uniform(w, -60, 60), uniform(w, -60, 60))
    if chance(w, 0.3):
        i = ball(w, 0.3, 0.2, 0.3, uniform(w, 0.1, 0.3), 0.0, 1)
        operation(w, i, PAINT, 0.0)


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


# Percent of each family, in the order of build_v1.
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
