"""Where the time of a run goes: stages, functions, operators and kernels, from torch's profiler or from Python's."""

import cProfile
import json
import pstats
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity

import pipeline
from comparison.machine import describe_machine, one_line
from comparison.report import table
from config import Config
from files import whole_file

ROOT = Path(pipeline.__file__).resolve().parent
TRACE, STATISTICS, SUMMARY = "trace.json.gz", "run.pstats", "profile.md"


@dataclass(frozen=True)
class Cost:
    """A range, an operator, a kernel or a function, added up over its calls. Self: without what it calls."""

    name: str
    calls: int
    self_s: float
    total_s: float


def profile_operators(config: Config, device: torch.device, out: Path, top: int = 20) -> str:
    """Run the app under torch's profiler; write a trace and the tables, and return the tables.

    The trace (Chrome's format) opens in ui.perfetto.dev or chrome://tracing.
    """
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
    with torch.profiler.profile(activities=activities) as profiler:
        stages = _run(replace(config, profile="function"), device)
    with whole_file(out / TRACE) as temporary:
        profiler.export_chrome_trace(str(temporary))
    ranges, operators, kernels = [], [], []
    for event in profiler.key_averages():
        on_gpu = "CUDA" in str(event.device_type)
        if event.is_user_annotation or event.key in stages:
            if not on_gpu and event.key not in stages:  # a range has a shadow on the GPU's time line
                ranges.append(Cost(event.key, event.count, event.self_cpu_time_total / 1e6, event.cpu_time_total / 1e6))
        elif on_gpu:
            kernels.append(
                Cost(event.key, event.count, event.self_device_time_total / 1e6, event.device_time_total / 1e6)
            )
        else:
            operators.append(Cost(event.key, event.count, event.self_cpu_time_total / 1e6, event.cpu_time_total / 1e6))
    sections = [_heading(device), stage_table(stages)]
    if ranges:
        sections.append("Functions of the app that are marked.\n\n" + cost_table(by_total(ranges), top))
    sections.append("Operators of torch on the CPU, by their own time.\n\n" + cost_table(by_self(operators), top))
    if kernels:
        sections.append("Kernels on the GPU.\n\n" + cost_table(by_self(kernels), top))
    return _written("\n\n".join(section.strip() for section in sections) + "\n", out)


def profile_python(config: Config, device: torch.device, out: Path, top: int = 20) -> str:
    """Run the app under Python's profiler; write its statistics and the tables, and return the tables.

    It sees every function of Python in the main thread, also those around compiled loops, and slows them all down.
    """
    profiler = cProfile.Profile()
    stages = profiler.runcall(_run, config, device)
    with whole_file(out / STATISTICS) as temporary:
        profiler.dump_stats(temporary)
    costs, own = [], []
    for (file, line, function), (calls, _, self_s, total_s, _) in pstats.Stats(profiler).stats.items():
        cost = Cost(_place(file, line, function), calls, self_s, total_s)
        costs.append(cost)
        if Path(file).is_relative_to(ROOT):
            own.append(cost)
    sections = [
        _heading(device),
        stage_table(stages),
        "Functions of Python, by their own time.\n\n" + cost_table(by_self(costs), top),
        "Functions of the app, with all that they call.\n\n" + cost_table(by_total(own), top),
    ]
    return _written("\n\n".join(section.strip() for section in sections) + "\n", out)


def stage_table(stages: dict[str, float]) -> str:
    """Seconds of every stage of the run, profiler included, and its share."""
    total_s = sum(stages.values())
    rows = [[name, f"{s:.2f}", f"{s / total_s:.0%}"] for name, s in stages.items()]
    return "Stages, slowed down by the profiler.\n\n" + table(["stage", "seconds", "share"], rows)


def cost_table(costs: Sequence[Cost], top: int) -> str:
    """The first `top` of them."""
    rows = [
        [f"`{_shortened(cost.name)}`", f"{cost.calls:,}", f"{1000 * cost.self_s:,.1f}", f"{1000 * cost.total_s:,.1f}"]
        for cost in costs[:top]
    ]
    return table(["name", "calls", "self, ms", "total, ms"], rows)


def _shortened(name: str, most: int = 90) -> str:
    """Names of kernels are templates of templates: their beginning and end say enough."""
    name = name.replace("|", "\\|")
    return name if len(name) <= most else f"{name[: most - 33]}...{name[-30:]}"


def by_self(costs: Sequence[Cost]) -> list[Cost]:
    return sorted(costs, key=lambda cost: -cost.self_s)


def by_total(costs: Sequence[Cost]) -> list[Cost]:
    return sorted(costs, key=lambda cost: -cost.total_s)


def _run(config: Config, device: torch.device) -> dict[str, float]:
    """The app's main job; seconds of its stages."""
    folder = pipeline.run(config, device, show_progress=False)
    return json.loads((folder / "run.json").read_text(encoding="utf-8"))["seconds"]


def _heading(device: torch.device) -> str:
    return f"Measured on: {one_line(describe_machine())}; device {device}."


def _place(file: str, line: int, function: str) -> str:
    """Where a function stands: from the app's folder, or from that of the installed packages."""
    path = Path(file)
    if path.is_relative_to(ROOT):
        return f"{path.relative_to(ROOT).as_posix()}:{line} {function}"
    if not path.is_absolute():  # built in
        return function
    return f"{file.rpartition('site-packages/')[2]}:{line} {function}"


def _written(text: str, out: Path) -> str:
    with whole_file(out / SUMMARY) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return text
