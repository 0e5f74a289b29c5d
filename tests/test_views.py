"""Target pictures whose coverage is known, not known, or known of some."""

import pytest
import torch

from cameras import orbit_cameras
from views import Views, concatenate


def views(count: int, alpha: float | None) -> Views:
    cameras = orbit_cameras(torch.arange(count) * 10.0, 0.0, width=4, height=4)
    return Views(cameras, torch.rand(count, 4, 4, 3), None if alpha is None else torch.full((count, 4, 4), alpha))


@pytest.mark.parametrize(
    "alphas, known",
    [
        ((0.5, 0.25), [1, 1, 1, 1]),
        ((None, 0.25), [0, 0, 1, 1]),
        ((0.5, None), [1, 1, 0, 0]),
        ((None, None), [0, 0, 0, 0]),
    ],
)
def test_what_is_known_stays_known(alphas, known):
    """A prior of colours alone beside a reference with an alpha channel: the reference keeps its coverage."""
    joined = concatenate([views(2, alpha) for alpha in alphas])
    assert joined.coverage_weights().tolist() == known
    if alphas == (None, None):
        assert joined.alpha is None
    else:
        expected = [alphas[i // 2] if known[i] else 0.0 for i in range(4)]
        assert joined.alpha[:, 0, 0].tolist() == expected
    picked = joined[torch.tensor([3, 0])]
    assert picked.coverage_weights().tolist() == [known[3], known[0]]
    again = concatenate([joined, views(1, 1.0)])
    assert again.coverage_weights().tolist() == [*known, 1]


def test_views_that_know_all_need_no_list():
    """As before, so that equal input takes equal steps."""
    assert concatenate([views(2, 0.5), views(1, 0.5)]).known is None
