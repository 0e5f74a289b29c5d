# ruff: noqa: F403, F405 (the slots of layout.py are a vocabulary: imported whole)
"""Version 2, figures: dressed people and animals, block toys, pets on bases, round creatures."""

import math

from procedural.families_v2_faces import animal_face, ears, hair, hat, human_face, painted
from procedural.families_v2_looks import detail, fur
from procedural.layout import *
from procedural.parts import (
    aim,
    ball,
    belt,
    blend,
    box,
    chance,
    choose,
    cone,
    egg,
    limb,
    mirror,
    normal,
    operation,
    part,
    pick,
    same_texture,
    set_hsv,
    shine,
    side,
    texture,
    torus,
    turn,
    uniform,
)


def body_with_clothes(w, skin, y, fat, tall, deep, leg):
    """Torso with trousers, shirt, vest or dress, and accessories; returns the sleeve's colour."""
    shirt, trousers = choose(w, 1, 2, 4, 0), choose(w, 1, 2, 3, 0)
    style = choose(w, 0, 1, 2, 3, 4)
    torso = egg(w, 0, y, 0, fat, tall, deep, 0.05, skin)
    if style == 4:  # bare, with belly
        fur(w, torso)
        painted(w, egg(w, 0, y - 0.1 * tall, 0.8 * deep, 0.65 * fat, 0.7 * tall, 0.6 * deep, 0.0, choose(w, 1, 4)), 0)
        return skin
    w.rows[torso][COLOUR : COLOUR + 3] = w.palette[shirt]
    w.rows[torso][COLOUR2 : COLOUR2 + 3] = w.palette[shirt]
    detail(w, torso, 0.35)
    waist = y - uniform(w, 0.1, 0.45) * tall
    if style == 0:  # trousers and belt with a buckle
        painted(w, box(w, 0, waist - 1.0, 0, 2.0, 1.0, 2.0, 0.0, trousers), 0)
        k = math.sqrt(max(1.0 - ((waist - y) / tall) ** 2, 0.2))
        i = part(
            w,
            CAPPED_CONE,
            0,
            waist,
            0,
            0.08 * tall + 0.02,
            k * fat + 0.015,
            k * fat + 0.015,
            0.01,
            0.0,
            choose(w, 3, 4),
        )
        operation(w, i, PAINT, 0.0)
        i = box(w, 0, waist, k * deep, 0.07, 0.055, 0.03, 0.01, choose(w, 5, 4, 7))
        shine(w, i, 2.5)
    elif style == 1:  # overalls with straps and buttons
        painted(w, box(w, 0, waist - 1.0, 0, 2.0, 1.0, 2.0, 0.0, trousers), 0)
        painted(w, box(w, 0, waist, 0.8 * deep, 0.5 * fat, 0.4 * tall, 0.6 * deep, 0.02, trousers), 0)
        painted(w, box(w, 0.42 * fat, y + 0.3 * tall, 0, 0.1 * fat, 0.8 * tall, 2.0, 0.0, trousers), 1)
        i = ball(w, 0.42 * fat, waist + 0.33 * tall, 0.85 * deep, 0.05, 0.0, choose(w, 5, 2, 4))
        mirror(w, i, 1)
    elif style == 2:  # open vest over a shirt, bandana
        vest = egg(w, 0, y + 0.12 * tall, -0.03, 1.06 * fat, 0.85 * tall, 1.04 * deep, 0.0, choose(w, 3, 3, 2))
        detail(w, vest, 0.2)
        i = painted(w, box(w, 0, y, 1.2 * deep, uniform(w, 0.2, 0.4) * fat, 2 * tall, deep, 0.0, choose(w, 4, 1, 5)), 0)
        detail(w, i, 0.5)
        painted(w, box(w, 0, waist - 0.3 * tall - 1.0, 0, 2.0, 1.0, 2.0, 0.0, choose(w, skin, trousers)), 0)
        i = cone(w, 0, y + 0.82 * tall, 0.02, 0.08, 0.75 * fat, 0.55 * fat, 0.03, 2)
        texture(w, i, PLAID, 30.0, 0.3, 4)
        i = part(w, ROOF, 0, y + 0.78 * tall, 0.85 * deep, 0.42 * fat, 0.6 * tall, 0.03, 0.0, 0.0, 2)
        turn(w, i, 0, -8, 180)
        texture(w, i, PLAID, 30.0, 0.3, 4)
        i = box(w, 0, waist - 0.25 * tall, 0.93 * deep, 0.08, 0.06, 0.04, 0.01, choose(w, 4, 5))
    else:  # dress or coat
        i = cone(w, 0, y - 0.55 * tall, 0, 0.5 * tall, uniform(w, 1.1, 1.6) * fat, 0.6 * fat, 0.03, shirt)
        same_texture(w, i, torso)
        if chance(w, 0.6):
            cone(w, 0, y - 1.0 * tall, 0, 0.06 * tall, 1.55 * fat, 1.5 * fat, 0.01, choose(w, 2, 4, 5))
        i = cone(w, 0, y + 0.8 * tall, 0, 0.07, 0.6 * fat, 0.4 * fat, 0.02, choose(w, 4, 2))
        if chance(w, 0.5):
            i = box(w, 0.07, y + 0.1 * tall, 0.98 * deep, 0.03, 0.03, 0.03, 0.01, choose(w, 5, 2))
            w.rows[i][REPEAT], w.rows[i][STEP], w.rows[i][AXIS] = -3, 0.35 * tall, 1
    return choose(w, shirt, shirt, skin)


def people(w):
    """Dressed figures: people and animals that stand upright, in clothes and hats."""
    animal = chance(w, 0.55)
    skin = choose(w, 0, 0, 5) if animal else 5
    if not animal:
        set_hsv(w.palette, 5, uniform(w, 0.03, 0.09), uniform(w, 0.2, 0.65), uniform(w, 0.45, 1.0))
    fat, tall = uniform(w, 0.19, 0.34), uniform(w, 0.24, 0.42)
    deep = fat * uniform(w, 0.72, 1.0)
    leg, hr = uniform(w, 0.16, 0.5), uniform(w, 0.2, 0.4)
    thick = uniform(w, 0.06, 0.13)
    y = leg + 0.75 * tall
    sleeve = body_with_clothes(w, skin, y, fat, tall, deep, leg)
    stance, spread = uniform(w, 0.35, 0.6) * fat, uniform(w, 0.0, 0.12)
    trousers = choose(w, 1, 2, 3, skin)
    i = limb(w, stance, leg + 0.1, 0, stance + spread, thick, 0.0, thick * 1.2, thick, 0.04, trousers)
    mirror(w, i, 1)
    i = egg(
        w,
        stance + spread,
        0.55 * thick,
        0.5 * thick,
        1.1 * thick,
        0.7 * thick,
        1.8 * thick,
        0.01,
        choose(w, skin, 3, 3, 2),
    )
    turn(w, i, uniform(w, 0, 25), 0, 0)
    mirror(w, i, 1)
    shoulder, both = y + 0.55 * tall, chance(w, 0.6)
    for arm in range(1 if both else 2):
        s = 1.0 if arm == 0 else -1.0
        lift, bend = uniform(w, -1.4, 0.9), uniform(w, -0.3, 0.9)
        upper, lower = uniform(w, 0.14, 0.24), uniform(w, 0.14, 0.24)
        x0 = 0.8 * fat * s
        x1, y1, z1 = x0 + s * upper * math.cos(lift), shoulder + upper * math.sin(lift), uniform(w, -0.04, 0.06)
        x2 = x1 + s * lower * math.cos(lift + bend) * 0.8
        y2, z2 = y1 + lower * math.sin(lift + bend), z1 + uniform(w, 0.0, 0.15)
        parts = (
            limb(w, x0, shoulder, 0, x1, y1, z1, 1.05 * thick, 0.95 * thick, 0.03, sleeve),
            limb(w, x1, y1, z1, x2, y2, z2, 0.9 * thick, 0.8 * thick, 0.02, choose(w, skin, sleeve)),
            ball(w, x2, y2, z2, thick * uniform(w, 0.95, 1.25), 0.01, choose(w, skin, skin, 4)),
        )
        if both:
            for k in parts:
                mirror(w, k, 1)
    hy, front = y + 0.8 * tall + 0.8 * hr, 0.86 * hr
    head = egg(w, 0, hy, 0, hr * uniform(w, 0.92, 1.1), hr * uniform(w, 0.9, 1.1), 0.95 * hr, 0.03, skin)
    if animal:
        if chance(w, 0.5):
            fur(w, head)
        animal_face(w, hy, front, hr, skin)
        if chance(w, 0.75):
            ears(w, hy, hr, skin, pick(w, 4))
        if chance(w, 0.5):
            hat(w, hy, hr)
    else:
        covered = chance(w, 0.6)
        if not covered or chance(w, 0.4):
            hair(w, hy, hr)
        human_face(w, hy, front, hr, skin)
        if covered:
            hat(w, hy, hr)
    if chance(w, 0.12):
        cone(w, 0, -0.06, 0, 0.06, uniform(w, 0.3, 0.45), uniform(w, 0.3, 0.42), 0.01, choose(w, 3, 5, 4))


def block_toys(w):
    """Figures of blocks: square heads with printed faces, boxy bodies, robots."""
    robot = chance(w, 0.4)
    skin = choose(w, 0, 1, 4) if robot else 5
    if not robot:
        set_hsv(w.palette, 5, uniform(w, 0.04, 0.12), uniform(w, 0.3, 0.8), uniform(w, 0.75, 1.0))
    edge = uniform(w, 0.01, 0.06)
    a, b, c = uniform(w, 0.22, 0.34), uniform(w, 0.18, 0.32), uniform(w, 0.15, 0.26)
    shirt, trousers = choose(w, 1, 2, 0), choose(w, 1, 2, 3, 0)
    body = box(w, 0, 0, 0, a, b, c, edge, shirt)
    detail(w, body, 0.2)
    style = pick(w, 3)
    if style == 0:
        painted(w, box(w, 0, -b, 0, 2.0, 0.9 * b, 2.0, 0.0, trousers), 0)
        painted(w, box(w, 0.55 * a, 0.2 * b, 0, 0.16 * a, b, 2.0, 0.0, trousers), 1)
        i = cone(w, 0.55 * a, 0.05 * b, c, 0.02, 0.07, 0.06, 0.01, choose(w, 5, 4, 2))
        aim(w, i, 0, 0, 1)
        mirror(w, i, 1)
    elif style == 1:
        i = painted(w, box(w, 0, 0, c, 0.6 * a, 0.5 * b, 0.1, 0.0, choose(w, 2, 4)), 0)
        texture(w, i, LETTERS, uniform(w, 5.0, 12.0), 0.0, choose(w, 3, 4))
    else:
        box(w, 0, 0.1 * b, c, 0.6 * a, 0.5 * b, 0.03, 0.01, choose(w, 4, 3))
        i = cone(w, 0, 0.1 * b, c + 0.03, 0.03, 0.06, 0.05, 0.01, 2)
        aim(w, i, 0, 0, 1)
        w.rows[i][REPEAT], w.rows[i][STEP], w.rows[i][AXIS] = -3, 0.4 * a, 0
    lh = uniform(w, 0.08, 0.2)
    i = box(w, 0.52 * a, -b - lh, 0, 0.42 * a, lh, 0.75 * c, edge, trousers)
    mirror(w, i, 1)
    i = box(w, 0.52 * a, -b - 2 * lh + 0.03, 0.06, 0.46 * a, 0.05, 0.95 * c, 0.02, 3)
    mirror(w, i, 1)
    y0, tilt = 0.7 * b, uniform(w, 0, 50)
    i = limb(w, a + 0.04, y0, 0, a + 0.08 + 0.004 * tilt, y0 - 0.3, 0.08, 0.08, 0.07, 0.0, shirt)
    mirror(w, i, 1)
    i = ball(w, a + 0.09 + 0.004 * tilt, y0 - 0.36, 0.1, 0.085, 0.0, choose(w, skin, 7, 4))
    mirror(w, i, 1)
    ha, hb, hc = uniform(w, 0.24, 0.36), uniform(w, 0.2, 0.3), uniform(w, 0.2, 0.28)
    hy = b + hb + uniform(w, 0.0, 0.04)
    box(w, 0, hy, 0, ha, hb, hc, edge, skin)
    if robot:
        i = choose(w, 0, 1)
        if i == 0:
            i = ball(w, 0.45 * ha, hy + 0.1 * hb, hc, 0.08, 0.0, choose(w, 2, 7))
        else:
            i = box(w, 0.45 * ha, hy + 0.1 * hb, hc, 0.08, 0.06, 0.03, 0.01, choose(w, 2, 7))
        mirror(w, i, 1)
        shine(w, i, 3.0)
        i = box(w, 0, hy - 0.55 * hb, hc, 0.55 * ha, 0.1 * hb, 0.02, 0.0, 3)
        texture(w, i, STRIPES, 50.0, 0.0, 4)
        limb(w, 0, hy + hb, 0, 0, hy + hb + 0.15, 0, 0.02, 0.02, 0.0, 3)
        ball(w, 0, hy + hb + 0.17, 0, 0.05, 0.0, 2)
        i = cone(w, ha, hy, 0, 0.04, 0.08, 0.06, 0.01, choose(w, 3, 4))
        aim(w, i, 1, 0, 0)
        mirror(w, i, 1)
        return
    painted(w, box(w, 0, hy + 0.7 * hb, -0.1, 2.0, 0.5 * hb, 2.0, 0.0, 3), 0)  # hair
    painted(w, box(w, 0, hy, -1.0, 2.0, 0.95 * hb, 0.9, 0.0, 3), 0)
    human_face(w, hy, hc, 0.9 * min(ha, hb) + 0.04, skin)
    if chance(w, 0.5):
        i = box(w, ha + 0.02, hy, 0.02, 0.04, 0.06, 0.06, 0.02, skin)
        mirror(w, i, 1)
    if chance(w, 0.6):
        colour = choose(w, 2, 2, 1)
        belt_hat = belt(w, 0, hy + hb, 0.0, ha + 0.02, 0.14, hc + 0.05, 0.06, colour)
        blend(w, belt_hat, 0.0)
        i = box(w, 0, hy + hb - 0.02, hc + 0.1, 0.8 * ha, 0.025, 0.12, 0.02, colour)
        if chance(w, 0.7):
            painted(w, egg(w, 0, hy + hb + 0.06, hc, 0.1, 0.08, 0.12, 0.0, 7), 0)
            i = painted(w, egg(w, 0, hy + hb + 0.06, hc, 0.07, 0.06, 0.12, 0.0, 7), 0)
            texture(w, i, LETTERS, 8.0, 0.0, colour)


def pets(w):
    """Four-legged animals with fur, collars, clothes; standing, sitting or on a base."""
    long, fat = uniform(w, 0.22, 0.42), uniform(w, 0.2, 0.32)
    tall = 0.8 * fat + uniform(w, 0.1, 0.4)
    thick = uniform(w, 0.05, 0.1)
    sitting = chance(w, 0.35)
    lift = uniform(w, 0.15, 0.3) if sitting else normal(w, 0.03)
    rear = tall - lift if sitting else tall
    rear = max(rear, fat * 0.9)
    body = limb(w, 0, rear, -long, 0, tall + max(lift, 0.0), long, fat * uniform(w, 0.9, 1.2), fat * 0.9, 0.1, 0)
    if chance(w, 0.65):
        fur(w, body)
    else:
        detail(w, body, 0.6)
    if chance(w, 0.4):
        painted(w, egg(w, 0, tall - 0.6 * fat, 0.2 * long, 0.8 * fat, 0.6 * fat, 1.1 * long, 0.0, choose(w, 1, 4)), 0)
    if chance(w, 0.25):  # coat or saddle
        i = painted(w, box(w, 0, tall, 0, 2.0, 2.0, uniform(w, 0.3, 0.7) * long, 0.0, choose(w, 2, 1)), 0)
        detail(w, i, 0.5)
    i = limb(w, 0.6 * fat, tall - 0.2 * fat, 0.9 * long, 0.62 * fat, thick, long, 1.2 * thick, thick, 0.05, 0)
    same_texture(w, i, body)
    mirror(w, i, 1)
    if sitting:
        i = egg(w, 0.75 * fat, 0.6 * fat, -0.8 * long, 0.3 * fat, 0.6 * fat, 0.7 * fat, 0.05, 0)
        mirror(w, i, 1)
        i = egg(w, 0.8 * fat, 0.7 * thick, -0.8 * long + 0.5 * fat, thick, 0.7 * thick, 2.0 * thick, 0.03, 0)
    else:
        i = limb(w, 0.6 * fat, tall - 0.2 * fat, -0.9 * long, 0.62 * fat, thick, -long, 1.4 * thick, thick, 0.05, 0)
    same_texture(w, i, body)
    mirror(w, i, 1)
    i = egg(
        w, 0.62 * fat, 0.6 * thick, long + 0.4 * thick, 1.2 * thick, 0.7 * thick, 1.5 * thick, 0.02, choose(w, 0, 4, 3)
    )
    mirror(w, i, 1 if sitting else 3)
    hr = fat * uniform(w, 0.75, 1.2)
    hy = tall + max(lift, 0.0) + 0.7 * fat + uniform(w, 0.05, 0.35)
    hz = long + uniform(w, 0.1, 0.35)
    i = limb(w, 0, tall + max(lift, 0.0), 0.9 * long, 0, hy, hz, 0.75 * fat, 0.6 * hr, 0.08, 0)
    same_texture(w, i, body)
    first = len(w.rows)
    head = egg(w, 0, hy, 0, hr * uniform(w, 0.95, 1.1), hr * uniform(w, 0.85, 1.0), 0.95 * hr, 0.05, 0)
    same_texture(w, head, body)
    animal_face(w, hy, 0.86 * hr, hr, 0)
    ears(w, hy, hr, choose(w, 0, 0, 1), pick(w, 4))
    if chance(w, 0.15):
        hat(w, hy, hr)
    for k in range(first, len(w.rows)):  # the head was built about x = z = 0
        w.rows[k][CZ] += hz
    tail, angle = uniform(w, 0.15, 0.6), uniform(w, -0.8, 1.4)
    y0, z0 = rear + 0.3 * fat, -long - 0.8 * fat
    x1, y1, z1 = normal(w, 0.08), y0 + 0.6 * tail * math.sin(angle), z0 - 0.6 * tail * math.cos(angle)
    thin, plume = uniform(w, 0.03, 0.07), uniform(w, 0.03, 0.13)
    i = limb(w, 0, y0, z0, x1, y1, z1, thin, 0.5 * (thin + plume), 0.05, 0)
    i = limb(
        w,
        x1,
        y1,
        z1,
        2 * x1,
        y1 + tail * 0.7,
        z1 + normal(w, 0.1),
        0.5 * (thin + plume),
        plume,
        0.05,
        choose(w, 0, 1, 4),
    )
    if chance(w, 0.35):
        i = torus(w, 0, 0.5 * (tall + hy) + 0.02, 0.6 * long + 0.4 * hz, 0.62 * fat, 0.05, 2)
        turn(w, i, 0, 35, 0)
    if chance(w, 0.25):
        cone(w, 0, -0.06, 0.1, 0.06, uniform(w, 0.9, 1.2) * (long + 0.15), long + 0.12, 0.01, choose(w, 3, 5, 1))


def mascots(w):
    """Round creatures: owls, penguins, monsters, piggy banks, matryoshkas, snowmen: body and face in one."""
    r, h = uniform(w, 0.32, 0.45), uniform(w, 0.38, 0.6)
    kind = pick(w, 4)
    body = egg(w, 0, 0, 0, r, h, r * uniform(w, 0.85, 1.0), 0.04, 0)
    deep = 0.85 * r
    if kind == 0:  # owl, penguin
        painted(w, egg(w, 0, -0.15 * h, r, 0.65 * r, 0.75 * h, 0.7 * r, 0.0, choose(w, 4, 1)), 0)
        detail(w, len(w.rows) - 1, 0.3)
        i = egg(w, 0.3 * r, 0.5 * h, 0.72 * r, 0.2 * r, 0.2 * r, 0.14 * r, 0.0, 7)
        mirror(w, i, 1)
        i = ball(w, 0.3 * r, 0.5 * h, 0.82 * r, 0.09 * r, 0.0, 6)
        mirror(w, i, 1)
        i = cone(w, 0, 0.35 * h, 0.98 * r, 0.09, 0.08, 0.01, 0.005, 5)
        turn(w, i, 0, 100, 0)
        i = egg(w, 0.95 * r, -0.1 * h, -0.05, 0.08, 0.55 * h, 0.5 * r, 0.03, choose(w, 0, 1, 3))
        turn(w, i, 0, 0, uniform(w, 5, 35))
        mirror(w, i, 1)
        i = egg(w, 0.45 * r, -0.95 * h, 0.3 * r, 0.13, 0.06, 0.2, 0.01, 5)
        mirror(w, i, 1)
        if chance(w, 0.4):
            ears(w, 0.3 * h, 0.75 * r, 0, 1)
        elif chance(w, 0.6):
            hat(w, 0.45 * h, 0.72 * r)
    elif kind == 1:  # monster or piggy
        detail(w, body, 0.4)
        animal_face(w, 0.2 * h, 0.9 * deep, 0.8 * r, 0)
        ears(w, 0.3 * h, 0.8 * r, 0, pick(w, 3))
        i = limb(w, 0.5 * r, -0.8 * h, 0.2 * r, 0.55 * r, -1.15 * h, 0.25 * r, 0.11, 0.1, 0.03, choose(w, 0, 3, 1))
        mirror(w, i, choose(w, 1, 3))
        i = limb(w, 0.85 * r, 0, 0, 1.3 * r, uniform(w, -0.4, 0.4) * h, 0.1, 0.09, 0.08, 0.03, 0)
        mirror(w, i, 1)
    elif kind == 2:  # matryoshka, egg-shaped doll
        egg(w, 0, 0.8 * h, 0, 0.7 * r, 0.65 * r, 0.7 * r, 0.1, 0)
        painted(w, egg(w, 0, 0.82 * h, 0.7 * r, 0.45 * r, 0.48 * r, 0.4 * r, 0.0, 5), 0)
        human_face(w, 0.8 * h, 0.6 * r, 0.5 * r, 5)
        i = painted(w, egg(w, 0, -0.15 * h, r, 0.6 * r, 0.6 * h, 0.6 * r, 0.0, choose(w, 2, 4)), 0)
        detail(w, i, 0.7)
        painted(w, box(w, 0, -h, 0, 2.0, 0.25 * h, 2.0, 0.0, choose(w, 1, 2, 3)), 0)
    else:  # snowman or stacked creature
        if chance(w, 0.5):
            w.rows[body][COLOUR : COLOUR + 3] = w.palette[7]
            w.rows[body][COLOUR2 : COLOUR2 + 3] = w.palette[7]
        head = ball(w, 0, h + 0.45 * r, 0, 0.7 * r, 0.02, 0)
        same_texture(w, head, body)
        w.rows[head][COLOUR : COLOUR + 3] = w.rows[body][COLOUR : COLOUR + 3]
        i = cone(w, 0, h + 0.42 * r, 0.85 * r, 0.14, 0.06, 0.01, 0.005, 5)
        turn(w, i, 0, 90, 0)
        i = ball(w, 0.22 * r, h + 0.65 * r, 0.6 * r, 0.05, 0.0, 6)
        mirror(w, i, 1)
        i = ball(w, 0, 0.3 * h, 0.86 * r, 0.05, 0.0, choose(w, 6, 2))
        w.rows[i][REPEAT], w.rows[i][STEP], w.rows[i][AXIS] = -3, 0.28 * h, 1
        torus(w, 0, h + 0.0 * r, 0, 0.5 * r, 0.09, 2)
        i = limb(w, 0.8 * r, 0.4 * h, 0, 1.5 * r, 0.6 * h + uniform(w, -0.2, 0.3), 0.1, 0.035, 0.03, 0.0, 3)
        mirror(w, i, 1)
        hat(w, h + 0.45 * r, 0.7 * r)
    if chance(w, 0.1):
        limb(w, side(w) * 0.2, 0, -0.8 * r, 0, 0.2, -1.5 * r, 0.1, 0.06, 0.05, 0)
