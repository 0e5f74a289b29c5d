"""The first times of a run on a GPU, gone through in the background: a fit's while the program still starts.

What is slow the first time (CUDA's libraries are loaded, kernels sent to the device, the prior read) hardly holds
Python's lock; imports, and the cutting out of the picture, use no GPU. A rehearsal leaves nothing behind but the prior:
no recorded graph, no setting of torch, and its random numbers are its own. What goes wrong in it goes wrong again where
it is needed, and is told there.
"""

import importlib
import logging
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import torch

from cameras import orbit_cameras
from config import Config, FitConfig
from fit import first_gaussians
from gs_renderer import render
from optimise import SplatOptimiser
from priors import PRIORS
from priors.embedded import EmbeddedPrior
from priors.make import make_prior
from views import Views

logger = logging.getLogger(__name__)

_IMPORTED_LATE = ("fast_simplification", "trimesh.exchange.gltf", "scipy.ndimage")  # by the last stages
_POINTS = 512  # Gaussians: kernels are the same for any number
_STEPS = 3
_SWITCH_S = 5e-4  # between threads, for as long as it takes; by default one that computes keeps the lock for 5 ms


def start(config: Config, device: torch.device) -> threading.Thread | None:
    """Begin the rehearsal of a run; its thread, or None where there is nothing to rehearse.

    Only the prior that comes along is made ahead: others may be large, or have to be fetched, which should not begin
    before the picture is known to be good. Without deterministic=true alone: its settings hold for all threads.
    """
    if device.type != "cuda" or config.load or config.deterministic or PRIORS.get(config.prior.name) != EmbeddedPrior:
        return None
    # No daemon: a thread in the middle of CUDA must not outlive the interpreter.
    thread = threading.Thread(target=_try, args=(config, device), name="rehearsal")
    thread.start()
    return thread


def start_late(device: torch.device) -> threading.Thread | None:
    """Begin what the last stages of a run on a GPU do for the first time on the CPU; None where that is busy anyway.

    Best beside the rehearsal, which often waits for CUDA: a fit launches kernels all the time, and needs Python's lock.
    """
    if device.type != "cuda":
        return None
    thread = threading.Thread(target=_go_late, name="late", daemon=True)
    thread.start()
    return thread


def _go_late() -> None:
    """Import modules, then let numba load what it needs for the first of its functions.

    Not scipy's modules that the rehearsal needs: two threads that import them at once may meet half-made ones.
    """
    for name in _IMPORTED_LATE:
        try:
            importlib.import_module(name)
        except Exception as error:  # whatever: those who need it say so
            logger.debug("import of %s ahead of its use: %s", name, error)
    try:
        uv = importlib.import_module("mesh_extract.uv")  # not above: it would keep the fit's rehearsal waiting
        uv.overlap_share(np.array([[0.1, 0.1], [0.9, 0.1], [0.1, 0.9]]), np.array([[0, 1, 2]], np.int32), 8)
    except Exception as error:
        logger.debug("numba ahead of its use: %s", error)


def _try(config: Config, device: torch.device) -> None:
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_S)
    started_s = time.perf_counter()
    try:
        rehearse(config, device)
        logger.debug("rehearsed the fit in %.2f s", time.perf_counter() - started_s)
    except Exception as error:  # whatever: the run itself comes to it
        logger.debug("the rehearsal of the fit failed: %s", error)
    finally:
        sys.setswitchinterval(before_s)


def rehearse(config: Config, device: torch.device) -> None:
    """Make the embedded prior, call its network, and take a few steps with a handful of Gaussians."""
    prior = make_prior(config.prior, device)
    assert isinstance(prior, EmbeddedPrior)
    prior.rehearse(config.fit.views)
    # The steps need scipy. Two threads that import parts of it at once may meet half-made modules: wait for the other.
    importlib.import_module("pipeline")
    _take_steps(config.fit, prior.image_size, device)


def _take_steps(config: FitConfig, size: int, device: torch.device) -> None:
    """Steps towards pictures of a disc. Plain ones: others may not wait for the GPU while a graph is recorded."""
    count = config.batch_views or config.views
    cameras = orbit_cameras(torch.arange(count) * (360.0 / count), torch.zeros(count), width=size, height=size)
    ramp = torch.linspace(-1.0, 1.0, size)
    disc = (ramp[:, None] ** 2 + ramp**2 < 0.25).float().expand(count, size, size).contiguous()
    targets = Views(cameras.to(device), (1 - disc[..., None] / 2).repeat(1, 1, 1, 3).to(device), disc.to(device))
    settings = replace(config, points=_POINTS, max_points=2 * _POINTS, densify_every=_STEPS, graphs=False)
    generator = torch.Generator().manual_seed(0)
    reference = targets[torch.zeros(1, dtype=torch.long, device=device)]
    optimiser = SplatOptimiser(first_gaussians(targets, reference, settings, generator), settings, _STEPS, generator)
    optimiser.run(targets, reference, _STEPS, sharpen=True)
    optimiser.prune(config.final_opacity, config.final_scale)
    with torch.no_grad():
        render(optimiser.gaussians, targets.cameras)
