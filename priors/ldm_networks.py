"""A network of a public prior at work: its precision, its CUDA graphs, and where it lies between calls."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from config import PriorConfig
from priors.graphs import GraphedCall

logger = logging.getLogger(__name__)

PRECISIONS = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64}
# What follows when a precision overflows: bfloat16 holds 1e38 as float32 does, at three digits.
_WIDER = {torch.float16: torch.bfloat16, torch.bfloat16: torch.float32}


@dataclass
class Runtime:
    """How the networks of one prior run.

    dtype: of networks at first.
    graphs, compiled: replay CUDA graphs; let torch.compile fuse kernels.
    batch: pictures a call at most; 0: all at once.
    offload: one network at a time on the device, the others in main memory.
    """

    device: torch.device
    dtype: torch.dtype = torch.float32
    graphs: bool = False
    compiled: bool = False
    batch: int = 0
    offload: bool = False
    networks: list[Network] = field(default_factory=list)

    @classmethod
    def from_config(cls, config: PriorConfig, device: torch.device) -> Runtime:
        """As configured; "auto" precision is half on a GPU and float32 on a CPU."""
        on_gpu = device.type == "cuda"
        auto = torch.float16 if on_gpu else torch.float32
        dtype = auto if config.precision == "auto" else PRECISIONS[config.precision]
        return cls(device, dtype, graphs=on_gpu, compiled=config.compile)


class Network:
    """One network: read when first needed, run in half precision, redone in a wider one where that overflows."""

    def __init__(self, name: str, build: Callable[[torch.dtype, torch.device], nn.Module], runtime: Runtime) -> None:
        """
        Args:
            build: reads the network from its files, in eval mode, with a dtype on a device.
            runtime: shared by the networks of a prior.
        """
        self.name = name
        self.dtype = runtime.dtype
        self._build = build
        self._runtime = runtime
        self._module: nn.Module | None = None
        self._calls: dict[Callable, GraphedCall] = {}
        runtime.networks.append(self)

    @property
    def module(self) -> nn.Module:
        """The module itself, wherever it lies now."""
        if self._module is None:
            self._module = self._build(self.dtype, self._runtime.device)
            if self._runtime.device.type == "cuda":
                self._module = self._module.to(memory_format=torch.channels_last)
        return self._module

    def run(self, method: Callable[..., Tensor], *tensors: Tensor, checked: bool = False) -> Tensor:
        """method(module, *tensors), in the network's precision and in batches that fit; float32 (float64) out.

        Args:
            method: a plain function; each has its own recordings.
            tensors: batched alike. Those of one dimension (steps of the schedule) stay float32: bf16 rounds 951.
            checked: redo in a wider precision if the result is not finite (waits for the device).
        """
        module = self._resident()
        inputs = [self._cast(tensor) for tensor in tensors]
        call = self._calls.get(method)
        if call is None:
            call = self._calls[method] = self._make_call(method, module)
        size = self._runtime.batch or len(inputs[0])
        parts = [call(*rows) for rows in zip(*(tensor.split(size) for tensor in inputs), strict=True)]
        result = parts[0] if len(parts) == 1 else torch.cat(parts)
        result = result.to(torch.promote_types(result.dtype, torch.float32))
        if checked and not bool(result.isfinite().all()) and self.widen():
            return self.run(method, *tensors, checked=True)
        return result

    def widen(self) -> bool:
        """Go on in the next wider precision, read anew from the files; False if there is none."""
        wider = _WIDER.get(self.dtype)
        if wider is torch.bfloat16 and self._runtime.device.type == "cuda" and not torch.cuda.is_bf16_supported():
            wider = torch.float32
        if wider is None:
            return False
        logger.warning("%s: %s overflowed; going on in %s", self.name, _short(self.dtype), _short(wider))
        self.dtype = wider
        self.release()
        return True

    def release(self) -> None:
        """Forget the module and its recordings; it is read again when needed."""
        self._calls.clear()
        self._module = None

    def _resident(self) -> nn.Module:
        """The module on the device; with offloading, the others off it."""
        module = self.module
        if self._runtime.offload:
            for other in self._runtime.networks:
                if other is not self and other._module is not None:
                    other._module.to("cpu")
            module.to(self._runtime.device)
        return module

    def _cast(self, tensor: Tensor) -> Tensor:
        dtype = torch.promote_types(self.dtype, torch.float32) if tensor.dim() == 1 else self.dtype
        tensor = tensor.to(self._runtime.device, dtype)
        if tensor.dim() == 4 and self._runtime.device.type == "cuda":
            tensor = tensor.contiguous(memory_format=torch.channels_last)
        return tensor

    def _make_call(self, method: Callable[..., Tensor], module: nn.Module) -> GraphedCall:
        def function(*tensors: Tensor) -> Tensor:
            return method(module, *tensors)

        function.__qualname__ = f"{self.name}.{method.__name__}"
        if self._runtime.compiled:
            function = torch.compile(function, dynamic=False)
        # An offloaded module moves: its recordings would read what is no longer there.
        return GraphedCall(
            torch.no_grad()(function), self._runtime.device, enabled=self._runtime.graphs and not self._runtime.offload
        )


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
