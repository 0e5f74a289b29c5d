"""Score-based iterative reconstruction (MicroDreamer, arXiv:2404.19525): which noise levels, and the way up and down.

| here                     | paper (algorithm 1, equations 7 to 12)             |
|--------------------------|----------------------------------------------------|
| rounds                   | K, iterations after the initialisation             |
| t_start, t_end           | t2^(0), t2^(K-1)                                   |
| inversion_ratio          | t1 / t2 (0.6 there)                                |
| NoisePlan.inversion      | t1 ... t2 of "Inversion", equation 9               |
| NoisePlan.sampling       | t2 ... 0 of "Sampler", equation 10                 |
| target_views             | x^(k) -> x_tilde^(k) -> x_hat^(k)                  |

Times u of the schedule are in [0, 1]; `Prior.level` turns them into the prior's noise levels.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from cameras import Cameras
from priors.base import PrecisionOverflow, Prior, halves, standard_normal, walk
from profiling import profiled

TRAINED_STEPS = 1000  # of the discrete schedules that the public checkpoints were trained on


@dataclass(frozen=True)
class NoisePlan:
    """The noise levels of one round.

    inversion: rising times, from what is reached by adding noise (t1) to what inversion reaches (t2); one time alone
        means no inversion.
    sampling: falling times from the same t2 to 0.
    """

    inversion: tuple[float, ...]
    sampling: tuple[float, ...]

    def __post_init__(self) -> None:
        assert self.inversion[-1] == self.sampling[0] and self.sampling[-1] == 0.0

    @property
    def calls(self) -> int:
        """Calls of the prior (the paper's NFE)."""
        return len(self.inversion) - 1 + len(self.sampling) - 1


def grid_plans(steps: int, rounds: int, t_start: float, t_end: float, inversion_ratio: float) -> list[NoisePlan]:
    """Plans on the discrete grid of the official code: the initial one from pure noise, then one a round.

    The grid has `steps` times 1, 1 + 1000 / steps, ... of 1000 ("leading" spacing with offset 1). t2 falls linearly
    from t_start towards t_end, which it never quite reaches; t1 is rounded down to the grid.
    """
    stride = TRAINED_STEPS // steps
    falling = [1 + stride * i for i in reversed(range(steps))]
    plans = [_grid_plan(falling, 0, falling[0])]
    for k in range(rounds):
        # In floating point exactly as in the official code: 20 (1 - 0.9) is 1.9999999999999996 there, and its first
        # round thus starts at step 901, the 0.9 T of the paper; exact arithmetic would give 851.
        index = int(steps * (1 - t_start) + steps * (t_start - t_end) * k / rounds)
        t1 = 1 + stride * int(inversion_ratio * steps * falling[index] / TRAINED_STEPS)
        plans.append(_grid_plan(falling, index, min(t1, falling[index])))
    return plans


def _grid_plan(falling: list[int], index: int, t1: int) -> NoisePlan:
    """From step t1 up to falling[index] and down to 0, as times."""
    rising = [t for t in reversed(falling[index:]) if t >= t1]
    return NoisePlan(tuple(t / TRAINED_STEPS for t in rising), tuple(t / TRAINED_STEPS for t in [*falling[index:], 0]))


def continuous_plans(steps: int, rounds: int, t_start: float, t_end: float, inversion_ratio: float) -> list[NoisePlan]:
    """Plans with evenly spaced times: the initial one from pure noise, then one a round with t2 from t_start to t_end.

    `steps` is the number for the whole way from 1 to 0; a part of the way takes its share, rounded up.
    """
    plans = [continuous_plan(1.0, 1.0, steps)]
    for k in range(rounds):
        t2 = t_start + (t_end - t_start) * k / max(1, rounds - 1)
        plans.append(continuous_plan(inversion_ratio * t2, t2, steps))
    return plans


def continuous_plan(t1: float, t2: float, steps: int) -> NoisePlan:
    """Evenly spaced times t1 -> t2 -> 0, at most 1 / steps apart."""
    assert 0.0 < t1 <= t2 <= 1.0
    up = 0 if t1 == t2 else _share(t2 - t1, steps)
    down = _share(t2, steps)
    inversion = tuple(t1 + (t2 - t1) * i / up for i in range(up)) + (t2,)
    return NoisePlan(inversion, tuple(t2 * ((down - i) / down) for i in range(down)) + (0.0,))


def _share(length: float, steps: int) -> int:
    # The small allowance keeps 0.6 * 20 from becoming 13 steps by rounding.
    return max(1, math.ceil(length * steps - 1e-6))


PLANS: dict[str, Callable[[int, int, float, float, float], list[NoisePlan]]] = {
    "continuous": continuous_plans,
    "grid": grid_plans,
}


@profiled
def target_views(
    prior: Prior,
    images: Tensor | None,
    cameras: Cameras,
    plan: NoisePlan,
    *,
    eta: float = 0.0,
    guidance: float | None = None,
    guidance_interval: tuple[float, float] = (0.0, 1.0),
    inversion_guidance: float = 0.0,
    generator: torch.Generator,
    on_call: Callable[[int], None] | None = None,
) -> Tensor:
    """What the prior thinks that the views should look like: the hybrid forward process, then DDIM back.

    Args:
        prior: its source is set.
        images: renders [B, channels, S, S] in [0, 1], on any device; None: start from pure noise.
        cameras: of the B views.
        plan: noise levels.
        eta: randomness of the sampling, 0 to 1.
        guidance: scale while sampling; None: the prior's own.
        guidance_interval: times of the schedule within which guidance applies; outside, the conditional half alone is
            evaluated (arXiv:2404.07724), at half the price.
        inversion_guidance: 0 inverts with the unconditional half alone, as the paper does, 1 with the conditional one.
        generator: on the CPU.
        on_call: told the number of evaluated views after each call.
    Returns:
        Views [B, channels, S, S] in [0, 1], on the device of `images` (of the prior, if None).
    """
    scale = prior.guidance if guidance is None else guidance
    low, high = (prior.level(u) for u in guidance_interval)

    def scale_at(t: float) -> float:
        return scale if low <= t <= high else 1.0

    state = generator.get_state()
    while True:
        try:
            return _target_views(
                prior, images, cameras, plan, eta, scale_at, lambda t: inversion_guidance, generator, on_call
            )
        except PrecisionOverflow:  # with the same random numbers, in a wider precision
            generator.set_state(state)


@torch.no_grad()
def _target_views(
    prior: Prior,
    images: Tensor | None,
    cameras: Cameras,
    plan: NoisePlan,
    eta: float,
    guidance: Callable[[float], float],
    inversion_guidance: Callable[[float], float],
    generator: torch.Generator,
    on_call: Callable[[int], None] | None,
) -> Tensor:
    """`target_views`, once; the guidance as functions of the noise level."""
    rising, falling = ([prior.level(u) for u in times] for times in (plan.inversion, plan.sampling))
    # 1. x^(k): the renders, encoded; 2. noise-adding 0 -> t1
    noise = standard_normal(prior.latent_shape(len(cameras)), generator, prior.device)
    if images is None:
        latents = noise
        rising = rising[-1:]
    else:
        alpha, sigma = prior.alpha_sigma(rising[0])
        encoded = prior.encode(images)
        latents = alpha * encoded + sigma * noise.to(encoded.dtype)
    # 3. x_tilde^(k): DDIM inversion t1 -> t2, without randomness
    latents = walk(prior, latents, rising, cameras, inversion_guidance, on_call=on_call)
    # 4. x_hat^(k): DDIM sampling t2 -> 0
    latents = walk(prior, latents, falling, cameras, guidance, eta, generator, on_call)
    views = prior.decode(latents)
    return views if images is None else views.to(images.device, images.dtype)


def evaluations(
    prior: Prior,
    plan: NoisePlan,
    views: int,
    guidance_interval: tuple[float, float],
    inversion_guidance: float,
    from_noise: bool,
) -> int:
    """Network evaluations of single views that `target_views` will take, guided halves counted apart."""
    low, high = (prior.level(u) for u in guidance_interval)
    levels = [prior.level(u) for u in plan.sampling[:-1]]
    sampling = sum(halves(prior.guidance) if low <= t <= high else 1 for t in levels)
    inversion = 0 if from_noise else (len(plan.inversion) - 1) * halves(inversion_guidance)
    return views * (sampling + inversion)
