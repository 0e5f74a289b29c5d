"""The accounts of Amdahl and Gustafson, and numbers as they are written."""

import pytest

from comparison import numbers
from comparison.accounts import AmdahlAccount, amdahl, gustafson, work_rate


def test_amdahl():
    assert amdahl(0.5, 2.0) == pytest.approx(1 / 0.75)
    assert amdahl(0.0, 100.0) == 1 and amdahl(1.0, 100.0) == pytest.approx(100)
    assert amdahl(0.257, 1e12) == pytest.approx(1 / 0.743)


def test_an_account_of_runs_that_differ_in_one_part_predicts_what_was_measured():
    account = AmdahlAccount.of("cpu", "cuda", slow_total_s=10.0, slow_part_s=4.0, fast_total_s=6.5, fast_part_s=0.5)
    assert (account.share, account.speedup) == (0.4, 8.0)
    assert account.predicted == pytest.approx(account.measured) == pytest.approx(10 / 6.5)
    assert account.limit == pytest.approx(1 / 0.6)
    slower_rest = AmdahlAccount.of("cpu", "cuda", 10.0, 4.0, 7.5, 0.5)
    assert slower_rest.measured < slower_rest.predicted == account.predicted


def test_gustafson_is_the_slow_time_of_the_fast_machines_job():
    serial_s, parallel_s, speedup = 5.0, 0.25, 200.0
    slow_s = serial_s + parallel_s * speedup
    assert gustafson(serial_s, parallel_s, speedup) == pytest.approx(slow_s / (serial_s + parallel_s))
    share = parallel_s / (serial_s + parallel_s)
    assert gustafson(serial_s, parallel_s, speedup) == pytest.approx((1 - share) + share * speedup)


def test_work_rate_counts_nodes_a_second():
    assert work_rate(8000, 2.0, 1000, 1.0) == 4.0


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.42e-4, "0.142 ms"), (9e-6, "9.00 µs"), (0.0222, "22.2 ms"), (3.645, "3.65 s"), (41.23, "41.2 s"),
     (1234.5, "1,234 s"), (0.9999, "1000 ms")],
)  # fmt: skip
def test_seconds(value, text):
    assert numbers.seconds(value) == text


@pytest.mark.parametrize(("value", "text"), [(1.634, "1.63x"), (215.3, "215x"), (16123.4, "16,123x"), (0.5, "0.500x")])
def test_ratio(value, text):
    assert numbers.ratio(value) == text
