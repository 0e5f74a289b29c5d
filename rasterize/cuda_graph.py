"""A fitting step on the GPU as one CUDA graph: render, loss and gradients, recorded once, replayed in one launch."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from cameras import Cameras
from cuda_ext import require_device
from cuda_ext.graphs import capture
from gaussians import Gaussians
from gs_renderer import render
from rasterize.cuda_buffers import expected_entries, fixed_capacity
from rasterize.definition import Rendered

_WARM_UP = 3  # calls before the recording, in which torch, the kernels and the allocator settle
_MARGIN = 2.0  # room for entries, of what the warm-up needed: Gaussians grow while they are fitted


class GraphedStep:
    """Render, loss and backward pass of Gaussians whose parameters change in place, as an optimiser changes them.

        step = GraphedStep(gaussians, cameras, lambda rendered: (rendered.rgb - target).square().mean())
        for _ in range(100):
            loss = step.replay()  # gradients are in gaussians.means.grad ...
            optimiser.step()

    Cameras and targets may be overwritten in place too (`cameras.viewmats.copy_(...)`). Another number of Gaussians or
    of cameras wants another step. What `loss` does has to be capturable: no `.item()`, no sizes that depend on values.
    """

    def __init__(
        self,
        gaussians: Gaussians,
        cameras: Cameras,
        loss: Callable[[Rendered], Tensor],
        background: Sequence[float] | Tensor = (1.0, 1.0, 1.0),
    ) -> None:
        """Record the step.

        Args:
            gaussians: float32 leaves on a CUDA device; those that require gradients get them.
            loss: of what was rendered, a number.
        Raises:
            BackendUnavailable: the Gaussians are not on a GPU, or kernels cannot run there.
        """
        self.device = gaussians.means.device
        require_device(self.device, "a graphed step")
        self._gaussians, self._cameras, self._loss_of, self._background = gaussians, cameras, loss, background
        self._record()

    def replay(self, check: bool = True) -> Tensor:
        """Run the step on the present values; returns its loss, which the next replay overwrites.

        check: wait for the GPU, and record anew if the Gaussians have come to need more room than there was. Without
            it nothing waits; then ask `had_room` before the results count.
        """
        self._launch()
        while check and not self.had_room():
            self._record()
            self._launch()
        return self.loss

    def had_room(self) -> bool:
        """Wait for the last replay; whether it is right. If not, `replay` again with check=True."""
        torch.cuda.current_stream(self.device).synchronize()
        return self._had_room()

    def _launch(self) -> None:
        self._graph.replay()
        for name, value in self._gaussians.tensors().items():
            value.grad = self._gradients[name]  # an optimiser's zero_grad takes them away

    def _record(self) -> None:
        # What the last recording made would hold its memory, and tie the parameters to its stream.
        self._graph = self.loss = self.rendered = self._gradients = None
        with torch.cuda.device(self.device):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(_WARM_UP):
                    self._run()
            torch.cuda.current_stream().wait_stream(side)
        c, n = len(self._cameras), len(self._gaussians)
        entries = expected_entries(self.device, c, n, self._cameras.width, self._cameras.height)
        with fixed_capacity(self.device, _MARGIN * entries) as self._had_room:
            self._graph, (self.loss, self.rendered) = capture(self._run, self.device)
        self._gradients = {name: value.grad for name, value in self._gaussians.tensors().items()}

    def _run(self) -> tuple[Tensor, Rendered]:
        for value in self._gaussians.tensors().values():
            value.grad = None  # so that the backward pass writes gradients rather than adds to them
        rendered = render(self._gaussians, self._cameras, self._background, backend="cuda")
        rendered.means2d.retain_grad()
        loss = self._loss_of(rendered)
        loss.backward()
        return loss.detach(), rendered
