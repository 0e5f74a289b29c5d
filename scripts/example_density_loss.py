"""Fit Gaussians to a density: what the gradients of extract_fields are for. A few seconds on a CPU.

    python scripts/example_density_loss.py                       # a torus from 400 Gaussians of a ball
    python scripts/example_density_loss.py --device cuda --resolution 96 --points 4000
    python scripts/example_density_loss.py --out outputs/torus   # and write the surface and the splats

The target is a solid torus whose density falls from 1 to 0 across its surface. Nothing but the loss on the field moves
the Gaussians: no pictures, no cameras.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from runtime_env import prepare_environment  # noqa: E402  (must run before torch and numba are imported)

prepare_environment()

import torch  # noqa: E402
import trimesh  # noqa: E402
from torch import Tensor  # noqa: E402

from gaussians import Gaussians  # noqa: E402
from mesh_extract import GridSpec, extract_fields, extract_mesh  # noqa: E402
from splat_ply import write_gaussians  # noqa: E402

LEARNING_RATES = {"means": 0.02, "quats": 0.05, "log_scales": 0.05, "logit_opacities": 0.2}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=400, help="Gaussians")
    parser.add_argument("--resolution", type=int, default=40, help="nodes along each side")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--backend", default="auto", help="of extract_fields")
    parser.add_argument("--out", type=Path, help="folder for torus.ply (surface) and torus_gaussians.ply")
    options = parser.parse_args()

    grid = GridSpec.cube(-1, 1, options.resolution)
    target = torus(grid, options.device)
    start = ball(options.points, torch.Generator().manual_seed(0)).to(options.device)
    started_s = time.perf_counter()
    for step, (loss, gaussians) in enumerate(fit(start, target, grid, options.steps, options.backend)):  # noqa: B007
        if step % 10 == 0 or step == options.steps - 1:
            print(f"step {step:3}: loss {loss:.5f}")
    field = extract_fields(gaussians, grid, options.backend)
    print(f"{time.perf_counter() - started_s:.1f} s; volume in common with the torus: {overlap(field, target):.1%}")
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        mesh = extract_mesh(field, grid, 0.5)
        trimesh.Trimesh(mesh.vertices, mesh.faces, process=False).export(options.out / "torus.ply")
        write_gaussians(gaussians.to("cpu"), options.out / "torus_gaussians.ply")
        print(f"{options.out}: torus.ply, torus_gaussians.ply")
    return 0


def fit(
    start: Gaussians, target: Tensor, grid: GridSpec, steps: int, backend: str = "auto"
) -> Iterator[tuple[float, Gaussians]]:
    """After each step of Adam on the mean squared difference from `target`: the loss before it, and the result."""
    leaves = start.map(lambda value: value.clone().requires_grad_())
    groups = [{"params": [getattr(leaves, name)], "lr": rate} for name, rate in LEARNING_RATES.items()]
    optimiser = torch.optim.Adam(groups)
    for _ in range(steps):
        optimiser.zero_grad()
        loss = (extract_fields(leaves, grid, backend) - target).square().mean()
        loss.backward()
        optimiser.step()
        yield loss.item(), leaves.detach()


def torus(grid: GridSpec, device: str, radius: float = 0.55, thickness: float = 0.22, softness: float = 0.05) -> Tensor:
    """Density [X, Y, Z] of a torus around the y axis: 1 inside, 0 outside, 0.5 on its surface."""
    x, y, z = grid.node_positions(device=device).unbind(-1)
    distance = (((x.square() + z.square()).sqrt() - radius).square() + y.square()).sqrt() - thickness
    return torch.sigmoid(-distance / softness)


def ball(n: int, generator: torch.Generator) -> Gaussians:
    """N small, faint Gaussians in the ball of radius 0.8."""
    directions = torch.nn.functional.normalize(torch.randn(n, 3, generator=generator), dim=-1)
    means = 0.8 * torch.rand(n, 1, generator=generator) ** (1 / 3) * directions
    return Gaussians.create(means, torch.full((n, 3), 0.08), torch.full((n,), 0.2))


def overlap(field: Tensor, target: Tensor) -> float:
    """Nodes inside both, as a share of those inside either."""
    a, b = field > 0.5, target > 0.5
    return float((a & b).sum() / (a | b).sum())


if __name__ == "__main__":
    sys.exit(main())
