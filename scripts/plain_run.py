"""The public priors and the fit as one would write them first: what scripts/bench_prior.py measures speed-ups against.

Half precision, eager, no CUDA graphs, diffusers' own networks, attention and memory layout; both halves of the guidance
in every call; one render a view; PyTorch's own loss and Adam. Nothing waits for the GPU that need not. The same models,
schedule, hyper-parameters and files as the app.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch
from torch import Tensor

import fit
import views as view_sets
from cameras import Cameras
from densify import bound_shapes
from gs_renderer import Rendered, render
from optimise import SplatOptimiser, difference
from priors import PRIORS
from priors.ldm_networks import Network, Runtime
from priors.zero123 import Zero123Prior
from priors.zero123_networks import predict
from views import Views


class PlainZero123Prior(Zero123Prior):
    """Both halves in every call, inversion included."""

    def network_output(self, latents: Tensor, t: float, cameras: Cameras, guidance: float) -> Tensor:
        source, tokens = self._conditions_of(cameras, 2.0)
        output = self.unet.run(predict, latents.repeat(2, 1, 1, 1), source, self.step_tensor(t, len(tokens)), tokens)
        return self.memory.combine(*output.chunk(2), guidance, t, cameras)


class PlainOptimiser(SplatOptimiser):
    """A render, a loss and a backward pass a view."""

    def __init__(self, *arguments, **options) -> None:
        super().__init__(*arguments, **options)
        self._fused = None  # the watched steps, one after the other

    def run(self, targets: Views, reference: Views | None, steps: int, sharpen=False, on_step=None) -> float:
        losses = [self._plain_step(targets, reference) for _ in range(steps)]
        if on_step is not None:
            for _ in losses:
                on_step(0.0)
        return float(torch.stack(losses[steps // 2 :]).mean())

    def _plain_step(self, targets: Views, reference: Views | None) -> Tensor:
        config, gaussians, count = self.config, self.adam.gaussians, len(targets)
        if reference is not None:
            targets = view_sets.concatenate([targets, reference])
        self.adam.zero_grad()
        total, drawn = 0.0, []
        for i in range(len(targets)):
            rendered = render(gaussians, targets.cameras[i])
            rendered.means2d.retain_grad()
            drawn.append(rendered)
            of_reference = i >= count
            rgb_weight = config.reference_rgb if of_reference else 1.0 / count
            loss = rgb_weight * difference(rendered.rgb, targets.rgb[i : i + 1], config.loss).sum()
            alpha_weight = config.reference_alpha if of_reference else config.view_alpha / count
            if targets.alpha is not None and alpha_weight > 0:
                loss = (
                    loss + alpha_weight * difference(rendered.alpha, targets.alpha[i : i + 1], config.alpha_loss).sum()
                )
            total = total + loss
        total.backward()
        for i, rendered in enumerate(drawn):
            weight = config.reference_rgb if i >= count else 1.0 / count
            pulls = rendered.means2d.grad / weight
            self.statistics.add(pulls, rendered.radii, targets.cameras.width, targets.cameras.height)
        self.adam.step(self._rates())
        with torch.no_grad():
            bound_shapes(gaussians, config.max_scale, config.max_ratio)
        self.steps_done += 1
        self._densify_if_due()
        return total.detach()


def render_one_by_one(gaussians, cameras: Cameras, *arguments, **options) -> Rendered:
    """As `render`, a camera a call; for images that need no gradients."""
    drawn = [render(gaussians, cameras[i], *arguments, **options) for i in range(len(cameras))]
    return Rendered(
        *(torch.cat([getattr(one, name) for one in drawn]) for name in ("rgb", "alpha", "depth", "means2d", "radii"))
    )


@contextmanager
def plainly() -> Iterator[None]:
    """Within it the app runs this way."""
    from diffusers.models.attention_processor import AttnProcessor2_0

    def networks_as_they_are(network: Network) -> torch.nn.Module:
        if network._module is None:
            network._module = network._build(network.dtype, network._runtime.device)
            if hasattr(network._module, "set_attn_processor"):
                network._module.set_attn_processor(AttnProcessor2_0())
        return network._module

    def cast(network: Network, tensor: Tensor) -> Tensor:
        dtype = torch.float32 if tensor.dim() == 1 else network.dtype
        return tensor.to(network._runtime.device, dtype)

    def runtime(config, device: torch.device, *thresholds: float) -> Runtime:
        return Runtime(device, torch.float16 if device.type == "cuda" else torch.float32, fused=False)

    with (
        patch.dict(PRIORS, zero123=PlainZero123Prior),
        patch.object(fit, "SplatOptimiser", PlainOptimiser),
        patch.object(fit, "render", render_one_by_one),
        patch.object(Network, "module", property(networks_as_they_are)),
        patch.object(Network, "cast", cast),
        patch.object(Runtime, "from_config", runtime),
    ):
        yield
