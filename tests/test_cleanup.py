import numpy as np
import pytest
import torch

from errors import UserError
from mesh_extract import GridSpec, Mesh, clean_mesh, decimate, extract_mesh, repair, taubin_smooth, vertex_normals
from mesh_extract.repair import fill_holes, remove_degenerate, split_double_edges, split_nonmanifold, weld

trimesh = pytest.importorskip("trimesh")


def sphere(radius=1.0, centre=(0.0, 0.0, 0.0), subdivisions=3) -> Mesh:
    made = trimesh.creation.icosphere(subdivisions, radius)
    return Mesh(made.vertices + np.asarray(centre), made.faces)


def joined(*parts: Mesh) -> Mesh:
    offsets = np.cumsum([0] + [len(part.vertices) for part in parts])[:-1]
    faces = [part.faces + offset for part, offset in zip(parts, offsets, strict=True)]
    return Mesh(np.concatenate([part.vertices for part in parts]), np.concatenate(faces))


def noisy_volume(seed=0, size=14) -> Mesh:
    field = torch.rand(size, size, size, generator=torch.Generator().manual_seed(seed))
    grid = GridSpec((0, 0, 0), 1.0, (size,) * 3)
    return extract_mesh(field, grid, 0.5)


def box() -> Mesh:
    made = trimesh.creation.box()
    return Mesh(made.vertices, made.faces)


def test_mesh_properties():
    ball = sphere()
    assert ball.is_closed() and ball.euler_number() == 2 and ball.components()[0] == 1
    assert ball.volume == pytest.approx(4.1527, abs=1e-3) and ball.area == pytest.approx(12.506, abs=1e-2)
    assert ball.flipped().volume == pytest.approx(-ball.volume) and ball.flipped().is_closed()
    assert not ball.select_faces(slice(1, None)).is_closed()
    turned = ball.faces.copy()
    turned[0] = turned[0, ::-1]
    assert not Mesh(ball.vertices, turned).is_closed()
    assert not Mesh(np.zeros((0, 3)), np.zeros((0, 3))).is_closed()
    torus = trimesh.creation.torus(1.0, 0.3)
    two = joined(ball, Mesh(torus.vertices + 5, torus.faces))
    assert two.euler_number() == 2 and two.components()[0] == 2
    assert trimesh.Trimesh(two.vertices, two.faces, process=False).is_watertight
    # The volume of a closed mesh does not depend on where it lies.
    assert sphere(centre=(1e3, 0, 0)).volume == pytest.approx(ball.volume, rel=1e-6)


@pytest.mark.parametrize(
    ("vertices", "faces", "said"),
    [
        (np.zeros((3, 2)), np.zeros((1, 3)), "vertices must be"),
        (np.zeros((3, 3)), np.zeros((1, 4)), "faces must be"),
        (np.zeros((3, 3)), [[0, 1, 3]], "faces must index the 3 vertices"),
    ],
)
def test_impossible_meshes_are_named(vertices, faces, said):
    with pytest.raises(ValueError, match=said):
        Mesh(vertices, faces)


def test_an_icosahedron_stays_what_it_is():
    icosahedron = sphere(subdivisions=0)
    cleaned, report = clean_mesh(icosahedron)
    assert np.array_equal(cleaned.faces, icosahedron.faces) and len(cleaned.faces) == 20
    assert np.allclose(cleaned.vertices, icosahedron.vertices, atol=1e-6) and cleaned.vertices.dtype == np.float32
    assert report.closed and report.euler_number == 2 and not report.dropped and not report.repaired
    assert np.allclose(cleaned.vertex_normals, icosahedron.vertices, atol=1e-6)


def test_of_two_spheres_both_are_kept_and_crumbs_are_reported():
    two = joined(sphere(), sphere(0.12, (1.3, 0, 0), 2))
    cleaned, report = clean_mesh(two)
    assert report.parts == 2 and not report.dropped and len(cleaned.faces) == len(two.faces)
    crumb = sphere(0.03, (0, 1.4, 0), 1)
    cleaned, report = clean_mesh(joined(two, crumb))
    assert report.parts_found == 3 and report.parts == 2 and report.closed
    (dropped,) = report.dropped
    assert dropped.reason == "floater" and dropped.faces == 80 and dropped.size == pytest.approx(0.03, rel=0.05)
    assert clean_mesh(joined(two, crumb), floaters=0.0)[1].parts == 3
    assert report.to_dict()["dropped"][0]["faces"] == 80


def test_hollows_go_and_parts_turn_outward():
    wall, inner = sphere(), sphere(0.8).flipped()
    cleaned, report = clean_mesh(joined(wall, inner))
    assert report.parts == 1 and report.dropped[0].reason == "cavity"
    assert cleaned.volume == pytest.approx(wall.volume, rel=1e-5)
    kept, _ = clean_mesh(joined(wall, inner), keep_cavities=True)
    assert kept.volume == pytest.approx(wall.volume - sphere(0.8).volume, rel=1e-5)
    # A part that is merely wound the wrong way round, beside the other, is turned; its box lies inside nothing.
    cleaned, report = clean_mesh(joined(wall, sphere(0.5, (2, 0, 0)).flipped()))
    assert report.parts == 2 and report.turned_parts == 1 and not report.dropped
    assert cleaned.volume == pytest.approx(wall.volume + sphere(0.5).volume, rel=1e-5)
    # In the corner of a box that belongs to a bent part, but not inside it.
    bent = joined(sphere(), sphere(0.2, (0.85, 0.85, 0.85)).flipped())
    assert not clean_mesh(bent)[1].dropped
    assert clean_mesh(wall.flipped())[0].volume > 0


def test_faces_without_area_go_without_opening_the_mesh():
    ball = sphere(subdivisions=2)
    # Two vertices moved onto neighbours: the faces between them lose their area, the mesh stays closed in topology.
    vertices = ball.vertices.copy()
    for face in (ball.faces[0], ball.faces[100]):
        vertices[face[0]] = vertices[face[1]]
    flat = Mesh(vertices, ball.faces)
    assert (np.linalg.norm(flat.face_normals, axis=1) == 0).sum() == 4
    cleaned, report = clean_mesh(flat)
    assert report.closed and report.euler_number == 2 and report.faces == len(ball.faces) - 4 and report.repaired
    assert np.linalg.norm(cleaned.face_normals, axis=1).min() > 1e-6


def test_a_mesh_without_any_area_is_named():
    point = Mesh(np.ones((3, 3)), [[0, 1, 2]])
    same = Mesh(np.eye(3), [[0, 0, 0]])
    for mesh in (point, same, Mesh(np.zeros((0, 3)), np.zeros((0, 3)))):
        with pytest.raises(UserError, match="no face with an area"):
            clean_mesh(mesh)


def test_back_to_back_and_repeated_faces_cancel():
    ball = sphere(subdivisions=1)
    extra = np.concatenate([ball.faces, ball.faces[:3], ball.faces[5:6, ::-1], ball.faces[5:6]])
    assert np.array_equal(np.sort(remove_degenerate(Mesh(ball.vertices, extra)).faces), np.sort(ball.faces))
    sheet = np.concatenate([ball.faces, [[0, 1, 2], [2, 1, 0]]])
    assert len(remove_degenerate(Mesh(ball.vertices, sheet)).faces) in (len(ball.faces), len(ball.faces) + 2)


def test_a_triangle_soup_is_welded():
    ball = sphere(subdivisions=2)
    soup = Mesh(ball.vertices[ball.faces].reshape(-1, 3), np.arange(3 * len(ball.faces)).reshape(-1, 3))
    assert not soup.is_closed()
    assert len(weld(soup).vertices) == len(ball.vertices) and weld(soup).is_closed()
    cleaned, report = clean_mesh(soup)
    assert report.closed and len(cleaned.vertices) == len(ball.vertices)


def test_holes_are_closed():
    ball = sphere()
    holed = ball.select_faces(np.setdiff1d(np.arange(len(ball.faces)), [3, 200, 201, 205, 600]))
    closed = fill_holes(split_nonmanifold(holed))
    assert closed.is_closed() and closed.euler_number() == 2
    assert closed.volume == pytest.approx(ball.volume, rel=0.01)
    half = clean_mesh(ball.select_faces(ball.corners[:, :, 1].mean(axis=1) > 0))[0]
    assert half.is_closed() and half.volume == pytest.approx(ball.volume / 2, rel=0.1)


def test_boxes_that_share_an_edge_or_a_corner_are_taken_apart():
    for shift in ((1, 1, 0), (1, 1, 1)):
        pair = weld(joined(box(), Mesh(box().vertices + shift, box().faces)))
        fixed = repair(pair)
        assert fixed.is_closed() and fixed.components()[0] == 2 and fixed.euler_number() == 4
        assert fixed.volume == pytest.approx(2.0, rel=0.03)
        # Apart also for programs that merge equal positions.
        assert weld(fixed).is_closed()


@pytest.mark.parametrize("faces", [4, 100, 500])
def test_decimation_of_a_ball(faces):
    ball = sphere(subdivisions=4)
    fewer, note = decimate(ball, faces)
    # A tetrahedron is no ball: there the count is kept higher.
    assert len(fewer.faces) <= max(faces, 128) and fewer.is_closed() and fewer.euler_number() == 2, note
    if faces >= 100:
        assert fewer.volume == pytest.approx(ball.volume, rel=0.05)
        assert np.abs(np.linalg.norm(fewer.vertices, axis=1) - 1).max() < 0.1


def test_two_edges_between_the_same_vertices_are_told_apart():
    """A ring of six cross-sections that have two vertices each: those two are joined along the top and the bottom."""
    angles = 2 * np.pi * np.arange(6) / 6
    circle = np.stack([np.cos(angles), np.sin(angles), 0 * angles], axis=1)
    vertices = np.stack([circle, 2 * circle], axis=1).reshape(-1, 3)  # vertex 2 i + j: section i, inner or outer
    faces = []
    for i in range(6):
        for j in range(2):
            a, b, c, d = 2 * i + j, (2 * i + 2) % 12 + j, (2 * i + 2) % 12 + 1 - j, 2 * i + 1 - j
            faces += [(a, b, c), (a, c, d)]
    ring = Mesh(vertices, faces)
    assert not ring.is_closed()
    apart = split_double_edges(ring)
    # Which of the four faces at such an edge belong together is free: one ring or six cushions, closed either way.
    assert apart.is_closed() and len(apart.vertices) == 12 + 6
    assert np.linalg.norm(apart.face_normals, axis=1).min() > 0


def test_decimation_keeps_every_part():
    mesh = joined(sphere(subdivisions=4), sphere(0.12, (1.3, 0, 0), 3), sphere(0.3, (0, 2, 0), 1))
    cleaned, report = clean_mesh(mesh, faces=600)
    assert report.parts == 3 and report.closed and report.faces <= 600 and report.euler_number == 6
    assert report.decimation == f"{len(mesh.faces)} to {report.faces} faces"


@pytest.mark.parametrize("seed", range(3))
def test_noise_is_cleaned_into_something_closed(seed):
    raw = noisy_volume(seed)
    cleaned, report = clean_mesh(raw, faces=2500, floaters=0.2, smooth_iterations=2)
    assert report.closed and cleaned.volume > 0 and report.faces <= 2750, report.decimation
    assert report.parts == report.parts_found - len(report.dropped)
    assert np.isfinite(cleaned.vertices).all() and np.isfinite(cleaned.vertex_normals).all()
    assert np.allclose(np.linalg.norm(cleaned.vertex_normals, axis=1), 1, atol=1e-5)


def test_smoothing_takes_bumps_but_not_volume():
    ball = sphere(subdivisions=4)
    bumps = 1 + 0.02 * np.random.default_rng(0).standard_normal((len(ball.vertices), 1))
    bumpy = Mesh(ball.vertices * bumps, ball.faces)
    smooth = taubin_smooth(bumpy, 5)
    before, after = (np.linalg.norm(mesh.vertices, axis=1).std() for mesh in (bumpy, smooth))
    assert after < 0.5 * before and smooth.volume == pytest.approx(ball.volume, rel=0.01)
    assert taubin_smooth(ball, 20).volume == pytest.approx(ball.volume, rel=0.01)


def test_normals_are_weighted_by_angle():
    # The two triangles of a box's side pull no harder at a corner than the one triangle of another side.
    assert np.allclose(np.abs(vertex_normals(box())), 1 / np.sqrt(3), atol=1e-6)


def test_arguments_stay_as_they_are_and_bad_ones_are_named():
    ball = sphere()
    vertices, faces = ball.vertices.copy(), ball.faces.copy()
    clean_mesh(ball, faces=100, smooth_iterations=1)
    assert np.array_equal(ball.vertices, vertices) and np.array_equal(ball.faces, faces)
    with pytest.raises(UserError, match="mesh.faces=3"):
        clean_mesh(ball, faces=3)
    with pytest.raises(UserError, match="mesh.floaters"):
        clean_mesh(ball, floaters=1.0)
