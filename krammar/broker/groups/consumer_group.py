"""A consumer group (KIP-848): its epochs, and the topics that its members subscribe to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, KeysView, Mapping

import kafka_wire as kw

from krammar.broker.errors import ApiError
from krammar.broker.groups.group import CONSUMER, Commit, Group, GroupState
from krammar.broker.groups.member import STABLE, UNRELEASED, UNREVOKED, Member, Place
from krammar.broker.groups.subscribed import SubscribedTopics

INT32_MAX = 2**31 - 1


class ConsumerGroup(Group):
    """The members and the epochs of a group that `ConsumerProtocol` changes.

    Attributes:
        group_epoch: raised by each change of members, subscriptions or topics
        assignor: the assignor of the group epoch
        assignment_epoch, assigned_at: the group epoch and the time of the target assignment
        assigning: whether an assignment is being computed
        matches: the record of each pattern of the members, with the topics that match it
        matched: the names of all topics with which each pattern was compared
        matched_rights: the version of the rights by which topics were left out of matches
        behind: whether patterns must still be compared with the current topics
        topics_hash: identifies the subscribed topics and their partitions, as of ``topics_seen``,
            an offset of the metadata log
        touched: the members whose records may differ from those in the log
    """

    kind = "consumer"

    def __init__(self, group_id: str, group_epoch: int = 1) -> None:
        super().__init__(group_id, CONSUMER)
        self.group_epoch = self.assignment_epoch = group_epoch
        self.assigned_at = 0
        self.assigning = False
        self.assignor: str | None = None
        self.matches: dict[str, kw.ConsumerGroupRegularExpressionValue] = {}
        self.matched: dict[str, frozenset[str]] = {}
        self.matched_rights = -1
        self.behind = False
        self.topics_hash = 0
        self.topics_seen = -1
        self.touched: set[str] = set()
        self._subscribed = SubscribedTopics()

    # -- members

    def add(self, member: Member) -> Member:
        self._subscribed.add(member.topics)
        return super().add(member)

    def remove(self, member_id: str) -> None:
        if (member := self.members.get(member_id)) is not None:
            self._subscribed.remove(member.topics)
        super().remove(member_id)

    def generation_of(self, member: Member) -> int:
        return member.epoch

    def protocol_of(self, member: Member) -> str:
        return member.protocols[0][0]

    def owned_by_others(self, member: Member) -> set[Place]:
        """Return the partitions that other members may own or have not given up yet."""
        others = (other for other in self.members.values() if other is not member)
        return {place for other in others for place in (*other.assigned, *other.revoking)}

    def preferred_assignor(self) -> str | None:
        """Return the assignor that most members ask for; None if none does."""
        votes = Counter(m.assignor for m in self.members.values() if m.assignor is not None)
        return max(votes, key=lambda name: (votes[name], name), default=None)

    def refresh_state(self) -> None:
        """Set the state, which follows from the members."""
        if not self.members:
            self.state = GroupState.EMPTY
        elif self.group_epoch > self.assignment_epoch:
            self.state = GroupState.ASSIGNING
        elif all(m.is_reconciled(self.assignment_epoch) for m in self.members.values()):
            self.state = GroupState.STABLE
        else:
            self.state = GroupState.RECONCILING

    def reconcile(self, member: Member, owned: Collection[Place] | None) -> bool:
        """Move a member one step towards its target; ``owned`` are the partitions that it reports.

        Returns whether it could take a step.
        """
        if member.is_reconciled(self.assignment_epoch):
            return False
        if member.state == UNREVOKED and _still_owns(owned, member.revoking):
            return False
        epoch = member.epoch + (member.state == UNREVOKED)
        kept = {place: e for place, e in member.assigned.items() if place in member.target}
        lost = {place: e for place, e in member.assigned.items() if place not in member.target}
        if lost and _still_owns(owned, lost):
            member.move_to(UNREVOKED, epoch, kept, lost)
            return True
        missing = member.target - kept.keys()
        free = missing - self.owned_by_others(member) if missing else missing
        kept |= dict.fromkeys(free, self.assignment_epoch)
        state = STABLE if free == missing else UNRELEASED
        member.move_to(state, self.assignment_epoch, kept, {})
        return True

    # -- subscriptions

    def subscribed_topics(self) -> KeysView[str]:
        """Return the topics that members subscribe to by name or by a pattern, now and later."""
        return self._subscribed.names

    def subscribe(self, member: Member, topics: Iterable[str]) -> None:
        """Change the topics that a member subscribes to by name."""
        names = tuple(sorted(set(topics)))
        self._subscribed.add(names)
        self._subscribed.remove(member.topics)
        member.topics = names

    def match(self, pattern: str, found: kw.ConsumerGroupRegularExpressionValue | None) -> None:
        """Change the topics that match a pattern; None removes the pattern."""
        before = self.matches.pop(pattern, None)
        if found is not None:
            self._subscribed.add(found.topics)
            self.matches[pattern] = found
        if before is not None:
            self._subscribed.remove(before.topics)

    # -- commits

    def check_epoch(
        self,
        member_id: str,
        epoch: int,
        places: Iterable[Place] | None = None,
        *,
        transactional: bool = False,
    ) -> None:
        """Check the epoch of a commit or a fetch of offsets.

        A commit with an older epoch is valid for partitions that the member has had since then
        (KIP-1251).

        Raises:
            ApiError: UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH, or ILLEGAL_GENERATION in the classic
            protocol and in
                transactions.
        """
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(kw.ErrorCode.UNKNOWN_MEMBER_ID)
        if epoch != member.epoch and not (
            places is not None
            and 0 <= epoch < member.epoch
            and _since(epoch, member.assigned | member.revoking, places)
        ):
            is_classic = transactional or member.protocols
            raise ApiError(
                kw.ErrorCode.ILLEGAL_GENERATION if is_classic else kw.ErrorCode.STALE_MEMBER_EPOCH
            )

    def _check_member_commit(self, commit: Commit) -> None:
        self.check_epoch(
            commit.member_id, commit.epoch, commit.places, transactional=commit.transactional
        )

    def expiry_base(self, commit_timestamp: int) -> int:
        return commit_timestamp


def _since(epoch: int, owned: Mapping[Place, int], places: Iterable[Place]) -> bool:
    """Return whether a member has had all of these partitions since an epoch."""
    return all(epoch >= owned.get(place, INT32_MAX) for place in places)


def _still_owns(owned: Collection[Place] | None, lost: Collection[Place]) -> bool:
    return owned is None or any(place in lost for place in owned)
