"""Deep features of a network that serve several steps of one walk.

After DeepCache (arXiv:2312.00858): from step to step of a walk, what the inner levels of a UNet make of its input
changes slowly, what the outermost ones make of it does not. Every so many steps the whole network runs and what enters
its last level is kept; at the steps between, the inner levels are left out.

| here                     | paper                                           |
|--------------------------|-------------------------------------------------|
| every                    | N, the cache interval, uniform                  |
| deep features            | U_(m+1), what enters the outermost up block     |
| walk                     | one denoising process; here also one inversion  |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class _Kept:
    features: Tensor
    served: int


class FeatureMemory:
    """What a walk keeps, apart for each half of classifier-free guidance: 1.0 conditional, 0.0 unconditional.

    Outside of a walk nothing is kept: a lone call is always one of the whole network.
    """

    def __init__(self, every: int) -> None:
        """
        Args:
            every: steps that the features of one serve, its own included; 1: nothing is kept.
        """
        self.every = every
        self._walking = False
        self._kept: dict[float, _Kept] = {}

    @contextmanager
    def walk(self) -> Iterator[None]:
        """Around the calls of one walk."""
        self._kept.clear()
        self._walking = self.every > 1
        try:
            yield
        finally:
            self._kept.clear()
            self._walking = False

    def call(
        self,
        halves: tuple[float, ...],
        whole: Callable[[], Tensor],
        keeping: Callable[[], tuple[Tensor, Tensor]],
        from_kept: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """The network's output for these halves, by whichever call is due.

        Args:
            halves: in one call, one after the other [len(halves) B, ...].
            whole: -> output, where nothing is kept.
            keeping: -> output of the whole network, and its deep features [len(halves) B, ...].
            from_kept: deep features -> output of the outer layers.
        """
        if not self._walking:
            return whole()
        features = self._recall(halves)
        if features is not None:
            return from_kept(features)
        output, features = keeping()
        for half, part in zip(halves, features.chunk(len(halves)), strict=True):
            self._kept[half] = _Kept(part, 1)
        return output

    def _recall(self, halves: tuple[float, ...]) -> Tensor | None:
        """Features for a call of these halves; None: the whole network is to run."""
        kept = [self._kept.get(half) for half in halves]
        if any(known is None or known.served >= self.every for known in kept):
            return None
        for known in kept:
            known.served += 1
        return kept[0].features if len(kept) == 1 else torch.cat([known.features for known in kept])
