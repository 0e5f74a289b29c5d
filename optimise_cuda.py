"""The steps of `optimise.SplatOptimiser` on a GPU: kernels that never wait for the host, replayed as CUDA graphs.

What a step is stands in optimise.py and adam.py; here the rasteriser keeps its place in the middle, and
`cuda_ext/kernels/fit_step.cu` is what comes before and after it. The host asks every `CHECK_EVERY` steps how they went,
and takes them again where a recording had no room for all that it drew.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from adam import GaussianAdam
from cameras import Cameras
from config import FitConfig
from cuda_ext import load_module
from cuda_ext.graphs import capture
from densify import GradientStatistics
from errors import UserError
from gaussians import Gaussians
from gs_renderer import render
from rasterize.cuda_buffers import expected_entries, fixed_capacity
from views import Views

logger = logging.getLogger(__name__)

CHECK_EVERY = 25  # steps between two looks at the losses; a look costs a wait of some 50 us
_PLAIN_STEPS = 2  # before a graph is recorded: the first loads kernels
_WORTH_RECORDING = 6  # steps: recording costs about as much as three plain ones
_ROOM = 2.0  # of a recording, for what the rasteriser sorts: Gaussians grow while they are fitted
_BLOCK = 256  # threads, as in the kernels
_MOVED = ("means", "quats", "log_scales", "logit_opacities", "sh0")  # parameters, in the kernel's order

# Places in the kernels' `state`.
_STATE = {"NEXT": 0, "ROW": 1, "FIRST_STEP": 2, "FINITE": 3, "BAD_RUN": 4, "LONGEST_BAD_RUN": 5, "DROPPED": 6}


def kernel_constants(betas: tuple[float, float] = GaussianAdam.BETAS, eps: float = GaussianAdam.EPS) -> dict:
    """Macros of fit_step.cu."""
    (beta1, beta2), logs = betas, [math.log(beta) for beta in betas]
    adam = {"BETA1": beta1, "BETA2": beta2, "SHARE1": 1 - beta1, "SHARE2": 1 - beta2, "EPS": eps}
    return {**_STATE, **adam, "LOG_BETA1": logs[0], "LOG_BETA2": logs[1]}


@dataclass(frozen=True)
class Outcome:
    """What some steps came to: the loss of each; the most steps in a row without a finite one; Gaussians taken out."""

    losses: list[float]
    longest_bad_run: int
    dropped: int


class FusedSteps:
    """Steps for one set of Gaussians after the other; `show` gives the pictures, `take` takes steps.

    Not as on the CPU: a step whose loss is not finite counts as a step, and a Gaussian that is not finite is only made
    invisible (its logit becomes minus infinity), for the caller to drop.
    """

    def __init__(self, config: FitConfig, device: torch.device) -> None:
        self.config, self.device = config, device
        self.module = load_module("fit_step", device, **kernel_constants())
        self.state = torch.zeros(len(_STATE), dtype=torch.int32, device=device)
        self.losses = torch.zeros(CHECK_EVERY, device=device)
        self.entropy = torch.zeros(1, device=device)
        self._shown: _Buffers | None = None
        self._moved: tuple[Gaussians, GradientStatistics] | None = None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._had_room: Callable[[], bool] | None = None
        self._plain_steps = 0
        self._recordable = config.graphs and device.type == "cuda"

    def show(self, targets: Views, reference: Views | None, batch: int, entropy: float) -> None:
        """Take the pictures of the next steps: `batch` of the targets each, and the reference.

        entropy: weight of the opacities' mean entropy.
        """
        self.entropy.fill_(entropy)
        capacity = max(len(targets), self.config.memory * self.config.views)
        if self._shown is None or not self._shown.fits(targets, reference, batch):
            self._shown = _Buffers(self.config, targets, reference, batch, capacity)
            self._forget()
        self._shown.fill(targets, reference)

    def take(
        self, picks: Tensor, adam: GaussianAdam, statistics: GradientStatistics, first_step: int, total_steps: int
    ) -> Outcome:
        """Take as many steps as `picks` [steps, batch] has rows, each of which names the targets of one.

        Args:
            first_step: steps taken before, of total_steps: they set the learning rate of the means.
        """
        steps = len(picks)
        assert self._shown is not None and 0 < steps <= CHECK_EVERY
        if self._moved is None or self._moved[0] is not adam.gaussians or self._moved[1] is not statistics:
            self._forget()
            self._moved = adam.gaussians, statistics
        self._shown.choose(picks)
        bad_run = self.state[_STATE["BAD_RUN"]].clone()
        self.state.zero_()
        self.state[_STATE["FIRST_STEP"]] = first_step
        self.state[_STATE["BAD_RUN"]] = bad_run
        changing = [self.state, *_changed_by_steps(adam, statistics)]
        before = [value.clone() for value in changing] if self._recordable else []
        self._queue(steps, adam, statistics, total_steps)
        state = self.state.tolist()
        if self._graph is not None and not self._had_room():
            # Gaussians have grown, and which of them the pictures lacked depends on timing. Plain steps make room.
            logger.debug("%d steps of the fit are taken again: the recording had no room for all Gaussians", steps)
            self._forget()
            for value, old in zip(changing, before, strict=True):
                value.copy_(old)
            self._queue(steps, adam, statistics, total_steps, record=False)
            state = self.state.tolist()
        return Outcome(self.losses[:steps].tolist(), state[_STATE["LONGEST_BAD_RUN"]], state[_STATE["DROPPED"]])

    def _queue(
        self, steps: int, adam: GaussianAdam, statistics: GradientStatistics, total_steps: int, record: bool = True
    ) -> None:
        """Queue steps, replayed where that is possible; without `record` all are plain unless there is a recording."""
        for done in range(steps):
            if self._graph is None and record and self._worth_recording(steps - done):
                self._record(adam, statistics, total_steps)
            if self._graph is not None:
                self._graph.replay()
            else:
                self._step(adam, statistics, total_steps)
                self._plain_steps += 1

    def _worth_recording(self, remaining: int) -> bool:
        return self._recordable and self._plain_steps >= _PLAIN_STEPS and remaining >= _WORTH_RECORDING

    def _record(self, adam: GaussianAdam, statistics: GradientStatistics, total_steps: int) -> None:
        shown = self._shown
        entries = expected_entries(self.device, shown.views, len(adam.gaussians), shown.width, shown.height)
        try:
            with fixed_capacity(self.device, _ROOM * entries) as self._had_room:
                self._graph, _ = capture(lambda: self._step(adam, statistics, total_steps), self.device)
        except (RuntimeError, UserError) as error:  # something waits for the device, or memory is short
            logger.warning("the fit's steps are not recorded: %s", str(error).strip().splitlines()[0])
            self._recordable = False

    def _forget(self) -> None:
        """Give up a recording that no longer fits."""
        self._graph, self._plain_steps = None, 0

    def _step(self, adam: GaussianAdam, statistics: GradientStatistics, total_steps: int) -> None:
        """Queue one step."""
        shown, launch, gaussians = self._shown, self.module.launch, adam.gaussians
        launch(
            "begin_step", 1, _BLOCK, self.state, shown.picks, shown.views, shown.pool_viewmats, shown.pool_Ks,
            shown.picked, shown.viewmats, shown.Ks,
        )  # fmt: skip
        # Leaves of this step alone: torch ties the sums at a leaf to the stream of its first use, for as long as anyone
        # keeps an earlier step's graph, and no recording may wait for that stream.
        leaves = gaussians.map(_fresh_leaf)
        with torch.enable_grad():
            rendered = render(leaves, shown.cameras)
            loss = _PictureLoss.apply(rendered.rgb, rendered.alpha, self)
        wanted = [*(getattr(leaves, name) for name in _MOVED), rendered.means2d]
        *pulls, centre_pulls = (gradient.contiguous() for gradient in torch.autograd.grad(loss, wanted))
        parameters = [getattr(gaussians, name) for name in _MOVED]
        moved = []
        for name, value, pull in zip(_MOVED, parameters, pulls, strict=True):
            moved += [value.detach(), pull, adam.first[name], adam.second[name]]
        launch(
            "move_gaussians", -(-len(gaussians) // _BLOCK), _BLOCK, len(gaussians), self.state, *moved, adam.ages,
            centre_pulls, rendered.radii, shown.rgb_weights, shown.views, shown.width / 2, shown.height / 2,
            statistics.total, statistics.seen, *self._rates(total_steps), self.entropy,
            math.log(self.config.max_scale), math.log(self.config.max_ratio),
        )  # fmt: skip

    def compare(self, rgb: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor | None]:
        """Queue a step's loss, for `losses`; its gradients with respect to the pictures, alpha's where it counts."""
        shown, launch = self._shown, self.module.launch
        rgb_gradient = torch.empty_like(rgb)
        alpha_gradient = None if shown.pool_alpha is None else torch.empty_like(alpha)
        blocks = -(-shown.pixels // _BLOCK)
        partial = torch.empty(shown.views * blocks, device=self.device)
        launch(
            "compare_pictures", (blocks, shown.views), _BLOCK, rgb, alpha, shown.pool_rgb, shown.pool_alpha,
            shown.picked, shown.rgb_weights, shown.alpha_weights, shown.pixels, int(self.config.loss == "l2"),
            int(self.config.alpha_loss == "l2"), rgb_gradient, alpha_gradient, partial,
        )  # fmt: skip
        launch("finish_loss", 1, _BLOCK, partial, len(partial), self.losses, self.state)
        return rgb_gradient, alpha_gradient

    def _rates(self, total_steps: int) -> tuple[float, ...]:
        """Learning rates in the kernel's order; that of the means with how it falls."""
        config = self.config
        fall = math.log(max(config.lr_means_end, 1e-12) / max(config.lr_means, 1e-12))
        return (
            float(config.lr_means), fall, float(config.lr_means_steps or total_steps), float(config.lr_quats),
            float(config.lr_scales), float(config.lr_opacities), float(config.lr_colours),
        )  # fmt: skip


def _fresh_leaf(value: Tensor) -> Tensor:
    """The same memory, as a parameter that no graph knows yet."""
    return value.detach().requires_grad_(True)


class _PictureLoss(torch.autograd.Function):
    """The loss of a step's pictures, whose gradients the kernels give along with it.

    A scalar, and no gradients handed to torch.autograd.grad: for those torch would first import sympy, for seconds. Of
    the number itself nobody knows the value, nor may it be scaled: what comes in from behind it is ignored.
    """

    @staticmethod
    def forward(ctx, rgb: Tensor, alpha: Tensor, steps: FusedSteps) -> Tensor:
        ctx.gradients = steps.compare(rgb.contiguous(), alpha.contiguous())
        return torch.empty((), device=rgb.device)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, _):
        return *ctx.gradients, None


def _changed_by_steps(adam: GaussianAdam, statistics: GradientStatistics) -> list[Tensor]:
    """What steps write to: 180 bytes a Gaussian."""
    parameters = [getattr(adam.gaussians, name).detach() for name in _MOVED]
    moments = [kind[name] for kind in (adam.first, adam.second) for name in _MOVED]
    return [*parameters, *moments, adam.ages, statistics.total, statistics.seen]


class _Buffers:
    """The pictures that steps choose from, the reference first, and what a step has chosen."""

    def __init__(self, config: FitConfig, targets: Views, reference: Views | None, batch: int, capacity: int) -> None:
        device, (_, height, width, _) = targets.rgb.device, targets.rgb.shape
        extra = int(reference is not None)
        self.batch, self.with_reference, self.capacity = batch, reference is not None, capacity
        self.views, self.width, self.height, self.pixels = batch + extra, width, height, width * height
        self.pool_rgb = torch.empty(1 + capacity, height, width, 3, device=device)
        self.pool_alpha = (
            self.pool_rgb.new_zeros(1 + capacity, height, width) if any(_coverage(targets, reference)) else None
        )
        self.pool_viewmats = self.pool_rgb.new_empty(1 + capacity, 4, 4)
        self.pool_Ks = self.pool_rgb.new_empty(1 + capacity, 3, 3)
        self.picks = torch.zeros(CHECK_EVERY, self.views, dtype=torch.int32, device=device)
        self.picked = torch.zeros(self.views, dtype=torch.int32, device=device)
        self.viewmats = self.pool_rgb.new_zeros(self.views, 4, 4)
        self.Ks = self.pool_rgb.new_zeros(self.views, 3, 3)
        self.cameras = Cameras(self.viewmats, self.Ks, width, height)
        # The views' losses are averaged, the reference's added with weights of its own.
        own = [config.reference_rgb] * extra, [config.reference_alpha] * extra
        self.coverage = _coverage(targets, reference)
        of_targets, of_reference = map(float, self.coverage)
        self.rgb_weights = torch.tensor([1 / batch] * batch + own[0], device=device)
        alpha_weights = [of_targets * config.view_alpha / batch] * batch + [w * of_reference for w in own[1]]
        self.alpha_weights = torch.tensor(alpha_weights, device=device)

    def fits(self, targets: Views, reference: Views | None, batch: int) -> bool:
        """Whether these pictures can take the place of the present ones."""
        return (
            len(targets) <= self.capacity
            and (batch, reference is not None) == (self.batch, self.with_reference)
            and targets.rgb.shape[1:3] == (self.height, self.width)
            and _coverage(targets, reference) == self.coverage
        )

    def fill(self, targets: Views, reference: Views | None) -> None:
        for first, views in ((0, reference), (1, targets)):
            if views is None:
                continue
            here = slice(first, first + len(views))
            self.pool_rgb[here].copy_(views.rgb)
            self.pool_viewmats[here].copy_(views.cameras.viewmats)
            self.pool_Ks[here].copy_(views.cameras.Ks)
            if self.pool_alpha is not None and views.alpha is not None:  # the weight of others is 0
                self.pool_alpha[here].copy_(views.alpha)

    def choose(self, picks: Tensor) -> None:
        """picks [steps, batch]: numbers among the targets."""
        rows = torch.zeros(len(picks), self.views, dtype=torch.int32)  # the last column stays 0, the reference
        rows[:, : self.batch] = picks + 1
        self.picks[: len(picks)].copy_(rows)


def _coverage(targets: Views, reference: Views | None) -> tuple[bool, bool]:
    """Whether the targets know their coverage, and whether the reference does."""
    assert targets.known is None  # of one prior, which knows it or does not
    return targets.alpha is not None, reference is not None and reference.alpha is not None
