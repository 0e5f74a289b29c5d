"""One process a device: starting them, and the two things they exchange (gradients, and the time)."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn


@dataclass(frozen=True)
class Team:
    """This process among its equals."""

    rank: int
    world: int
    device: torch.device
    control: dist.ProcessGroup | None = None  # over the CPU, so that agreeing on the time does not wait for the GPU

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def agree(self, values: list[float]) -> list[float]:
        """The first process's values, everywhere."""
        if self.world == 1:
            return values
        shared = torch.tensor(values, dtype=torch.float64)
        dist.broadcast(shared, 0, group=self.control)
        return shared.tolist()

    def average(self, flat: Tensor) -> None:
        """Average a tensor over the processes, in place."""
        if self.world > 1:
            dist.all_reduce(flat)
            flat.div_(self.world)

    def copy_from_first(self, tensors: list[Tensor]) -> None:
        """Make everyone's tensors those of the first process."""
        if self.world > 1:
            for tensor in tensors:
                dist.broadcast(tensor, 0)


def flat_gradients(model: nn.Module) -> Tensor:
    """Give all parameters gradients that are views of one buffer, and return it: one all-reduce, one norm, one clip."""
    params = [p for p in model.parameters() if p.requires_grad]
    flat = torch.zeros(sum(p.numel() for p in params), device=params[0].device)
    offset = 0
    for p in params:
        p.grad = flat[offset : offset + p.numel()].view_as(p)
        offset += p.numel()
    return flat


def launch(worker: Callable[..., None], world: int, device: str, *arguments: object) -> None:
    """Run `worker(team, *arguments)` in `world` processes; also works inside torchrun."""
    # NVLink multicast gains nothing for one 48 MB all-reduce a step, and needs rights that not every host gives.
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    if "RANK" in os.environ and "WORLD_SIZE" in os.environ:
        _enter(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), device, worker, arguments)
    elif world == 1:
        _enter(0, 1, device, worker, arguments)
    else:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        torch.multiprocessing.spawn(_enter, (world, device, worker, arguments), nprocs=world)


def _enter(rank: int, world: int, device: str, worker: Callable[..., None], arguments: tuple) -> None:
    place = torch.device(device)
    if place.type == "cuda":
        # Before CUDA starts: each process sees one device, so that no library can pick another's by default.
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(world)))
        os.environ["CUDA_VISIBLE_DEVICES"] = visible.split(",")[int(os.environ.get("LOCAL_RANK", rank))]
        place = torch.device("cuda", 0)
        torch.cuda.set_device(place)
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // world))
    control = None
    if world > 1:
        dist.init_process_group("nccl" if place.type == "cuda" else "gloo", rank=rank, world_size=world)
        control = dist.new_group(backend="gloo")
    try:
        worker(Team(rank, world, place, control), *arguments)
    finally:
        if world > 1:
            dist.destroy_process_group()
