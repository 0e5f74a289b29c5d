import time

import pytest

from stages import StageTimes


def test_a_stage_is_timed_even_when_it_fails_and_adds_up_when_it_comes_again():
    times = StageTimes()
    with times.stage("first"):
        time.sleep(0.02)
    with pytest.raises(KeyError), times.stage("second"):
        raise KeyError
    once = times.seconds["first"]
    with times.stage("first"):
        time.sleep(0.02)
    assert list(times.seconds) == ["first", "second"]
    assert once >= 0.02 and times.seconds["first"] >= once + 0.02
