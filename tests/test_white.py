"""White Gaussians that a fit over white leaves: gone where nothing is behind them, kept on a white object."""

import torch

from gaussians import Gaussians, concatenate
from white import white_before_nothing


def ball(centre, radius: float, rgb: float, count: int = 400, scale: float = 0.05) -> Gaussians:
    directions = torch.nn.functional.normalize(
        torch.randn(count, 3, generator=torch.Generator().manual_seed(0)), dim=-1
    )
    means = torch.tensor(centre) + radius * directions
    return Gaussians.create(
        means, torch.full((count, 3), scale), torch.full((count,), 0.9), torch.full((count, 3), rgb)
    )


def dropped(gaussians: Gaussians) -> torch.Tensor:
    return white_before_nothing(gaussians, 0.01, 2.0, 49.1)


def test_white_haze_beside_the_object_goes():
    grey, haze = ball((0.0, 0.0, 0.0), 0.3, 0.5), ball((0.0, 0.6, 0.0), 0.05, 1.0, count=30)
    assert dropped(concatenate([grey, haze])).tolist() == [False] * 400 + [True] * 30


def test_a_white_skin_over_something_else_stays():
    """The coverage stays without it."""
    filling, skin = ball((0.0, 0.0, 0.0), 0.3, 0.5, count=1000), ball((0.0, 0.0, 0.0), 0.25, 1.0)
    assert not dropped(concatenate([filling, skin])).any()


def test_small_and_coloured_ones_stay():
    small, coloured = ball((0.0, 0.6, 0.0), 0.05, 1.0, scale=0.009), ball((0.0, -0.6, 0.0), 0.05, 0.95)
    assert not dropped(concatenate([small, coloured])).any()


def test_what_no_picture_shows_stays():
    """Nothing can be said of it; and no Gaussians at all are no error."""
    assert not dropped(ball((0.0, 30.0, 0.0), 0.05, 1.0, count=3)).any()
    assert len(dropped(ball((0.0, 0.0, 0.0), 0.3, 0.5)[:0])) == 0
