"""Training of the embedded prior: optimiser, pool, loss, loop, evaluation."""

import json
import math
import time

import pytest
import torch
from stub_views import render_balls

from errors import UserError
from priors.diffusion import ddim_sample
from priors.tiny_zero123 import TinyZero123Config
from priors.tiny_zero123_io import load_model
from procedural import TRAINING_BELOW
from training import loss as losses
from training.distributed import flat_gradients, launch
from training.floor import format_table, sample_views, scores
from training.loop import Clock, TrainOptions, learning_rate_factor, train
from training.muon import Muon, orthogonalise
from training.pool import SEED_LIMIT, SEEDS_PER_RUN, VIEWS, ViewBatch, ViewPool, first_seed
from training.sheet import load_source, write_grid
from training.state import Trainee, join_file, split_file

SMALL = TinyZero123Config(image_size=16, width=64, depth=2, heads=2, stem_channels=16, middle_channels=32)
PLAIN = losses.LossOptions(0, 0, 0, 0.12, 0, 0, 0, 0)  # nothing randomised


def make_pool(objects: int = 8, size: int = 16, chunk: int = 4) -> ViewPool:
    pool = ViewPool(objects, size, torch.device("cpu"), render_balls, seed=0)
    pool.start(chunk)
    pool.wait_for(objects, timeout_s=30)
    return pool


def options(tmp_path, **changes) -> TrainOptions:
    common = {
        "state": tmp_path / "state",
        "model": SMALL,
        "pool_objects": 8,
        "first_objects": 8,
        "chunk": 4,
        "batch": 4,
        "views": 2,
        "compile": False,
        "render": render_balls,
        "warm_up_steps": 5,
        "log_every": 2,
    }
    return TrainOptions(**{**common, **changes})


@pytest.mark.parametrize("shape", [(2, 16, 16), (1, 8, 32), (1, 32, 8)])
def test_orthogonalise_brings_singular_values_near_one(shape, generator):
    values = torch.linalg.svdvals(orthogonalise(torch.randn(shape, generator=generator)).float())
    assert values.min() > 0.3 and values.max() < 1.4


def test_muon_takes_query_key_and_value_apart(generator):
    weight = torch.nn.Parameter(torch.zeros(24, 8))
    weight.grad = torch.randn(24, 8, generator=generator) * torch.tensor([1e-3, 1.0, 1e3]).repeat_interleave(8)[:, None]
    Muon([weight], lr=0.1, weight_decay=0).step()
    sizes = weight.detach().view(3, 8, 8).norm(dim=(1, 2))
    assert sizes.max() / sizes.min() < 1.3  # taken whole, the small ones would hardly move
    assert (weight.grad * weight).sum() < 0  # downhill


def test_pool_draws_what_it_rendered(generator):
    pool = make_pool()
    try:
        batch = pool.draw(32, 7, generator)
        assert batch.source.shape == (32, 4, 16, 16) and batch.targets.shape == (32, 7, 4, 16, 16)
        images, azimuths, elevations = render_balls(torch.arange(8), 16, torch.device("cpu"))
        planes = images.movedim(-1, 2).contiguous().numpy()
        known = {bytes(planes[i, j]): (i, j) for i in range(8) for j in range(VIEWS)}
        sources = set()
        for b in range(32):
            i, j = known[bytes(batch.source[b].contiguous().numpy())]
            sources.add(j)
            assert batch.source_elevation_deg[b] == elevations[i, j]
            seen = {j}
            for v in range(7):
                i2, j2 = known[bytes(batch.targets[b, v].contiguous().numpy())]
                assert i2 == i
                assert batch.relative_azimuth_deg[b, v] == azimuths[i, j2] - azimuths[i, j]
                assert batch.elevation_deg[b, v] == elevations[i, j2]
                seen.add(j2)
            assert len(seen) == VIEWS
        assert sources == {0, 1, 2, 3}
    finally:
        pool.stop()


def test_pool_replaces_its_oldest_objects_on_request():
    pool = make_pool()
    try:
        before = pool.images.clone()
        pool.request_refresh()
        end = time.monotonic() + 10
        while pool.replaced < 4 and time.monotonic() < end:
            pool.take_rendered()
            time.sleep(0.01)
        assert pool.replaced == 4 and pool.ready == 8
        assert torch.equal(pool.images[4:], before[4:]) and not torch.equal(pool.images[:4], before[:4])
    finally:
        pool.stop()


def test_pool_reports_a_failing_renderer():
    def fail(seeds, size, device):
        raise ZeroDivisionError

    pool = ViewPool(4, 16, torch.device("cpu"), fail, seed=0)
    pool.start()
    with pytest.raises(RuntimeError, match="rendering"):
        pool.wait_for(4, timeout_s=10)
    pool.stop()


def test_seeds_of_runs_and_ranks_do_not_meet():
    starts = sorted(first_seed(run, rank) for run in range(512) for rank in range(8))
    assert min(b - a for a, b in zip(starts[:-1], starts[1:], strict=True)) == SEEDS_PER_RUN
    assert starts[-1] + SEEDS_PER_RUN <= SEED_LIMIT == TRAINING_BELOW


def test_recolouring_commutes_with_compositing_over_white(generator):
    colour, coverage = torch.rand(4, 2, 3, 5, 5, generator=generator), torch.rand(4, 2, 1, 5, 5, generator=generator)
    colour = 0.2 + 0.4 * colour  # nothing is clipped
    choice = losses.LossOptions(mirrored=0.5, hues_permuted=0.5, brightness=0.2, saturation=0.3)

    def over_white(rgb):
        return torch.cat([rgb * coverage + 1 - coverage, coverage], 2)

    state = generator.get_state()
    result, mirrored = losses.augment(over_white(colour), choice, generator)
    generator.set_state(state)
    opaque = torch.cat([colour, torch.ones_like(coverage)], 2)
    recoloured, _ = losses.augment(opaque, choice, generator)
    unmirrored = torch.where(mirrored[:, None, None, None, None], recoloured.flip(-1), recoloured)[:, :, :3]
    expected = over_white(unmirrored)
    expected = torch.where(mirrored[:, None, None, None, None], expected.flip(-1), expected)
    torch.testing.assert_close(result, expected, atol=1e-5, rtol=0)
    assert not torch.allclose(result, over_white(colour), atol=0.02)


def test_mirroring_negates_azimuths(generator):
    pictures = torch.randint(0, 256, (6, 3, 4, 4, 4), generator=generator, dtype=torch.uint8)
    azimuth = torch.rand(6, 2, generator=generator) * 360
    batch = ViewBatch(pictures[:, 0], pictures[:, 1:], torch.zeros(6), azimuth, torch.zeros(6, 2))
    sample = losses.prepare(batch, losses.LossOptions(0, 0, 0, 0.12, 0.5, 0, 0, 0), generator)
    flipped = sample.relative_azimuth_deg[:, 0] < 0
    assert 0 < flipped.sum() < 6
    for i in range(6):
        expected = pictures[i].float() / 255 * 2 - 1
        expected = expected.flip(-1) if flipped[i] else expected
        torch.testing.assert_close(sample.x0[i], expected[1:], atol=1e-5, rtol=0)
        torch.testing.assert_close(sample.source[i], expected[0], atol=1e-5, rtol=0)
        assert torch.equal(sample.relative_azimuth_deg[i].abs(), azimuth[i])


def test_dropped_sources_are_blank(generator):
    pictures = torch.zeros(4, 2, 4, 4, 4, dtype=torch.uint8)
    zeros = torch.zeros(4, 1)
    batch = ViewBatch(pictures[:, 0], pictures[:, 1:], zeros[:, 0], zeros, zeros)
    sample = losses.prepare(batch, losses.LossOptions(source_dropped=1.0), generator)
    assert (sample.source[:, :3] == 1).all() and (sample.source[:, 3] == -1).all()
    assert sample.source_elevation_deg.std() > 0


def test_noise_levels_are_stratified_and_binned(generator):
    t = losses.draw_times(64, 64, torch.device("cpu"), generator)
    assert t.min() >= losses.T_MIN and t.max() <= 1
    parts = ((t - losses.T_MIN) / (1 - losses.T_MIN) * 64).floor().clamp(max=63)
    assert parts.unique().numel() >= 62  # each part once, but for rounding
    assert losses.draw_times(64, 128, torch.device("cpu"), generator).median() > t.median() + 0.1
    bins = losses.bin_by_time(torch.tensor([[1.0, 2.0], [4.0, 8.0]]), torch.tensor([[0.0, 0.13], [0.99, 1.0]]))
    assert bins[0].tolist() == [1, 2, 0, 0, 0, 0, 0, 12] and bins[1].tolist() == [1, 1, 0, 0, 0, 0, 0, 2]
    assert losses.time_weight(torch.tensor([0.0, 0.06, 0.12, 1.0]), 0.12).tolist() == pytest.approx([0.25, 0.5, 1, 1])


def test_an_untrained_network_has_the_loss_of_predicting_zero(generator):
    trainee = Trainee.create(SMALL, torch.device("cpu"))
    pool = make_pool()
    try:
        sample = losses.prepare(pool.draw(16, 4, generator), PLAIN, generator)
    finally:
        pool.stop()
    loss, bins = losses.v_loss(trainee.model, sample, PLAIN, False, generator)
    power = sample.x0.square().mean().item()
    assert bins[1].sum() == 64
    # The last layer starts at zero, so the error is alpha^2 + sigma^2 power: near 1 first and near the power last.
    by_t = bins[0] / bins[1]
    assert by_t[0] == pytest.approx(1.0, abs=0.1) and by_t[-1] == pytest.approx(power, abs=0.1)


def test_flat_gradients_gather_what_backward_writes(generator):
    model = Trainee.create(SMALL, torch.device("cpu")).model
    flat = flat_gradients(model)
    sum(p.sum() for p in model.parameters()).backward()
    assert torch.equal(flat, torch.ones_like(flat))
    flat.zero_()
    assert not any(p.grad.any() for p in model.parameters())


def test_learning_rate_warms_up_stays_and_falls():
    factors = [learning_rate_factor(1000, p, 200, 0.4) for p in (0, 0.6, 0.8, 1.0, 1.2)]
    assert factors == pytest.approx([1, 1, 0.5, 0, 0])
    assert learning_rate_factor(9, 0, 200, 0.4) == pytest.approx(0.05)


def test_schedule_spans_runs(tmp_path):
    second = Clock(options(tmp_path, minutes=8, total_minutes=20), time.time() - 60, earlier_s=480)
    assert second.progress == pytest.approx(540 / 1200, abs=1e-3) and not second.over
    last = Clock(options(tmp_path, minutes=8, total_minutes=20, last_run=True), time.time() - 470, earlier_s=480)
    assert last.progress == pytest.approx(1.0, abs=1e-3)


def test_a_few_views_are_learnt_and_sampled(generator):
    """The loss on a fixed batch falls a lot in 200 steps, and samples from noise become the views asked for."""
    small = TinyZero123Config(image_size=16, width=64, depth=1, heads=2, stem_channels=16, middle_channels=16)
    trainee = Trainee.create(small, torch.device("cpu"))
    flat = flat_gradients(trainee.model)
    pool = make_pool(objects=4)
    sample = losses.prepare(pool.draw(2, 3, generator), PLAIN, generator)
    pool.stop()
    history = []
    for step in range(200):
        flat.zero_()
        loss, _ = losses.v_loss(trainee.model, sample, PLAIN, step % 2 == 1, generator)
        loss.backward()
        factor = min(1.0, (step + 1) / 10, (200 - step) / 80)
        trainee.muon.param_groups[0]["lr"] = 0.02 * factor
        trainee.adam.param_groups[0]["lr"] = 6e-3 * factor
        trainee.muon.step()
        trainee.adam.step()
        history.append(loss.item())
    start, end = sum(history[:5]) / 5, sum(history[-20:]) / 20
    assert end < 0.2 * start  # measured 0.11

    copied = (sample.source[:, None] - sample.x0).square().mean()
    with torch.inference_mode():
        cache = trainee.model.encode_source(sample.source, sample.source_elevation_deg)
        for joint in (False, True):
            result = ddim_sample(
                trainee.model,
                torch.randn(sample.x0.shape, generator=generator),
                sample.relative_azimuth_deg,
                sample.elevation_deg,
                sample.source_elevation_deg,
                cache,
                steps=5,
                joint=joint,
            )
            # [object, view sampled, view asked for]: the right ones are nearer than the others.
            errors = (result[:, :, None] - sample.x0[:, None]).square().mean((3, 4, 5))
            right = errors.diagonal(dim1=1, dim2=2).mean()
            assert right < 0.9 * copied  # measured 0.71
            assert right < 0.8 * (errors.sum((1, 2)).mean() - 3 * right) / 6  # the mean of the six wrong pairs


def test_a_run_goes_on_where_the_last_one_stopped(tmp_path):
    path = tmp_path / "prior.safetensors"
    first = options(tmp_path, max_steps=3, export=path, split=True)
    launch(train, 1, "cpu", first, time.time())
    saved = torch.load(first.state / "state.pt", weights_only=True)
    trainee = Trainee.load(first.state, torch.device("cpu"))
    assert trainee.progress.step == 3 and trainee.progress.run == 1 and trainee.progress.wall_s > 0
    for name, p in trainee.model.state_dict().items():
        assert torch.equal(p, saved["model"][name])
    for mine, theirs in ((trainee.muon, saved["muon"]), (trainee.adam, saved["adam"])):
        for key, state in theirs["state"].items():
            for name, value in state.items():
                assert torch.equal(torch.as_tensor(mine.state_dict()["state"][key][name]), torch.as_tensor(value))

    launch(train, 1, "cpu", options(tmp_path, max_steps=2, export=path, split=True), time.time())
    again = Trainee.load(first.state, torch.device("cpu"))
    assert again.progress.step == 5 and again.progress.run == 2
    assert again.progress.wall_s > trainee.progress.wall_s
    model, notes = load_model(path)
    assert notes["steps"] == "5"
    for name, p in model.state_dict().items():
        torch.testing.assert_close(p, again.ema[name].half().float(), rtol=0, atol=0)
    lines = [json.loads(line) for line in (first.state / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [2, 4]
    joined = tmp_path / "joined" / path.name
    joined.parent.mkdir()
    join_file(joined, tmp_path)
    assert joined.read_bytes() == path.read_bytes()


def test_a_run_keeps_to_its_time(tmp_path):
    begun = time.time()
    launch(train, 1, "cpu", options(tmp_path, minutes=5 / 60, reserve_s=1.0), begun)
    assert time.time() - begun < 8
    assert Trainee.load(tmp_path / "state", torch.device("cpu")).progress.wall_s >= 4


def test_two_processes_train_one_network(tmp_path):
    launch(train, 2, "cpu", options(tmp_path, max_steps=3), time.time())
    trainee = Trainee.load(tmp_path / "state", torch.device("cpu"))
    assert trainee.progress.step == 3
    fresh = Trainee.create(SMALL, torch.device("cpu"))
    assert not torch.equal(trainee.model.decode.conv_out.weight, fresh.model.decode.conv_out.weight)


def test_parts_join_and_damage_is_noticed(tmp_path):
    path = tmp_path / "file.bin"
    path.write_bytes(bytes(range(256)) * 10)
    parts = split_file(path, part_bytes=1000)
    assert [p.stat().st_size for p in parts] == [1000, 1000, 560]
    other = tmp_path / "other"
    other.mkdir()
    join_file(other / "file.bin", tmp_path)
    assert (other / "file.bin").read_bytes() == path.read_bytes()
    parts[1].write_bytes(b"damaged")
    with pytest.raises(UserError, match="sha256"):
        join_file(other / "file.bin", tmp_path)
    parts[1].unlink()
    with pytest.raises(UserError, match="part1"):
        join_file(other / "file.bin", tmp_path)


def test_scores_and_table():
    truth = torch.zeros(2, 4, 4, 16, 16)
    truth[..., 4:12, 4:12] = 1.0
    exact = scores(truth, truth)
    assert exact["+90"] == {"psnr": pytest.approx(100), "ssim": pytest.approx(1), "iou": pytest.approx(1)}
    off = scores(truth * 0.9 + 0.05, truth)
    assert off["+30"]["psnr"] == pytest.approx(-20 * math.log10(0.05), abs=1e-3)
    report = {"objects": 2, "versions": {"v1": {"rows": {"exact": exact}}}}
    assert "| exact | 100.00 / 1.000 / 1.000 |" in format_table(report)


def test_samples_depend_on_the_seed_alone(generator):
    model = Trainee.create(SMALL, torch.device("cpu")).model
    source, elevation = torch.rand(3, 4, 16, 16, generator=generator), torch.zeros(3)
    results = [
        sample_views(
            model, source, elevation, torch.tensor([30.0, 90.0]), steps=2, guidance=2.0, joint=False, batch=batch
        )
        for batch in (3, 2)
    ]
    assert results[0].shape == (3, 2, 4, 16, 16) and results[0].min() >= 0 and results[0].max() <= 1
    torch.testing.assert_close(*results, atol=1e-4, rtol=0)


def test_pictures_are_framed_as_the_app_does(tmp_path):
    from PIL import Image

    picture = Image.new("RGBA", (200, 100), (0, 255, 0, 0))  # hidden green must not show
    picture.paste((255, 0, 0, 255), (10, 20, 50, 40))
    picture.save(tmp_path / "in.png")
    framed = load_source(tmp_path / "in.png", 100)
    inside = (framed[3] > 0.5).nonzero()
    assert inside.amin(0).tolist() == [30, 10] and inside.amax(0).tolist() == [69, 89]
    torch.testing.assert_close(framed[:, 50, 50], torch.tensor([1.0, 0, 0, 1]), atol=1e-5, rtol=0)
    torch.testing.assert_close(framed[:, 5, 5], torch.tensor([1.0, 1, 1, 0]), atol=1e-5, rtol=0)
    write_grid([[framed, framed], [framed]], tmp_path / "grid.png")
    with Image.open(tmp_path / "grid.png") as grid:
        assert grid.size == (204, 204)
    Image.new("RGBA", (8, 8)).save(tmp_path / "empty.png")
    with pytest.raises(UserError, match="fully transparent"):
        load_source(tmp_path / "empty.png", 16)
