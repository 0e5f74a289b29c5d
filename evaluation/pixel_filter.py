"""Meshes drawn through the pixel filter that the rasteriser of splats has, so that edges of both are equally soft."""

import torch
from torch import Tensor

from cameras import Cameras
from mesh_extract.mesh_raster import render_mesh
from mesh_extract.textured import TexturedMesh
from rasterize.definition import EPS2D

_SUPERSAMPLE = 4  # samples along a pixel's side: a quarter pixel is half of the filter's standard deviation


def render_mesh_as_splats(textured: TexturedMesh, cameras: Cameras, background=(1.0, 1.0, 1.0)) -> Tensor:
    """Draw a textured mesh as if its surface were splatted: through a Gaussian of variance EPS2D, in pixels².

    A rasteriser of Gaussians adds EPS2D to the variance of everything it draws (rasterize/definition.py, step 2), a
    low-pass filter that box-filtered pixels do not have. Where a silhouette is a little off, a sharp edge costs more
    PSNR than a soft one. Beside the plain pictures, by which the mesh is judged, these tell how much of the difference
    from the splats is that.

    Returns:
        rgb [C, H, W, 3] over the background.
    """
    large = cameras.resized(cameras.width * _SUPERSAMPLE, cameras.height * _SUPERSAMPLE)
    drawn = render_mesh(textured, large, background, supersample=1)
    along_y = _gaussian_rows(cameras.height, _SUPERSAMPLE).to(drawn.rgb)
    along_x = _gaussian_rows(cameras.width, _SUPERSAMPLE).to(drawn.rgb)
    # One side after the other: all three at once multiplies the two matrices with each other first, 17 GB at 128².
    columns = torch.einsum("yi,cijk->cyjk", along_y, drawn.rgb)
    return torch.einsum("xj,cyjk->cyxk", along_x, columns)


def _gaussian_rows(size: int, supersample: int) -> Tensor:
    """Weights [size, size * supersample] of samples along one side for each pixel; rows sum to 1."""
    pixels = torch.arange(size, dtype=torch.float64) + 0.5
    samples = (torch.arange(size * supersample, dtype=torch.float64) + 0.5) / supersample
    weights = torch.exp(-((pixels[:, None] - samples[None, :]) ** 2) / (2 * EPS2D))
    return weights / weights.sum(dim=1, keepdim=True)
