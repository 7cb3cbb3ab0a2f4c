"""Computes the target assignments of consumer groups: small ones at once, large ones in a thread.

Kafka also computes large assignments in the background, so clients accept a first response without partitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

from krammar.broker.groups.assignors import ASSIGNORS, Assignment, Current
from krammar.broker.groups.consumer_group import ConsumerGroup

if TYPE_CHECKING:
    from krammar.broker.cluster import ClusterMetadata

# The size of an assignment that takes about 20 ms: the sum of the partitions and of the topics of each different
# subscription.
QUICK = 10_000


@dataclass(frozen=True, slots=True)
class Problem:
    """The input of an assignment. It does not change when the group does.

    ``members``  id, topics by name, and topics that match the pattern, of each member
    ``known``    id and number of partitions of each topic
    ``current``  the current target of each member
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

    If the group has changed since, its members still get the targets, and the next heartbeat starts another
    assignment. Returns False, without a change, if the members are not those of the same epoch.
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
