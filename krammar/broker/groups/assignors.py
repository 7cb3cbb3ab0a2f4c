"""The target assignments of consumer groups (KIP-848) and share groups: the assignors, and the problems that they solve.

Small problems are solved at once, and large ones in a thread. Kafka also computes large assignments
in the background, so clients accept a first response without partitions.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from krammar.broker.groups.consumer_group import ConsumerGroup
from krammar.broker.groups.member import Place

if TYPE_CHECKING:
    from krammar.broker.cluster import ClusterMetadata


# The topics of each member, by member id.
Subscriptions = Mapping[str, Collection[UUID]]
# The number of partitions of each topic.
Counts = Mapping[UUID, int]
# The current assignment, by member id.
Current = Mapping[str, Collection[Place]]
Assignment = dict[str, set[Place]]
Assignor = Callable[[Subscriptions, Counts, Current], Assignment]

# With members of different subscriptions, moving the partitions of one area can unbalance another
# one.
_MOST_ROUNDS = 16


def _areas(subscriptions: Subscriptions) -> Iterator[tuple[list[str], list[UUID]]]:
    """Yield the topics with the same subscribers together, after these subscribers.

    Without areas, 100 members with the same 2,000 topics take 200,000 steps (0.5 s).
    """
    by_topics: dict[frozenset[UUID], list[str]] = {}
    for member_id, topics in subscriptions.items():
        by_topics.setdefault(frozenset(topics), []).append(member_id)
    classes = list(by_topics.values())
    classes_of: dict[UUID, list[int]] = {}
    for index, subscribed in enumerate(by_topics):
        for topic_id in subscribed:
            classes_of.setdefault(topic_id, []).append(index)
    areas: dict[tuple[int, ...], list[UUID]] = {}
    for topic_id in sorted(classes_of):
        areas.setdefault(tuple(classes_of[topic_id]), []).append(topic_id)
    order = {member_id: index for index, member_id in enumerate(subscriptions)}
    for indexes, together in areas.items():
        members = [member_id for index in indexes for member_id in classes[index]]
        yield sorted(members, key=order.__getitem__), together


def assign_ranges(subscriptions: Subscriptions, counts: Counts, current: Current) -> Assignment:
    """Give each subscriber of a topic consecutive partitions, the same ones of all topics of one size."""
    assignment: Assignment = {member_id: set() for member_id in subscriptions}
    for members, topics in _areas(subscriptions):
        for topic_id in topics:
            share, extra = divmod(counts[topic_id], len(members))
            begin = 0
            for index, member_id in enumerate(members):
                end = begin + share + (index < extra)
                assignment[member_id].update((topic_id, number) for number in range(begin, end))
                begin = end
    return assignment


def assign_uniformly(subscriptions: Subscriptions, counts: Counts, current: Current) -> Assignment:
    """Balance the number of partitions of the members, and move as few partitions as possible."""
    owner: dict[Place, str] = {}
    for member_id, subscribed in subscriptions.items():
        for place in current.get(member_id, ()):
            if place[0] in subscribed:
                owner.setdefault(place, member_id)
    sizes = dict.fromkeys(subscriptions, 0)
    areas = []
    for members, topics in _areas(subscriptions):
        free: list[Place] = []
        owned: dict[str, list[Place]] = {member_id: [] for member_id in members}
        for place in ((topic_id, n) for topic_id in topics for n in range(counts[topic_id])):
            if place in owner:
                owned[owner[place]].append(place)
                sizes[owner[place]] += 1
            else:
                free.append(place)
        areas.append((free, owned))
    for free, owned in areas:
        _hand_out(free, owned, sizes)
    for _ in range(_MOST_ROUNDS):
        uneven = max(sizes.values()) - min(sizes.values()) > 1
        if not uneven or not sum(_balance(owned, sizes) for _, owned in areas):
            break
    assignment: Assignment = {member_id: set() for member_id in subscriptions}
    for _, owned in areas:
        for member_id, places in owned.items():
            assignment[member_id].update(places)
    return assignment


def _hand_out(places: list[Place], owned: dict[str, list[Place]], sizes: dict[str, int]) -> None:
    """Give each partition to the subscriber that has the fewest partitions."""
    small = [(sizes[member_id], member_id) for member_id in owned]
    heapq.heapify(small)
    for place in places:
        size, member_id = small[0]
        owned[member_id].append(place)
        sizes[member_id] = size + 1
        heapq.heapreplace(small, (size + 1, member_id))


def _balance(owned: dict[str, list[Place]], sizes: dict[str, int]) -> bool:
    """Move partitions of one area from large members to small ones. Returns whether any moved."""
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


def assign_shared(subscriptions: Subscriptions, counts: Counts, current: Current) -> Assignment:
    """Give each subscriber a balanced part of the partitions, and several of them the same if they are too few.

    This is the assignor ``simple`` of share groups. It moves as few partitions as possible.
    """
    assignment: Assignment = {member_id: set() for member_id in subscriptions}
    for members, topics in _areas(subscriptions):
        places = [(topic_id, n) for topic_id in topics for n in range(counts[topic_id])]
        if places:
            _share_out(places, members, current, assignment)
    return assignment


def _share_out(
    places: list[Place], members: list[str], current: Current, assignment: Assignment
) -> None:
    """Assign the partitions of one area to its members, each to the same number of them."""
    readers = -(-len(members) // len(places))
    share, extra = divmod(readers * len(places), len(members))
    missing = dict.fromkeys(places, readers)
    owned: dict[str, set[Place]] = {}
    for member_id in members:
        limit = share + (extra > 0)
        kept = owned[member_id] = set()
        for place in sorted(current.get(member_id, ())):
            if len(kept) < limit and missing.get(place, 0):
                missing[place] -= 1
                kept.add(place)
        extra -= len(kept) > share
    small = [(len(owned[member_id]), member_id) for member_id in members]
    heapq.heapify(small)
    for place, count in missing.items():
        skipped = []
        while count:
            size, member_id = heapq.heappop(small)
            if place in owned[member_id]:
                skipped.append((size, member_id))
            else:
                owned[member_id].add(place)
                skipped.append((size + 1, member_id))
                count -= 1
        for entry in skipped:
            heapq.heappush(small, entry)
    for member_id, places_of_member in owned.items():
        assignment[member_id] |= places_of_member


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}


@dataclass(frozen=True, slots=True)
class Problem:
    """The input of an assignment. It does not change when the group does.

    Attributes:
        members: id, topics by name, and topics that match the pattern, of each member
        known: id and number of partitions of each topic
        current: the current target of each member
    """

    group_epoch: int
    assignor: str
    members: Sequence[tuple[str, Sequence[str], Sequence[str]]]
    known: Mapping[str, tuple[UUID, int]]
    current: Current

    @property
    def size(self) -> int:
        """The approximate number of steps."""
        different = {(topics, id(matched)): len(matched) for _, topics, matched in self.members}
        topics = sum(len(key[0]) + size for key, size in different.items())
        return topics + sum(count for _, count in self.known.values())

    def solve(self) -> Assignment:
        """Return the partitions of each member."""
        subscriptions: dict[str, frozenset[UUID]] = {}
        ids: dict[tuple[str, ...], frozenset[UUID]] = {}
        for member_id, topics, matched in self.members:
            names = (*topics, *matched)
            if names not in ids:
                ids[names] = frozenset(self.known[name][0] for name in names if name in self.known)
            subscriptions[member_id] = ids[names]
        counts = dict(self.known.values())
        return ASSIGNORS[self.assignor](subscriptions, counts, self.current)


def problem_of(group: ConsumerGroup, cluster: ClusterMetadata, assignor: str) -> Problem:
    """Return what an assignment for the group's epoch depends on."""
    members = []
    # Assignors give the first members more; static members keep their place after a restart.
    for member in sorted(
        group.members.values(),
        key=lambda m: (m.instance_id is None, m.instance_id or m.member_id),
    ):
        match = group.matches.get(member.pattern)
        members.append((member.member_id, member.topics, match.topics if match else ()))
    topics = cluster.topics
    known = {
        name: (topics[name].topic_id, len(topics[name].partitions))
        for name in group.subscribed_topics() & topics.keys()
    }
    current = {member_id: member.target for member_id, member in group.members.items()}
    return Problem(group.group_epoch, assignor, members, known, current)


def apply(group: ConsumerGroup, problem: Problem, targets: Assignment, now_ms: int) -> bool:
    """Give the members their targets.

    If the group has changed since, its members still get the targets, and the next heartbeat starts
    another assignment. Returns False, without a change, if the members are not those of the same
    epoch.
    """
    known = group.members.keys() <= targets.keys()
    if group.group_epoch < problem.group_epoch or (
        group.group_epoch == problem.group_epoch and not known
    ):
        return False
    for member_id, member in group.members.items():
        places = targets.get(member_id)
        if places is not None and member.target != places:
            member.target = frozenset(places)
            group.touched.add(member_id)
    group.assignment_epoch = problem.group_epoch
    group.assigned_at = now_ms
    return True
