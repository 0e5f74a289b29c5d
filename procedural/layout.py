"""Where each number of an object lies: slots of a primitive's row and of the object's material row.

An object is a list of primitives, applied in order in its own frame ("object frame": y up, front +z, free size), and
one material row that holds its light and the move from the object frame to the world:
world = (object - centre) * scale, the box centred at the origin.
"""

MAX_PRIMITIVES = 24

# Slots of a primitive's row.
TYPE, OP = 0, 1
CX, CY, CZ = 2, 3, 4  # centre, object frame
ROT = 5  # 9 numbers, row-major: local = rotation @ (object - centre)
DIM = 14  # 6 sizes, by type (see sdf_code.local_distance)
SMOOTH = 20  # width of the smooth union / subtraction, object units
MIRROR = 21  # 0 none, 1 x, 2 z, 3 both: the primitive also stands on the other side of the plane
REPEAT = 22  # n > 1: n-fold about the y axis; n < -1: |n| copies in a row about the centre; else one
STEP = 23  # n-fold: angle of the first copy (rad, 0 = as placed); row: distance between copies
AXIS = 24  # row: 0 x, 1 y, 2 z
TEXTURE, TEXTURE_FREQUENCY, TEXTURE_AMOUNT = 25, 26, 27
COLOUR, COLOUR2 = 28, 31  # 3 numbers each, sRGB in [0, 1]
GLOSS = 34  # factor of the material's highlight
RIBS, RIB_HEIGHT = 35, 36  # n > 0: n ribs about local y; n < 0: ribs of angular frequency |n| along local y + z
BOUND = 37  # bounding sphere of the first copy: centre (object frame) and radius
FOLDED = 41  # 1 where MIRROR or REPEAT is in use
TEXTURE_SEED = 42
PRIMITIVE_SLOTS = 44

# Types. 0 is an empty row.
ELLIPSOID, BOX, ROUND_CONE, CAPPED_CONE, TORUS, DOME, ROOF, ARC, BELT = 1, 2, 3, 4, 5, 6, 7, 8, 9
# Operations.
UNION, SUBTRACT, PAINT = 0, 1, 2
# Textures; each gives the share of COLOUR2.
PLAIN, STRIPES, DOTS, CHECKER, NOISE, GRADIENT, TWO_TONE, MARBLE = 0, 1, 2, 3, 4, 5, 6, 7
WOOD, SPOTS, CLOUDS, RAYS, LETTERS, PLAID, WORN, FUR = 8, 9, 10, 11, 12, 13, 14, 15

# Slots of the material row.
CENTRE, SCALE = 0, 3
LIGHT, LIGHT_COLOUR = 4, 7  # 3 numbers each; LIGHT points to the light
AMBIENT, DIRECT, HEMISPHERE, OCCLUSION = 10, 11, 12, 13
SPECULAR, SHININESS, REFLECTION = 14, 15, 16
ALBEDO_NOISE, ALBEDO_FREQUENCY, NOISE_SEED = 17, 18, 19
BUMP_HEIGHT, BUMP_FREQUENCY = 20, 21
HALF_BOX = 22  # 3 numbers, object frame, about CENTRE
COUNT = 25  # primitives in use
WRAP, SHADOW = 26, 27  # softness of the light's edge; strength of the cast shadow
ALBEDO_NOISE2, ALBEDO_FREQUENCY2 = 28, 29
YAW = 30  # rad: turn of the object about the world y axis (LIGHT is given in the turned frame already)
MARGIN = 31  # how far blends and bumps may reach out of HALF_BOX, object units
MATERIAL_SLOTS = 32
