"""From the results of single objects to means, targets, tables and the difference of two runs."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass

import numpy as np

from errors import UserError

METHODS = {  # of pictures, in the order of the table
    "splats": "splats",
    "mesh": "textured mesh",
    "mesh_finely": "textured mesh, 16 samples a pixel instead of 4",
    "mesh_filtered": "textured mesh, through the splats' pixel filter",
    "fused_samples": "samples fused without SIR",
    "samples": "independent samples",
    "copy": "copy of the source",
    "mean_object": "mean object",
}
AT_SOURCE = ("splats", "mesh", "mesh_finely", "mesh_filtered")  # measured at the source's own view too
SURFACES = {
    "mesh": "mesh",
    "fused_samples": "samples fused without SIR",
    "visual_hull": "visual hull of the samples",
    "mean_object": "mean object",
}
PICTURE_MEASURES = ("psnr", "ssim", "iou")

ABOVE_COPY_DB = 4.5
ABOVE_SAMPLES_DB = 1.3
SPLATS_IOU = 0.86
MESH_WITHIN_DB = 0.3
MESH_WITHIN_IOU = 0.01
COMPONENTS_SHARE = 7 / 8


@dataclass(frozen=True)
class Target:
    """A number that the project has set itself; value and passed are None where it was not measured."""

    name: str
    value: float | None
    bound: str
    passed: bool | None


def flat_measures(result: dict) -> dict[str, float]:
    """The numbers of one object's result, means over its views, by names such as "splats.psnr"."""
    flat = {}
    for method, measures in result["views"].items():
        flat |= {f"{method}.{name}": float(np.mean(values)) for name, values in measures.items()}
    for method, measures in result["reference"].items():
        flat |= {f"reference.{method}.{name}": value for name, value in measures.items()}
    for method, measures in result["surfaces"].items():
        flat |= {f"surface.{method}.{name}": value for name, value in measures.items()}
    mesh = result["mesh"]
    flat["mesh.components_equal"] = float(mesh["components"] == mesh["true_components"])
    flat["mesh.closed"] = float(mesh["closed"])
    flat["mesh.outward"] = float(mesh["outward"])
    flat |= {f"seconds.{name}": value for name, value in result["seconds"].items()}
    return flat


def summarise(results: Iterable[dict], azimuths_deg: Iterable[float]) -> dict:
    """Means over all views and objects, the targets, and the numbers of every object.

    Args:
        results: of single objects, as measure_object makes them; at least one.
        azimuths_deg: of the novel views.
    Raises:
        UserError: there is no result.
    """
    results = sorted(results, key=lambda result: result["index"])
    if not results:
        raise UserError("no object was evaluated: nothing to summarise")
    per_object = {str(result["index"]): flat_measures(result) for result in results}
    # Only what every object has: a mean over some objects beside one over all would mislead.
    shared = [key for key in per_object[str(results[0]["index"])] if all(key in flat for flat in per_object.values())]
    mean = {key: float(np.mean([flat[key] for flat in per_object.values()])) for key in shared}
    peaks: dict[str, float] = {}
    for result in results:
        for where, value in result["peak_memory_mb"].items():
            peaks[where] = max(peaks.get(where, 0.0), value)
    return {
        "objects": len(results),
        "mean": {key: round(value, 5) for key, value in mean.items()},
        "median_seconds": {
            key.removeprefix("seconds."): round(float(np.median([flat[key] for flat in per_object.values()])), 3)
            for key in shared
            if key.startswith("seconds.")
        },
        "by_azimuth": _by_azimuth(results, list(azimuths_deg)),
        "targets": [asdict(target) for target in targets(mean)],
        "peak_memory_mb": peaks,
        "per_object": {
            index: {key: round(value, 5) for key, value in flat.items()} for index, flat in per_object.items()
        },
    }


def _by_azimuth(results: list[dict], azimuths_deg: list[float]) -> dict[str, dict[str, dict[str, float]]]:
    """Method -> measure -> angle from the source -> mean over the objects and both sides."""
    angles = sorted({abs(a) for a in azimuths_deg})
    table: dict[str, dict[str, dict[str, float]]] = {}
    for method in METHODS:
        if not all(method in result["views"] for result in results):
            continue
        table[method] = {}
        for measure in PICTURE_MEASURES:
            values = np.array([result["views"][method][measure] for result in results])  # [N, V]
            table[method][measure] = {
                f"{angle:g}": round(float(values[:, [abs(a) == angle for a in azimuths_deg]].mean()), 5)
                for angle in angles
            }
    return table


def targets(mean: dict[str, float]) -> list[Target]:
    """The project's targets against the means; a difference that was not measured neither passes nor fails."""

    def difference(first: str, second: str) -> float | None:
        return mean[first] - mean[second] if first in mean and second in mean else None

    def at_least(name: str, value: float | None, bound: float, unit: str = "") -> Target:
        # The last digits of a mean are rounding: what is below the bound by less than that has reached it.
        return Target(name, value, f">= {bound:g}{unit}", None if value is None else value >= bound - 1e-9)

    above_copy, above_samples = (difference("splats.psnr", f"{other}.psnr") for other in ("copy", "samples"))
    return [
        at_least("splats above copy", above_copy, ABOVE_COPY_DB, " dB"),
        at_least("splats above independent samples", above_samples, ABOVE_SAMPLES_DB, " dB"),
        at_least("splats' silhouettes (IoU)", mean.get("splats.iou"), SPLATS_IOU),
        at_least("mesh against splats", difference("mesh.psnr", "splats.psnr"), -MESH_WITHIN_DB, " dB"),
        at_least("mesh against splats (IoU)", difference("mesh.iou", "splats.iou"), -MESH_WITHIN_IOU),
        at_least("meshes with the true number of parts", mean.get("mesh.components_equal"), COMPONENTS_SHARE),
        at_least("closed meshes", mean.get("mesh.closed"), 1.0),
        at_least("outward meshes", mean.get("mesh.outward"), 1.0),
    ]


def markdown(summary: dict) -> str:
    """The summary as tables for people."""
    mean = summary["mean"]
    lines = [f"Held-out objects {summary['version']}: {summary['objects']}, 8 novel views each", ""]
    lines += ["| novel views | PSNR | SSIM | IoU |", "|---|---|---|---|"]
    for method, label in METHODS.items():
        if f"{method}.psnr" in mean:
            psnr, ssim, iou = (mean[f"{method}.{measure}"] for measure in PICTURE_MEASURES)
            lines.append(f"| {label} | {psnr:.2f} | {ssim:.3f} | {iou:.3f} |")
    for method in AT_SOURCE:
        if f"reference.{method}.psnr" not in mean:
            continue
        psnr, ssim, iou = (mean[f"reference.{method}.{measure}"] for measure in PICTURE_MEASURES)
        lines.append(f"| {METHODS[method]}, source's view | {psnr:.2f} | {ssim:.3f} | {iou:.3f} |")
    angles = list(next(iter(summary["by_azimuth"].values()))["psnr"])
    lines += ["", "| PSNR / IoU at | " + " | ".join(f"±{angle}°" for angle in angles) + " |"]
    lines.append("|---" * (len(angles) + 1) + "|")
    for method, measures in summary["by_azimuth"].items():
        cells = [f"{measures['psnr'][angle]:.2f} / {measures['iou'][angle]:.3f}" for angle in angles]
        lines.append(f"| {METHODS[method]} | " + " | ".join(cells) + " |")
    lines += ["", "| surface | Chamfer | F-score@0.05 |", "|---|---|---|"]
    for method, label in SURFACES.items():
        if f"surface.{method}.chamfer" in mean:
            lines.append(
                f"| {label} | {mean[f'surface.{method}.chamfer']:.4f} | {mean[f'surface.{method}.fscore']:.3f} |"
            )
    lines += ["", "| target | reached | bound | |", "|---|---|---|---|"]
    for target in summary["targets"]:
        value = "not measured" if target["value"] is None else f"{target['value']:.3f}"
        verdict = {True: "pass", False: "FAIL", None: "-"}[target["passed"]]
        lines.append(f"| {target['name']} | {value} | {target['bound']} | {verdict} |")
    # The median: the first object of a process pays for compiling and loading.
    lines += ["", "| median seconds an object | |", "|---|---|"]
    lines += [f"| {name} | {value:.1f} |" for name, value in summary["median_seconds"].items()]
    lines += ["", "peak memory: " + ", ".join(f"{k} {v:.0f} MB" for k, v in summary["peak_memory_mb"].items())]
    if summary.get("failed"):
        lines += ["", "FAILED objects: " + "; ".join(f"{i}: {why}" for i, why in summary["failed"].items())]
    return "\n".join(lines) + "\n"


def compare(before: dict, after: dict) -> str:
    """Differences of two summaries as a table, over the objects that both have, paired object by object.

    Raises:
        UserError: the summaries are of different formats or versions, or share no object.
    """
    for key in ("format", "version"):
        if before.get(key) != after.get(key):
            raise UserError(f"--compare: the two runs differ in {key}: {before.get(key)} and {after.get(key)}")
    shared = [index for index in after["per_object"] if index in before["per_object"]]
    if not shared:
        raise UserError("--compare: the two runs have no object in common")
    lines = [f"{len(shared)} objects of both runs ({after['version']}); ± is the standard error of the paired mean", ""]
    lines += ["| measure | before | after | difference | better on |", "|---|---|---|---|---|"]
    keys = [key for key in after["per_object"][shared[0]] if _is_compared(key)]
    for key in keys:
        if not all(key in run["per_object"][index] for run in (before, after) for index in shared):
            continue
        old, new = (np.array([run["per_object"][index][key] for index in shared]) for run in (before, after))
        change = new - old
        error = change.std(ddof=1) / math.sqrt(len(change)) if len(change) > 1 else math.nan
        improved = int((change < 0).sum() if _lower_is_better(key) else (change > 0).sum())
        lines.append(
            f"| {key} | {old.mean():.4f} | {new.mean():.4f} | {change.mean():+.4f} ± {error:.4f} "
            f"| {improved} of {len(shared)} |"
        )
    return "\n".join(lines) + "\n"


def _is_compared(key: str) -> bool:
    """Our own results and all times; baselines are the same in both runs, or the prior has changed, which shows too."""
    return not key.startswith(("copy.", "mean_object.", "surface.mean_object."))


def _lower_is_better(key: str) -> bool:
    return key.endswith(".chamfer") or key.startswith("seconds.")
