# ruff: noqa: F403, F405 (the slots of layout.py are a vocabulary: imported whole)
"""Version 1: vessels, mushrooms, plants, food, single primitives. FROZEN, as families_v1.py says."""

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
    limb,
    mirror,
    normal,
    operation,
    pick,
    random_texture,
    ring,
    same_texture,
    set_hsv,
    side,
    texture,
    torus,
    turn,
    uniform,
)


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
