"""The article's runs: 20 iterations and a mesh by every backend, and 80 by two whose assets are compared."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from comparison.assets import asset_distance
from comparison.machine import describe_machine, one_line
from comparison.report import amdahl_table, runs_table, table
from comparison.run import amdahl_record, run_all
from config import Config, FitConfig
from files import whole_file
from run_record import write_json

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ArticleRuns:
    """What to run. timed: backends, the slow one first; validated: two of them; repeats: of the timed runs;
    command: what was typed."""

    out: Path
    timed: tuple[str, ...]
    validated: tuple[str, str]
    repeats: int = 1
    fresh: bool = False
    command: str = ""


def iterations(config: FitConfig) -> int:
    """Steps of the optimiser in a whole fit."""
    return config.init_steps + config.rounds * config.round_steps


def repeat_article(timed: Config | None, validation: Config | None, wanted: ArticleRuns, device: torch.device) -> dict:
    """Run what is asked for, write article.json and article.md into wanted.out, and return the record.

    Runs that an earlier call has finished are taken from there, unless wanted.fresh.

    Args:
        timed, validation: configurations of the two experiments; None leaves one out.
        device: of everything but the density field.
    Raises:
        UserError: a backend is unknown or cannot run here.
    """
    record: dict = {"machine": describe_machine(), "command": wanted.command, "device": str(device)}
    if timed is not None:
        runs = run_all(timed, wanted.timed, device, wanted.out / "timed", wanted.fresh, wanted.repeats)
        record["timed"] = {"iterations": iterations(timed.fit), **amdahl_record(runs)}
        write(record, wanted.out)
    if validation is not None:
        record["validation"] = _validate(validation, wanted, device)
        write(record, wanted.out)
    return record


def _validate(config: Config, wanted: ArticleRuns, device: torch.device) -> dict:
    """Two whole runs and how far their assets are apart; where the fits differ, one fit's splats meshed by both too."""
    runs = run_all(config, wanted.validated, device, wanted.out / "validation", wanted.fresh, warm_up=False)
    folders = [Path(run.folder) for run in runs.values()]
    found = {
        "iterations": iterations(config.fit),
        **amdahl_record(runs),
        "whole_runs": asset_distance(*folders).to_dict(),
    }
    if found["whole_runs"]["splats"] != 0:
        logger.info("the fits differ: meshing the splats of the first by both backends ...")
        (splats,) = folders[0].glob("*_gaussians.ply")
        again = replace(config, input="", prompt="", load=str(splats))
        meshed = run_all(again, wanted.validated, device, wanted.out / "validation-mesh", wanted.fresh, warm_up=False)
        found["same_splats"] = asset_distance(*(Path(run.folder) for run in meshed.values())).to_dict()
    return found


def markdown(record: dict) -> str:
    """All tables, with machine and command."""
    sections = [f"Measured on: {one_line(record['machine'])}; fit and rest on {record['device']}."]
    sections += [f"Command: `{record['command']}`"] if record["command"] else []
    if "timed" in record:
        timed = record["timed"]
        sections += [f"{timed['iterations']} iterations (steps of the optimiser) and a mesh, end to end."]
        sections += [runs_table(timed["runs"])] + ([amdahl_table(timed["accounts"])] if timed["accounts"] else [])
    if "validation" in record:
        validation = record["validation"]
        sections += [f"{validation['iterations']} iterations on two paths: {', '.join(validation['runs'])}."]
        sections += [runs_table(validation["runs"], "Not warmed up."), _distance_table(validation)]
    return "\n\n".join(section.strip() for section in sections) + "\n"


def _distance_table(validation: dict) -> str:
    rows = [("whole runs", validation["whole_runs"])]
    if "same_splats" in validation:
        rows.append(("the same splats meshed by both", validation["same_splats"]))
    columns = ["assets", "splats differ by", "vertices", "faces", "Hausdorff", "mean", "of the object's size"]
    columns += ["views, of 255", "views, PSNR", "texture, of 255"]
    return "How far the two assets are apart.\n\n" + table(columns, [_distance_row(*row) for row in rows])


def _distance_row(name: str, found: dict) -> Sequence[str]:
    return [
        name,
        "other numbers of them" if found["splats"] is None else f"{found['splats']:.1e}",
        " and ".join(f"{n:,}" for n in found["vertices"]),
        " and ".join(f"{n:,}" for n in found["faces"]),
        f"{found['hausdorff']:.2e}",
        f"{found['mean']:.2e}",
        f"{found['hausdorff'] / found['size']:.2e}",
        f"{found['views']:.3f}",
        f"{found['views_psnr_db']:.1f} dB",
        "other faces" if found["texture"] is None else f"{found['texture']:.3f}",
    ]


def write(record: dict, out: Path) -> None:
    """article.json and article.md, each whole or not at all."""
    write_json(record, out / "article.json")
    with whole_file(out / "article.md") as temporary:
        temporary.write_text(markdown(record), encoding="utf-8")
