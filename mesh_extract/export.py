"""Mesh files: .obj with .mtl and picture, .glb, .ply with vertex colours. World units, y up, front +z in all of them.

The same mesh gives the same bytes: nothing of the day or the machine goes into a file.
"""

import io
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from PIL import Image

from files import whole_file
from mesh_extract.cleanup import with_normals
from mesh_extract.mesh import Mesh
from mesh_extract.textured import TexturedMesh
from profiling import profiled
from registry import lookup, register

Exporter = Callable[[TexturedMesh, Path], None]
EXPORTERS: dict[str, Exporter] = {}


@profiled
def export_mesh(textured: TexturedMesh, path: Path) -> None:
    """Write a mesh in the format that the suffix of `path` names.

    Raises:
        UserError: no exporter for the suffix, or the folder cannot be written.
    """
    path = Path(path)
    lookup(EXPORTERS, path.suffix.lower(), "suffix")(textured, path)


@register(EXPORTERS, ".obj")
def export_obj(textured: TexturedMesh, path: Path) -> None:
    """Write <stem>.obj, <stem>.mtl and <stem>_albedo.png, which name each other relatively: the set can be moved.

    A name with spaces stands as it is, to the end of its line, as the formats have it. The three files appear together.
    """
    path = Path(path)
    mesh = _checked(textured)
    material = path.with_name(f"{path.stem}.mtl")
    picture = path.with_name(f"{path.stem}_albedo.png")
    with ExitStack() as stack:  # renamed in reverse: the .obj comes last, when what it names is there
        files = [stack.enter_context(whole_file(name)) for name in (path, material, picture)]
        pool = stack.enter_context(ThreadPoolExecutor(max_workers=1))
        compressed = pool.submit(_png_bytes, textured.texture)  # as long as the text takes, and without Python's lock
        files[0].write_text(_obj_text(textured, mesh, material.name), encoding="utf-8", newline="\n")
        files[1].write_text(_mtl_text(picture.name), encoding="utf-8", newline="\n")
        files[2].write_bytes(compressed.result())


@register(EXPORTERS, ".glb")
def export_glb(textured: TexturedMesh, path: Path) -> None:
    """Write one binary glTF file with its picture inside: rough and not metallic."""
    import trimesh

    mesh = _checked(textured)
    vertex_index, uv_index, faces = textured.split_vertices()
    material = trimesh.visual.material.PBRMaterial(
        name="albedo",
        baseColorTexture=Image.fromarray(textured.texture),  # embedded as PNG
        baseColorFactor=[255] * 4,
        metallicFactor=0.0,
        roughnessFactor=1.0,
    )
    geometry = trimesh.Trimesh(
        mesh.vertices[vertex_index],
        faces,
        vertex_normals=mesh.vertex_normals[vertex_index],
        visual=trimesh.visual.TextureVisuals(uv=textured.uvs[uv_index], material=material),
        process=False,
    )
    scene = trimesh.Scene({"mesh": geometry})
    with whole_file(path) as temporary:
        temporary.write_bytes(trimesh.exchange.gltf.export_glb(scene, include_normals=True))


@register(EXPORTERS, ".ply")
def export_ply(textured: TexturedMesh, path: Path) -> None:
    """Write vertices with normals and colours (the texture at each vertex, sRGB) and faces, binary little-endian."""
    mesh = _checked(textured)
    vertices = np.zeros(
        len(mesh.vertices), [("position", "<f4", 3), ("normal", "<f4", 3), ("color", "u1", 3)]
    )  # packed: 27 bytes a vertex
    vertices["position"], vertices["normal"] = mesh.vertices, mesh.vertex_normals
    vertices["color"] = textured.vertex_colors()
    faces = np.zeros(len(mesh.faces), [("count", "u1"), ("corners", "<i4", 3)])
    faces["count"], faces["corners"] = 3, mesh.faces
    properties = [f"property float {name}" for name in ("x", "y", "z", "nx", "ny", "nz")]
    properties += [f"property uchar {name}" for name in ("red", "green", "blue")]
    header = ["ply", "format binary_little_endian 1.0", f"element vertex {len(vertices)}", *properties]
    header += [f"element face {len(faces)}", "property list uchar int vertex_indices", "end_header", ""]
    with whole_file(path) as temporary:
        temporary.write_bytes("\n".join(header).encode("ascii") + vertices.tobytes() + faces.tobytes())


def _checked(textured: TexturedMesh) -> Mesh:
    """The mesh with normals, float32; a file with NaN in it opens nowhere."""
    mesh = with_normals(textured.mesh)
    for name, values in (("vertices", mesh.vertices), ("uvs", textured.uvs)):
        if not np.isfinite(values).all():
            raise ValueError(f"{name} must be finite to be written")
    return mesh


def _obj_text(textured: TexturedMesh, mesh: Mesh, material_file: str) -> str:
    """Positions, uvs, normals and faces v/vt/vn; 9 digits give every float32 back exactly."""
    lines = [f"mtllib {material_file}"]
    for prefix, rows in (("v", mesh.vertices), ("vt", textured.uvs), ("vn", mesh.vertex_normals)):
        pattern = prefix + " %.9g" * rows.shape[1]
        lines += [pattern % tuple(row) for row in rows.tolist()]
    lines.append("usemtl albedo")
    corners = (np.stack([mesh.faces, textured.uv_faces], axis=2).reshape(-1, 6) + 1).tolist()
    lines += [f"f {a}/{s}/{a} {b}/{t}/{b} {c}/{u}/{c}" for a, s, b, t, c, u in corners]
    return "\n".join(lines) + "\n"


def _mtl_text(picture_file: str) -> str:
    """Opaque (`d 1`: some readers take `Tr` the other way round), white times the picture, no highlights."""
    lines = ["newmtl albedo", "Ka 1 1 1", "Kd 1 1 1", "Ks 0 0 0", "d 1", "illum 1", f"map_Kd {picture_file}"]
    return "\n".join(lines) + "\n"


def _png_bytes(texture: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(texture).save(buffer, format="PNG")
    return buffer.getvalue()
