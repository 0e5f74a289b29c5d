"""Gaussian blur of fields and pictures."""

import numpy as np
import torch
from torch import Tensor


def gaussian_blur(values: Tensor, sigma: float, axes: tuple[int, ...], truncate: float) -> Tensor:
    """Blur along some axes, one after the other; what lies beyond the border counts as 0.

    Args:
        values: float32 or float64, of any shape.
        sigma: standard deviation in elements, above 0.
        truncate: standard deviations after which the kernel ends.
    Returns:
        A new tensor; each axis is summed in float64, then rounded to the dtype of `values`.
    """
    if values.device.type != "cpu":
        from mesh_extract import field_ops_cuda

        return field_ops_cuda.blur(values, kernel_half(sigma, truncate), axes)
    from scipy.ndimage import gaussian_filter

    sigmas = [sigma if axis in axes else 0.0 for axis in range(values.ndim)]
    return torch.from_numpy(gaussian_filter(values.detach().numpy(), sigmas, mode="constant", truncate=truncate))


def kernel_half(sigma: float, truncate: float) -> np.ndarray:
    """scipy's weights [radius + 1], float64, from the middle outwards."""
    radius = int(truncate * sigma + 0.5)
    weights = np.exp(-0.5 / sigma**2 * np.arange(-radius, radius + 1) ** 2)
    return (weights / weights.sum())[radius:]
