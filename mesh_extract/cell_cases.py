"""The triangles of marching cubes in a cell, for each of the 256 ways in which its corners lie inside or outside.

After Lorensen and Cline, "Marching cubes" (SIGGRAPH 1987), but derived instead of tabulated. On each of the cell's six
faces the surface leaves segments. On a face with two inside corners on a diagonal they cut off the outside corners:
that is what PyMCubes does, and as only the face's own corners matter, the cells on both sides agree. The segments join
into loops, and each loop of n crossings is filled with n - 2 triangles.

Corner x + 2 y + 4 z lies at (x, y, z) of 0 and 1. Edge 4 a + b + 2 c runs along axis a, at b and c on the other two
axes in their order: x, y, z less a.
"""

import functools
from itertools import pairwise

import numpy as np

CORNERS = np.array([[i & 1, i >> 1 & 1, i >> 2 & 1] for i in range(8)])  # [8, 3]


def _edge_ends() -> np.ndarray:
    """Lower and upper corner of every edge [12, 2]."""
    ends = []
    for axis in range(3):
        first, second = (1 << other for other in range(3) if other != axis)
        ends += [(lower, lower + (1 << axis)) for lower in (0, first, second, first + second)]
    return np.array(ends)


EDGES = _edge_ends()
_EDGE_OF = {frozenset(ends): edge for edge, ends in enumerate(EDGES.tolist())}


def _diagonals() -> list[list[float]]:
    """Squared distances of the middles of edges [12, 12]; infinite where both lie in one face of the cell."""
    middles = CORNERS[EDGES].mean(axis=1)  # [12, 3]
    a, b = middles[:, None], middles[None]
    in_a_face = ((a == b) & (a != 0.5)).any(axis=2)
    return np.where(in_a_face, np.inf, ((a - b) ** 2).sum(axis=2)).tolist()


_DIAGONALS = _diagonals()


def _face_corners() -> list[list[int]]:
    """The four corners of each face, counter-clockwise seen from outside the cell."""
    faces = []
    for axis in range(3):
        first, second = 1 << (axis + 1) % 3, 1 << (axis + 2) % 3
        around = [0, first, first + second, second]  # counter-clockwise seen from the axis's positive end
        faces += [around[::-1], [corner + (1 << axis) for corner in around]]
    return faces


_FACES = _face_corners()


def loops(case: int) -> list[list[int]]:
    """Closed chains of edges that the surface crosses, counter-clockwise seen from outside of the surface.

    Args:
        case: bit i is set where corner i is inside.
    """
    inside = [case >> corner & 1 for corner in range(8)]
    following = {}
    for corners in _FACES:
        ring = [*corners, *corners, corners[0]]
        for start in range(4):
            if inside[ring[start]] and not inside[ring[start + 1]]:  # leaves the inside: cut off what comes, to where
                end = next(i for i in range(start + 1, 8) if inside[ring[i + 1]])  # it is entered again
                leaves, enters = (_EDGE_OF[frozenset(ring[i : i + 2])] for i in (start, end))
                following[enters] = leaves
    chains = []
    while following:
        chain = [min(following)]
        while (after := following.pop(chain[-1])) != chain[0]:
            chain.append(after)
        chains.append(chain)
    return chains


def _triangulate(chain: list[int]) -> list[tuple[int, int, int]]:
    """Triangles of a loop, by its shortest diagonals between the middles of edges.

    No diagonal lies in a face of the cell: the neighbour might have the same one, and four triangles would meet there.
    """

    @functools.cache
    def best(i: int, j: int) -> tuple[float, tuple[tuple[int, int, int], ...]]:
        """Cost and triangles of the part of the loop between vertices i and j."""
        choices = []
        for k in range(i + 1, j):
            cost, triangles = 0.0, ((chain[i], chain[k], chain[j]),)
            for a, b in pairwise((i, k, j)):
                if b > a + 1:
                    inner_cost, inner = best(a, b)
                    cost, triangles = cost + _DIAGONALS[chain[a]][chain[b]] + inner_cost, triangles + inner
            choices.append((cost, triangles))
        return min(choices)

    cost, triangles = best(0, len(chain) - 1)
    assert np.isfinite(cost)
    return list(triangles)


@functools.cache
def cell_triangles(case: int) -> tuple[tuple[int, int, int], ...]:
    """The triangles of a case: edges on which their corners lie, counter-clockwise seen from outside."""
    return tuple(triangle for chain in loops(case) for triangle in _triangulate(chain))


@functools.cache
def packed_cases() -> np.ndarray:
    """All cases as the kernels read them, uint64 [256]: 4 bits an edge, first corner lowest; above bit 60 the count."""
    packed = np.zeros(256, dtype=np.uint64)
    for case in range(256):
        corners = [edge for triangle in cell_triangles(case) for edge in triangle]
        assert len(corners) <= 15
        packed[case] = (len(corners) // 3 << 60) + sum(edge << 4 * i for i, edge in enumerate(corners))
    return packed
