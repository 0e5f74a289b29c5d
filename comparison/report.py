"""What was compared, as Markdown tables to be pasted."""

from collections.abc import Sequence

from comparison import numbers
from comparison.accounts import gustafson, work_rate
from comparison.figures import base_row
from comparison.machine import one_line
from timing import Timing


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns after the first hold numbers: they stand to the right."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "|".join(["---"] + ["---:"] * (len(columns) - 1)) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def markdown(record: dict) -> str:
    """All tables of a comparison, with machine and command."""
    sections = [
        f"Measured on: {one_line(record['machine'])}.",
        f"Gaussians: {record['gaussians']:,}, {record['scene']}.",
        *([f"Command: `{record['command']}`"] if record["command"] else []),
        fields_table(record),
    ]
    sections.append("\n".join(f"- `{name}` was left out: {reason}" for name, reason in record["missing"].items()))
    if record["scaling"]:
        sections.append(scaling_table(record["scaling"]))
    if record.get("accounts"):
        sections += [runs_table(record["runs"]), amdahl_table(record["accounts"])]
        scaled = gustafson_table(record)
        sections += [scaled] if scaled else []
    return "\n\n".join(section.strip() for section in sections if section) + "\n"


def fields_table(record: dict) -> str:
    """Time, speed-up, error and mesh of every backend on one grid."""
    rows = record["fields"]
    timed = [row for row in rows if row["timing"]]
    bases = {row["name"]: row["timing"]["median_s"] for row in timed if row["backend"] == "cpu"}
    bases = bases or {timed[0]["name"]: timed[0]["timing"]["median_s"]} if timed else {}
    columns = ["backend", "ran on", "median", "spread", *(f"over `{name}`" for name in bases)]
    columns += ["error, same cut-off", "error, no cut-off", "vertices", "faces", "Hausdorff, voxels", "mean, voxels"]
    lines = []
    for row in rows:
        error, distance = row["error"], row["distance"]
        if row["timing"]:
            median_s = row["timing"]["median_s"]
            times = [numbers.seconds(median_s), spread(row["timing"])]
            times += [numbers.ratio(base_s / median_s) for base_s in bases.values()]
        else:
            times = ["wrong: not timed", ""] + [""] * len(bases)
        apart = ["", ""]
        if distance is not None:
            apart = [f"{distance[key] / record['voxel_size']:.1e}" for key in ("hausdorff", "mean")]
        errors = [f"{error['same_cutoff']:.1e}", "" if error["no_cutoff"] is None else f"{error['no_cutoff']:.1e}"]
        counts = [f"{row['vertices']:,}", f"{row['faces']:,}"]
        lines.append([f"`{row['name']}`", _device(row["device"]), *times, *errors, *counts, *apart])
    sides = " x ".join(map(str, record["shape"]))
    caption = (
        f"`extract_fields` on {sides} nodes. Errors against float64; distances of the meshes at density "
        f"{record['iso']:g} from that of `{rows[0]['name']}`.\n\n"
        if rows
        else ""
    )
    return caption + table(columns, lines)


def scaling_table(rows: Sequence[dict]) -> str:
    """Time and work a second of every backend on the growing grid."""
    base = base_row(rows) if base_row(rows)["timing"] else None
    columns = ["backend", "nodes along a side", "slabs", "median", "spread", "nodes a second"]
    columns += ["scaled speed-up", "error, same cut-off"]
    lines = []
    for row in rows:
        start = [f"`{row['name']}`", f"{row['resolution']:,}", str(row["slabs"])]
        if not row["timing"]:
            lines.append([*start, f"left out: {row['left_out']}", "", "", "", ""])
            continue
        median_s = row["timing"]["median_s"]
        gain = ""
        if base is not None:
            gain = numbers.ratio(work_rate(row["nodes"], median_s, base["nodes"], base["timing"]["median_s"]))
        rate = f"{row['nodes'] / median_s:.2e}"
        lines.append(
            [*start, numbers.seconds(median_s), spread(row["timing"]), rate, gain, f"{row['error']['same_cutoff']:.1e}"]
        )
    compared = f"`{base['name']}` at {base['resolution']}³" if base else "nothing"
    caption = f"The same Gaussians on ever finer grids. Scaled speed-up: nodes a second, compared with {compared}.\n\n"
    return caption + table(columns, lines)


def runs_table(runs: dict[str, dict], how: str = "Warm, in one process.") -> str:
    """Whole runs: seconds in all, of the field, and of every stage."""
    stages = list(dict.fromkeys(stage for run in runs.values() for stage in run["stages"]))
    columns = ["backend", "field on", "whole run, s", "`extract_fields`, s", *(f"{stage}, s" for stage in stages)]
    lines = [
        [
            f"`{name}`", _device(run["field_device"]), f"{run['total_s']:.2f}", f"{run['field_s']:.4f}",
            *(f"{run['stages'].get(stage, 0.0):.2f}" for stage in stages),
        ]
        for name, run in runs.items()
    ]  # fmt: skip
    return f"Whole runs. {how}\n\n" + table(columns, lines)


def amdahl_table(accounts: Sequence[dict]) -> str:
    """Predicted and measured speed-ups of the whole run."""
    columns = [
        "from, to",
        "P",
        "S",
        "predicted, 1 / ((1 - P) + P / S)",
        "measured",
        "limit, 1 / (1 - P)",
        "rest, slow / fast",
    ]
    lines = [
        [
            f"`{account['slow']}`, `{account['fast']}`", f"{account['share']:.3f}", numbers.ratio(account["speedup"]),
            *(numbers.ratio(account[key]) for key in ("predicted", "measured", "limit", "rest_ratio")),
        ]
        for account in accounts
    ]  # fmt: skip
    caption = (
        "Amdahl: P is the share of `extract_fields` in the slow run, S its speed-up. The law takes the rest of both "
        "runs to last equally long; where the last column is not 1 the machine was otherwise busy.\n\n"
    )
    return caption + table(columns, lines)


def gustafson_table(record: dict) -> str:
    """Scaled speed-up of the last whole run as its grid grows, where both backends were timed; empty: nowhere.

    Everything but the field is held at what it took in the run.
    """
    fast = list(record["runs"].values())[-1]
    slow = next(iter(record["runs"].values()))
    rest_s = fast["total_s"] - fast["field_s"]
    medians = {(row["name"], row["resolution"]): row["timing"] for row in record["scaling"] if row["timing"]}
    lines = []
    for size in sorted({resolution for _, resolution in medians}):
        if (slow["backend"], size) in medians and (fast["backend"], size) in medians:
            slow_s, fast_s = (medians[name, size]["median_s"] for name in (slow["backend"], fast["backend"]))
            speedup = slow_s / fast_s
            share = fast_s / (rest_s + fast_s)
            scaled = numbers.ratio(gustafson(rest_s, fast_s, speedup))
            lines.append([f"{size:,}", f"{1 - share:.5f}", f"{share:.5f}", numbers.ratio(speedup), scaled])
    if not lines:
        return ""
    caption = (
        f"Gustafson: a run by `{fast['backend']}` whose field alone grows, s + p S of it, with s and p the shares of "
        f"the rest and of the field in its time, S against `{slow['backend']}`.\n\n"
    )
    return caption + table(["nodes along a side", "s", "p", "S", "scaled speed-up, s + p S"], lines)


def spread(timing: dict | Timing) -> str:
    """From the fastest to the slowest repeat, and how many there were."""
    values = timing if isinstance(timing, dict) else vars(timing)
    if values["repeats"] == 1:
        return "one call"
    low, high = numbers.seconds(values["lowest_s"]), numbers.seconds(values["highest_s"])
    return f"{low} to {high}, {values['repeats']} calls"


def _device(name: str) -> str:
    return {"cpu": "CPU", "cuda": "GPU"}.get(name, name)
