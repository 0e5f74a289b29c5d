# ruff: noqa: F403, F405 (the slots of layout.py are a vocabulary: imported whole)
"""Version 1: furniture, houses, vehicles, flyers, gadgets. FROZEN, as families_v1.py says."""

from procedural.layout import *
from procedural.parts import (
    aim,
    ball,
    box,
    chance,
    cone,
    egg,
    limb,
    mirror,
    part,
    pick,
    random_texture,
    ring,
    row,
    side,
    turn,
    uniform,
)


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
