"""Ranges for profilers: which are there, and that they change nothing."""

import pytest
import torch

import profiling
from profiling import marked, profiled, set_scope


@pytest.fixture
def scope():
    set_scope("stage")  # a run of the app in this process may have left another
    yield set_scope
    set_scope("stage")


@profiled
def doubled(x, *, times=2):
    """Its help."""
    return x * times


def names(run) -> list[str]:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        run()
    return [event.key for event in profile.key_averages()]


def test_functions_are_marked_when_asked_for_alone(scope):
    assert f"{__name__}.doubled" not in names(lambda: doubled(3))
    scope("function")
    assert f"{__name__}.doubled" in names(lambda: doubled(3))


def test_a_marked_function_stays_what_it_is(scope):
    for chosen in profiling.SCOPES:
        scope(chosen)
        assert doubled(3, times=5) == 15
        assert (doubled.__name__, doubled.__doc__) == ("doubled", "Its help.")


def test_ranges_nest_close_on_errors_and_need_no_nvtx(monkeypatch):
    opened = []

    class Nvtx:
        def start_range(self, name):
            opened.append(name)
            return name

        def end_range(self, name):
            assert opened.pop() == name

    monkeypatch.setattr(profiling, "nvtx", Nvtx())
    with pytest.raises(KeyError), marked("outer"), marked("inner"):
        assert opened == ["outer", "inner"]
        raise KeyError
    assert opened == []
    monkeypatch.setattr(profiling, "nvtx", None)
    with marked("without"):
        pass
