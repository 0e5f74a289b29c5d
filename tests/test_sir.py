"""Noise schedules against the official run's tables, and the hybrid forward process."""

import pytest
import torch
from oracle_prior import OraclePrior, painted_object
from test_priors_base import RecordingPrior

from sir import NoisePlan, continuous_plan, continuous_plans, evaluations, grid_plans, target_views

# What the official code executes for image_sai.yaml: N = 20, K = 20, 0.9 T to 0.2 T, t1 = 0.6 t2.
T2 = [901, 851, 801, 751, 751, 701, 651, 651, 601, 551, 501, 501, 451, 401, 401, 351, 301, 301, 251, 201]
T1 = [501, 501, 451, 451, 451, 401, 351, 351, 351, 301, 301, 301, 251, 201, 201, 201, 151, 151, 151, 101]
INVERSIONS = [8, 7, 7, 6, 6, 6, 6, 6, 5, 5, 4, 4, 4, 4, 4, 3, 3, 3, 2, 2]
SAMPLINGS = [19, 18, 17, 16, 16, 15, 14, 14, 13, 12, 11, 11, 10, 9, 9, 8, 7, 7, 6, 5]


def steps(times) -> list[int]:
    return [round(1000 * t) for t in times]


def test_the_official_table_of_zero123():
    initial, *rounds = grid_plans(20, 20, 0.9, 0.2, 0.6)
    assert steps(initial.sampling) == [*range(951, 0, -50), 0] and initial.calls == 20
    assert steps(plan.sampling[0] for plan in rounds) == T2
    assert steps(plan.inversion[0] for plan in rounds) == T1
    assert [len(plan.inversion) - 1 for plan in rounds] == INVERSIONS
    assert [len(plan.sampling) - 1 for plan in rounds] == SAMPLINGS
    for plan in rounds:
        assert steps(plan.inversion) == list(range(steps(plan.inversion)[0], steps(plan.inversion)[-1] + 1, 50))
        assert steps(plan.sampling) == [*range(steps(plan.sampling)[0], 0, -50), 0]
    inverting = sum(len(plan.inversion) - 1 for plan in rounds)
    sampling = sum(len(plan.sampling) - 1 for plan in [initial, *rounds])
    assert (inverting, sampling, inverting + sampling) == (95, 257, 352)


def test_the_official_table_of_imagedream():
    initial, *rounds = grid_plans(10, 30, 0.8, 0.4, 0.6)
    expected = [801] + [701] * 7 + [601] * 8 + [501] * 7 + [401] * 7
    assert steps(plan.sampling[0] for plan in rounds) == expected
    start = {801: 401, 701: 401, 601: 301, 501: 301, 401: 201}
    assert steps(plan.inversion[0] for plan in rounds) == [start[t] for t in expected]
    assert initial.calls + sum(plan.calls for plan in rounds) == 285


def test_continuous_plan_shares_the_steps_out():
    plan = continuous_plan(0.48, 0.8, 10)
    assert plan.inversion == pytest.approx((0.48, 0.56, 0.64, 0.72, 0.8))
    assert plan.sampling == pytest.approx((0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.0))
    assert continuous_plan(0.3, 0.3, 8) == NoisePlan((0.3,), continuous_plan(0.3, 0.3, 8).sampling)
    assert continuous_plan(0.3, 0.3, 8).calls == 3
    assert continuous_plan(0.05, 0.05, 8).calls == 1


def test_continuous_plans_reach_both_ends():
    initial, *rounds = continuous_plans(8, 5, 0.8, 0.3, 1.0)
    assert initial.sampling[0] == 1.0 and initial.calls == 8
    assert [plan.sampling[0] for plan in rounds] == pytest.approx([0.8, 0.675, 0.55, 0.425, 0.3])
    assert len(continuous_plans(8, 0, 0.8, 0.3, 1.0)) == 1
    assert continuous_plans(8, 1, 0.8, 0.3, 0.6)[1].sampling[0] == pytest.approx(0.8)


def test_the_official_run_evaluates_as_counted():
    """Every call of the prior of the official schedule: where, with which half, and how many in all."""
    prior = RecordingPrior(constant=False)
    cameras = prior.orbit([0.0, 180.0], 0.0)
    generator = torch.Generator().manual_seed(0)
    images, counted, views = None, 0, []
    for plan in grid_plans(20, 20, 0.9, 0.2, 0.6):
        first = len(prior.calls)
        evaluated = target_views(
            prior, images, cameras, plan, eta=0.5, generator=generator, on_call=views.append
        )
        calls = prior.calls[first:]
        rising = [] if images is None else [(t, 0.0) for t in plan.inversion[:-1]]
        assert calls == rising + [(t, 3.0) for t in plan.sampling[:-1]]
        counted += evaluations(prior, plan, 2, (0.0, 1.0), 0.0, from_noise=images is None)
        images = evaluated
    assert len(prior.calls) == 352
    # The unconditional half alone inverts: 95 single evaluations, 257 guided ones, of 2 views.
    assert sum(views) == counted == 2 * (95 + 2 * 257)


def test_guidance_stays_in_its_interval():
    prior = RecordingPrior(constant=False)
    cameras = prior.orbit([0.0, 180.0], 0.0)
    plan = continuous_plan(0.9, 0.9, 10)
    views = []
    target_views(
        prior, torch.zeros(2, 3, 8, 8), cameras, plan, guidance_interval=(0.35, 0.75),
        generator=torch.Generator().manual_seed(0), on_call=views.append,
    )  # fmt: skip
    assert [(round(t, 3), g) for t, g in prior.calls] == [
        (0.9, 1.0), (0.8, 1.0), (0.7, 3.0), (0.6, 3.0), (0.5, 3.0), (0.4, 3.0), (0.3, 1.0), (0.2, 1.0), (0.1, 1.0),
    ]  # fmt: skip
    assert sum(views) == evaluations(prior, plan, 2, (0.35, 0.75), 0.0, from_noise=False)


@pytest.mark.parametrize("plan", [continuous_plan(1.0, 1.0, 4), continuous_plan(0.4, 0.7, 6)])
def test_an_oracle_gives_the_truth_whatever_it_is_asked(plan):
    prior = OraclePrior(painted_object(100), image_size=16)
    cameras = prior.orbit([30.0, 150.0, 270.0], 10.0)
    images = None if plan.sampling[0] == 1.0 else torch.full((3, 4, 16, 16), 0.5)
    views = target_views(prior, images, cameras, plan, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(views, prior.true_views(cameras), rtol=0, atol=1e-5)


def test_equal_seeds_give_equal_views():
    prior = RecordingPrior(constant=False)
    cameras = prior.orbit([0.0, 180.0], 0.0)
    images = torch.rand(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    plan = continuous_plan(0.3, 0.6, 10)
    first, same, other = (
        target_views(prior, images, cameras, plan, eta=0.7, generator=torch.Generator().manual_seed(s))
        for s in (0, 0, 1)
    )
    assert torch.equal(first, same) and not torch.equal(first, other)
