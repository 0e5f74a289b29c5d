"""Adam steps that move Gaussians towards target pictures, with densification and pruning on the way."""

import logging
import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

import views as view_sets
from adam import GaussianAdam
from config import FitConfig
from densify import GradientStatistics, bound_shapes, grow, is_finite, worth_keeping
from errors import UserError
from gaussians import Gaussians
from gs_renderer import render
from optimise_cuda import CHECK_EVERY, FusedSteps
from views import Views

logger = logging.getLogger(__name__)

MAX_BAD_STEPS = 20  # steps in a row without a finite loss after which the fit gives up
NOT_FINITE = "the fit's loss is not a finite number any more: lower fit.lr_* or another seed may help"


class SplatOptimiser:
    """The Gaussians under way, with what belongs to them: moments of Adam, statistics, the step count."""

    def __init__(self, gaussians: Gaussians, config: FitConfig, total_steps: int, generator: torch.Generator) -> None:
        self.config = config
        self.generator = generator
        self.adam = GaussianAdam(gaussians)
        self.statistics = GradientStatistics(len(gaussians), gaussians.means.device)
        self.total_steps = max(1, total_steps)
        self.steps_done = 0
        self._bad_steps = 0
        device = gaussians.means.device
        self._fused = FusedSteps(config, device) if device.type == "cuda" else None

    @property
    def gaussians(self) -> Gaussians:
        """The present Gaussians, without gradients."""
        return self.adam.gaussians.detach()

    def run(
        self,
        targets: Views,
        reference: Views | None,
        steps: int,
        sharpen: bool = False,
        on_step: Callable[[float], None] | None = None,
    ) -> float:
        """Take `steps` steps, each on some of the targets and the reference; returns the mean loss of the last half.

        sharpen: drive the opacities to 0 or 1.
        on_step: told the loss of each step.
        """
        losses = []
        take = self._watched_steps if self._fused is None else self._fused_steps
        for i, loss in enumerate(take(targets, reference, steps, sharpen)):
            if on_step is not None:
                on_step(loss)
            if i >= steps // 2:
                losses.append(loss)
        return sum(losses) / max(1, len(losses))

    def _watched_steps(self, targets: Views, reference: Views | None, steps: int, sharpen: bool) -> Iterator[float]:
        """Step by step, each looked at before the next; gives their losses."""
        batches = self._batches(len(targets))
        for _ in range(steps):
            yield self._step(targets[next(batches)], reference, sharpen)

    def _fused_steps(self, targets: Views, reference: Views | None, steps: int, sharpen: bool) -> Iterator[float]:
        """On a GPU: many steps at once, looked at when they are done; gives their losses."""
        config, batches = self.config, self._batches(len(targets))
        batch = min(config.batch_views or len(targets), len(targets))
        self._fused.show(targets, reference, batch, config.entropy if sharpen else 0.0)
        while steps > 0:
            count = min(steps, CHECK_EVERY)
            if config.densify_every:
                count = min(count, config.densify_every - self.steps_done % config.densify_every)
            picks = torch.stack([next(batches) for _ in range(count)])
            outcome = self._fused.take(picks, self.adam, self.statistics, self.steps_done, self.total_steps)
            if outcome.longest_bad_run > MAX_BAD_STEPS:
                raise UserError(NOT_FINITE)
            if outcome.dropped or not all(map(math.isfinite, outcome.losses)):
                self._drop_invisible()
            self.steps_done += count
            self._densify_if_due()
            yield from outcome.losses
            steps -= count

    def _drop_invisible(self) -> None:
        """Take out Gaussians that are not finite; the kernels have only hidden them."""
        kept = is_finite(self.adam.gaussians).nonzero()[:, 0]
        if len(kept) < len(self.adam.gaussians):
            logger.warning("dropped %d Gaussians that were not finite", len(self.adam.gaussians) - len(kept))
            self._select(kept)

    def _batches(self, count: int) -> Iterator[Tensor]:
        """Indices of the targets of each step: all of them in random order, over and over."""
        size = min(self.config.batch_views or count, count)
        order = torch.empty(0, dtype=torch.long)
        while True:
            if len(order) < size:
                order = torch.cat([order, torch.randperm(count, generator=self.generator)])
            yield order[:size]
            order = order[size:]

    def _step(self, targets: Views, reference: Views | None, sharpen: bool) -> float:
        config, device = self.config, self.adam.gaussians.means.device
        # The views' losses are averaged, the reference's added with weights of its own.
        rgb_weights = torch.full((len(targets),), 1.0 / len(targets))
        alpha_weights = rgb_weights * config.view_alpha
        if reference is not None:
            targets = view_sets.concatenate([targets, reference])
            rgb_weights = torch.cat([rgb_weights, torch.tensor([config.reference_rgb])])
            alpha_weights = torch.cat([alpha_weights, torch.tensor([config.reference_alpha])])
        self.adam.zero_grad()
        rendered = render(self.adam.gaussians, targets.cameras)
        rendered.means2d.retain_grad()
        loss = (difference(rendered.rgb, targets.rgb, config.loss) * rgb_weights.to(device)).sum()
        if targets.alpha is not None:
            alpha_weights = alpha_weights.to(device) * targets.coverage_weights()
            loss = loss + (difference(rendered.alpha, targets.alpha, config.alpha_loss) * alpha_weights).sum()
        picture_loss = float(loss.detach())
        if sharpen and config.entropy > 0:
            loss = loss + config.entropy * opacity_entropy(self.adam.gaussians)
        loss.backward()

        kept = self._drop_bad(picture_loss)
        if self._bad_steps:
            return picture_loss
        # Undo the averaging, so that the pull does not depend on the number of views.
        pulls = rendered.means2d.grad / rgb_weights.clamp_min(1e-6).to(device)[:, None, None]
        cameras = targets.cameras
        self.statistics.add(pulls[:, kept], rendered.radii[:, kept], cameras.width, cameras.height)
        self.adam.step(self._rates())
        with torch.no_grad():
            bound_shapes(self.adam.gaussians, config.max_scale, config.max_ratio)
        self.steps_done += 1
        self._densify_if_due()
        return picture_loss

    def _drop_bad(self, loss: float) -> Tensor:
        """Take out Gaussians that are not finite, or whose gradients alone are not; returns who stays."""
        self._bad_steps = 0 if math.isfinite(loss) else self._bad_steps + 1
        if self._bad_steps > MAX_BAD_STEPS:
            raise UserError(NOT_FINITE)
        gaussians = self.adam.gaussians
        # A loss that is not finite spoils all gradients: only the parameters then tell who is at fault.
        bad = ~is_finite(gaussians) if self._bad_steps else self.adam.non_finite()
        kept = (~bad).nonzero()[:, 0]
        if len(kept) < len(bad):
            logger.warning("dropped %d Gaussians that were not finite", int(bad.sum()))
            gradients = {name: value.grad for name, value in gaussians.tensors().items()}
            self._select(kept)
            for name, value in self.adam.gaussians.tensors().items():
                value.grad = None if gradients[name] is None else gradients[name][kept]
        return kept

    def _rates(self) -> dict[str, float]:
        config = self.config
        progress = min(1.0, self.steps_done / (config.lr_means_steps or self.total_steps))
        ratio = max(config.lr_means_end, 1e-12) / max(config.lr_means, 1e-12)
        return {
            "means": config.lr_means * ratio**progress,
            "sh0": config.lr_colours,
            "logit_opacities": config.lr_opacities,
            "log_scales": config.lr_scales,
            "quats": config.lr_quats,
        }

    def _densify_if_due(self) -> None:
        config = self.config
        due = config.densify_every and self.steps_done % config.densify_every == 0
        if not due or self.steps_done > config.densify_until:
            return
        before = len(self.adam.gaussians)
        edit = grow(
            self.gaussians,
            self.statistics.mean(),
            self.generator,
            threshold=config.densify_grad,
            split_scale=config.split_scale,
            max_count=config.max_points,
        )
        self.adam.replace(edit.gaussians, edit.kept)
        grown = len(self.adam.gaussians)
        self.statistics = GradientStatistics(grown, edit.gaussians.means.device)
        self.prune(config.prune_opacity, config.prune_scale)
        logger.debug(
            "step %d: %d Gaussians, grown to %d, pruned to %d", self.steps_done, before, grown, len(self.gaussians)
        )

    def prune(self, min_opacity: float, max_scale: float) -> None:
        """Drop what cannot be seen, is too large or not finite."""
        kept = worth_keeping(self.gaussians, min_opacity, max_scale).nonzero()[:, 0]
        self._select(kept)

    def _select(self, kept: Tensor) -> None:
        """Go on with the Gaussians `kept` (indices) alone."""
        if len(kept) == 0:
            raise UserError(
                "no Gaussian is left: the prior's views are empty, or fit.prune_opacity, fit.final_opacity, "
                "fit.prune_scale or fit.final_scale are too strict"
            )
        self.adam.replace(self.gaussians[kept], kept)
        self.statistics.select(kept)


def difference(rendered: Tensor, target: Tensor, kind: str) -> Tensor:
    """Mean error of each view [V]: "l1" absolute, "l2" squared."""
    error = (rendered - target).flatten(1)
    return error.abs().mean(dim=1) if kind == "l1" else error.square().mean(dim=1)


def opacity_entropy(gaussians: Gaussians) -> Tensor:
    """Mean entropy of the opacities in nats: 0 where each is 0 or 1."""
    logits = gaussians.logit_opacities
    softplus = torch.nn.functional.softplus
    opacities = gaussians.opacities
    return (opacities * softplus(-logits) + (1 - opacities) * softplus(logits)).mean()
