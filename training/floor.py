"""The floor table: the prior against trivial baselines on objects it never saw."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from evaluation.metrics import alpha_iou, psnr, ssim
from priors.diffusion import ddim_sample
from priors.tiny_zero123 import TinyZero123, blank_source
from priors.tiny_zero123_io import load_model
from registry import lookup

OFFSETS_DEG = (30.0, 90.0, 180.0, 270.0)  # of the targets; the last only keeps joint sampling company
REPORTED = (30, 90, 180)

# name -> steps, guidance, joint
SAMPLERS = {
    "DDIM 20, CFG 2": (20, 2.0, False),
    "DDIM 20, CFG 1": (20, 1.0, False),
    "joint, DDIM 20, CFG 2": (20, 2.0, True),
    "joint, DDIM 20, CFG 1": (20, 1.0, True),
    "1 step (mean)": (1, 1.0, False),
}


def held_out_views(version: str, objects: int, size: int, device: str) -> tuple[Tensor, Tensor]:
    """Sources and targets of held-out objects.

    Returns:
        Pictures [M, 1 + len(OFFSETS_DEG), 4, S, S] in [0, 1], the source first; elevations [M], degrees, on the CPU.
    """
    import procedural  # here, because it compiles kernels

    seeds = procedural.held_out_seeds(version)[:objects]
    azimuths, elevations = (torch.as_tensor(x, dtype=torch.float32) for x in procedural.held_out_source_angles(seeds))
    views = azimuths[:, None] + torch.tensor([0.0, *OFFSETS_DEG])
    images = procedural.render_views(
        procedural.sample_objects(seeds, version=version),
        views.numpy(),
        elevations[:, None].expand_as(views).numpy(),
        size=size,
        device=device,
    )
    return images.movedim(-1, 2).float() / 255, elevations


def scores(result: Tensor, truth: Tensor) -> dict[str, dict[str, float]]:
    """Metrics by offset, mean over objects: pictures [M, V, 4, S, S] in [0, 1]."""
    table = {}
    for i, offset in enumerate(REPORTED):
        a, b = (x[:, i].clamp(0, 1).movedim(1, -1) for x in (result, truth))  # [M, S, S, 4]
        table[f"+{offset}"] = {
            "psnr": psnr(a[..., :3], b[..., :3]).mean().item(),
            "ssim": ssim(a[..., :3], b[..., :3]).mean().item(),
            "iou": alpha_iou(a[..., 3], b[..., 3]).mean().item(),
        }
    return table


def baselines(pictures: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Results [M, V, 4, S, S] that need no network, from the pictures of `held_out_views`."""
    source, truth = pictures[:, :1], pictures[:, 1:]
    yield "copy the source", source.expand_as(truth)
    yield "mirrored source", source.flip(-1).expand_as(truth)
    yield "mean object", truth.mean(0, keepdim=True).expand_as(truth)  # of these very objects: slightly too good


@torch.inference_mode()
def sample_views(
    model: TinyZero123,
    source: Tensor,
    elevation_deg: Tensor,
    offsets_deg: Tensor,
    *,
    steps: int,
    guidance: float,
    joint: bool,
    seed: int = 0,
    batch: int = 32,
    target_elevation_deg: Tensor | None = None,
) -> Tensor:
    """Sample the views at azimuth offsets [V] of source pictures.

    Args:
        source: [M, 4, S, S] in [0, 1]; elevation_deg: [M], of the sources.
        target_elevation_deg: [M, V]; by default each source's own.
    Returns:
        [M, V, 4, S, S] in [0, 1]. Noise depends on the seed and on an object's place alone.
    """
    device = next(model.parameters()).device
    views = len(offsets_deg)
    generator = torch.Generator().manual_seed(seed)
    results = []
    for start in range(0, len(source), batch):
        pictures = source[start : start + batch].to(device) * 2 - 1
        count, size = len(pictures), pictures.shape[-1]
        noise = torch.randn(count, views, 4, size, size, generator=generator).to(device)
        elevation = elevation_deg[start : start + batch].to(device)
        if target_elevation_deg is None:
            targets = elevation[:, None].expand(count, views)
        else:
            targets = target_elevation_deg[start : start + batch].to(device)
        cache = model.encode_source(pictures, elevation)
        blank = model.encode_source(blank_source(count, size, device), elevation) if guidance != 1 else None
        azimuth = offsets_deg.to(device)[None].expand(count, views)
        x0 = ddim_sample(
            model, noise, azimuth, targets, elevation, cache, blank, steps=steps, guidance=guidance, joint=joint
        )
        results.append((x0 + 1) / 2)
    return torch.cat(results)


def evaluate(
    weights: Path,
    device: str,
    objects: int,
    versions: tuple[str, ...],
    batch: int = 32,
    seed: int = 0,
    samplers: Sequence[str] = tuple(SAMPLERS),
) -> dict[str, Any]:
    """Score all baselines and some samplers: {version: {name: {offset: {metric: value}}}}, with notes on the run."""
    chosen = {name: lookup(SAMPLERS, name, "--samplers") for name in samplers}
    model, notes = load_model(weights, device)
    report: dict[str, Any] = {"weights": notes, "objects": objects, "seed": seed, "versions": {}}
    for version in versions:
        pictures, elevations = held_out_views(version, objects, model.config.image_size, device)
        source, truth = pictures[:, 0], pictures[:, 1:]
        rows = {name: scores(result, truth) for name, result in baselines(pictures)}
        seconds = {}
        for name, (steps, guidance, joint) in chosen.items():
            begun = time.perf_counter()
            result = sample_views(
                model,
                source,
                elevations,
                torch.tensor(OFFSETS_DEG if joint else OFFSETS_DEG[: len(REPORTED)]),
                steps=steps,
                guidance=guidance,
                joint=joint,
                seed=seed,
                batch=batch,
            )
            rows[name] = scores(result, truth)
            seconds[name] = round(time.perf_counter() - begun, 2)
        report["versions"][version] = {"rows": rows, "seconds": seconds}
    return report


def format_table(report: dict[str, Any]) -> str:
    """The report as Markdown, one table a version."""
    lines = []
    for version, part in report["versions"].items():
        lines += [
            f"{version}, {report['objects']} objects, PSNR dB / SSIM / coverage IoU",
            "",
            "| | " + " | ".join(f"+{o}" for o in REPORTED) + " |",
            "|---" * (1 + len(REPORTED)) + "|",
        ]
        for name, row in part["rows"].items():
            cells = [
                "{psnr:.2f} / {ssim:.3f} / {iou:.3f}".format(**row[f"+{offset}"]) for offset in REPORTED
            ]
            lines.append(f"| {name} | " + " | ".join(cells) + " |")
        lines.append("")
    return "\n".join(lines)
