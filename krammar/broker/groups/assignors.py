"""The assignors of consumer groups (KIP-848): they choose the target assignment of each member."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Mapping
from uuid import UUID

from krammar.broker.groups.member import Place

# The topics of each member, by member id.
Subscriptions = Mapping[str, Collection[UUID]]
# The number of partitions of each topic.
Counts = Mapping[UUID, int]
# The current assignment, by member id.
Current = Mapping[str, Collection[Place]]
Assignment = dict[str, set[Place]]
Assignor = Callable[[Subscriptions, Counts, Current], Assignment]

# With members of different subscriptions, moving the partitions of one topic can unbalance another one.
_MOST_ROUNDS = 16


def _subscribers(subscriptions: Subscriptions) -> dict[UUID, list[str]]:
    """Return the members that subscribe to each topic."""
    found: dict[UUID, list[str]] = {}
    for member_id, topics in subscriptions.items():
        for topic_id in topics:
            found.setdefault(topic_id, []).append(member_id)
    return dict(sorted(found.items()))


def assign_ranges(subscriptions: Subscriptions, counts: Counts, current: Current) -> Assignment:
    """Give each subscriber of a topic consecutive partitions, the same ones of all topics of one size."""
    assignment: Assignment = {member_id: set() for member_id in subscriptions}
    for topic_id, members in _subscribers(subscriptions).items():
        share, extra = divmod(counts[topic_id], len(members))
        begin = 0
        for index, member_id in enumerate(members):
            end = begin + share + (index < extra)
            assignment[member_id].update((topic_id, number) for number in range(begin, end))
            begin = end
    return assignment


def assign_uniformly(subscriptions: Subscriptions, counts: Counts, current: Current) -> Assignment:
    """Balance the number of partitions of the members, and move as few partitions as possible."""
    free = {topic_id: set(range(count)) for topic_id, count in counts.items()}
    owners: dict[UUID, dict[str, list[int]]] = {
        topic_id: {member_id: [] for member_id in members}
        for topic_id, members in _subscribers(subscriptions).items()
    }
    sizes = dict.fromkeys(subscriptions, 0)
    for member_id in subscriptions:
        for topic_id, number in sorted(current.get(member_id, ())):
            if member_id in owners.get(topic_id, ()) and number in free[topic_id]:
                free[topic_id].remove(number)
                owners[topic_id][member_id].append(number)
                sizes[member_id] += 1
    for topic_id, owned in owners.items():
        _hand_out(sorted(free[topic_id]), owned, sizes)
    for _ in range(_MOST_ROUNDS):
        if max(sizes.values()) - min(sizes.values()) <= 1:
            break
        moved = [_balance(owned, sizes) for owned in owners.values()]
        if not any(moved):
            break
    assignment: Assignment = {member_id: set() for member_id in subscriptions}
    for topic_id, owned in owners.items():
        for member_id, numbers in owned.items():
            assignment[member_id].update((topic_id, number) for number in numbers)
    return assignment


def _hand_out(numbers: list[int], owned: dict[str, list[int]], sizes: dict[str, int]) -> None:
    """Give each partition of a topic to the subscriber that has the fewest partitions."""
    small = [(sizes[member_id], member_id) for member_id in owned]
    heapq.heapify(small)
    for number in numbers:
        size, member_id = small[0]
        owned[member_id].append(number)
        sizes[member_id] = size + 1
        heapq.heapreplace(small, (size + 1, member_id))


def _balance(owned: dict[str, list[int]], sizes: dict[str, int]) -> bool:
    """Move partitions of one topic from large members to small ones. Returns whether any moved."""
    small = [(sizes[member_id], member_id) for member_id in owned]
    large = [(-sizes[member_id], member_id) for member_id in owned if owned[member_id]]
    heapq.heapify(small)
    heapq.heapify(large)
    moved = False
    while large:
        _, giver = heapq.heappop(large)
        # Entries of members that gave partitions away are outdated.
        while small[0][0] != sizes[small[0][1]]:
            heapq.heapreplace(small, (sizes[small[0][1]], small[0][1]))
        taker = small[0][1]
        if sizes[giver] - sizes[taker] <= 1:
            break
        owned[taker].append(owned[giver].pop())
        sizes[giver] -= 1
        sizes[taker] += 1
        moved = True
        if owned[giver]:
            heapq.heappush(large, (-sizes[giver], giver))
    return moved


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}
