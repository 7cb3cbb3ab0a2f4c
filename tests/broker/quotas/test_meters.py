"""Rates and token buckets, compared with numbers that Kafka's metrics give."""

from __future__ import annotations

import pytest

from krammar.broker.quotas.meters import Rate, TokenBucket

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("used", "wait"),
    [(10_000, 0), (10_001, 1), (20_000, 10_000), (1_000_000, 990_000)],
)
def test_ten_windows_can_be_used_at_once(used: int, wait: int) -> None:
    rate = Rate(11, 1000)
    rate.add(used, NOW)
    assert rate.wait_ms(1000, NOW) == wait


def test_after_the_wait_the_rate_is_at_its_limit() -> None:
    rate = Rate(11, 1000)
    rate.add(10_500, NOW)
    assert rate.wait_ms(1000, NOW) == 500
    assert rate.wait_ms(1000, NOW + 499) == 1
    assert rate.wait_ms(1000, NOW + 500) == 0


def test_windows_are_forgotten() -> None:
    rate = Rate(11, 1000)
    rate.add(30_000, NOW)
    rate.add(500, NOW + 9_000)
    assert rate.wait_ms(1000, NOW + 10_999) == 30_500 - 10_999
    assert rate.wait_ms(1000, NOW + 11_000) == 0


def test_what_is_subtracted_did_not_happen() -> None:
    rate = Rate(11, 1000)
    rate.add(10_000, NOW)
    rate.add(5_000, NOW)
    rate.add(-5_000, NOW)
    assert rate.wait_ms(1000, NOW) == 0


def test_a_clock_that_goes_back_harms_nothing() -> None:
    rate = Rate(2, 1000)
    rate.add(5_000, NOW)
    rate.add(5_000, NOW - 60_000)
    assert rate.wait_ms(1000, NOW - 60_000) == 9_000
    assert rate.wait_ms(1000, NOW + 10_000) == 0


def test_a_bucket_is_full_in_the_beginning_and_can_be_in_debt() -> None:
    bucket = TokenBucket(11, 1000)
    bucket.take(22, 2, NOW)
    assert bucket.wait_ms(2, NOW) == 0
    bucket.take(10, 2, NOW)
    assert bucket.wait_ms(2, NOW) == 5_000
    assert bucket.wait_ms(2, NOW + 4_000) == 1_000
    assert bucket.wait_ms(2, NOW + 5_000) == 0


def test_tokens_return_up_to_the_burst() -> None:
    bucket = TokenBucket(2, 1000)
    bucket.take(4, 2, NOW)
    bucket.take(5, 2, NOW + 3_600_000)
    assert bucket.wait_ms(2, NOW + 3_600_000) == 500
