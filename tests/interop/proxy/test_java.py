"""Java's clients through a proxy. The tests of administrators are left out: they expect a cluster of one node."""

from __future__ import annotations

from tests.interop.test_java_clients import (
    program,
    say,
    test_a_consumer_group_of_two,
    test_a_group_of_two,
    test_a_producer_of_defaults,
    test_codecs,
    test_fencing,
    test_offsets_in_transactions,
    test_positions,
    test_static_members,
    test_transactions,
)

__all__ = [
    "program",
    "say",
    "test_a_consumer_group_of_two",
    "test_a_group_of_two",
    "test_a_producer_of_defaults",
    "test_codecs",
    "test_fencing",
    "test_offsets_in_transactions",
    "test_positions",
    "test_static_members",
    "test_transactions",
]
