"""CUDA graphs: a function of tensors recorded once for every set of shapes, then replayed in one launch.

A network of a thousand small kernels is bound by the time that Python takes to launch them; a replayed graph is not.
"""

from __future__ import annotations

import gc
import logging
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

logger = logging.getLogger(__name__)


def capture(function: Callable[[], Any], device: torch.device, pool=None) -> tuple[torch.cuda.CUDAGraph, Any]:
    """Record what `function` launches on a CUDA device, without running it.

    The function must have run before with the same shapes (libraries choose their algorithms in the first call), must
    not wait for the device, and must take tensors that outlive the graph.

    Args:
        pool: memory pool to share with graphs that are never replayed at the same time.
    Returns:
        The graph, whose `replay()` does the work on the current stream, and what `function` returned: tensors that
        every replay overwrites.
    """
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream(device)
    collecting = gc.isenabled()
    # torch.cuda.graph() would collect garbage and empty the allocator's cache first, 0.1 s and more each time; what it
    # guards against is an object of CUDA that is destroyed while recording, which a pause of the collector prevents.
    gc.disable()
    try:
        with torch.cuda.device(device):
            torch.cuda.synchronize()
            with torch.cuda.stream(stream):
                graph.capture_begin(pool=pool, capture_error_mode="thread_local")
                try:
                    outputs = function()
                except BaseException:
                    try:
                        graph.capture_end()
                    except RuntimeError:  # the recording is invalid, which the first error explains
                        pass
                    raise
                graph.capture_end()
            torch.cuda.current_stream().wait_stream(stream)
    finally:
        if collecting:
            gc.enable()
    return graph, outputs


@dataclass
class _Recording:
    """One recorded call: the tensors that it reads and writes, and what was last copied into the former."""

    graph: torch.cuda.CUDAGraph
    inputs: list[Tensor]
    outputs: Any
    shown: list[tuple[Tensor, int] | None]

    def replay(self, tensors: list[Tensor]) -> Any:
        for i, (static, given) in enumerate(zip(self.inputs, tensors, strict=True)):
            # Embeddings of the source are the same tensor in every call: copied once.
            version = None if given.is_inference() else given._version
            last = self.shown[i]
            if last is None or version is None or last[0] is not given or last[1] != version:
                static.copy_(given, non_blocking=True)
                self.shown[i] = None if version is None else (given, version)
        self.graph.replay()
        return pytree.tree_map(lambda value: value.clone() if isinstance(value, Tensor) else value, self.outputs)


class GraphedCall:
    """A function or module whose calls are replayed as CUDA graphs, one for each set of shapes.

        unet = GraphedCall(model.unet, device)
        noise = unet(latents, timestep, encoder_hidden_states=context)   # any nesting of tensors and plain values

    The first call with some shapes runs as it is, the second records, later ones replay. Tensors among the arguments
    are copied into the graph's own (not again while the very same tensor comes, unchanged); every other argument is a
    constant of the recording and part of its key. Results are the caller's to keep. No gradients, and no randomness
    inside: noise is an argument.

    A number that varies from call to call (a noise level) has to be a tensor, or every value asks for a graph of its
    own. Whatever the function reads beside its arguments (weights) must stay where it is: call `reset()` after moving
    it. A tensor that is written to by other means than torch's own in-place functions does not count as changed.
    Off a GPU, or with `enabled=False`, calls run as they are; so they do after a recording failed, with one warning.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        device: torch.device,
        *,
        enabled: bool = True,
        plain_calls: int = 1,
        max_graphs: int = 8,
        pool: Any = None,
    ) -> None:
        """
        Args:
            plain_calls: calls of one set of shapes before it is recorded, at least 1.
            max_graphs: kept at most; the one not used for the longest time goes first.
            pool: memory to share with other calls of which never two run at once; None: its own.
        """
        assert plain_calls >= 1 and max_graphs >= 1
        self.function = function
        self.device = device
        self.enabled = enabled and device.type == "cuda"
        self.plain_calls = plain_calls
        self.max_graphs = max_graphs
        self._calls: dict[Any, int] = {}
        self._recordings: OrderedDict[Any, _Recording] = OrderedDict()
        self._shared_pool = self._pool = pool

    @property
    def graphs(self) -> int:
        """Graphs that are held."""
        return len(self._recordings)

    def reset(self) -> None:
        """Forget all recordings and free their memory."""
        self._calls.clear()
        self._recordings.clear()
        self._pool = self._shared_pool

    @torch.no_grad()
    def __call__(self, *args, **kwargs) -> Any:
        if not self.enabled:
            return self.function(*args, **kwargs)
        leaves, structure = pytree.tree_flatten((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        constants = tuple(_signature(leaf) if isinstance(leaf, Tensor) else leaf for leaf in leaves)
        key = (structure, constants, _autocast_dtype(self.device))
        recording = self._recordings.get(key)
        if recording is None:
            calls = self._calls[key] = self._calls.get(key, 0) + 1
            if calls <= self.plain_calls:
                return self.function(*args, **kwargs)
            recording = self._record(leaves, structure, tensors)
            if recording is None:
                return self.function(*args, **kwargs)
            self._recordings[key] = recording
            if len(self._recordings) > self.max_graphs:
                dropped, _ = self._recordings.popitem(last=False)
                self._calls[dropped] = 0
        self._recordings.move_to_end(key)
        return recording.replay(tensors)

    def _record(self, leaves: list, structure, tensors: list[Tensor]) -> _Recording | None:
        """The call recorded on tensors of its own; None, and no more recordings, where that fails."""
        inputs = [tensor.detach().to(self.device, copy=True) for tensor in tensors]
        own = iter(inputs)
        args, kwargs = pytree.tree_unflatten(
            [next(own) if isinstance(leaf, Tensor) else leaf for leaf in leaves], structure
        )
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        try:
            # One pool for all: each replay's results are copied out before the next one overwrites them.
            with _recording_autocast(self.device):
                graph, outputs = capture(lambda: self.function(*args, **kwargs), self.device, self._pool)
        except RuntimeError as error:  # out of memory too: the plain call needs less
            logger.warning("no CUDA graph of %s: %s", _name(self.function), str(error).strip().splitlines()[0])
            self.enabled = False
            self.reset()
            return None
        return _Recording(graph, inputs, outputs, [None] * len(inputs))


def _signature(tensor: Tensor) -> tuple:
    """What a recording depends on; strides too: a channels_last input takes other kernels."""
    return tuple(tensor.shape), tensor.dtype, tensor.device.type, tensor.stride()


def _recording_autocast(device: torch.device) -> AbstractContextManager:
    """The autocast that is on, but for what it has cast and kept, which is freed when it ends: a recording has to cast
    for itself. Without one nothing is entered: even a disabled autocast makes a compiled function compile anew, which
    no recording survives."""
    dtype = _autocast_dtype(device)
    return nullcontext() if dtype is None else torch.autocast(device.type, dtype, cache_enabled=False)


def _autocast_dtype(device: torch.device) -> torch.dtype | None:
    """The dtype of the autocast that is on, None without one."""
    return torch.get_autocast_dtype(device.type) if torch.is_autocast_enabled(device.type) else None


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", type(function).__name__)
