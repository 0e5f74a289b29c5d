"""What figures depend on: processor, GPU, versions, commit."""

import os
import platform
from pathlib import Path

import torch

from run_record import commit, versions
from runtime_env import usable_cpus


def describe_machine() -> dict:
    """Plain values for JSON."""
    machine = {
        "cpu": _cpu_model(),
        "cores": usable_cpus(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "versions": versions(),
        "commit": commit(),
    }
    if hasattr(os, "getloadavg"):
        machine["load"] = round(os.getloadavg()[0], 1)  # before anything of ours ran: above 0 the machine is shared
    return machine


def one_line(machine: dict) -> str:
    """For a table's caption."""
    parts = [machine["gpu"]] if machine["gpu"] else []
    parts += [f"{machine['cpu']} with {machine['threads']} threads", f"torch {machine['versions']['torch']}"]
    return ", ".join(parts)


def _cpu_model() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
