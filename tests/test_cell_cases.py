"""The table of triangles by itself: against PyMCubes, and closed from cell to cell."""

from collections import Counter
from itertools import combinations, product

import numpy as np
import pytest

from mesh_extract.cell_cases import CORNERS, EDGES, cell_triangles, loops, packed_cases
from mesh_extract.mesh import Mesh

MIDDLES = CORNERS[EDGES].mean(axis=1)  # [12, 3]
CASES = range(256)


def rim(triangles) -> set:
    """Directed edges of triangles that no triangle walks the other way round."""
    walked = Counter((a, b) for triangle in triangles for a, b in zip(triangle, np.roll(triangle, -1), strict=True))
    assert all(count == 1 for count in walked.values())
    return {(int(a), int(b)) for a, b in walked if (b, a) not in walked}


def on_face(edge: int, axis: int, side: int) -> bool:
    return bool((CORNERS[EDGES[edge]][:, axis] == side).all())


def surface_of(inside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Marching cubes in the plainest way: all cells around and between the nodes, vertices in the middles of edges."""
    nodes = np.pad(inside, 1)
    index, faces = {}, []
    for cell in product(*(range(n - 1) for n in nodes.shape)):
        corners = nodes[tuple((np.array(cell) + CORNERS).T)]
        for triangle in cell_triangles(int((corners << np.arange(8)).sum())):
            positions = (tuple(np.array(cell) + MIDDLES[edge] - 1) for edge in triangle)
            faces.append([index.setdefault(position, len(index)) for position in positions])
    return np.array(list(index), dtype=np.float64), np.array(faces)


def test_numbering():
    for edge, (lower, upper) in enumerate(EDGES):
        axis = edge // 4
        step = CORNERS[upper] - CORNERS[lower]
        others = np.delete(CORNERS[lower], axis)
        assert step[axis] == 1 and step.sum() == 1 and edge == 4 * axis + others[0] + 2 * others[1]


@pytest.mark.parametrize("case", CASES)
def test_loops_are_filled_with_as_few_triangles_as_they_need(case):
    chains, triangles = loops(case), cell_triangles(case)
    crossed = {edge for edge in range(12) if len({case >> corner & 1 for corner in EDGES[edge]}) == 2}
    assert sorted(edge for chain in chains for edge in chain) == sorted(crossed)
    assert len(triangles) == sum(len(chain) - 2 for chain in chains)
    assert rim(triangles) == {(a, b) for chain in chains for a, b in zip(chain, np.roll(chain, -1), strict=True)}
    for triangle in triangles:  # a diagonal within a face of the cell could meet the neighbour's
        for a, b in combinations(triangle, 2):
            if any(on_face(a, axis, side) and on_face(b, axis, side) for axis in range(3) for side in (0, 1)):
                assert {(a, b), (b, a)} & rim(triangles)


@pytest.mark.parametrize("case", CASES)
def test_the_same_surface_as_pymcubes_but_for_diagonals(case):
    mcubes = pytest.importorskip("mcubes", reason="PyMCubes has no wheel for this Python")
    field = np.zeros((2, 2, 2))
    field[tuple(CORNERS.T)] = case >> np.arange(8) & 1
    vertices, faces = mcubes.marching_cubes(field, 0.5)
    edge_at = {tuple(middle): edge for edge, middle in enumerate(MIDDLES)}
    theirs = [[edge_at[tuple(vertices[i])] for i in face] for face in faces]
    assert len(theirs) == len(cell_triangles(case)) and rim(theirs) == rim(cell_triangles(case))


def test_neighbours_agree_on_the_face_between_them():
    """Whatever the other corners are: what one cell leaves on its face, the next one walks the other way round."""
    for axis in range(3):
        segments = {}  # (side, inside corners of the face) -> segments between positions on the face
        for case, side in product(CASES, (0, 1)):
            pattern = tuple(case >> corner & 1 for corner in range(8) if CORNERS[corner, axis] == side)
            on = {
                tuple(tuple(np.delete(MIDDLES[edge], axis)) for edge in ends)
                for ends in rim(cell_triangles(case))
                if all(on_face(edge, axis, side) for edge in ends)
            }
            assert segments.setdefault((side, pattern), on) == on
        for side, pattern in list(segments):
            assert segments[1 - side, pattern] == {(b, a) for a, b in segments[side, pattern]}


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_noise_becomes_a_closed_outward_surface(share):
    rng = np.random.default_rng(int(10 * share))
    for _ in range(4):
        inside = (rng.random((5, 4, 6)) < share).astype(int)
        mesh = Mesh(*surface_of(inside))
        assert mesh.is_closed() and mesh.volume > 0
        assert np.linalg.norm(mesh.face_normals, axis=1).min() > 0


def test_packed_for_the_kernels():
    for case, packed in enumerate(packed_cases().tolist()):
        corners = [packed >> 4 * i & 15 for i in range(15)]
        count = packed >> 60
        assert [tuple(corners[3 * i : 3 * i + 3]) for i in range(count)] == list(cell_triangles(case))
        assert not any(corners[3 * count :])
