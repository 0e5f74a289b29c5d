# ruff: noqa: F403, F405 (the slots of layout.py are a vocabulary: imported whole)
"""Version 2: boxes and electronics, thin furniture, carved mushrooms, things with print."""

from procedural.families_v2_looks import detail
from procedural.layout import *
from procedural.parts import (
    aim,
    arc,
    ball,
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
    ring,
    row,
    set_hsv,
    shine,
    texture,
    torus,
    turn,
    uniform,
)


def boxes(w):
    """Electronics, crates, presents, robots' heads, books: sharp edges, screens, keys, letters."""
    a, b, c = uniform(w, 0.2, 0.55), uniform(w, 0.15, 0.55), uniform(w, 0.06, 0.45)
    edge = choose(w, 0.0, 0.01, 0.02, 0.05, 0.1)
    body = box(w, 0, 0, 0, a, b, c, edge, 0)
    detail(w, body, 0.45)
    kind = pick(w, 7)
    if kind == 0:  # screen and keys
        i = box(w, 0, 0.4 * b, c, 0.82 * a, 0.42 * b, 0.015, 0.005, choose(w, 3, 4, 6))
        shine(w, i, 2.5)
        if chance(w, 0.5):
            texture(w, i, LETTERS, uniform(w, 8.0, 16.0), 0.0, choose(w, 2, 4))
        for k in range(2 + pick(w, 2)):
            i = box(w, 0, -0.25 * b - 0.25 * b * k, c, 0.1 * a, 0.08 * b, 0.03, 0.01, choose(w, 2, 4, 3))
            row(w, i, 3 + pick(w, 3), 0.36 * a, 0)
        if chance(w, 0.5):
            limb(w, 0.75 * a, b, 0, 0.8 * a, b + uniform(w, 0.2, 0.5), 0, 0.03, 0.02, 0.0, 3)
    elif kind == 1:  # radio, amplifier
        i = cone(w, 0.45 * a, -0.1 * b, c, 0.03, 0.45 * min(a, b), 0.45 * min(a, b), 0.01, 3)
        aim(w, i, 0, 0, 1)
        mirror(w, i, choose(w, 0, 1))
        texture(w, i, RAYS, 16.0, 0.0, 4)
        i = cone(w, 0.45 * a, -0.1 * b, c + 0.02, 0.03, 0.18 * min(a, b), 0.12 * min(a, b), 0.01, choose(w, 2, 4))
        aim(w, i, 0, 0, 1)
        mirror(w, i, choose(w, 0, 1))
        i = cone(w, 0, 0.65 * b, c, 0.04, 0.1 * a, 0.09 * a, 0.01, choose(w, 4, 2))
        aim(w, i, 0, 0, 1)
        row(w, i, 3 + pick(w, 3), 0.35 * a, 0)
        i = arc(w, 0, b - 0.05, 0, 0.7 * a, 0.03, 75, choose(w, 3, 1))
    elif kind == 2:  # present
        i = box(w, 0, 0, 0, 0.16 * a, 2.0, 2.0, 0.0, 2)
        operation(w, i, PAINT, 0.0)
        i = box(w, 0, 0, 0, 2.0, 2.0, 0.16 * max(c, 0.1), 0.0, 2)
        operation(w, i, PAINT, 0.0)
        i = egg(w, 0.15, b + 0.07, 0, 0.15, 0.09, 0.06, 0.0, 2)
        turn(w, i, 0, 0, 25)
        mirror(w, i, 1)
        ball(w, 0, b + 0.05, 0, 0.06, 0.0, 2)
    elif kind == 3:  # crate of planks
        w.rows[body][TEXTURE] = 0.0
        texture(w, body, WOOD, uniform(w, 20.0, 40.0), 0.5, 3)
        i = box(w, a, 0, c, 0.05, b + 0.01, 0.05, 0.01, choose(w, 0, 1, 5))
        mirror(w, i, 3)
        i = box(w, 0, 0, c, a, 0.05, 0.05, 0.01, choose(w, 0, 1, 5))
        mirror(w, i, 2)
        row(w, i, 2, 1.9 * b, 1)
    elif kind == 4:  # camera
        for k in range(3):
            i = cone(w, 0, 0, c + 0.07 * k, 0.07, (0.62 - 0.12 * k) * b, (0.6 - 0.12 * k) * b, 0.01, choose(w, 3, 6))
            aim(w, i, 0, 0, 1)
        shine(w, i, 4.0)
        box(w, 0, b, 0, 0.3 * a, 0.12 * b, 0.7 * c, 0.02, choose(w, 0, 3))
        cone(w, 0.7 * a, b, 0, 0.05, 0.08, 0.07, 0.01, 2)
        i = box(w, 0.7 * a, 0.6 * b, c, 0.1, 0.05, 0.02, 0.01, 4)
        i = box(w, 0, -0.5 * b, 0, 2.0, 0.5 * b, 2.0, 0.0, choose(w, 3, 1))
        operation(w, i, PAINT, 0.0)
    elif kind == 5:  # book or sign with print
        i = box(w, 0, 0, 0.01, 0.96 * a, 0.94 * b, 0.9 * c, 0.0, 4)
        i = box(w, 0.04, 0, 0, a, 0.94 * b, 0.8 * c, 0.0, 4)
        texture(w, i, STRIPES, 90.0, 0.0, 5)
        i = box(w, 0, 0.3 * b, c, 0.7 * a, 0.3 * b, 0.02, 0.0, choose(w, 2, 1))
        operation(w, i, PAINT, 0.0)
        texture(w, i, LETTERS, uniform(w, 5.0, 10.0), 0.0, choose(w, 4, 7))
        i = egg(w, 0, -0.4 * b, c, 0.35 * a, 0.35 * b, 0.1, 0.0, choose(w, 2, 4))
        operation(w, i, PAINT, 0.0)
    else:  # television
        i = box(w, 0, 0.05 * b, c, 0.8 * a, 0.75 * b, 0.03, 0.01, 6)
        shine(w, i, 4.0)
        i = limb(w, 0, b, 0, 0.5 * a, b + 0.4, 0, 0.02, 0.02, 0.0, 3)
        mirror(w, i, 1)
        i = limb(w, 0.5 * a, -b, 0.5 * c, 0.75 * a, -b - 0.25, 0.7 * c, 0.04, 0.03, 0.0, choose(w, 3, 5))
        mirror(w, i, 3)


def thin_things(w):
    """Chairs with thin legs, lamps, spectacles, stools, ladders, trees of hooks."""
    kind = pick(w, 6)
    t = uniform(w, 0.018, 0.04)
    wood = choose(w, 0, 1, 5, 3)
    if kind <= 1:  # chair
        s, h = uniform(w, 0.22, 0.34), uniform(w, 0.35, 0.55)
        i = box(w, 0, h, 0, s, 0.03, s, 0.02, 0) if chance(w, 0.6) else cone(w, 0, h, 0, 0.035, s, s, 0.02, 0)
        detail(w, i, 0.4)
        splay = uniform(w, 0.0, 0.12)
        i = limb(w, 0.82 * s, h, 0.82 * s, 0.85 * s + splay, 0, 0.85 * s + splay, t, t, 0.0, wood)
        mirror(w, i, 3)
        back = uniform(w, 0.3, 0.55)
        i = limb(w, 0.82 * s, h, -0.85 * s, 0.85 * s, h + back, -s - 0.05, t, t, 0.0, wood)
        mirror(w, i, 1)
        if chance(w, 0.5):
            i = box(w, 0, h + 0.65 * back, -s - 0.02, 0.85 * s, 0.3 * back, 0.025, 0.015, choose(w, 0, wood))
            detail(w, i, 0.3)
        else:
            i = box(w, 0, h + 0.5 * back, -s - 0.03, 0.02, 0.5 * back, 0.015, 0.005, wood)
            row(w, i, 3 + pick(w, 3), 0.35 * s, 0)
            box(w, 0, h + back, -s - 0.05, 0.9 * s, 0.04, 0.03, 0.02, wood)
        if chance(w, 0.4):
            i = limb(w, 0.85 * s, 0.4 * h, 0.85 * s, 0.85 * s, 0.4 * h, -0.85 * s, 0.8 * t, 0.8 * t, 0.0, wood)
            mirror(w, i, 1)
    elif kind == 2:  # lamp
        h, r = uniform(w, 0.45, 0.8), uniform(w, 0.2, 0.35)
        cone(w, 0, 0, 0, 0.03, 0.24, 0.2, 0.01, choose(w, 1, 3, 2))
        limb(w, 0, 0, 0, 0, h, 0, t, t, 0.0, choose(w, 3, 4, 1))
        if chance(w, 0.5):
            i = cone(w, 0, h + 0.1, 0, 0.2, r, 0.55 * r, 0.01, 0)
            detail(w, i, 0.4)
            i = cone(w, 0, h + 0.05, 0, 0.2, 0.95 * r, 0.5 * r, 0.0, 4)
            operation(w, i, SUBTRACT, 0.0)
            limb(w, 0, h - 0.1, 0, 0, h + 0.1, 0, t, 0.06, 0.0, 4)
        else:  # desk lamp
            limb(w, 0, h, 0, 0, h + 0.25, 0.35, t, t, 0.0, 3)
            i = cone(w, 0, h + 0.18, 0.42, 0.13, 0.2, 0.07, 0.01, 0)
            turn(w, i, 0, -30, 0)
            ball(w, 0, h, 0, 1.8 * t, 0.0, 2)
    elif kind == 3:  # spectacles
        r = uniform(w, 0.18, 0.26)
        i = torus(w, r + 0.06, 0, 0, r, t, 0)
        turn(w, i, 0, 90, 0)
        mirror(w, i, 1)
        if chance(w, 0.5):
            i = cone(w, r + 0.06, 0, 0, 0.012, r, r, 0.0, choose(w, 3, 4))
            turn(w, i, 0, 90, 0)
            mirror(w, i, 1)
            shine(w, i, 3.0)
        arc(w, 0, -0.02, 0, 0.08, t, 70, 0)
        i = limb(w, 2 * r + 0.06, 0.05, 0, 2 * r + 0.08, 0.05, -0.6, t, t, 0.0, 0)
        mirror(w, i, 1)
        i = limb(w, 2 * r + 0.08, 0.05, -0.6, 2 * r + 0.06, -0.08, -0.72, t, t, 0.0, 0)
        mirror(w, i, 1)
    elif kind == 4:  # stool or table
        r, h = uniform(w, 0.25, 0.5), uniform(w, 0.4, 0.7)
        i = cone(w, 0, h, 0, 0.04, r, r, 0.02, 0)
        detail(w, i, 0.5)
        i = limb(w, 0, h, 0.6 * r, 0, 0, 0.85 * r, 1.2 * t, t, 0.0, wood)
        ring(w, i, 3 + pick(w, 2))
        if chance(w, 0.5):
            torus(w, 0, 0.4 * h, 0, 0.74 * r, 0.7 * t, wood)
        if chance(w, 0.4):
            ball(w, 0, h + 0.18, 0, 0.15, 0.0, 2)
    else:  # swing frame, ladder
        h = uniform(w, 0.6, 0.9)
        i = limb(w, 0.2, h, 0.0, 0.28, 0, 0.25, t, t, 0.0, wood)
        mirror(w, i, 3)
        i = box(w, 0, 0.5 * h, 0.14, 0.24, 0.02, 0.03, 0.01, choose(w, 0, wood))
        row(w, i, 4, 0.2 * h, 1)
        turn(w, i, 0, 0, 0)
        box(w, 0, h, 0, 0.24, 0.03, 0.1, 0.01, choose(w, 0, 2))


def carved(w):
    """Mushrooms with ribbed caps, carved or painted, on a base; toadstool houses; ribbed pumpkins and shells."""
    woody = chance(w, 0.5)
    if woody:
        h = uniform(w, 0.04, 0.1)
        set_hsv(w.palette, 0, h, uniform(w, 0.4, 0.75), uniform(w, 0.6, 0.95))
        set_hsv(w.palette, 1, h - 0.01, uniform(w, 0.6, 0.9), uniform(w, 0.3, 0.6))
        w.palette[4] = w.palette[0]
    if chance(w, 0.15):  # pumpkin
        i = egg(w, 0, 0, 0, 0.5, uniform(w, 0.35, 0.5), 0.5, 0.0, choose(w, 0, 5))
        ribs(w, i, choose(w, 8, 10, 12), 0.035)
        limb(w, 0, 0.3, 0, 0.05, 0.55, 0, 0.07, 0.05, 0.03, 3)
        if chance(w, 0.5):
            i = egg(w, 0.17, 0.1, 0.45, 0.08, 0.09, 0.3, 0.0, 3)
            mirror(w, i, 1)
            operation(w, i, PAINT, 0.0)
            i = egg(w, 0, -0.13, 0.45, 0.22, 0.06, 0.3, 0.0, 3)
            operation(w, i, PAINT, 0.0)
        return
    r, h = uniform(w, 0.4, 0.62), uniform(w, 0.28, 0.5)
    stem, tall = uniform(w, 0.12, 0.22), uniform(w, 0.35, 0.65)
    waist = limb(w, 0, 0.02, 0, 0, 0.4 * tall, 0, stem * uniform(w, 1.1, 1.7), stem * 1.1, 0.06, 4)
    upper = limb(w, 0, 0.35 * tall, 0, 0, tall + 0.05, 0, stem * 1.1, stem * 0.8, 0.06, 4)
    for i in (waist, upper):
        if woody or chance(w, 0.3):
            texture(w, i, choose(w, WOOD, RAYS, FUR), choose(w, 12.0, 16.0, 20.0), 0.3, choose(w, 1, 3))
    cap = dome(w, 0, tall, 0, r, h, r, uniform(w, 0.05, 0.15) if chance(w, 0.5) else 0.0, 0)
    style = pick(w, 4)
    n = choose(w, 16, 20, 24, 28, 32)
    if style <= 1:
        ribs(w, cap, n, uniform(w, 0.01, 0.02))
        texture(w, cap, RAYS, n, uniform(w, -0.2, 0.6), choose(w, 1, 3))
    elif style == 2:
        texture(w, cap, SPOTS, uniform(w, 3.0, 6.0), uniform(w, 0.3, 0.45), 4)
    else:
        detail(w, cap, 0.8)
    # The underside with its gills.
    i = egg(w, 0, tall, 0, 0.93 * r, uniform(w, 0.03, 0.08), 0.93 * r, 0.0, choose(w, 1, 4, 2))
    texture(w, i, RAYS, choose(w, 24.0, 32.0, 40.0), 0.0, choose(w, 3, 1))
    torus(w, 0, tall + 0.01, 0, 0.97 * r, uniform(w, 0.02, 0.045), 0)
    if chance(w, 0.65):
        i = cone(
            w,
            0,
            -0.04,
            0,
            uniform(w, 0.04, 0.08),
            uniform(w, 0.3, 0.5),
            uniform(w, 0.28, 0.48),
            0.01,
            choose(w, 0, 1, 5),
        )
        if woody:
            texture(w, i, WOOD, uniform(w, 20.0, 40.0), 0.4, 1)
        if chance(w, 0.4):
            torus(w, 0, 0.04, 0, 0.36, 0.03, choose(w, 0, 1))
    elif chance(w, 0.4):  # a house: door and window
        i = egg(w, 0, 0.12, stem * 1.3, 0.08, 0.15, 0.15, 0.0, choose(w, 2, 3))
        operation(w, i, PAINT, 0.0)
        i = ball(w, 0.0, 0.65 * tall, stem, 0.06, 0.0, 3)
        operation(w, i, PAINT, 0.0)


def tokens(w):
    """Things with print: badges, dice, balls with emblems, signs on posts, bottles with labels."""
    kind = pick(w, 5)
    if kind == 0:  # ball with emblems
        i = ball(w, 0, 0, 0, 0.5, 0.0, 0)
        detail(w, i, 0.7)
        i = ball(w, 0, 0, 0.5, uniform(w, 0.15, 0.3), 0.0, choose(w, 2, 4))
        operation(w, i, PAINT, 0.0)
        mirror(w, i, 2)
        if chance(w, 0.5):
            texture(w, i, LETTERS, uniform(w, 4.0, 8.0), 0.0, 3)
    elif kind == 1:  # die
        s = uniform(w, 0.32, 0.42)
        box(w, 0, 0, 0, s, s, s, 0.08, 0)
        pip = choose(w, 3, 4, 2)
        i = ball(w, 0, 0, s, 0.08, 0.0, pip)
        operation(w, i, PAINT, 0.0)
        mirror(w, i, 2)
        i = ball(w, s, 0.18, 0.18, 0.08, 0.0, pip)
        operation(w, i, PAINT, 0.0)
        mirror(w, i, 3)
        i = ball(w, 0.18, s, 0.18, 0.08, 0.0, pip)
        operation(w, i, PAINT, 0.0)
        mirror(w, i, 3)
    elif kind == 2:  # sign
        a, b = uniform(w, 0.3, 0.5), uniform(w, 0.2, 0.4)
        i = box(w, 0, 0.5, 0.05, a, b, 0.03, 0.02, 0) if chance(w, 0.6) else cone(w, 0, 0.5, 0.05, 0.03, b, b, 0.01, 0)
        if w.rows[i][TYPE] == CAPPED_CONE:
            turn(w, i, 0, 90, 0)
        limb(w, 0, -0.5, 0, 0, 0.5, 0, 0.04, 0.04, 0.0, choose(w, 3, 5, 4))
        i = box(w, 0, 0.5, 0.1, 0.8 * a, 0.6 * b, 0.1, 0.0, choose(w, 4, 2))
        operation(w, i, PAINT, 0.0)
        texture(w, i, LETTERS, uniform(w, 5.0, 12.0), 0.0, choose(w, 3, 2))
    elif kind == 3:  # bottle, can, jar
        r, h = uniform(w, 0.16, 0.3), uniform(w, 0.3, 0.5)
        cone(w, 0, 0, 0, h, r, r, 0.03, 0)
        neck = uniform(w, 0.3, 0.9) * r
        i = cone(w, 0, h + 0.1, 0, 0.15, neck, neck, 0.01, 0)
        blend(w, i, 0.08)
        cone(w, 0, h + 0.25, 0, 0.05, neck * 1.15, neck * 1.15, 0.01, choose(w, 2, 3, 4))
        i = cone(w, 0, 0, 0, 0.55 * h, r + 0.01, r + 0.01, 0.0, choose(w, 4, 1, 2))
        if chance(w, 0.7):
            texture(w, i, LETTERS, uniform(w, 5.0, 10.0), 0.0, choose(w, 2, 3))
        else:
            detail(w, i, 1.0)
    else:  # spinning top, egg, ornament
        i = egg(w, 0, 0, 0, 0.4, uniform(w, 0.35, 0.55), 0.4, 0.0, 0)
        detail(w, i, 0.8)
        i = cone(w, 0, 0, 0, 0.08, 0.6, 0.6, 0.0, choose(w, 1, 2))
        operation(w, i, PAINT, 0.0)
        detail(w, i, 0.6)
        limb(w, 0, 0.4, 0, 0, 0.65, 0, 0.05, 0.04, 0.0, choose(w, 2, 4))
