# ruff: noqa: F403, F405 (the slots of layout.py are a vocabulary: imported whole)
"""Version 2: teapots and jugs, things with handles, hollow shapes."""

from procedural.families_v2_looks import ceramic, detail
from procedural.layout import *
from procedural.parts import (
    aim,
    arc,
    ball,
    belt,
    blend,
    box,
    chance,
    choose,
    cone,
    dome,
    egg,
    limb,
    mirror,
    operation,
    pick,
    ribs,
    row,
    set_hsv,
    texture,
    torus,
    turn,
    uniform,
)


def teapots(w):
    """Teapots, jugs, watering cans: round bodies with thin handles and spouts."""
    if chance(w, 0.55):
        ceramic(w)
    kind = uniform(w, 0.0, 1.0)
    thin = uniform(w, 0.02, 0.045)
    if kind < 0.65:
        r, h = uniform(w, 0.36, 0.5), uniform(w, 0.24, 0.42)
        body = egg(w, 0, 0, 0, r, h, r, 0.06, 0)
        detail(w, body, 0.25)
        if chance(w, 0.6):  # shoulder
            i = cone(w, 0, 0.6 * h, 0, 0.3 * h, 0.75 * r, 0.5 * r, 0.04, 0)
            blend(w, i, 0.08)
        cone(w, 0, -0.95 * h, 0, 0.05, 0.6 * r, 0.55 * r, 0.015, 0)
        lid = 0.88 * h
        i = torus(w, 0, lid - 0.02, 0, 0.52 * r, 0.02, 0)
        i = dome(w, 0, lid - 0.03, 0, 0.5 * r, uniform(w, 0.2, 0.4) * h, 0.5 * r, 0.0, choose(w, 0, 0, 1))
        limb(
            w,
            0,
            lid + 0.1,
            0,
            0,
            lid + uniform(w, 0.15, 0.22),
            0,
            0.03,
            uniform(w, 0.05, 0.075),
            0.01,
            choose(w, 0, 0, 2),
        )
        out, up = uniform(w, 0.2, 0.35), uniform(w, 0.3, 0.9) * h
        limb(w, 0.75 * r, -0.3 * h, 0, r + 0.5 * out, 0.1 * h, 0, uniform(w, 0.09, 0.13), 0.07, 0.08, 0)
        limb(w, r + 0.5 * out, 0.1 * h, 0, r + out, up, 0, 0.07, 0.035, 0.05, 0)
        if chance(w, 0.6):
            limb(w, r + out, up, 0, r + out + 0.08, up + 0.03, 0, 0.035, 0.025, 0.02, 0)
        hr = uniform(w, 0.55, 0.85) * h + 0.04
        if chance(w, 0.8):
            i = arc(w, -0.9 * r, uniform(w, 0.0, 0.15), 0, hr, thin, uniform(w, 105, 130), choose(w, 0, 0, 0, 2, 3))
            aim(w, i, -1, uniform(w, 0.0, 0.3), 0)
        else:  # bail over the lid
            i = arc(w, 0, 0.5 * h, 0, 0.8 * r, thin, 85, choose(w, 3, 5))
    elif kind < 0.82:  # jug
        r, h = uniform(w, 0.22, 0.36), uniform(w, 0.35, 0.55)
        body = cone(w, 0, 0, 0, h, r, r * uniform(w, 0.55, 0.9), 0.05, 0)
        detail(w, body, 0.4)
        i = egg(w, 0, -0.4 * h, 0, 1.15 * r, 0.6 * h, 1.15 * r, 0.1, 0)
        i = cone(w, 0, 0.6 * h, 0, 0.6 * h, 0.4 * r, 0.55 * r, 0.01, choose(w, 0, 3, 4))
        operation(w, i, SUBTRACT, 0.02)
        i = limb(w, 0.6 * r, 0.8 * h, 0, 0.9 * r + 0.06, h + 0.02, 0, 0.07, 0.04, 0.04, 0)
        i = arc(w, -0.75 * r, 0.1, 0, 0.55 * h, thin, 110, choose(w, 0, 0, 2))
        aim(w, i, -1, 0, 0)
    else:  # watering can
        r, h = uniform(w, 0.25, 0.38), uniform(w, 0.22, 0.35)
        body = cone(w, 0, 0, 0, h, r, 0.85 * r, 0.02, 0)
        detail(w, body, 0.3)
        i = dome(w, 0, h - 0.01, -0.0, 0.8 * r, 0.1, 0.8 * r, 0.0, 0)
        i = cone(w, -0.3 * r, h + 0.05, 0, 0.12, 0.35 * r, 0.4 * r, 0.0, 3)
        operation(w, i, SUBTRACT, 0.0)
        x1, y1 = r + uniform(w, 0.3, 0.5), h + uniform(w, 0.0, 0.25)
        limb(w, 0.8 * r, -0.5 * h, 0, x1, y1, 0, 0.06, 0.035, 0.02, 0)
        i = cone(w, x1 + 0.03, y1 + 0.03, 0, 0.06, 0.04, 0.12, 0.01, choose(w, 0, 2))
        aim(w, i, 1, 0.6, 0)
        i = arc(w, -0.7 * r, 0.3 * h, 0, h, thin, 115, choose(w, 0, 2))
        aim(w, i, -1, 0.5, 0)
        i = arc(w, 0, h - 0.05, 0, 0.7 * r, thin, 80, choose(w, 0, 2))


def handled(w):
    """Mugs, baskets, buckets, pans, bags, irons: thin handles."""
    if chance(w, 0.3):
        ceramic(w)
    thin = uniform(w, 0.022, 0.05)
    r, h = uniform(w, 0.26, 0.42), uniform(w, 0.25, 0.45)
    kind = pick(w, 5)
    if kind <= 1:  # mug
        body = cone(w, 0, 0, 0, h, r * uniform(w, 0.75, 1.0), r, 0.03, 0)
        detail(w, body, 0.35)
        if chance(w, 0.45):  # print
            i = egg(w, 0, 0, r, uniform(w, 0.1, 0.2), uniform(w, 0.1, 0.2), 0.2, 0.0, 2)
            operation(w, i, PAINT, 0.0)
            if chance(w, 0.5):
                texture(w, i, LETTERS, uniform(w, 8.0, 14.0), 0.0, 4)
        i = cone(w, 0, 0.08, 0, h, 0.68 * r, 0.88 * r, 0.02, choose(w, 0, 3, 4, 5))
        operation(w, i, SUBTRACT, 0.01)
        i = arc(w, 0.92 * r, 0, 0, 0.62 * h, thin, 105, choose(w, 0, 0, 2))
        aim(w, i, 1, 0, 0)
        if chance(w, 0.3):
            cone(w, 0, -h - 0.03, 0, 0.03, 0.8 * r, 1.6 * r, 0.01, choose(w, 0, 1))
    elif kind == 2:  # basket or bucket
        body = cone(w, 0, 0, 0, 0.7 * h, 0.8 * r, 1.1 * r, 0.02, choose(w, 0, 5))
        if chance(w, 0.6):
            texture(w, body, CHECKER, uniform(w, 10.0, 16.0), 0.0, choose(w, 3, 1))
        i = cone(w, 0, 0.12, 0, 0.7 * h, 0.7 * r, 1.0 * r, 0.0, choose(w, 3, 1))
        operation(w, i, SUBTRACT, 0.0)
        torus(w, 0, 0.7 * h, 0, 1.08 * r, 0.025, choose(w, 0, 1))
        arc(w, 0, 0.6 * h, 0, 1.05 * r, thin, 92, choose(w, 0, 1, 3))
        if chance(w, 0.5):
            for _ in range(2 + pick(w, 4)):
                ball(
                    w,
                    uniform(w, -0.5, 0.5) * r,
                    0.5 * h,
                    uniform(w, -0.5, 0.5) * r,
                    uniform(w, 0.1, 0.16),
                    0.0,
                    pick(w, 5),
                )
    elif kind == 3:  # pan
        cone(w, 0, 0, 0, uniform(w, 0.06, 0.2), r, 1.1 * r, 0.02, choose(w, 0, 3))
        i = cone(w, 0, 0.05, 0, 0.2, 0.85 * r, 1.0 * r, 0.0, choose(w, 3, 4))
        operation(w, i, SUBTRACT, 0.0)
        limb(w, 0.95 * r, 0.04, 0, r + uniform(w, 0.35, 0.6), 0.12, 0, thin, thin * 1.3, 0.0, choose(w, 3, 5, 2))
        if chance(w, 0.3):
            egg(w, 0, 0.0, 0, 0.6 * r, 0.08, 0.55 * r, 0.0, 7)
            egg(w, 0.05, 0.06, 0, 0.22 * r, 0.08, 0.2 * r, 0.0, 5)
    else:  # bag, case
        i = box(w, 0, 0, 0, r * 1.1, h, 0.4 * r, uniform(w, 0.02, 0.1), 0)
        detail(w, i, 0.5)
        i = arc(w, 0, h - 0.05, 0, 0.5 * r, thin, 95, choose(w, 0, 1, 3))
        i = box(w, 0, 0.5 * h, 0.4 * r, 0.9 * r, 0.4 * h, 0.03, 0.02, choose(w, 0, 1))
        i = box(w, 0, 0.15 * h, 0.4 * r + 0.03, 0.08, 0.06, 0.02, 0.01, choose(w, 2, 4))


def hollow(w):
    """Bowls, open boxes, duck-shaped bowls, boots, cups, rings."""
    kind = pick(w, 7)
    r = uniform(w, 0.35, 0.5)
    inside = choose(w, 0, 1, 3, 4)
    if kind == 0:  # bowl
        if chance(w, 0.5):
            ceramic(w)
        body = egg(w, 0, 0, 0, r, uniform(w, 0.3, 0.45), r, 0.0, 0)
        detail(w, body, 0.4)
        i = box(w, 0, 0.5 + uniform(w, 0.0, 0.1), 0, 1, 0.5, 1, 0.0, 0)
        operation(w, i, SUBTRACT, 0.02)
        i = egg(w, 0, 0.06, 0, 0.88 * r, 0.3, 0.88 * r, 0.0, inside)
        operation(w, i, SUBTRACT, 0.02)
        if chance(w, 0.6):
            cone(w, 0, -0.34, 0, 0.08, 0.5 * r, 0.35 * r, 0.01, 0)
        if chance(w, 0.4):
            for _ in range(2 + pick(w, 5)):
                ball(
                    w,
                    uniform(w, -0.5, 0.5) * r,
                    -0.05,
                    uniform(w, -0.5, 0.5) * r,
                    uniform(w, 0.12, 0.18),
                    0.0,
                    pick(w, 6),
                )
    elif kind == 1:  # open box
        a, b, c = uniform(w, 0.3, 0.5), uniform(w, 0.15, 0.35), uniform(w, 0.25, 0.4)
        i = box(w, 0, 0, 0, a, b, c, 0.01, 0)
        detail(w, i, 0.5)
        t = uniform(w, 0.03, 0.08)
        i = box(w, 0, 2 * t, 0, a - t, b, c - t, 0.0, inside)
        operation(w, i, SUBTRACT, 0.0)
        if chance(w, 0.5):  # flaps
            i = box(w, a + 0.1, b + 0.03, 0, 0.13, 0.015, c, 0.005, 0)
            turn(w, i, 0, 0, uniform(w, -40, 20))
            mirror(w, i, 1)
        else:
            i = box(w, 0, 0, c, 0.5 * a, 0.5 * b, 0.02, 0.0, 2)
            operation(w, i, PAINT, 0.0)
            texture(w, i, LETTERS, 9.0, 0.0, 4)
    elif kind == 2:  # duck, whale, pig as a bowl
        if chance(w, 0.6):
            set_hsv(w.palette, 0, uniform(w, 0.12, 0.17), uniform(w, 0.7, 1.0), uniform(w, 0.8, 1.0))
        limb(w, 0, 0, -0.25, 0, 0, 0.15, 0.32, 0.36, 0.1, 0)
        i = limb(w, 0, 0.12, -0.4, 0, 0.42, -0.66, 0.2, 0.07, 0.12, 0)
        hz, hr = 0.4, uniform(w, 0.19, 0.26)
        i = egg(w, 0, 0.32, -0.16, 0.22, 0.3, 0.3, 0.0, inside if chance(w, 0.5) else 3)
        operation(w, i, SUBTRACT, 0.04)
        limb(w, 0, 0.1, 0.25, 0, 0.42, hz, 0.2, 0.15, 0.1, 0)
        ball(w, 0, 0.5, hz, hr, 0.06, 0)
        i = egg(w, 0, 0.45, hz + hr + 0.06, 0.11, 0.05, 0.13, 0.03, choose(w, 0, 5, 2))
        i = ball(w, 0.65 * hr, 0.56, hz + 0.65 * hr, 0.04, 0.0, 6)
        mirror(w, i, 1)
        i = egg(w, 0.31, 0.02, -0.12, 0.08, 0.15, 0.25, 0.04, 0)
        turn(w, i, 0, 15, 0)
        mirror(w, i, 1)
    elif kind == 3:  # boot
        i = limb(w, 0, 0.1, 0, 0, 0.7, -0.02, 0.19, 0.21, 0.08, 0)
        i = cone(w, 0, 0.72, -0.02, 0.04, 0.24, 0.24, 0.02, choose(w, 0, 1, 2))
        limb(w, 0, 0.08, 0.0, 0, 0.06, 0.36, 0.18, 0.15, 0.1, 0)
        detail(w, 0, 0.3)
        i = belt(w, 0, -0.1, 0.15, 0.17, 0.05, 0.4, 0.02, 3)
        i = box(w, 0, -0.62, 0, 1, 0.5, 1, 0.0, 3)
        operation(w, i, SUBTRACT, 0.0)
        i = cone(w, 0, 0.72, -0.02, 0.3, 0.15, 0.17, 0.02, 3)
        operation(w, i, SUBTRACT, 0.01)
        if chance(w, 0.5):
            i = box(w, 0, 0.3, 0.19, 0.1, 0.015, 0.03, 0.01, choose(w, 4, 2))
            row(w, i, 4, 0.09, 1)
    elif kind == 4:  # rings
        i = torus(w, 0, 0, 0, r, uniform(w, 0.05, 0.16), 0)
        detail(w, i, 0.5)
        tilt = uniform(w, 0, 90)
        turn(w, i, 0, tilt, 0)
        if chance(w, 0.4):
            i = torus(w, 0, 0, 0, r * uniform(w, 0.5, 0.7), 0.06, 2)
            turn(w, i, 0, tilt, 0)
        elif chance(w, 0.5):
            i = ball(w, 0, 0, r, 0.14, 0.0, 2)
    elif kind == 5:  # cup, beaker, flower pot
        h = uniform(w, 0.3, 0.5)
        body = cone(w, 0, 0, 0, h, r * uniform(w, 0.55, 0.9), 0.85 * r, 0.02, 0)
        detail(w, body, 0.5)
        if chance(w, 0.4):
            ribs(w, body, choose(w, 16, 20, 24), 0.015)
        i = cone(w, 0, h - 0.03, 0, 0.07, 0.95 * r, 0.95 * r, 0.02, choose(w, 0, 1, 2))
        i = cone(w, 0, 0.15, 0, h, 0.6 * r, 0.75 * r, 0.0, inside)
        operation(w, i, SUBTRACT, 0.01)
        if chance(w, 0.4):
            set_hsv(w.palette, 1, uniform(w, 0.2, 0.4), uniform(w, 0.5, 0.9), uniform(w, 0.3, 0.75))
            for _ in range(3 + pick(w, 4)):
                x, z = uniform(w, -0.3, 0.3), uniform(w, -0.3, 0.3)
                i = limb(w, 0.3 * x, 0.7 * h, 0.3 * z, x, h + uniform(w, 0.2, 0.5), z, 0.05, 0.03, 0.02, 1)
    else:  # glass or goblet
        ceramic(w)
        body = egg(w, 0, 0.35, 0, 0.26, 0.34, 0.26, 0.02, 0)
        i = box(w, 0, 0.95, 0, 1, 0.4, 1, 0.0, 0)
        operation(w, i, SUBTRACT, 0.01)
        i = egg(w, 0, 0.4, 0, 0.22, 0.3, 0.22, 0.0, choose(w, 0, 2, 3))
        operation(w, i, SUBTRACT, 0.01)
        cone(w, 0, -0.15, 0, 0.2, 0.035, 0.03, 0.0, 0)
        blend(w, len(w.rows) - 1, 0.05)
        cone(w, 0, -0.35, 0, 0.025, 0.22, 0.2, 0.01, 0)
