"""How much memory there is: asked before work that may need more."""

import os
from pathlib import Path

import torch

from errors import UserError

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def require_memory(needed_bytes: float, what: str, advice: str, device: torch.device | None = None) -> None:
    """Raise a UserError where `what` needs more memory than there is; where the system does not tell, let it try.

    device: a GPU's own memory is asked for; None, or a CPU: the machine's.
    """
    available_bytes = free_memory(device)
    if available_bytes is not None and needed_bytes > available_bytes:
        needed, free = (f"{value / 1e9:.1f} GB" for value in (needed_bytes, available_bytes))
        raise UserError(f"{what} needs about {needed} of memory, {free} are free; {advice}")


def free_memory(device: torch.device | None = None) -> int | None:
    """Bytes that are free on a GPU; None, or a CPU: in the machine, where the system tells."""
    return available_memory() if device is None or device.type == "cpu" else _free_on_gpu(device)


def available_memory() -> int | None:
    """Bytes that this process can still take without swapping: of the machine, or of its container's share."""
    found = [value for value in (_free_in_machine(), _free_in_container()) if value is not None]
    return min(found) if found else None


def _free_on_gpu(device: torch.device) -> int:
    """What the driver has left, and what torch holds without using it."""
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + kept


def _free_in_machine() -> int | None:
    try:
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # macOS, Windows
        return None


def _free_in_container() -> int | None:
    """What the control group of a container leaves; None without one or without a limit."""
    try:
        limit = int((_CGROUP / "memory.max").read_text())  # "max" without a limit: no number
        return max(limit - int((_CGROUP / "memory.current").read_text()), 0)
    except (OSError, ValueError):
        return None
