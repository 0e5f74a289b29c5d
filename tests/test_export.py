"""Mesh files: read back by readers that are not ours, equal in geometry, direction and colour."""

import importlib
import io
import json
import shutil
import struct
import sys
import types
import typing

import numpy as np
import pytest
import torch
import trimesh
from PIL import Image

from errors import UserError
from mesh_extract.cleanup import with_normals
from mesh_extract.export import EXPORTERS, export_mesh
from mesh_extract.mesh import Mesh
from mesh_extract.textured import TexturedMesh, sample_texture
from mesh_extract.uv import unwrap

NAMES = ["plain", "two words", "é", "テスト", "a#b", "photo.v2", "-dash", "100% [x]"]


def textured_body(seed: int = 0, size: int = 64) -> TexturedMesh:
    """An egg that no mirroring or turning maps to itself, with a smooth texture."""
    ball = trimesh.creation.icosphere(subdivisions=2)
    x, y, z = ball.vertices.T
    mesh = Mesh(np.stack([0.5 * x + 0.1 * y * y, 0.8 * y, 0.3 * z + 0.2 * np.maximum(z, 0) + 0.05 * x], 1), ball.faces)
    mesh = with_normals(mesh)
    uvs, uv_faces = unwrap(mesh, size, 4, "simple")
    rng = np.random.default_rng(seed)
    waves = rng.uniform(1, 3, (3, 2))
    grid = np.stack(np.mgrid[:size, :size] / size, axis=-1)
    texture = (255 * (0.5 + 0.45 * np.sin(2 * np.pi * (grid @ waves.T)))).astype(np.uint8)
    return TexturedMesh(mesh, uvs, uv_faces, texture)


def load(path) -> trimesh.Trimesh:
    loaded = trimesh.load(path, process=False)
    if isinstance(loaded, trimesh.Scene):
        (node,) = loaded.graph.nodes_geometry
        transform, name = loaded.graph[node]
        assert np.array_equal(transform, np.eye(4))
        loaded = loaded.geometry[name]
    return loaded


def picture(mesh: trimesh.Trimesh) -> np.ndarray:
    material = mesh.visual.material
    image = material.baseColorTexture if hasattr(material, "baseColorTexture") else material.image
    return np.asarray(image.convert("RGB"))


def corners_and_colors(mesh: trimesh.Trimesh) -> tuple[np.ndarray, np.ndarray]:
    """Corner positions [F, 3, 3] and colours [F, 3, 3] in [0, 1], whatever carries them."""
    if mesh.visual.kind == "texture":
        colors = sample_texture(picture(mesh), np.asarray(mesh.visual.uv))
    else:
        colors = np.asarray(mesh.visual.vertex_colors)[:, :3] / 255.0
    return np.asarray(mesh.vertices)[mesh.faces], colors[mesh.faces]


@pytest.mark.parametrize("suffix", EXPORTERS)
@pytest.mark.parametrize("name", NAMES)
def test_comes_back_equal_under_any_name(tmp_path, name, suffix):
    body = textured_body()
    path = tmp_path / "folder with spaces é" / f"{name}{suffix}"
    export_mesh(body, path)
    back = load(path)
    corners, colors = corners_and_colors(back)
    # The same float32 values in the same order of faces: 9 digits bring them back, and binaries hold them.
    assert np.array_equal(corners.astype(np.float32), body.mesh.vertices[body.mesh.faces])
    assert back.volume > 0
    assert np.abs(back.face_normals - trimesh.Trimesh(body.mesh.vertices, body.mesh.faces).face_normals).max() < 1e-5
    if suffix == ".ply":
        assert np.array_equal(back.visual.vertex_colors[:, :3], body.vertex_colors())
    else:
        assert np.array_equal(picture(back), body.texture)
        exact = sample_texture(body.texture, body.uvs)[body.uv_faces]
        assert np.abs(colors - exact).max() < 1e-4  # uvs are float32, v turned twice on the way through glTF
    normals = np.asarray(back.vertex_normals)[back.faces]
    assert np.abs(normals - body.mesh.vertex_normals[body.mesh.faces]).max() < 1e-5


def test_obj_glb_and_ply_agree(tmp_path):
    body = textured_body()
    parts = {}
    for suffix in EXPORTERS:
        export_mesh(body, tmp_path / f"body{suffix}")
        parts[suffix] = corners_and_colors(load(tmp_path / f"body{suffix}"))
    for suffix in (".glb", ".ply"):
        assert np.array_equal(parts[suffix][0].astype(np.float32), parts[".obj"][0].astype(np.float32))
    assert np.abs(parts[".glb"][1] - parts[".obj"][1]).max() < 1e-4
    # A vertex of the .ply has one colour, the mean over its places in the atlas; along seams these differ here, since
    # this texture knows nothing of the surface.
    uvs_of_vertex = [set() for _ in body.mesh.vertices]
    for vertex, uv in zip(body.mesh.faces.ravel(), body.uv_faces.ravel(), strict=True):
        uvs_of_vertex[vertex].add(uv)
    inner = np.array([len(places) == 1 for places in uvs_of_vertex])[body.mesh.faces]
    assert inner.mean() > 0.5
    assert np.abs(parts[".ply"][1] - parts[".obj"][1])[inner].max() <= 0.5 / 255 + 1e-6  # rounded to 8 bits


def import_kiui_mesh(monkeypatch):
    """kiui.mesh; the release 0.3.5 came with an empty kiui.typing, whose names its modules expect."""
    pytest.importorskip("kiui", reason="kiui is in requirements-dev.txt")
    names = types.ModuleType("kiui.typing")
    vars(names).update({name: getattr(typing, name) for name in typing.__all__})
    names.Tensor, names.ndarray = torch.Tensor, np.ndarray
    monkeypatch.setitem(sys.modules, "kiui.typing", names)
    return importlib.import_module("kiui.mesh")


@pytest.mark.parametrize("suffix", [".obj", ".glb", ".ply"])
def test_kiui_reads_it(tmp_path, suffix, monkeypatch):
    kiui_mesh = import_kiui_mesh(monkeypatch)
    body = textured_body()
    path = tmp_path / "a folder" / f"body.v2{suffix}"
    export_mesh(body, path)
    back = kiui_mesh.Mesh.load(str(path), resize=False, renormal=False, device="cpu")
    assert np.array_equal(back.v.numpy()[back.f.numpy()], body.mesh.vertices[body.mesh.faces])
    if suffix == ".ply":
        return
    assert np.array_equal((back.albedo.numpy() * 255 + 0.5).astype(np.uint8), body.texture)
    # kiui's v goes down.
    uvs = back.vt.numpy()[back.ft.numpy()] * (1, -1) + (0, 1)
    assert np.abs(uvs - body.uvs[body.uv_faces]).max() < 1e-6


def test_two_objs_in_one_folder_keep_their_textures(tmp_path):
    bodies = {"a": textured_body(0), "b": textured_body(1)}
    for name, body in bodies.items():
        export_mesh(body, tmp_path / f"{name}.obj")
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "a.mtl", "a.obj", "a_albedo.png", "b.mtl", "b.obj", "b_albedo.png",
    ]  # fmt: skip
    for name, body in bodies.items():
        assert np.array_equal(picture(load(tmp_path / f"{name}.obj")), body.texture)


def test_a_moved_obj_keeps_its_texture(tmp_path):
    body = textured_body()
    export_mesh(body, tmp_path / "here" / "photo.v2.obj")
    target = tmp_path / "moved to a place with spaces"
    shutil.move(tmp_path / "here", target)
    assert np.array_equal(picture(load(target / "photo.v2.obj")), body.texture)


def test_material_is_opaque_and_white(tmp_path):
    export_mesh(textured_body(), tmp_path / "two words.obj")
    lines = (tmp_path / "two words.mtl").read_text().splitlines()
    assert {"d 1", "Kd 1 1 1", "map_Kd two words_albedo.png"} <= set(lines)
    assert not any(line.startswith("Tr") for line in lines)
    assert "mtllib two words.mtl" in (tmp_path / "two words.obj").read_text().splitlines()


def test_glb_is_one_file_with_a_rough_material(tmp_path):
    body = textured_body()
    export_mesh(body, tmp_path / "body.glb")
    assert [p.name for p in tmp_path.iterdir()] == ["body.glb"]
    data = (tmp_path / "body.glb").read_bytes()
    magic, version, length, json_length = struct.unpack("<4sIII", data[:16])
    assert (magic, version, length) == (b"glTF", 2, len(data))
    document = json.loads(data[20 : 20 + json_length])
    (material,) = document["materials"]
    pbr = material["pbrMetallicRoughness"]
    assert pbr["metallicFactor"] == 0 and pbr["roughnessFactor"] == 1
    assert pbr["baseColorFactor"] == [1, 1, 1, 1] and pbr["baseColorTexture"] == {"index": 0}
    assert material.get("alphaMode", "OPAQUE") == "OPAQUE"
    (primitive,) = document["meshes"][0]["primitives"]
    assert set(primitive["attributes"]) == {"POSITION", "NORMAL", "TEXCOORD_0"}
    (image,) = document["images"]
    view = document["bufferViews"][image["bufferView"]]
    binary = data[20 + json_length + 8 :]
    png = binary[view["byteOffset"] : view["byteOffset"] + view["byteLength"]]
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(png))), body.texture)


def test_ply_is_binary_little_endian_with_colours(tmp_path):
    plyfile = pytest.importorskip("plyfile")
    body = textured_body()
    export_mesh(body, tmp_path / "body.ply")
    data = plyfile.PlyData.read(tmp_path / "body.ply")
    assert data.byte_order == "<" and not data.text
    assert [p.name for p in data["vertex"].properties] == "x y z nx ny nz red green blue".split()
    assert np.array_equal(np.stack(data["face"]["vertex_indices"]), body.mesh.faces)


@pytest.mark.parametrize("suffix", EXPORTERS)
def test_equal_bytes_and_no_leftovers(tmp_path, suffix):
    files = []
    for folder in ("one", "two"):
        export_mesh(textured_body(), tmp_path / folder / f"body{suffix}")
        files.append({p.name: p.read_bytes() for p in (tmp_path / folder).iterdir()})
    assert files[0] == files[1]
    assert not any(name.startswith(".") for name in files[0])


def test_a_failed_export_leaves_the_old_files(tmp_path, monkeypatch):
    body = textured_body()
    export_mesh(body, tmp_path / "body.obj")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def fail(texture):
        raise OSError("disk full")

    monkeypatch.setattr("mesh_extract.export._png_bytes", fail)
    with pytest.raises(UserError, match="cannot write .*: disk full"):
        export_mesh(textured_body(1), tmp_path / "body.obj")
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_bad_requests_are_named(tmp_path):
    body = textured_body()
    with pytest.raises(UserError, match=r"suffix='.fbx' is unknown; choose from .obj, .glb, .ply"):
        export_mesh(body, tmp_path / "body.fbx")
    export_mesh(body, tmp_path / "BODY.OBJ")
    assert (tmp_path / "BODY.OBJ").exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot write"):
        export_mesh(body, tmp_path / "file" / "body.obj")
    body.mesh.vertices[3, 1] = np.nan
    for suffix in EXPORTERS:
        with pytest.raises(ValueError, match="vertices must be finite"):
            export_mesh(body, tmp_path / f"nan{suffix}")
    assert not list(tmp_path.glob("nan*"))


def test_textured_mesh_checks_its_parts():
    body = textured_body()
    with pytest.raises(ValueError, match="uv_faces must be"):
        TexturedMesh(body.mesh, body.uvs, body.uv_faces[:5], body.texture)
    with pytest.raises(ValueError, match="uvs must be"):
        TexturedMesh(body.mesh, body.uvs[:, :1], body.uv_faces, body.texture)
    with pytest.raises(ValueError, match="texture must be"):
        TexturedMesh(body.mesh, body.uvs, body.uv_faces, body.texture / 255.0)
