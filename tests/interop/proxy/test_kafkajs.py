"""kafkajs through a proxy. The test of its administrator is left out: it expects a cluster of one node."""

from __future__ import annotations

from tests.interop.test_kafkajs import (
    test_a_group_of_two,
    test_transactions,
    test_what_is_produced_is_consumed,
)

__all__ = [
    "test_a_group_of_two",
    "test_transactions",
    "test_what_is_produced_is_consumed",
]
