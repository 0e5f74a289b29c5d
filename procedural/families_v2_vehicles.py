# ruff: noqa: F403, F405 (the slots of layout.py are a vocabulary: imported whole)
"""Version 2: cars, trucks, tanks."""

from procedural.families_v2_looks import detail
from procedural.layout import *
from procedural.parts import (
    aim,
    arc,
    ball,
    belt,
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
