"""For the tests of the evaluation: a ball as truth, drawn exactly, and a pipeline that finds it at once."""

import math

import numpy as np
import torch
from torch import Tensor

from cameras import Cameras
from config import Config
from evaluation.measure import Pipeline
from evaluation.objects import HeldOut, Truth, evaluation_cameras
from gaussians import Gaussians
from mesh_extract.mesh import Mesh
from mesh_extract.textured import TexturedMesh
from priors.base import Prior
from views import Views

SIZE = 32
CENTRE = (0.08, -0.05, 0.1)  # in the pipeline's frame, off the axis: a turned or mirrored frame shows
RADIUS = 0.5
calls: list[float] = []  # elevation of every object that `fit` was called for


def ball_views(cameras: Cameras, centre=CENTRE, radius: float = RADIUS, samples: int = 4) -> Views:
    """Pictures of a ball coloured by its normals, `samples` squared rays a pixel."""
    steps = (torch.arange(cameras.width * samples, dtype=torch.float64) + 0.5) / samples
    v, u = torch.meshgrid(steps, steps, indexing="ij")
    pixels = torch.stack([u, v, torch.ones_like(u)], -1)  # [H, W, 3]
    pictures = []
    for viewmat, intrinsics in zip(cameras.viewmats.double(), cameras.Ks.double(), strict=True):
        rotation = viewmat[:3, :3]
        rays = torch.nn.functional.normalize(pixels @ torch.linalg.inv(intrinsics).T @ rotation, dim=-1)
        origin = -rotation.T @ viewmat[:3, 3]
        offset = origin - torch.tensor(centre, dtype=torch.float64)
        b = (rays * offset).sum(-1)
        discriminant = b * b - (offset @ offset - radius**2)
        t = -b - discriminant.clamp_min(0).sqrt()
        normals = (offset + t[..., None] * rays) / radius
        hit = (discriminant > 0).double()[..., None]
        rgba = torch.cat([(0.5 + 0.4 * normals) * hit + 1 - hit, hit], -1)
        rgba = rgba.reshape(cameras.height, samples, cameras.width, samples, 4).mean((1, 3))
        pictures.append(rgba.clamp(0, 1).float())
    stacked = torch.stack(pictures)
    return Views(cameras, stacked[..., :3].contiguous(), stacked[..., 3].contiguous())


def small_truth(count: int = 3) -> Truth:
    """Balls of different sizes, 32 px."""
    elevations = np.arange(count) * 5.0
    views, sources = [], []
    for elevation in elevations:
        cameras, radius = evaluation_cameras(float(elevation), SIZE), true_radius(elevation)
        views.append(to_bytes(ball_views(cameras, radius=radius)))
        sources.append(to_bytes(ball_views(cameras[0].resized(2 * SIZE, 2 * SIZE), radius=radius))[0])
    return Truth("v1", np.arange(count), 10.0 * np.arange(count), elevations, np.stack(sources), np.stack(views))


def true_radius(elevation_deg: float) -> float:
    """Objects differ by their elevation, which is all that the doubles know of them."""
    return RADIUS - 0.004 * elevation_deg


def to_bytes(views: Views) -> np.ndarray:
    return (torch.cat([views.rgb, views.alpha[..., None]], -1) * 255).round().to(torch.uint8).numpy()


def ball_mesh(radius: float = RADIUS, centre=CENTRE, subdivisions: int = 3) -> Mesh:
    import trimesh

    sphere = trimesh.creation.icosphere(subdivisions=subdivisions, radius=radius)
    return Mesh(np.asarray(sphere.vertices) + np.asarray(centre), np.asarray(sphere.faces))


def fit(picture, config: Config, device, generator) -> Gaussians:
    """A shell of splats on the ball, coloured by normals; each a little off, as the generator says."""
    calls.append(config.elevation)
    n, radius = 1500, true_radius(config.elevation)
    turns = torch.arange(n) * math.pi * (3 - math.sqrt(5))
    heights = 1 - (torch.arange(n) + 0.5) * 2 / n
    across = (1 - heights**2).sqrt()
    normals = torch.stack([across * turns.cos(), heights, across * turns.sin()], -1)
    means = torch.tensor(CENTRE) + 0.85 * radius * normals + 0.002 * torch.randn(n, 3, generator=generator)
    return Gaussians.create(means, torch.full((n, 3), 0.025), torch.full((n,), 0.95), 0.5 + 0.4 * normals)


def mesh(gaussians: Gaussians, config: Config, reference, times) -> tuple[TexturedMesh, dict]:
    """The ball, grey; the picture comes with the camera that sees it."""
    if reference is not None:
        picture, camera = reference
        assert (picture.size, 1, camera.width) == (2 * SIZE, len(camera), picture.size)
    with times.stage("extract"):
        ball = ball_mesh(true_radius(config.elevation), subdivisions=2)
    uvs = np.array([[0.25, 0.25], [0.75, 0.25], [0.25, 0.75]], np.float32)
    uv_faces = np.tile(np.arange(3, dtype=np.int32), (len(ball.faces), 1))
    return TexturedMesh(ball, uvs, uv_faces, np.full((16, 16, 3), 128, np.uint8)), {"dropped": 0}


class BallPrior(Prior):
    """Sees the ball in any noise, plus a little of the noise itself."""

    channels = 4
    image_size = SIZE

    def set_source(self, prepared, elevation_deg: float) -> None:
        pass

    def alpha_sigma(self, t: float) -> tuple[float, float]:
        return (0.0, 1.0) if t == 1.0 else (math.cos(math.pi / 2 * t), math.sin(math.pi / 2 * t))

    def predict_noise(self, latents: Tensor, t: float, cameras: Cameras, guidance: float) -> Tensor:
        return self.predict(latents, t, cameras, guidance)[1]

    def predict(self, latents: Tensor, t: float, cameras: Cameras, guidance: float) -> tuple[Tensor, Tensor]:
        views = ball_views(cameras, samples=1)
        true = torch.cat([views.rgb, views.alpha[..., None]], -1).movedim(-1, 1) * 2 - 1
        x0 = (true + 0.05 * latents).clamp(-1, 1)
        alpha, sigma = self.alpha_sigma(t)
        return x0, (latents - alpha * x0) / sigma


def make_prior(config: Config, device: torch.device) -> Prior:
    return BallPrior(device)


def fuse(views: Views, config: Config, generator: torch.Generator) -> Gaussians:
    before = list(calls)
    fused = fit(None, config, None, generator)
    calls[:] = before  # only fits of objects are counted
    return fused


def true_surface(item: HeldOut) -> tuple[Mesh, int]:
    return ball_mesh(true_radius(item.elevation_deg)), 1


DOUBLES = Pipeline(fit, mesh, make_prior, fuse, true_surface, ball_mesh)
