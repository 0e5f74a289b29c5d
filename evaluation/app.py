"""The app's own stages, as the evaluation calls them."""

from dataclasses import replace

import torch

import pipeline as app
from cameras import Cameras
from config import Config
from evaluation.measure import Pipeline
from fit import first_gaussians
from gaussians import Gaussians
from mesh_extract import TexturedMesh
from optimise import SplatOptimiser
from prepare import PreparedImage
from priors import PRIORS
from priors.base import Prior
from registry import lookup
from stages import StageTimes
from views import Views


def fit(picture: PreparedImage, config: Config, device: torch.device, generator: torch.Generator) -> Gaussians:
    """As a run of the app, without a progress bar."""
    return app.fit_stage(picture, config, device, generator, show_progress=False)


def mesh(
    gaussians: Gaussians, config: Config, reference: tuple[PreparedImage, Cameras] | None, times: StageTimes
) -> tuple[TexturedMesh, dict]:
    """As a run of the app."""
    return app.mesh_stage(gaussians, config, reference, times)


def make_prior(config: Config, device: torch.device) -> Prior:
    """The prior of the configuration, every view by itself."""
    settings = replace(config.prior, joint=False)
    return lookup(PRIORS, settings.name, "prior.name")(settings, device)


def fuse(views: Views, config: Config, generator: torch.Generator) -> Gaussians:
    """Gaussians fitted to fixed pictures: the fit's start, loss, rates and number of steps, without its rounds."""
    settings = config.fit
    steps = settings.init_steps + settings.rounds * settings.round_steps
    first = first_gaussians(views, None, settings, generator)
    optimiser = SplatOptimiser(first, settings, steps, generator)
    optimiser.run(views, None, steps, sharpen=False)
    optimiser.prune(settings.final_opacity, settings.final_scale)
    return optimiser.gaussians


APP = Pipeline(fit=fit, mesh=mesh, make_prior=make_prior, fuse=fuse)
