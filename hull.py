"""The visual hull of the prior's first views: where the fit's first Gaussians go."""

import torch
from torch import Tensor

from cameras import Cameras
from profiling import profiled

EXTENT = 0.9  # half the side of the carved cube: the whole frame of the default orbit at the origin
FALLBACK_RADIUS = 0.5  # ball of the official code


def carve(alphas: Tensor, cameras: Cameras, resolution: int = 64, agreement: float = 0.9) -> Tensor:
    """Voxels that lie inside the silhouettes.

    Args:
        alphas: coverage of V views [V, H, W], in [0, 1].
        agreement: share of the views that must cover a voxel; below 1, since independent views disagree at their rims.
    Returns:
        Occupancy [R, R, R] of bool; voxel (i, j, k) is centred at -EXTENT + (index + 0.5) * 2 EXTENT / R.
    """
    points = voxel_centres(resolution, alphas.device, alphas.dtype)
    votes = alphas.new_zeros(points.shape[0])
    for v in range(len(cameras)):
        votes += sample_view(alphas[v, None], cameras, v, points)[0] > 0.5
    needed = agreement * len(cameras) - 1e-4
    return (votes >= needed).reshape(resolution, resolution, resolution)


def voxel_centres(resolution: int, device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    """[R^3, 3], x slowest."""
    axis = ((torch.arange(resolution, device=device, dtype=dtype) + 0.5) / resolution * 2 - 1) * EXTENT
    return torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), dim=-1).reshape(-1, 3)


def sample_view(image: Tensor, cameras: Cameras, view: int, points: Tensor) -> Tensor:
    """Bilinear samples [C, P] of an image [C, H, W] where camera `view` sees the points [P, 3]; 0 outside the image."""
    viewmat, intrinsics = cameras.viewmats[view].to(points), cameras.Ks[view].to(points)
    local = points @ viewmat[:3, :3].T + viewmat[:3, 3]
    pixels = local @ intrinsics.T
    pixels = pixels[:, :2] / pixels[:, 2:].clamp_min(1e-6)
    size = pixels.new_tensor([cameras.width, cameras.height])
    grid = pixels / size * 2 - 1  # align_corners=False has pixel centres at + 0.5, as the cameras do
    grid = torch.where(local[:, 2:] > 1e-6, grid, torch.full_like(grid, 2.0))
    return torch.nn.functional.grid_sample(image[None], grid[None, None], align_corners=False)[0, :, 0]


@profiled
def hull_points(
    rgb: Tensor,
    alphas: Tensor,
    cameras: Cameras,
    count: int,
    generator: torch.Generator,
    agreement: float = 0.9,
    inner: float = 0.25,
) -> tuple[Tensor, Tensor] | None:
    """Points in the visual hull, coloured from the views that face them.

    Args:
        rgb, alphas: V views [V, H, W, 3] over white and [V, H, W].
        count: number of points.
        generator: on the CPU.
        agreement: share of the views that must cover a point.
        inner: share of the points inside, where no view looks; they make the object solid for the density field.
    Returns:
        Positions and colours, each [count, 3]; None where the silhouettes have nothing in common.
    """
    resolution = 64
    occupied = carve(alphas, cameras, resolution, agreement)
    filled = occupied.to(alphas.dtype)[None, None]
    eroded = -torch.nn.functional.max_pool3d(-filled, 3, stride=1, padding=1)  # the border counts as inside: harmless
    inside = eroded[0, 0] > 0.5
    shell = occupied & ~inside
    if int(shell.sum()) < 8:
        return None
    inner_count = int(count * inner) if bool(inside.any()) else 0
    cells = torch.cat(
        [_draw(shell.flatten(), count - inner_count, generator), _draw(inside.flatten(), inner_count, generator)]
    )
    jitter = torch.rand(count, 3, generator=generator).to(alphas) - 0.5
    points = voxel_centres(resolution, alphas.device, alphas.dtype)[cells] + jitter * (2 * EXTENT / resolution)
    normals = _normals(filled, points)
    return points, _colours(rgb, alphas, cameras, points, normals)


def _draw(mask: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """`count` indices of set entries of a flat mask, as evenly as can be: whole rounds through them, then a sample."""
    indices = mask.nonzero()[:, 0]
    if count == 0:
        return indices[:0]
    order = torch.cat(
        [torch.randperm(len(indices), generator=generator) for _ in range(-(-count // len(indices)))]
    )[:count]
    return indices[order.to(indices.device)]


def _normals(filled: Tensor, points: Tensor) -> Tensor:
    """Outward unit normals [P, 3] from the smoothed occupancy [1, 1, R, R, R]."""
    smooth = filled
    for _ in range(2):
        smooth = torch.nn.functional.avg_pool3d(smooth, 5, stride=1, padding=2)
    gradient = torch.stack(torch.gradient(smooth[0, 0]))  # [3, R, R, R]
    # grid_sample's coordinates run (last, middle, first) over the volume's axes.
    grid = (points / EXTENT).flip(-1)[None, None, None]
    sampled = torch.nn.functional.grid_sample(gradient[None], grid, align_corners=False)[0, :, 0, 0].T
    return torch.nn.functional.normalize(-sampled, dim=-1)


def _colours(rgb: Tensor, alphas: Tensor, cameras: Cameras, points: Tensor, normals: Tensor) -> Tensor:
    """Colours [P, 3]: the views' samples, weighted by how squarely each view faces the point and by coverage."""
    total = points.new_full((points.shape[0], 1), 1e-4)
    colours = total * 0.5
    for v, centre in enumerate(cameras.centers.to(points)):
        toward = torch.nn.functional.normalize(centre - points, dim=-1)
        facing = (toward * normals).sum(-1, keepdim=True).clamp_min(0.0) ** 4
        image = torch.cat([rgb[v].permute(2, 0, 1), alphas[v, None]])
        sample = sample_view(image, cameras, v, points).T
        weight = facing * sample[:, 3:]
        total = total + weight
        colours = colours + weight * sample[:, :3]
    return (colours / total).clamp(0.0, 1.0)


def ball_points(count: int, generator: torch.Generator, radius: float = FALLBACK_RADIUS) -> tuple[Tensor, Tensor]:
    """Grey points spread evenly in a ball [count, 3], and their colours."""
    directions = torch.nn.functional.normalize(torch.randn(count, 3, generator=generator), dim=-1)
    points = directions * radius * torch.rand(count, 1, generator=generator) ** (1 / 3)
    # As the official code: the shade is drawn in [0, 1 / 255] as a harmonic, that is grey.
    return points, torch.full((count, 3), 0.5)
