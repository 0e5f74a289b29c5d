"""A picture and a prior -> Gaussians: score-based iterative reconstruction.

Each round renders the Gaussians from random cameras, has the prior improve the renders (`sir.target_views`), and moves
the Gaussians towards the result (`optimise.SplatOptimiser`). After MicroDreamer (arXiv:2404.19525), algorithm 1; what
differs by default: a hull of the first views as the start, targets of the last rounds kept, coverage in the loss.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import torch
from tqdm import tqdm

import views as view_sets
from cameras import Cameras
from config import FitConfig
from densify import initial_scales
from errors import UserError
from gaussians import Gaussians
from gs_renderer import render
from hull import ball_points, hull_points
from optimise import SplatOptimiser
from profiling import profiled
from registry import lookup
from sir import PLANS, NoisePlan, continuous_plan, evaluations, target_views
from views import Views, from_images, reference_view, to_images
from white import white_before_nothing

if TYPE_CHECKING:
    from prepare import PreparedImage
    from priors.base import Prior

logger = logging.getLogger(__name__)

MAX_ELEVATION_DEG = 80.0  # of the imagined views: nearer to the pole the azimuth means nothing


def fit_gaussians(
    prepared: PreparedImage | None,
    prior: Prior,
    config: FitConfig,
    elevation_deg: float,
    generator: torch.Generator,
    progress: bool = False,
    device: torch.device | None = None,
) -> Gaussians:
    """Reconstruct the object in a picture, or the one that a text tells of.

    Args:
        prepared: the picture; None for a prior of texts alone.
        prior: imagines other views; its source is set here.
        elevation_deg: from which the picture was taken, positive is above.
        generator: on the CPU; all randomness comes from it.
        progress: show a bar on stderr, if that is a terminal.
        device: of the fit, the prior has its own; None: the picture's, without one the CPU.
    Returns:
        Gaussians in the object's frame (y up, the picture seen from azimuth 0), every parameter finite.
    Raises:
        UserError: nothing can be fitted: the prior returns no finite or only empty views.
    """
    plans = lookup(PLANS, config.plan, "fit.plan")(
        config.denoise_steps, config.rounds, config.t_start, config.t_end, config.inversion_ratio
    )
    if config.init_denoise_steps:
        plans[0] = continuous_plan(1.0, 1.0, config.init_denoise_steps)
    if device is None:
        device = torch.device("cpu") if prepared is None else prepared.rgb.device
    prior.set_source(prepared, elevation_deg)
    reference = reference_view(prepared, prior, elevation_deg)
    total_steps = config.init_steps + config.rounds * config.round_steps
    interval = (config.guidance_low, config.guidance_high)
    views_evaluated = sum(
        evaluations(prior, plan, config.views, interval, config.inversion_guidance, from_noise=k == 0)
        for k, plan in enumerate(plans)
    )
    logger.info(
        "%d rounds of %d views: %d view evaluations of the prior, %d optimiser steps",
        len(plans), config.views, views_evaluated, total_steps,
    )  # fmt: skip

    optimiser: SplatOptimiser | None = None
    remembered: list[Views] = []
    with tqdm(total=views_evaluated + total_steps, disable=None if progress else True, leave=False) as bar:
        for k, plan in enumerate(plans):
            bar.set_description(f"round {k}/{config.rounds}: views")
            started_s = time.perf_counter()
            cameras = draw_cameras(prior, config, elevation_deg, generator)
            known = None if optimiser is None else optimiser.gaussians
            targets = imagine(prior, known, cameras, plan, config, generator, device, bar)
            imagined_s = time.perf_counter()
            if optimiser is None:
                first = first_gaussians(targets, reference, config, generator)
                optimiser = SplatOptimiser(first, config, total_steps, generator)
            remembered = [*remembered, targets][-config.memory :]
            bar.set_description(f"round {k}/{config.rounds}: splats")
            loss = optimiser.run(
                view_sets.concatenate(remembered),
                reference,
                config.init_steps if k == 0 else config.round_steps,
                sharpen=k > config.rounds - config.entropy_rounds,
                on_step=lambda loss: (bar.set_postfix(loss=f"{loss:.4f}", refresh=False), bar.update(1)),
            )
            logger.info(
                "round %d: noise %.2f, %d calls of the prior in %.1f s, loss %.4f, %d Gaussians in %.1f s",
                k, plan.sampling[0], plan.calls, imagined_s - started_s, loss, len(optimiser.gaussians),
                time.perf_counter() - imagined_s,
            )  # fmt: skip
    optimiser.prune(config.final_opacity, config.final_scale)
    return optimiser.gaussians if config.white_scale == 0 else without_haze(optimiser.gaussians, prior, config)


def without_haze(gaussians: Gaussians, prior: Prior, config: FitConfig) -> Gaussians:
    """Less the white Gaussians that cover nothing but the white background."""
    haze = white_before_nothing(gaussians, config.white_scale, prior.radius, prior.fovy_deg)
    count = int(haze.sum())
    if count == len(gaussians):
        logger.warning("all Gaussians are white: none is dropped for that")
        return gaussians
    logger.info("dropped %d white Gaussians before the white background", count)
    return gaussians[~haze]


@profiled
def imagine(
    prior: Prior,
    gaussians: Gaussians | None,
    cameras: Cameras,
    plan: NoisePlan,
    config: FitConfig,
    generator: torch.Generator,
    device: torch.device,
    bar: tqdm | None = None,
) -> Views:
    """The prior's views from `cameras`: from pure noise, or from renders of the Gaussians."""
    images = None
    if gaussians is not None:
        with torch.no_grad():
            rendered = render(gaussians, cameras.to(device))
        images = to_images(rendered.rgb, rendered.alpha, prior.channels)
    images = target_views(
        prior,
        images,
        cameras,
        plan,
        eta=config.eta,
        guidance_interval=(config.guidance_low, config.guidance_high),
        inversion_guidance=config.inversion_guidance,
        generator=generator,
        on_call=None if bar is None else bar.update,
    )
    imagined = from_images(images.to(device), cameras.to(device))
    finite = imagined.finite()
    if len(finite) < len(imagined):
        logger.warning("left out %d of the prior's views: not finite", len(imagined) - len(finite))
    if len(finite) == 0:
        raise UserError(f"prior.name: {type(prior).__name__} returned no finite view")
    return finite


def draw_cameras(prior: Prior, config: FitConfig, elevation_deg: float, generator: torch.Generator) -> Cameras:
    """Cameras of one round: evenly spaced azimuths from a random one, random elevations.

    Views that the prior denoises jointly follow each other, evenly spaced by themselves and at one elevation.
    """
    count = config.views
    group = prior.group_size if count % prior.group_size == 0 else 1
    groups = count // group
    base = torch.rand(1, generator=generator, dtype=torch.float64) * 360.0
    # [groups, group]: group g starts g steps of the fine spacing after the first
    azimuths = base + 360.0 / count * (torch.arange(groups)[:, None] + groups * torch.arange(group)[None, :])
    low, high = elevation_bounds(config, elevation_deg)
    elevations = low + (high - low) * torch.rand(groups, 1, generator=generator, dtype=torch.float64)
    return prior.orbit(azimuths.reshape(-1), elevations.expand(groups, group).reshape(-1))


def elevation_bounds(config: FitConfig, elevation_deg: float) -> tuple[float, float]:
    """Lowest and highest elevation of the views, degrees.

    As in the official code: the range around the picture's elevation, widened to cover the same range around 0.
    """
    low = max(min(config.elevation_low, config.elevation_low + elevation_deg), -MAX_ELEVATION_DEG)
    high = min(max(config.elevation_high, config.elevation_high + elevation_deg), MAX_ELEVATION_DEG)
    return low, max(low, high)


@profiled
def first_gaussians(
    targets: Views, reference: Views | None, config: FitConfig, generator: torch.Generator
) -> Gaussians:
    """Where the fit starts: coloured points in the visual hull of the first views, or grey ones in a ball."""
    found = None
    if config.init == "hull" and targets.alpha is not None:
        seen = targets if reference is None else view_sets.concatenate([targets, reference])
        found = hull_points(seen.rgb, seen.alpha, seen.cameras, config.points, generator, config.hull_agreement)
        if found is None:
            logger.warning("the first views have no common hull: starting from a ball")
    points, colours = found if found is not None else ball_points(config.points, generator)
    points, colours = points.to(targets.rgb), colours.to(targets.rgb)
    opacities = points.new_full((len(points),), config.init_opacity)
    scales = initial_scales(points).clamp_max(config.max_scale)
    return Gaussians.create(points, scales[:, None].repeat(1, 3), opacities, colours)
