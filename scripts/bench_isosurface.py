"""Time marching cubes on the GPU, after checking its surface against PyMCubes on the same field.

    python scripts/bench_isosurface.py                               # 20,000 Gaussians at 128^3, 256^3, 512^3
    python scripts/bench_isosurface.py --resolutions 128 --repeats 50 --no-file --by-planes 0

From a field on the device to vertices and faces on the device, the one wait for their number included. Then, at 128^3,
from a .ply of Gaussians to a .ply of the surface (unsmoothed, grey, normals), warm, part by part. Then from Gaussians
to vertices and faces at 1,024^3 by slabs, with the memory that it takes, checked against the mesh of the whole field.
A surface that is wrong is not timed, and the exit status is 1.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from runtime_env import prepare_environment  # noqa: E402  (must run before torch and numba are imported)

prepare_environment()

import numpy as np  # noqa: E402
import torch  # noqa: E402

from errors import UserError  # noqa: E402
from gaussians import Gaussians  # noqa: E402
from mesh_extract import GridSpec, TexturedMesh, export_mesh, extract_fields, extract_mesh  # noqa: E402
from mesh_extract.isosurface_cuda import NODE_DISTANCE, marching_cubes_cuda, marching_cubes_planes  # noqa: E402
from scenes import shell  # noqa: E402
from splat_ply import read_gaussians, write_gaussians  # noqa: E402
from timing import call_times_ms  # noqa: E402

ISO = 0.3125  # exact in single precision, to which PyMCubes rounds its threshold
FILE_RESOLUTION = 128


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=20_000)
    parser.add_argument("--resolutions", type=int, nargs="+", default=[128, 256, 512])
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--no-check", action="store_true", help="PyMCubes takes 10 s at 512^3")
    parser.add_argument("--no-file", action="store_true", help="marching cubes alone")
    parser.add_argument("--by-planes", type=int, default=1024, help="resolution of the run in slabs; 0: none")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device: see python -m cuda_ext")
        return 1
    device = torch.device("cuda")
    gaussians = shell(options.points, torch.Generator().manual_seed(0)).to(device)
    print(f"N = {options.points}, iso = {ISO}, {torch.cuda.get_device_name()}, torch {torch.__version__}")
    print(
        f"{'R':>5} {'median ms':>10} {'spread ms':>16} {'field GB/s':>11} {'vertices':>10} {'faces':>10}  error, voxels"
    )
    wrong = False
    for resolution in options.resolutions:
        try:
            wrong |= not bench(gaussians, resolution, options.repeats, not options.no_check)
        except UserError as error:
            print(f"{resolution:5} {error}")
            wrong = True
    if not options.no_file:
        bench_file(gaussians, options.repeats)
    if options.by_planes:
        wrong |= not bench_planes(gaussians, options.by_planes)
    return int(wrong)


def bench(gaussians: Gaussians, resolution: int, repeats: int, check: bool) -> bool:
    """Check and time one resolution; False if the surface is wrong."""
    field = extract_fields(gaussians, GridSpec.cube(-1, 1, resolution))
    vertices, faces = marching_cubes_cuda(field, ISO)
    error = "not checked"
    if check:
        found = difference(field, vertices, faces)
        if isinstance(found, str):
            print(f"{resolution:5} wrong, not timed: {found}")
            return False
        error = f"{found:.1e}"
    for _ in range(2):  # and once more before the first that counts
        marching_cubes_cuda(field, ISO)
    times_ms = call_times_ms(lambda: marching_cubes_cuda(field, ISO), field.device, repeats)
    median = statistics.median(times_ms)
    spread = f"{min(times_ms):.3f} to {max(times_ms):.3f}"
    rate = field.numel() * 4 / median / 1e6
    counts = f"{len(vertices):10} {len(faces):10}"
    print(f"{resolution:5} {median:10.3f} {spread:>16} {rate:11.0f} {counts}  {error}")
    return True


def difference(field: torch.Tensor, vertices: torch.Tensor, faces: torch.Tensor) -> float | str:
    """Largest distance in voxels from the vertices of PyMCubes on the same field, or what is wrong.

    Measured along the grid edges, ours being kept away from nodes.
    """
    import mcubes

    padded = np.pad(field.cpu().numpy(), 1)
    expected, expected_faces = mcubes.marching_cubes(padded, ISO)
    if (len(vertices), len(faces)) != (len(expected), len(expected_faces)):
        return f"{len(vertices)} vertices, {len(faces)} faces; PyMCubes {len(expected)}, {len(expected_faces)}"
    edges, positions = by_edge(vertices.cpu().numpy().astype(np.float64) + 1, padded.shape)
    expected_edges, expected = by_edge(expected, padded.shape)
    if not np.array_equal(edges, expected_edges):
        return "vertices on other grid edges than PyMCubes'"
    below = np.floor(expected)
    along = (expected > below) * (expected - below).clip(NODE_DISTANCE, 1 - NODE_DISTANCE)
    error = float(np.abs(positions - (below + along)).max())
    limit = 1e-5 if max(field.shape) <= 128 else 1e-4
    return error if error <= limit else f"vertices {error:.1e} voxels from PyMCubes'"


def by_edge(vertices: np.ndarray, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of the grid edges of vertices [V], and the vertices, sorted by edge."""
    axes = np.abs(vertices - np.round(vertices)).argmax(axis=1)
    nodes = np.round(vertices).astype(np.int64)
    rows = np.arange(len(vertices))
    nodes[rows, axes] = np.floor(vertices[rows, axes])
    edges = 3 * np.ravel_multi_index(tuple(nodes.T), shape) + axes
    order = np.argsort(edges)
    return edges[order], vertices[order]


def bench_file(gaussians: Gaussians, repeats: int) -> None:
    """Time the way from a file of Gaussians to a file of their surface, warm: wall clock, synchronised by part."""
    device = gaussians.means.device
    parts: dict[str, list[float]] = {}

    def timed(name: str, work):
        started_s = time.perf_counter()
        result = work()
        torch.cuda.synchronize()
        parts.setdefault(name, []).append(time.perf_counter() - started_s)
        return result

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "gaussians.ply", Path(folder) / "mesh.ply"
        write_gaussians(gaussians, source)
        for _ in range(2 + min(repeats, 7)):
            started_s = time.perf_counter()
            splats = timed("read", lambda: read_gaussians(source).to(device))
            grid = timed("grid", lambda splats=splats: GridSpec.around(splats, FILE_RESOLUTION))
            field = timed("field", lambda splats=splats, grid=grid: extract_fields(splats, grid))
            mesh = timed("surface, copied", lambda field=field, grid=grid: extract_mesh(field, grid, ISO))
            textured = TexturedMesh(
                mesh, np.zeros((1, 2), np.float32), np.zeros_like(mesh.faces), np.full((1, 1, 3), 200, np.uint8)
            )
            timed("normals, write", lambda textured=textured: export_mesh(textured, target))
            parts.setdefault("all", []).append(time.perf_counter() - started_s)
        size = target.stat().st_size
    counts = f"{len(mesh.vertices)} vertices, {len(mesh.faces)} faces, {size} bytes"
    print(f"from .ply to .ply at {FILE_RESOLUTION}^3: {counts}")
    for name, seconds in parts.items():
        print(f"  {name:16} {1e3 * statistics.median(seconds[2:]):8.1f} ms  (first {1e3 * seconds[0]:.0f})")


def bench_planes(gaussians: Gaussians, resolution: int) -> bool:
    """Gaussians to mesh in slabs: median of 3 wall-clock times, and the peak of memory; False if the mesh is wrong."""
    grid = GridSpec.cube(-1, 1, resolution)

    def planes(x0: int, x1: int) -> torch.Tensor:
        return extract_fields(gaussians, grid.slab(x0, x1))

    seconds = []
    for _ in range(4):
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        started_s = time.perf_counter()
        mesh = marching_cubes_planes(planes, grid.shape, ISO)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - started_s)
    peak = torch.cuda.max_memory_reserved() / 1e9
    counts = f"{len(mesh[0])} vertices, {len(mesh[1])} faces"
    whole = marching_cubes_cuda(extract_fields(gaussians, grid), ISO)
    if not all(torch.equal(a, b) for a, b in zip(mesh, whole, strict=True)):
        print(f"by planes at {resolution}^3: wrong, {counts}; the whole field gives {len(whole[0])}, {len(whole[1])}")
        return False
    median_ms = 1e3 * statistics.median(seconds[1:])
    print(f"Gaussians to mesh by planes at {resolution}^3: {median_ms:.1f} ms, {peak:.2f} GB reserved, {counts}")
    return True


if __name__ == "__main__":
    sys.exit(main())
