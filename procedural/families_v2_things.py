# ruff: noqa: F403, F405 (the slots of layout.py are a vocabulary: imported whole)
"""Version 2, things: vehicles, gadgets, ware with handles, hollow shapes, thin furniture, carved mushrooms."""

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
    part,
    pick,
    ribs,
    ring,
    row,
    set_hsv,
    shine,
    side,
    texture,
    torus,
    turn,
    uniform,
)


def wheel(w, x, y, z, r, width, hub, planes):
    """A tyre with a hub, axle along x, also across `planes`."""
    i = cone(w, x, y, z, width, r, r, 0.4 * width, 3)
    aim(w, i, 1, 0, 0)
    mirror(w, i, planes)
    shine(w, i, 0.3)
    i = cone(w, x + 0.6 * width, y, z, 0.5 * width, 0.6 * r, 0.5 * r, 0.01, hub)
    aim(w, i, 1, 0, 0)
    mirror(w, i, planes)
    if chance(w, 0.4):
        texture(w, i, RAYS, choose(w, 4.0, 5.0, 6.0, 8.0), 0.0, 3)


def cars(w):
    """Cars: body, bonnet, glazed cabin, lamps, bumpers."""
    a, long, h = uniform(w, 0.24, 0.36), uniform(w, 0.5, 0.75), uniform(w, 0.09, 0.16)
    r, edge = uniform(w, 0.11, 0.18), uniform(w, 0.02, 0.08)
    y = 0.9 * r + h
    body = box(w, 0, y, 0, a, h, long, edge, 0)
    detail(w, body, 0.3)
    ch, cl, cz = uniform(w, 0.1, 0.2), uniform(w, 0.4, 0.65) * long, uniform(w, -0.35, 0.1) * long
    top = y + h + ch
    if chance(w, 0.5):  # rounded cabin, glass all about below a roof
        i = egg(w, 0, y + 0.6 * h, cz, 0.88 * a, 2.0 * ch + 0.4 * h, cl, 0.02, 3)
        shine(w, i, 3.0)
        i = box(w, 0, top + 0.9 * ch, cz, a, 0.35 * ch, cl, 0.0, choose(w, 0, 0, 1))
        operation(w, i, PAINT, 0.0)
        i = box(w, 0, top, cz, a, 2 * ch, 0.08 * cl, 0.0, 0)
        operation(w, i, PAINT, 0.0)
    else:
        box(w, 0, top, cz, 0.86 * a, ch, cl, min(edge, 0.05), choose(w, 0, 0, 1, 4))
        for half_x, half_z in ((0.74 * a, cl + 0.012), (0.86 * a + 0.012, 0.42 * cl)):
            i = box(w, 0, top + 0.05 * ch, cz, half_x, 0.6 * ch, half_z, 0.01, choose(w, 3, 3, 6))
            shine(w, i, 3.0)
            if half_x > 0.8 * a:
                row(w, i, 2, 0.95 * cl, 2)
    wheel(w, a - 0.02, 0.9 * r, choose(w, 0.6, 0.65) * long, r, uniform(w, 0.05, 0.08), choose(w, 4, 2, 5), 3)
    i = ball(w, 0.68 * a, y + 0.1 * h, long - 0.01, uniform(w, 0.04, 0.07), 0.0, choose(w, 4, 7))
    mirror(w, i, 1)
    i = box(w, 0.7 * a, y + 0.2 * h, -long, 0.06, 0.03, 0.02, 0.01, 2)
    mirror(w, i, 1)
    i = box(w, 0, y - 0.6 * h, 0, 0.92 * a, 0.04, long + 0.03, 0.02, choose(w, 3, 4))
    i = box(w, 0, y + 0.05 * h, long, 0.35 * a, 0.25 * h, 0.02, 0.01, 3)
    texture(w, i, PLAID, 60.0, 0.0, 4)
    style = pick(w, 5)
    if style == 0:  # stripe over the length
        i = box(w, 0, top, 0, 0.25 * a, 1.0, 2.0, 0.0, choose(w, 2, 4))
        operation(w, i, PAINT, 0.0)
    elif style == 1:
        i = box(w, 0, top + ch + 0.03, cz, 0.4 * a, 0.03, 0.06, 0.02, 2)
    elif style == 2:  # spoiler
        box(w, 0, y + h + 0.12, -0.92 * long, 0.9 * a, 0.015, 0.07, 0.01, choose(w, 0, 2))
        i = box(w, 0.7 * a, y + h + 0.06, -0.92 * long, 0.02, 0.06, 0.03, 0.01, 3)
        mirror(w, i, 1)
    elif style == 3:  # emblem on the door
        i = part(w, ELLIPSOID, a, y, 0, 0.05, 0.8 * h, 0.8 * h, 0.0, 0.0, choose(w, 2, 4))
        operation(w, i, PAINT, 0.0)
        mirror(w, i, 1)


def trucks(w):
    """Trucks, tractors, trains, buses: sharp boxes, many wheels, chimneys, loads."""
    kind = pick(w, 4)
    a, r = uniform(w, 0.22, 0.32), uniform(w, 0.1, 0.16)
    edge = uniform(w, 0.01, 0.05)
    if kind == 0:  # lorry
        long = uniform(w, 0.55, 0.8)
        box(w, 0, r + 0.06, 0, 0.9 * a, 0.05, long, 0.01, 3)
        box(w, 0, r + 0.3, 0.72 * long, a, 0.24, 0.28 * long, edge, 0)
        i = box(w, 0, r + 0.4, 0.74 * long, a + 0.01, 0.09, 0.16 * long, 0.01, 3)
        shine(w, i, 3.0)
        i = box(w, 0, r + 0.4, 0.9 * long, 0.85 * a, 0.09, 0.11 * long, 0.01, 3)
        shine(w, i, 3.0)
        height = uniform(w, 0.1, 0.35)
        load = box(
            w,
            0,
            r + 0.12 + height,
            -0.33 * long,
            a * uniform(w, 0.95, 1.1),
            height,
            0.66 * long,
            0.02,
            choose(w, 1, 2, 4),
        )
        detail(w, load, 0.5)
        if chance(w, 0.4):
            i = box(w, 0, r + 0.2 + height, -0.33 * long, 0.85 * a, height, 0.6 * long, 0.0, 3)
            operation(w, i, SUBTRACT, 0.0)
        wheel(w, a - 0.03, r, 0.68 * long, r, 0.06, 4, 1)
        wheel(w, a - 0.03, r, -0.45 * long, r, 0.06, 4, 1)
        for k in (-2, -1):
            if chance(w, 0.7):
                row(w, len(w.rows) + k, 2, 2.2 * r, 2)
    elif kind == 1:  # tractor
        big = uniform(w, 0.24, 0.34)
        i = box(w, 0, big + 0.1, 0.25, 0.14, 0.12, 0.4, edge, 0)
        i = box(w, 0, big + 0.1, 0.64, 0.12, 0.1, 0.02, 0.01, 3)
        texture(w, i, STRIPES, 60.0, 0.0, 4)
        box(w, 0, big + 0.05, -0.25, 0.2, 0.1, 0.2, 0.02, choose(w, 0, 3))
        if chance(w, 0.7):
            i = box(w, 0, big + 0.36, -0.25, 0.19, 0.24, 0.18, 0.03, 3)
            shine(w, i, 3.0)
            box(w, 0, big + 0.62, -0.25, 0.23, 0.03, 0.23, 0.02, choose(w, 0, 4))
            i = box(w, 0.18, big + 0.36, -0.08, 0.025, 0.25, 0.025, 0.01, 0)
            mirror(w, i, 1)
        else:
            box(w, 0, big + 0.25, -0.35, 0.14, 0.14, 0.04, 0.03, 3)
            i = torus(w, 0, big + 0.3, -0.05, 0.09, 0.015, 3)
            turn(w, i, 0, -60, 0)
        cone(w, 0.07, big + 0.36, 0.4, 0.16, 0.025, 0.03, 0.005, choose(w, 3, 4))
        wheel(w, 0.3, big, -0.28, big, 0.09, choose(w, 2, 4), 1)
        ribs(w, len(w.rows) - 2, 22, 0.015)
        wheel(w, 0.22, 0.55 * big, 0.5, 0.55 * big, 0.06, choose(w, 2, 4), 1)
        i = arc(w, 0.3, big, -0.28, big + 0.05, 0.05, 70, 0)
        turn(w, i, 90, 0, 0)
        mirror(w, i, 1)
    elif kind == 2:  # steam engine
        y = 1.8 * r
        box(w, 0, y, 0, 0.9 * a, 0.06, 0.6, 0.01, 3)
        i = cone(w, 0, y + 0.22, 0.18, 0.42, 0.75 * a, 0.75 * a, 0.02, 0)
        aim(w, i, 0, 0, 1)
        texture(w, i, STRIPES, uniform(w, 14.0, 22.0), 0.8, choose(w, 2, 4, 3))
        i = cone(w, 0, y + 0.22, 0.6, 0.02, 0.6 * a, 0.55 * a, 0.01, choose(w, 3, 1))
        aim(w, i, 0, 0, 1)
        i = box(w, 0, y + 0.3, -0.4, a, 0.3, 0.2, 0.02, choose(w, 0, 1, 2))
        i = box(w, 0, y + 0.42, -0.4, a + 0.01, 0.1, 0.11, 0.01, 3)
        i = part(w, ROOF, 0, y + 0.6, -0.4, a + 0.06, 0.1, 0.26, 0.0, 0.0, choose(w, 1, 2, 3))
        cone(w, 0, y + 0.52, 0.42, 0.13, 0.05, 0.08, 0.01, choose(w, 3, 2))
        dome(w, 0, y + 0.36, 0.1, 0.09, 0.12, 0.09, 0.0, 2)
        wheel(w, 0.85 * a, r, 0.0, r, 0.04, 2, 1)
        for k in (-2, -1):
            row(w, len(w.rows) + k, 3 + pick(w, 2), 2.25 * r, 2)
        i = box(w, 0, 0.8 * r, 0.66, 0.8 * a, 0.06, 0.1, 0.01, choose(w, 2, 3))
        turn(w, i, 0, -25, 0)
    else:  # bus or van
        long, h = uniform(w, 0.5, 0.85), uniform(w, 0.2, 0.3)
        body = box(w, 0, r + h, 0, a, h, long, edge + 0.02, 0)
        if chance(w, 0.5):
            i = box(w, 0, r + 1.5 * h, 0, 1.0, 0.6 * h, 2.0, 0.0, choose(w, 4, 1))
            operation(w, i, PAINT, 0.0)
        else:
            detail(w, body, 0.4)
        n = 3 + pick(w, 3)
        i = box(w, 0, r + 1.35 * h, -0.05, a + 0.012, 0.3 * h, 0.7 * long / n, 0.01, 3)
        row(w, i, n, 1.75 * long / n, 2)
        shine(w, i, 3.0)
        i = box(w, 0, r + 1.3 * h, long, 0.85 * a, 0.35 * h, 0.015, 0.01, 3)
        mirror(w, i, 2)
        shine(w, i, 3.0)
        i = ball(w, 0.7 * a, r + 0.4 * h, long, 0.05, 0.0, 4)
        mirror(w, i, 1)
        box(w, 0, r + 0.1 * h, 0, 0.95 * a, 0.03, long + 0.03, 0.02, choose(w, 3, 4))
        wheel(w, a - 0.03, r, 0.62 * long, r, 0.06, choose(w, 4, 2), 3)


def tanks(w):
    """Tanks and tracked toys: belts with treads, road wheels, hull, turret, barrels."""
    a, long, th = uniform(w, 0.2, 0.34), uniform(w, 0.45, 0.65), uniform(w, 0.13, 0.22)
    tw = uniform(w, 0.08, 0.14)
    i = belt(w, a + tw, th, 0, tw, th, long, 0.03, choose(w, 3, 3, 1))
    mirror(w, i, 1)
    shine(w, i, 0.3)
    if chance(w, 0.8):
        ribs(w, i, -uniform(w, 35.0, 60.0), uniform(w, 0.012, 0.022))
    if chance(w, 0.5):
        set_hsv(w.palette, 3, uniform(w, 0.55, 0.7), uniform(w, 0.0, 0.15), uniform(w, 0.3, 0.5))
        w.rows[i][COLOUR : COLOUR + 3] = w.palette[3]
    n = 3 + pick(w, 3)
    hub = choose(w, 1, 2, 0, 4)
    step = 2.0 * (long - th) / (n - 1)
    i = cone(w, a + 2 * tw, th, 0, 0.03, min(0.75 * th, 0.46 * step + 0.02), 0.4 * th, 0.01, hub)
    aim(w, i, 1, 0, 0)
    row(w, i, n, step, 2)
    mirror(w, i, 1)
    hull = box(w, 0, 1.5 * th, 0, a + 0.03, 0.7 * th, long * uniform(w, 0.9, 1.05), 0.02, choose(w, 1, 0))
    detail(w, hull, 0.4)
    deck = box(w, 0, 2.35 * th, 0, a + uniform(w, 0.0, 0.5) * tw, 0.35 * th, long * uniform(w, 0.75, 0.95), 0.02, 0)
    detail(w, deck, 0.5)
    i = box(w, 0, 2.0 * th, 0.95 * long, 0.9 * a, 0.07, 0.2 * long, 0.01, 0)
    turn(w, i, 0, uniform(w, 20, 45), 0)
    if chance(w, 0.5):
        i = box(w, 0, 1.7 * th, long, 0.4 * a, 0.06, 0.04, 0.01, 3)
        i = box(w, 0, 1.7 * th, long, 0.55 * a, 0.1, 0.02, 0.01, choose(w, 0, 2))
    ty, tr, hh = 2.7 * th, uniform(w, 0.18, 0.3), uniform(w, 0.1, 0.22)
    tz = uniform(w, -0.2, 0.05)
    shape = pick(w, 3)
    if shape == 0:
        turret = cone(w, 0, ty + hh, tz, hh, 1.1 * tr, 0.85 * tr, 0.04, 0)
    elif shape == 1:
        turret = box(w, 0, ty + hh, tz, tr, hh, 1.15 * tr, 0.03, 0)
    else:
        turret = belt(w, 0, ty + hh + 0.02, tz, tr, hh + 0.04, 1.25 * tr, 0.04, 0)
    detail(w, turret, 0.5)
    barrel, thick = uniform(w, 0.25, 0.6), uniform(w, 0.035, 0.08)
    colour = choose(w, 0, 1, 1, 3)
    by = ty + hh * uniform(w, 0.8, 1.2)
    z0 = tz + 0.9 * tr
    kind = pick(w, 3)
    if kind == 0:
        i = cone(w, 0, by, z0 + 0.5 * barrel, 0.5 * barrel, thick, thick, 0.005, colour)
        turn(w, i, 0, 90 - uniform(w, 0, 15), 0)
        i = cone(w, 0, by, z0 + barrel, 0.07, 1.4 * thick, 1.4 * thick, 0.01, colour)
        turn(w, i, 0, 90, 0)
        shapes = cone(w, 0, by, z0 + barrel + 0.02, 0.08, 0.7 * thick, 0.7 * thick, 0.0, 3)
        turn(w, shapes, 0, 90, 0)
        operation(w, shapes, SUBTRACT, 0.0)
    elif kind == 1:  # block of two barrels, one above the other
        t = thick * 1.2
        i = box(w, 0, by, z0 + 0.3 * barrel, 1.5 * t, 2.3 * t, 0.45 * barrel, 0.3 * t, colour)
        detail(w, i, 0.5)
        i = cone(w, 0, by, z0 + 0.7 * barrel, 0.1, 0.8 * t, 0.8 * t, 0.0, 3)
        turn(w, i, 0, 90, 0)
        row(w, i, 2, 2.1 * t, 1)
        operation(w, i, SUBTRACT, 0.0)
    else:
        i = cone(w, 0.5 * tr, by, z0 + 0.4 * barrel, 0.4 * barrel, thick, 0.8 * thick, 0.005, colour)
        turn(w, i, 0, 90, 0)
        mirror(w, i, 1)
    extra = pick(w, 4)
    if extra == 0:  # hatch
        cone(w, 0.3 * tr * side(w), ty + 2 * hh + 0.02, tz, 0.03, 0.1, 0.09, 0.01, choose(w, 0, 1, 3))
    elif extra == 1:  # rockets in a row behind
        i = cone(w, 0, ty + 2 * hh, tz - tr, 0.16, 0.05, 0.04, 0.01, 2)
        turn(w, i, 0, uniform(w, 40, 90), 0)
        row(w, i, 4, 0.105, 0)
        texture(w, i, TWO_TONE, 1.0, 0.05, choose(w, 4, 1))
    elif extra == 2:
        limb(
            w,
            -0.6 * tr,
            ty + 1.6 * hh,
            tz - 0.5 * tr,
            -0.7 * tr,
            ty + 2 * hh + 0.35,
            tz - 0.6 * tr,
            0.015,
            0.012,
            0.0,
            3,
        )
    else:
        i = part(w, ELLIPSOID, tr, ty + hh, tz, 0.06, 0.6 * hh, 0.6 * hh, 0.0, 0.0, choose(w, 2, 4))
        operation(w, i, PAINT, 0.0)
        mirror(w, i, 1)


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
