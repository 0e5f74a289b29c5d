# ruff: noqa: F403, F405 (the slots of layout.py are a vocabulary: imported whole)
"""Palettes, surface detail and light of version 2: toys, wood, ceramic, cloth; flatter light than version 1."""

import math

from procedural.layout import *
from procedural.parts import (
    chance,
    choose,
    normal,
    pick,
    set_hsv,
    size_of,
    texture,
    uniform,
)

_TOY_HUES = (0.0, 0.03, 0.08, 0.13, 0.16, 0.22, 0.3, 0.38, 0.5, 0.57, 0.62, 0.68, 0.78, 0.9)


def palette_v2(w):
    """Six colours in one of the ways things are coloured: toy, natural, ceramic, pastel, dark or metal."""
    p = w.palette
    style = uniform(w, 0.0, 1.0)
    h = choose(w, *_TOY_HUES) + normal(w, 0.015)
    if style < 0.4:  # toy
        s, v = uniform(w, 0.65, 1.0), uniform(w, 0.55, 1.0)
    elif style < 0.62:  # natural: browns, fur, leather, wood
        h, s, v = uniform(w, 0.02, 0.13), uniform(w, 0.3, 0.85), uniform(w, 0.25, 0.9)
    elif style < 0.76:  # white and cream
        h, s, v = uniform(w, 0.02, 0.15), uniform(w, 0.0, 0.15), uniform(w, 0.82, 1.0)
    elif style < 0.86:  # pastel
        s, v = uniform(w, 0.2, 0.5), uniform(w, 0.75, 1.0)
    elif style < 0.94:  # dark
        s, v = uniform(w, 0.0, 0.7), uniform(w, 0.08, 0.3)
    else:  # grey
        s, v = uniform(w, 0.0, 0.08), uniform(w, 0.35, 0.75)
    set_hsv(p, 0, h, s, v)
    second = pick(w, 4)
    if second == 0:
        set_hsv(p, 1, h + normal(w, 0.02), s * uniform(w, 0.2, 0.6), v + uniform(w, 0.1, 0.4))
    elif second == 1:
        set_hsv(p, 1, h + normal(w, 0.05), s, v * uniform(w, 0.35, 0.75))
    else:
        set_hsv(p, 1, choose(w, *_TOY_HUES), uniform(w, 0.5, 1.0), uniform(w, 0.4, 1.0))
    set_hsv(p, 2, choose(w, *_TOY_HUES) + normal(w, 0.02), uniform(w, 0.6, 1.0), uniform(w, 0.55, 1.0))
    set_hsv(p, 3, uniform(w, 0.0, 1.0), uniform(w, 0.0, 0.5), uniform(w, 0.05, 0.3))
    set_hsv(p, 4, uniform(w, 0.03, 0.17), uniform(w, 0.0, 0.25), uniform(w, 0.85, 1.0))
    set_hsv(p, 5, uniform(w, 0.03, 0.12), uniform(w, 0.25, 0.75), uniform(w, 0.5, 1.0))
    set_hsv(p, 6, 0.0, 0.0, uniform(w, 0.02, 0.12))
    set_hsv(p, 7, 0.0, 0.0, uniform(w, 0.9, 1.0))


def detail(w, i, p):
    """With probability p, a realistic surface on primitive i: wood, spots, clouds, wear, fur, plaid, print."""
    if not chance(w, p):
        return
    size = size_of(w, i) + 1e-3
    kind = choose(w, WOOD, SPOTS, CLOUDS, CLOUDS, RAYS, LETTERS, PLAID, WORN, WORN, FUR, STRIPES, GRADIENT, MARBLE)
    second = choose(w, 1, 1, 2, 3, 4)
    if kind == WOOD:
        texture(w, i, kind, uniform(w, 10.0, 28.0) / size, uniform(w, 0.2, 0.7), choose(w, 1, 3))
    elif kind == SPOTS:
        texture(w, i, kind, uniform(w, 1.6, 4.0) / size, uniform(w, 0.3, 0.5), second)
    elif kind == CLOUDS:
        texture(w, i, kind, uniform(w, 1.5, 7.0) / size, uniform(w, 0.4, 1.0), second)
    elif kind == RAYS:
        texture(w, i, kind, choose(w, 6.0, 8.0, 12.0, 16.0), uniform(w, -0.3, 0.5), second)
    elif kind == LETTERS:
        texture(w, i, kind, uniform(w, 1.2, 3.0) / size, 0.0, second)
    elif kind == PLAID:
        texture(w, i, kind, uniform(w, 7.0, 20.0) / size, uniform(w, -0.3, 0.5), second)
    elif kind == WORN:
        texture(w, i, kind, uniform(w, 2.0, 6.0) / size, uniform(w, 0.5, 0.65), choose(w, 3, 4, 1))
    elif kind == FUR:
        texture(w, i, kind, uniform(w, 3.0, 8.0) / size, uniform(w, 0.3, 0.9), choose(w, 1, 3, 4))
    elif kind == STRIPES:
        texture(w, i, kind, uniform(w, 6.0, 24.0) / size, uniform(w, -0.4, 0.7), second)
    elif kind == GRADIENT:
        texture(w, i, kind, uniform(w, 0.3, 0.6) / size, 0.0, second)
    else:
        texture(w, i, kind, uniform(w, 2.0, 6.0) / size, 0.0, second)


def fur(w, i):
    """Fine streaks of a darker or lighter shade."""
    size = size_of(w, i) + 1e-3
    texture(w, i, FUR, uniform(w, 3.0, 7.0) / size, uniform(w, 0.25, 0.7), choose(w, 1, 3))


def ceramic(w):
    """Glossy white or lightly tinted ware: palette 0 and a material with soft, broad highlights."""
    set_hsv(w.palette, 0, uniform(w, 0.0, 1.0), uniform(w, 0.0, 0.12), uniform(w, 0.85, 1.0))
    w.material[SPECULAR] = uniform(w, 0.1, 0.35)
    w.material[SHININESS] = math.exp(uniform(w, math.log(10.0), math.log(60.0)))
    w.material[REFLECTION] = uniform(w, 0.2, 0.7)


def light_v2(w):
    """Bright ambient light, a weak soft directional light from anywhere, noise of two scales; shadows in 40 %."""
    m = w.material
    azimuth = normal(w, 50.0) if chance(w, 0.5) else uniform(w, 0.0, 360.0)
    a, e = math.radians(azimuth), math.radians(uniform(w, 25.0, 80.0))
    m[LIGHT], m[LIGHT + 1], m[LIGHT + 2] = math.cos(e) * math.sin(a), math.sin(e), math.cos(e) * math.cos(a)
    warm = normal(w, 0.04)
    m[LIGHT_COLOUR], m[LIGHT_COLOUR + 1], m[LIGHT_COLOUR + 2] = 1.0 + warm, 1.0, 1.0 - warm
    ambient = uniform(w, 0.75, 0.95)
    m[AMBIENT] = ambient
    m[DIRECT] = (1.12 - ambient) * uniform(w, 0.5, 1.1)
    m[HEMISPHERE] = uniform(w, 0.0, 0.2)
    m[OCCLUSION] = uniform(w, 0.3, 0.85)
    m[WRAP] = uniform(w, 0.1, 0.7)
    if chance(w, 0.4):
        m[SHADOW] = uniform(w, 0.3, 0.8)
    if m[REFLECTION] == 0.0 and chance(w, 0.4):
        m[SPECULAR] = uniform(w, 0.05, 0.4)
        m[SHININESS] = math.exp(uniform(w, math.log(6.0), math.log(80.0)))
        if chance(w, 0.4):
            m[REFLECTION] = uniform(w, 0.1, 0.5)
    m[NOISE_SEED] = pick(w, 100000)
    if chance(w, 0.45):
        m[ALBEDO_NOISE] = uniform(w, 0.03, 0.15)
        m[ALBEDO_FREQUENCY] = uniform(w, 2.0, 8.0)
    if chance(w, 0.45):
        m[ALBEDO_NOISE2] = uniform(w, 0.04, 0.25)
        m[ALBEDO_FREQUENCY2] = uniform(w, 10.0, 40.0)
    if chance(w, 0.08):
        m[BUMP_HEIGHT] = uniform(w, 0.004, 0.012)
        m[BUMP_FREQUENCY] = uniform(w, 8.0, 22.0)
