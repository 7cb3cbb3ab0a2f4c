"""The assignors of consumer groups: every partition has one owner, which subscribes to its topic."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krammar.broker.groups.assignors import ASSIGNORS, Assignment, assign_ranges, assign_uniformly
from krammar.broker.groups.member import Place

TOPICS = [UUID(int=number) for number in range(1, 5)]
T, U = TOPICS[:2]
MEMBERS = ["a", "b", "c", "d", "e"]
Numbers = dict[str, dict[UUID, list[int]]]


def shown(assignment: Assignment) -> Numbers:
    return {
        member: {
            topic: sorted(n for t, n in places if t == topic) for topic in {t for t, _ in places}
        }
        for member, places in assignment.items()
    }


subscriptions = st.dictionaries(
    st.sampled_from(MEMBERS), st.frozensets(st.sampled_from(TOPICS)), min_size=1
)
counts = st.fixed_dictionaries({topic: st.integers(0, 9) for topic in TOPICS})
owners = st.dictionaries(
    st.tuples(st.sampled_from(TOPICS), st.integers(0, 9)), st.sampled_from(MEMBERS)
)


@pytest.mark.parametrize("name", ASSIGNORS)
@given(subscriptions=subscriptions, counts=counts, owners=owners)
def test_every_partition_has_one_owner(
    name: str,
    subscriptions: dict[str, frozenset[UUID]],
    counts: dict[UUID, int],
    owners: dict[Place, str],
) -> None:
    current: dict[str, set[Place]] = {}
    for place, member in owners.items():
        current.setdefault(member, set()).add(place)
    found = ASSIGNORS[name](subscriptions, counts, current)
    assert found.keys() == subscriptions.keys()
    given_out = [place for places in found.values() for place in places]
    wanted = {
        (topic, number)
        for topic in frozenset().union(*subscriptions.values())
        for number in range(counts[topic])
    }
    assert len(given_out) == len(wanted)
    assert set(given_out) == wanted
    for member, places in found.items():
        assert {topic for topic, _ in places} <= subscriptions[member]
    if name == "uniform":
        # No move of one partition would balance the members better.
        for places in found.values():
            for other, topics in subscriptions.items():
                if any(topic in topics for topic, _ in places):
                    assert len(places) - len(found[other]) <= 1
        assert assign_uniformly(subscriptions, counts, found) == found


def test_ranges_are_the_same_of_all_topics_of_one_size() -> None:
    found = assign_ranges({"a": {T, U}, "b": {T, U}, "c": {U}}, {T: 5, U: 5}, {})
    assert shown(found) == {
        "a": {T: [0, 1, 2], U: [0, 1]},
        "b": {T: [3, 4], U: [2, 3]},
        "c": {U: [4]},
    }


def test_as_few_partitions_move_as_possible() -> None:
    before = assign_uniformly({"a": {T}, "b": {T}}, {T: 6}, {})
    after = assign_uniformly({"a": {T}, "b": {T}, "c": {T}}, {T: 6}, before)
    assert {member: len(places) for member, places in after.items()} == {"a": 2, "b": 2, "c": 2}
    assert all(after[member] < before[member] for member in before)
    assert assign_uniformly({"a": {T}, "b": {T}}, {T: 6}, after)["a"] > after["a"]
