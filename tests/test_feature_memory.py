"""Features kept from step to step of a walk: what is run when, and that nothing changes where nothing may."""

import functools

import pytest
import torch
from test_priors_base import show, some_views
from tiny_priors import TINY_PRIORS, tiny_embedded, tiny_multiview, tiny_zero123
from torch import Tensor

from config import PriorConfig
from priors.base import Prior, walk
from priors.feature_memory import FeatureMemory
from priors.ldm import LatentPrior
from priors.mvdream import ImageDreamPrior
from sir import NoisePlan, target_views


class Network:
    """Writes down how it is called; its deep features are the number of whole calls so far, for each of 2 samples."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def ask(self, memory: FeatureMemory, halves: tuple[float, ...]) -> float:
        def keeping() -> tuple[Tensor, Tensor]:
            self.calls.append("keeping")
            features = torch.full((2 * len(halves),), float(self.calls.count("keeping")))
            return features, features

        def from_kept(features: Tensor) -> Tensor:
            self.calls.append("outer")
            assert len(features) == 2 * len(halves)
            return features

        def whole() -> Tensor:
            self.calls.append("whole")
            return torch.zeros(2)

        return float(memory.call(halves, whole, keeping, from_kept)[0])


@pytest.mark.parametrize("every, calls", [(2, "KoKoKoK"), (3, "KooKooK"), (100, "Koooooo"), (1, "wwwwwww")])
def test_one_step_serves_the_next_ones(every, calls):
    network, memory = Network(), FeatureMemory(every)
    with memory.walk():
        for _ in calls:
            network.ask(memory, (1.0,))
    assert network.calls == [{"K": "keeping", "o": "outer", "w": "whole"}[letter] for letter in calls]


def test_a_walk_begins_with_the_whole_network_and_leaves_nothing_behind():
    network, memory = Network(), FeatureMemory(100)
    for _ in range(2):
        with memory.walk():
            network.ask(memory, (0.0,))
            network.ask(memory, (0.0,))
    network.ask(memory, (0.0,))  # of no walk
    with pytest.raises(KeyError), memory.walk():
        network.ask(memory, (0.0,))
        raise KeyError
    network.ask(memory, (0.0,))
    assert network.calls == ["keeping", "outer", "keeping", "outer", "whole", "keeping", "whole"]


def test_each_half_has_its_own_features():
    """Halves of one call serve either alone; what one half never had is not served."""
    network, memory = Network(), FeatureMemory(3)
    with memory.walk():
        asked = [(1.0,), (1.0, 0.0), (1.0,), (0.0,), (1.0, 0.0), (1.0, 0.0)]
        served = [network.ask(memory, halves) for halves in asked]
    assert network.calls == ["keeping", "keeping", "outer", "outer", "outer", "keeping"]
    assert served == [1, 2, 2, 2, 2, 3]


@pytest.fixture(params=TINY_PRIORS)
def prior(request) -> Prior:
    made = TINY_PRIORS[request.param]()
    show(made, 3)
    return made


def remember(prior: Prior, every: int) -> list[str]:
    """Let the prior keep features; which kind each call of its network is, is written into the list."""
    memory, kinds = FeatureMemory(every), []
    call = memory.call

    def noted(halves, whole, keeping, from_kept):
        return call(
            halves,
            lambda: kinds.append("whole") or whole(),
            lambda: kinds.append("keeping") or keeping(),
            lambda features: kinds.append("outer") or from_kept(features),
        )

    memory.call = noted
    prior.features = memory
    return kinds


@pytest.mark.parametrize("guidance", [0.0, 1.0, 2.5])
def test_the_same_question_has_the_same_answer(prior, guidance):
    """At the same latents, level and cameras: the outer layers alone, with the features of the whole."""
    latents, cameras = some_views(prior)
    plain = prior.predict(latents, 0.5, cameras, guidance)[1]
    kinds = remember(prior, 2)
    with prior.walking():
        kept, again = (prior.predict(latents, 0.5, cameras, guidance)[1] for _ in range(2))
        moved = prior.predict(latents + 0.1, 0.5, cameras, guidance)[1]
    assert torch.equal(kept, plain) and not torch.equal(moved, plain)
    # The embedded prior's tokens come back through a difference and a sum: 1e-6 was measured. The others' are kept.
    torch.testing.assert_close(again, plain, rtol=0, atol=1e-5 if prior.channels == 4 else 0.0)
    halves = len(kinds) // 3  # the embedded prior takes the halves one by one
    assert kinds == ["keeping"] * halves + ["outer"] * halves + ["keeping"] * halves


def test_the_outer_layers_see_the_latents_and_the_level(prior):
    latents, cameras = some_views(prior)
    remember(prior, 3)
    with prior.walking():
        first, other_level, other_latents = (
            prior.predict_noise(x, t, cameras, 1.0) for x, t in ((latents, 0.5), (latents, 0.4), (latents.flip(0), 0.5))
        )
    assert (other_latents - first).abs().max() > 1e-4
    if prior.group_size == 1 or prior.channels == 4:  # the tiny multi-view networks' norms, of one channel a group,
        assert (other_level - first).abs().max() > 1e-5  # take away what the level adds


def test_off_is_the_plain_network(prior):
    latents, cameras = some_views(prior)
    plan = [0.6, 0.4, 0.2, 0.0]
    kinds = remember(prior, 1)
    walked = walk(prior, latents, plan, cameras, lambda t: 2.5)
    assert set(kinds) == {"whole"}
    prior.features = FeatureMemory(1000)  # lone calls keep nothing, whatever is set
    lone = latents
    for t, t_next in zip(plan[:-1], plan[1:], strict=True):
        x0, noise = prior.predict(lone, t, cameras, 2.5)
        alpha, sigma = prior.alpha_sigma(t_next)
        lone = alpha * x0 + sigma * noise
    assert torch.equal(walked, lone)


def test_features_of_pure_noise_serve_no_other_step():
    """The embedded prior's first step from level 1 is whole, and so is the next."""
    prior = tiny_embedded()
    show(prior, 3)
    latents, cameras = some_views(prior)
    kinds = remember(prior, 2)
    walk(prior, latents, [1.0, 0.8, 0.5, 0.0], cameras, lambda t: 1.0)
    assert kinds == ["keeping", "outer"]  # of the last two steps


@pytest.mark.parametrize("name", TINY_PRIORS)
def test_the_configuration_says_how_many_steps_features_serve(monkeypatch, name):
    """As every prior reads it when it is made."""
    monkeypatch.setattr("tiny_priors.PriorConfig", functools.partial(PriorConfig, features_every=3))
    prior = TINY_PRIORS[name]()
    show(prior, 3)
    latents, cameras = some_views(prior)
    kinds, call = [], prior.features.call
    prior.features.call = lambda halves, whole, keeping, from_kept: call(
        halves, whole, keeping, lambda features: kinds.append("outer") or from_kept(features)
    )
    with prior.walking():
        for _ in range(4):
            prior.predict(latents, 0.5, cameras, 1.0)
    assert len(kinds) == 2


def test_inversion_and_sampling_are_walks_of_their_own(prior):
    """3 steps up, 3 down: of either way every other one is shallow, and the views stay near those of all steps."""
    _, cameras = some_views(prior)
    images = torch.rand(4, prior.channels, prior.image_size, prior.image_size)
    plan = NoisePlan((0.1, 0.2, 0.3, 0.4), (0.4, 0.3, 0.2, 0.0))

    def views() -> Tensor:
        return target_views(prior, images, cameras, plan, guidance=1.0, generator=torch.Generator().manual_seed(0))

    exact = views()
    kinds = remember(prior, 2)
    near = views()
    assert kinds == ["keeping", "outer", "keeping"] * 2
    assert not torch.equal(near, exact)
    kinds.clear()
    assert torch.equal(views(), near)  # nothing is left of the first time


@pytest.mark.parametrize("name", ["zero123", "imagedream"])
def test_parts_of_a_call_keep_what_the_whole_call_keeps(name):
    """Where memory is little, two views (one group) go a call: the features are joined, and taken apart again."""
    results = []
    for batch in (0, 2 if name == "zero123" else 1):
        prior = TINY_PRIORS[name]()
        assert isinstance(prior, LatentPrior)
        show(prior, 3)
        prior.runtime.batch = batch
        kinds = remember(prior, 2)
        latents, cameras = some_views(prior)
        results.append(walk(prior, latents, [0.6, 0.4, 0.2], cameras, lambda t: 2.5))
        assert kinds == ["keeping", "outer"]
    # 1e-5 was measured, on values up to 9: other batches sum in another order.
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=1e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("make", [tiny_embedded, tiny_zero123, functools.partial(tiny_multiview, ImageDreamPrior)])
def test_every_kind_of_call_is_recorded_on_the_gpu(cuda, make):
    """Plain, recorded and replayed walks give what the CPU gives."""
    exact, fast = make(device="cpu"), make(device="cuda")
    results = []
    for prior in (exact, fast, fast, fast):
        show(prior, 3)
        prior.features = FeatureMemory(2)
        latents, cameras = some_views(prior)
        results.append(walk(prior, latents.to(prior.device), [0.6, 0.4, 0.2, 0.1], cameras, lambda t: 2.5).cpu())
    for result in results[1:]:
        # Half precision and TF32, as in the other tests of these networks.
        torch.testing.assert_close(result, results[0], rtol=0, atol=0.05)
    torch.testing.assert_close(results[3], results[2], rtol=0, atol=2e-3)
