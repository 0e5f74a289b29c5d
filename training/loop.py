"""The training loop of the embedded prior: wall-clock schedule, state that survives a kill, one line in 200 steps."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from priors.tiny_zero123 import TinyZero123Config
from priors.tiny_zero123_io import save_weights
from training.distributed import Team, flat_gradients
from training.loss import TIME_BINS, LossOptions, prepare, v_loss
from training.pool import RenderChunk, ViewBatch, ViewPool, first_seed, render_procedural
from training.state import LOG_NAME, Trainee, split_file

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainOptions:
    """One run of the training; several runs share `state` and `total_minutes`."""

    state: Path
    minutes: float = 8.5  # wall clock of this run, set-up and export included
    total_minutes: float = 24.0  # of all runs: where the learning rate reaches 0
    last_run: bool = False  # let the learning rate reach 0 at the end of this run, whatever total_minutes says
    export: Path | None = None  # averaged weights as safetensors, written whenever the state is
    split: bool = False  # the export also in parts
    init: Path | None = None  # exported weights to begin from where the state folder is empty
    model: TinyZero123Config = field(default_factory=TinyZero123Config)
    loss: LossOptions = field(default_factory=LossOptions)
    pool_objects: int = 100_000  # on each device
    first_objects: int = 20_000  # enough to begin with
    chunk: int = 1024  # objects rendered at once
    refresh_every: int = 0  # replace a chunk of the full pool every so many steps; 0: never
    batch: int = 64  # objects, on each device
    views: int = 4  # targets of an object
    muon_lr: float = 0.02
    adam_lr: float = 1e-3
    warm_up_steps: int = 200
    cool_down: float = 0.45  # share of the schedule in which the learning rate falls to 0
    clip: float = 1.0
    ema: float = 0.9995
    compile: bool = True
    max_steps: int | None = None  # of this run
    save_every_s: float = 120.0
    log_every: int = 200
    reserve_s: float = 10.0  # kept of `minutes` for the last save
    seed: int = 0
    render: RenderChunk = render_procedural


def learning_rate_factor(step: int, progress: float, warm_up_steps: int, cool_down: float) -> float:
    """Linear warm-up by steps, constant, linear to 0 over the last `cool_down` of the schedule."""
    return min(1.0, (step + 1) / warm_up_steps) * min(1.0, max(0.0, 1.0 - progress) / cool_down)


@dataclass
class Clock:
    """Where this run stands between its start and its deadline, and in the whole schedule."""

    options: TrainOptions
    started: float  # time.time() when the command began
    earlier_s: float  # wall seconds of earlier runs

    @property
    def elapsed_s(self) -> float:
        return time.time() - self.started

    @property
    def over(self) -> bool:
        return self.elapsed_s > self.options.minutes * 60 - self.options.reserve_s

    @property
    def progress(self) -> float:
        """0 at the first run's start, 1 at the schedule's end."""
        total_s = self.options.total_minutes * 60
        if self.options.last_run:
            before = min(1.0, self.earlier_s / total_s)
            run_s = max(1e-6, self.options.minutes * 60 - self.options.reserve_s)
            return min(1.0, before + (1 - before) * self.elapsed_s / run_s)
        return min(1.0, (self.earlier_s + self.elapsed_s) / total_s)


def train(team: Team, options: TrainOptions, started: float) -> None:
    """Train until the run's time or steps are over; every process of the team calls this."""
    options.state.mkdir(parents=True, exist_ok=True)
    torch.set_float32_matmul_precision("high")
    sys.setswitchinterval(5e-4)  # the thread that renders must not hold up the launch of kernels
    trainee = Trainee.load(options.state, team.device)
    resumed = trainee is not None
    if trainee is None:
        trainee = Trainee.create(options.model, team.device, options.seed)
        if options.init is not None:
            trainee.start_from(options.init)
    team.copy_from_first(list(trainee.model.state_dict().values()))
    progress = trainee.progress
    clock = Clock(options, started, progress.wall_s)
    run, progress.run = progress.run, progress.run + 1
    generator = torch.Generator(team.device).manual_seed((options.seed * 1000 + run) * 64 + team.rank)

    size = trainee.model.config.image_size
    pool = ViewPool(options.pool_objects, size, team.device, options.render, first_seed(run, team.rank))
    pool.start(options.chunk)
    gradients = flat_gradients(trainee.model)
    if options.compile:
        trainee.model.compile_regions()
    try:
        if team.device.type == "cuda":
            try:
                _warm_up(trainee, options, generator)  # compiles while the pool renders
            except torch._dynamo.exc.TorchDynamoException:
                # An hour with a GPU is worth more than a third of its speed.
                logger.exception("rank %d: compilation failed, training goes on without it", team.rank)
                trainee.model.interpret_regions()
                _warm_up(trainee, options, generator)
        logger.info("rank %d: compiled after %.1f s, pool %d objects", team.rank, clock.elapsed_s, pool.ready)
        pool.wait_for(options.first_objects)
        logger.info(
            "rank %d: %s at step %d after %.1f s, schedule at %.3f, %d objects",
            team.rank,
            "resumed" if resumed else "begun",
            progress.step,
            clock.elapsed_s,
            clock.progress,
            pool.ready,
        )
        _run_steps(team, options, trainee, pool, gradients, clock, generator)
    finally:
        pool.stop()


def _run_steps(
    team: Team,
    options: TrainOptions,
    trainee: Trainee,
    pool: ViewPool,
    gradients: Tensor,
    clock: Clock,
    generator: torch.Generator,
) -> None:
    """The steps of one run."""
    progress = trainee.progress
    first_step, begun, train_s_before = progress.step, time.time(), progress.train_s
    bins = torch.zeros(2, 2, TIME_BINS, device=team.device)  # of independent and joint steps
    window, saved = (time.time(), progress.step), time.time()
    position, stop, save = 0.0, False, False

    while True:
        done = progress.step - first_step
        if done % 10 == 0 or team.world == 1:  # the same times everywhere, else the copies drift apart
            position, stop, save = team.agree(
                [clock.progress, clock.over, time.time() - saved > options.save_every_s]
            )
        if save or stop:
            progress.wall_s = clock.earlier_s + clock.elapsed_s
            progress.train_s = train_s_before + time.time() - begun
            if team.leads and not stop:
                _save(trainee, options)
            saved, save = time.time(), False
        if stop or (options.max_steps is not None and done >= options.max_steps):
            break
        pool.take_rendered()
        if options.refresh_every and progress.step % options.refresh_every == 0 and pool.ready == len(pool.images):
            pool.request_refresh()

        factor = learning_rate_factor(progress.step, position, options.warm_up_steps, options.cool_down)
        joint = progress.step % 2 == 1
        bins[int(joint)] += _step(team, options, trainee, pool, gradients, factor, joint, generator)

        if progress.step % options.log_every == 0 and team.leads:
            now = time.time()
            rate = (progress.step - window[1]) / (now - window[0])
            window = (now, progress.step)
            _log(options, trainee, clock, position, factor, rate, bins, pool)
        if progress.step % options.log_every == 0:
            bins.zero_()

    progress.wall_s = clock.earlier_s + clock.elapsed_s
    progress.train_s = train_s_before + time.time() - begun
    if team.leads:
        _save(trainee, options)
        logger.info("ended at step %d after %.1f s, schedule at %.3f", progress.step, clock.elapsed_s, clock.progress)


def _step(
    team: Team,
    options: TrainOptions,
    trainee: Trainee,
    pool: ViewPool,
    gradients: Tensor,
    factor: float,
    joint: bool,
    generator: torch.Generator,
) -> Tensor:
    """One optimiser step; returns the errors by noise level, see `v_loss`."""
    sample = prepare(pool.draw(options.batch, options.views, generator), options.loss, generator)
    gradients.zero_()
    with _autocast(team.device):
        loss, bins = v_loss(trainee.model, sample, options.loss, joint, generator)
    loss.backward()
    team.average(gradients)
    norm = gradients.norm()
    # A step whose gradient is not finite is skipped; without a look at the value, which would stall the GPU.
    scale = torch.where(norm.isfinite(), (options.clip / (norm + 1e-6)).clamp(max=1.0), 0.0)
    gradients.nan_to_num_(0.0, 0.0, 0.0).mul_(scale)
    for optimiser, lr in ((trainee.muon, options.muon_lr), (trainee.adam, options.adam_lr)):
        for group in optimiser.param_groups:
            group["lr"] = lr * factor
        optimiser.step()
    trainee.progress.step += 1
    trainee.update_ema(options.ema)
    return bins


def _warm_up(trainee: Trainee, options: TrainOptions, generator: torch.Generator) -> None:
    """Run forward and backward of both kinds of step on noise, so that everything is compiled."""
    config, device = trainee.model.config, next(trainee.model.parameters()).device
    shape, size = (options.batch, options.views), config.image_size
    fake = ViewBatch(
        source=torch.zeros(options.batch, 4, size, size, dtype=torch.uint8, device=device),
        targets=torch.zeros(*shape, 4, size, size, dtype=torch.uint8, device=device),
        source_elevation_deg=torch.zeros(options.batch, device=device),
        relative_azimuth_deg=torch.zeros(shape, device=device),
        elevation_deg=torch.zeros(shape, device=device),
    )
    for joint in (False, True):
        with _autocast(device):
            loss, _ = v_loss(trainee.model, prepare(fake, options.loss, generator), options.loss, joint, generator)
        loss.backward()
    torch.cuda.synchronize(device)


def _autocast(device: torch.device) -> contextlib.AbstractContextManager:
    return torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else contextlib.nullcontext()


def _save(trainee: Trainee, options: TrainOptions) -> None:
    """Write the state folder and the export."""
    trainee.save(options.state)
    if options.export is not None:
        notes = {"steps": str(trainee.progress.step), "train_seconds": f"{trainee.progress.train_s:.0f}"}
        save_weights(trainee.ema, trainee.model.config, options.export, notes)
        if options.split:
            split_file(options.export)


def _log(
    options: TrainOptions,
    trainee: Trainee,
    clock: Clock,
    position: float,
    factor: float,
    rate: float,
    bins: Tensor,
    pool: ViewPool,
) -> None:
    """One line for people, one line of JSON for plots."""
    values = bins.tolist()
    kinds = {}
    for name, (sums, counts) in zip(("independent", "joint"), values, strict=True):
        kinds[name] = {
            "mean": sum(sums) / max(1.0, sum(counts)),
            "by_t": [round(s / c, 5) if c else None for s, c in zip(sums, counts, strict=True)],
        }
    line = {
        "step": trainee.progress.step,
        "elapsed_s": round(clock.elapsed_s, 1),
        "schedule": round(position, 4),
        "lr_factor": round(factor, 4),
        "steps_per_s": round(rate, 2),
        "pool": pool.ready,
        "replaced": pool.replaced,
        **kinds,
    }
    with (options.state / LOG_NAME).open("a") as file:
        file.write(json.dumps(line) + "\n")
    logger.info(
        "step %d  %.1f s  %.1f steps/s  lr x%.3f  v-loss %.4f / joint %.4f  last bin %s / %s  pool %d+%d",
        line["step"],
        line["elapsed_s"],
        rate,
        factor,
        kinds["independent"]["mean"],
        kinds["joint"]["mean"],
        kinds["independent"]["by_t"][-1],
        kinds["joint"]["by_t"][-1],
        pool.ready,
        pool.replaced,
    )


def prepare_caches(state: Path) -> None:
    """Keep compiled kernels in the state folder: the next run then finds them. Before processes start."""
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(state / "inductor"))
    os.environ.setdefault("TRITON_CACHE_DIR", str(state / "triton"))
