"""All objects of an evaluation: those that are done already are read, the others measured, in several processes."""

import json
import logging
import multiprocessing
import os
import platform
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

import run_record
from config import Config
from errors import UserError
from evaluation import fingerprint, report, sheets
from evaluation.measure import FORMAT, Pipeline, measure_object
from evaluation.objects import MEAN_OBJECTS, NOVEL_AZIMUTHS_DEG, Truth, held_out, load_truth, render_truth, save_truth
from files import whole_file
from mesh_extract.mesh import Mesh
from runtime_env import usable_cpus

logger = logging.getLogger(__name__)

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")


@dataclass(frozen=True)
class Settings:
    """What to evaluate and where; see scripts/evaluate.py for the meaning of each."""

    out: Path
    samples: Path
    version: str = "v1"
    objects: int = 32
    only: tuple[int, ...] | None = None
    baselines: bool = True
    device: str = "cpu"
    jobs: int = 1
    threads_per_job: int = 0
    accept_old_code: bool = False

    def __post_init__(self) -> None:
        if self.objects < 1:
            raise UserError(f"--objects {self.objects}: expected at least 1")
        if self.jobs < 1 or self.threads_per_job < 0:
            raise UserError(f"--jobs {self.jobs} --threads-per-job {self.threads_per_job}: expected at least 1 and 0")
        wrong = [index for index in self.only or () if not 0 <= index < self.objects]
        if wrong:
            raise UserError(f"--only: expected indices from 0 to {self.objects - 1}, found {wrong}")

    @property
    def indices(self) -> list[int]:
        return sorted(set(self.only)) if self.only is not None else list(range(self.objects))

    def path(self, index: int, suffix: str) -> Path:
        """File of one object."""
        return self.out / "objects" / f"{self.version}-{index:03d}{suffix}"


@dataclass(frozen=True)
class Work:
    """What a process needs to measure any of the objects; small enough to be pickled, but for what lies in files."""

    settings: Settings
    config: Config
    pipeline: Pipeline
    truth_path: Path
    truth_code: str
    mean_mesh_path: Path | None
    made_by: dict[str, str]
    samples_key: str


def evaluate(config: Config, settings: Settings, pipeline: Pipeline, truth: Truth | None = None) -> dict:
    """Evaluate the objects that are not done yet, and summarise all of them.

    Files appear whole, an object's JSON last, so that a run that is killed goes on where it was. A result counts as
    done if it was made by the same settings and the same code (or any code, if so wanted).

    Args:
        truth: rendered already, for tests; by default rendered once and kept in the output folder.
    Returns:
        The summary, as written to summary-<version>.json.
    Raises:
        UserError: nothing could be evaluated.
    """
    started_s = time.perf_counter()
    made_by = {
        "settings": fingerprint.settings_hash(config, settings.version, settings.baselines, settings.device),
        "code": fingerprint.code_hash(fingerprint.measured_code()),
    }
    truth_code = fingerprint.code_hash(fingerprint.TRUTH_CODE)
    truth_path = settings.out / f"truth-{settings.version}.npz"
    if truth is None:
        truth = _rendered_truth(settings, truth_path, truth_code)
    else:
        save_truth(truth, truth_path, truth_code)
    done = {index for index in settings.indices if _is_done(settings, index, made_by)}
    pending = [index for index in settings.indices if index not in done]
    logger.info("%d objects: %d are done already, %d to evaluate", len(settings.indices), len(done), len(pending))
    mean_mesh_path = _mean_mesh_path(settings, pipeline) if settings.baselines and pending else None
    work = Work(
        settings, config, pipeline, truth_path, truth_code, mean_mesh_path, made_by,
        fingerprint.samples_hash(config, settings.device),
    )  # fmt: skip
    failed = _measure_all(work, pending)

    results = [_read(settings.path(index, ".json")) for index in settings.indices if index not in failed]
    summary = {"format": FORMAT, "version": settings.version} | report.summarise(results, NOVEL_AZIMUTHS_DEG)
    summary |= {
        "failed": {str(index): why for index, why in sorted(failed.items())},
        "config": asdict(config),
        "baselines": settings.baselines,
        "device": settings.device,
        "made_by": made_by,
        "commit": run_record.commit(),
        "machine": _machine(settings),
        "wall_s": round(time.perf_counter() - started_s, 1),
        "evaluated_now": len(pending) - len(failed),
    }
    run_record.write_json(summary, settings.out / f"summary-{settings.version}.json")
    with whole_file(settings.out / f"summary-{settings.version}.md") as temporary:
        temporary.write_text(report.markdown(summary), encoding="utf-8")
    kept = [(result, _read_pictures(settings.path(result["index"], ".npz"))) for result in results]
    sheets.save_picture(sheets.overview_sheet(kept), settings.out / f"overview-{settings.version}.png")
    return summary


def _rendered_truth(settings: Settings, path: Path, code: str) -> Truth:
    """The truth from an earlier run, or rendered and kept."""
    truth = load_truth(path, code)
    # Always of at least so many objects: the mean object must not depend on how many are evaluated.
    count = max(settings.objects, MEAN_OBJECTS)
    if truth is None or len(truth) != count:
        started_s = time.perf_counter()
        logger.info("rendering the truth of %d objects ...", count)
        truth = render_truth(settings.version, count)
        save_truth(truth, path, code)
        logger.info("rendering the truth: %.1f s", time.perf_counter() - started_s)
    return truth


def _measure_all(work: Work, pending: list[int]) -> dict[int, str]:
    """Measure the objects; returns those that failed, with the reason."""
    failed: dict[int, str] = {}
    for finished, (index, why) in enumerate(_outcomes(work, pending), start=1):
        if why is not None:
            failed[index] = why
            logger.error("%d/%d: object %d failed: %s", finished, len(pending), index, why)
            continue
        flat = report.flat_measures(_read(work.settings.path(index, ".json")))
        logger.info(
            "%d/%d: object %d: splats %.2f dB IoU %.3f, mesh %.2f dB, copy %.2f dB, %.0f s",
            finished, len(pending), index, flat["splats.psnr"], flat["splats.iou"], flat["mesh.psnr"],
            flat["copy.psnr"], flat["seconds.pipeline"],
        )  # fmt: skip
    return failed


def _outcomes(work: Work, pending: list[int]) -> Iterator[tuple[int, str | None]]:
    """(index, why it failed or None) of every object, as they are finished."""
    if work.settings.jobs == 1 or len(pending) < 2:
        _limit_threads(work.settings.threads_per_job)
        truth = load_truth(work.truth_path, work.truth_code)
        for index in pending:
            yield index, _measure_one(work, truth, index)
        return
    # spawn: a forked child would share torch's and numba's thread pools with its parent, and hang.
    context = multiprocessing.get_context("spawn")
    jobs = min(work.settings.jobs, len(pending))
    pool = ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin_process, initargs=(work,))
    with _thread_environment(work.settings.threads_per_job), pool:
        futures = {pool.submit(_measure_in_process, index): index for index in pending}
        try:
            for future in as_completed(futures):
                error = future.exception()
                if error is None:
                    yield futures[future], future.result()
                else:  # a fault of the code, or a process that died, say for want of memory: the others go on
                    logger.error("object %d", futures[future], exc_info=error)
                    yield futures[future], f"{type(error).__name__}: {error}"
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


@contextmanager
def _thread_environment(threads: int) -> Iterator[None]:
    """What processes that begin meanwhile read: pools of so many threads, not of one for every core each (0: as is)."""
    before = {name: os.environ.get(name) for name in THREAD_VARIABLES}
    if threads:
        os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _limit_threads(threads: int) -> None:
    """Threads of torch and numba in this process; 0: as they are."""
    if threads:
        import numba

        torch.set_num_threads(threads)
        numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))


_process_work: tuple[Work, Truth] | None = None  # of a child process, set once when it begins


def _begin_process(work: Work) -> None:
    """Initialise a child process."""
    global _process_work
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    _limit_threads(work.settings.threads_per_job)
    truth = load_truth(work.truth_path, work.truth_code)
    assert truth is not None
    _process_work = work, truth


def _measure_in_process(index: int) -> str | None:
    assert _process_work is not None
    return _measure_one(*_process_work, index)


def _measure_one(work: Work, truth: Truth, index: int) -> str | None:
    """Measure one object and write its files; returns why it failed, or None."""
    settings = work.settings
    samples_path = mean_mesh = None
    if settings.baselines:
        samples_path = settings.samples / f"{settings.version}-{index:03d}-{work.samples_key}.npz"
        mean_mesh = _read_mesh(work.mean_mesh_path)
    device = torch.device(settings.device)
    try:
        measured = measure_object(held_out(truth, index), work.config, device, work.pipeline, samples_path, mean_mesh)
    except UserError as error:  # this object's trouble, such as a fit that lost all its splats; others go on
        return " ".join(str(error).split())
    result = measured.result | {"made_by": work.made_by}
    with whole_file(settings.path(index, ".npz")) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **measured.arrays)
    pictures = _pictures(measured.arrays)
    sheets.save_picture(sheets.object_sheet(pictures, result), settings.path(index, ".png"))
    run_record.write_json(result, settings.path(index, ".json"))
    return None


def _is_done(settings: Settings, index: int, made_by: dict[str, str]) -> bool:
    """Whether an earlier run has left a result that still holds."""
    path = settings.path(index, ".json")
    if not path.is_file():
        return False
    earlier = _read(path)
    if earlier.get("format") != FORMAT or earlier["made_by"]["settings"] != made_by["settings"]:
        return False
    return settings.accept_old_code or earlier["made_by"]["code"] == made_by["code"]


def _mean_mesh_path(settings: Settings, pipeline: Pipeline) -> Path:
    """The mean object's mesh, made if need be; it depends on the generator of objects and how a surface is taken."""
    code = fingerprint.code_hash(fingerprint.MEAN_MESH_CODE)
    path = settings.samples / f"mean-object-{code}.npz"
    if not path.is_file():
        started_s = time.perf_counter()
        mesh = pipeline.mean_mesh()
        with whole_file(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, vertices=mesh.vertices, faces=mesh.faces)
        logger.info("mean object: %.1f s", time.perf_counter() - started_s)
    return path


def _read(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def _read_mesh(path: Path) -> Mesh:
    with np.load(path) as stored:
        return Mesh(stored["vertices"], stored["faces"])


def _read_pictures(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as stored:
        return _pictures(stored)


def _pictures(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The pictures among an object's arrays, by name."""
    return {name.removeprefix("pictures."): arrays[name] for name in arrays if name.startswith("pictures.")}


def _machine(settings: Settings) -> dict:
    """Where the seconds were measured, and with what."""
    return {
        "system": platform.platform(),
        "processor": _processor(),
        "cpus": usable_cpus(),
        "jobs": settings.jobs,
        "threads_per_job": settings.threads_per_job or torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if settings.device.startswith("cuda") else None,
        "versions": run_record.versions(),
    }


def _processor() -> str:
    """The processor's name, where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()
