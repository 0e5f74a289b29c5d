"""Cameras: OpenCV matrices, made from an orbit around the origin."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

RADIUS = 2.0  # distance of the orbit; with FOVY_DEG the framing that the embedded prior was trained on
FOVY_DEG = 49.1


@dataclass(frozen=True)
class Cameras:
    """C pinhole cameras that share one image size.

    viewmats [C, 4, 4]: world to camera; camera axes x right, y down, z forward.
    Ks [C, 3, 3]: intrinsics in pixels; the centre of pixel (column x, row y) lies at (x + 0.5, y + 0.5).
    """

    viewmats: Tensor
    Ks: Tensor
    width: int
    height: int

    def __len__(self) -> int:
        return self.viewmats.shape[0]

    def __getitem__(self, index: int | slice | list | Tensor) -> "Cameras":
        """The cameras at `index`; an integer gives one camera, still batched."""
        if isinstance(index, int):
            index = [index]
        return Cameras(self.viewmats[index], self.Ks[index], self.width, self.height)

    def to(self, *args, **kwargs) -> "Cameras":
        """As Tensor.to, for device and dtype."""
        return Cameras(self.viewmats.to(*args, **kwargs), self.Ks.to(*args, **kwargs), self.width, self.height)

    def resized(self, width: int, height: int) -> "Cameras":
        """The same cameras with images of another size."""
        scale = self.Ks.new_tensor([width / self.width, height / self.height, 1.0])
        return Cameras(self.viewmats, self.Ks * scale[None, :, None], width, height)

    @property
    def centers(self) -> Tensor:
        """Positions in world space [C, 3]."""
        rotation, translation = self.viewmats[:, :3, :3], self.viewmats[:, :3, 3]
        return -(rotation.transpose(1, 2) @ translation[:, :, None])[:, :, 0]

    def orbit_angles(self) -> tuple[Tensor, Tensor, Tensor]:
        """Azimuths and elevations in degrees and distances from the origin, each [C]."""
        x, y, z = self.centers.unbind(-1)
        radii = self.centers.norm(dim=-1)
        azimuths_deg = torch.rad2deg(torch.atan2(x, z))
        elevations_deg = torch.rad2deg(torch.asin((y / radii).clamp(-1.0, 1.0)))
        return azimuths_deg, elevations_deg, radii


def concatenate(parts: list[Cameras]) -> Cameras:
    """One batch of cameras from several of equal image size."""
    assert len({(p.width, p.height) for p in parts}) == 1
    first = parts[0]
    return Cameras(torch.cat([p.viewmats for p in parts]), torch.cat([p.Ks for p in parts]), first.width, first.height)


def orbit_cameras(
    azimuths_deg,
    elevations_deg,
    radius=RADIUS,
    fovy_deg=FOVY_DEG,
    width=128,
    height=128,
    device=None,
    dtype=torch.float32,
) -> Cameras:
    """Cameras on a sphere around the origin, looking at it, world y up in the image.

    Args:
        azimuths_deg: [C] or a number; 0 lies at +z and grows towards +x.
        elevations_deg: [C] or a number, within (-90, 90); positive is above.
        radius: [C] or a number, world units.
        fovy_deg: vertical field of view.
    """
    azimuths, elevations, radii = torch.broadcast_tensors(
        *(torch.as_tensor(v, dtype=torch.float64).reshape(-1).cpu() for v in (azimuths_deg, elevations_deg, radius))
    )
    azimuths, elevations = torch.deg2rad(azimuths), torch.deg2rad(elevations)
    directions = torch.stack(  # from the origin to the camera [C, 3]
        [elevations.cos() * azimuths.sin(), elevations.sin(), elevations.cos() * azimuths.cos()], dim=-1
    )
    forward = -directions
    up = directions.new_tensor([0.0, 1.0, 0.0]).expand_as(directions)
    right = torch.nn.functional.normalize(torch.linalg.cross(forward, up), dim=-1)
    down = torch.linalg.cross(forward, right)
    count = len(azimuths)
    viewmats = torch.eye(4, dtype=torch.float64).repeat(count, 1, 1)
    viewmats[:, :3, :3] = torch.stack([right, down, forward], dim=1)
    viewmats[:, :3, 3] = -(viewmats[:, :3, :3] @ (directions * radii[:, None])[:, :, None])[:, :, 0]
    focal = 0.5 * height / math.tan(math.radians(fovy_deg) / 2)
    intrinsics = torch.tensor([[focal, 0, width / 2], [0, focal, height / 2], [0, 0, 1]], dtype=torch.float64)
    return Cameras(viewmats, intrinsics.repeat(count, 1, 1), width, height).to(device=device, dtype=dtype)
