"""Turns classic groups into consumer groups and back, if the setting ``group.consumer.migration.policy`` allows it."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import kafka_wire as kw

from krammar.broker.errors import ApiError
from krammar.broker.groups.classic_group import ClassicGroup
from krammar.broker.groups.consumer_group import ConsumerGroup
from krammar.broker.groups.embedded import assignment_of, read_assignment, read_subscription
from krammar.broker.groups.group import CONSUMER, GroupState
from krammar.broker.groups.host import JOIN, SYNC, Host, session_key
from krammar.broker.groups.member import STABLE, Place
from krammar.wire.errors import WireError

if TYPE_CHECKING:
    from krammar.broker.cluster import ClusterMetadata
    from krammar.broker.config import BrokerConfig

# The subscription of each member of a classic group, and the partitions that it has.
Upgrade = dict[str, tuple[kw.ConsumerProtocolSubscription, set[Place]]]


class Migration:
    """Builds a group of the other protocol with the same members and assignments."""

    def __init__(self, host: Host, config: BrokerConfig, cluster: ClusterMetadata) -> None:
        self._host = host
        self._config = config
        self._cluster = cluster

    @property
    def policy(self) -> str:
        """The policy in upper case, such as ``BIDIRECTIONAL``."""
        return self._config.group_consumer_migration_policy.upper()

    def check_upgrade(self, group: ClassicGroup) -> Upgrade:
        """Read what an upgrade needs to know of each member. Raises ApiError if a group cannot be upgraded."""
        about = f"Cannot upgrade classic group {group.group_id} to consumer group because"
        if self.policy not in ("UPGRADE", "BIDIRECTIONAL"):
            raise not_found(f"{about} online upgrade is disabled.")
        if group.protocol_type != CONSUMER:
            raise not_found(f"{about} the group does not use the consumer embedded protocol.")
        if len(group.members) > self._config.group_consumer_max_size:
            raise not_found(f"{about} the group size exceeds the consumer group maximum size.")
        try:
            return {
                member.member_id: (
                    read_subscription(member.metadata(group.protocol) or member.protocols[0][1]),
                    read_assignment(member.assignment, self._cluster),
                )
                for member in group.members.values()
            }
        except WireError:
            raise not_found(f"{about} the embedded consumer protocol is malformed.") from None

    def upgrade(self, group: ClassicGroup, members: Upgrade) -> ConsumerGroup:
        """Turn a classic group into a consumer group. Stops its timers.

        Args:
            members: the result of ``check_upgrade``
        """
        upgraded = ConsumerGroup(group.group_id, group.generation)
        upgraded.stored = group.stored
        for key in (JOIN, SYNC, *map(session_key, (*group.pending, *group.members))):
            self._host.cancel(group, key)
        for member in group.members.values():
            member.fail(kw.ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
            subscription, places = members[member.member_id]
            upgraded.add(member)
            upgraded.subscribe(member, subscription.topics)
            member.rack_id = subscription.rack_id
            member.epoch = group.generation
            member.target = frozenset(places)
            assigned = dict.fromkeys(places, group.generation)
            member.move_to(STABLE, group.generation, assigned, {})
        return upgraded

    def may_downgrade(self, group: ConsumerGroup, leaving: Collection[str]) -> bool:
        """Return whether the members that stay speak the classic protocol, and fit into a classic group."""
        return (
            all(m.protocols for m in group.members.values() if m.member_id not in leaving)
            and self.policy in ("DOWNGRADE", "BIDIRECTIONAL")
            and len(group.members) - len(leaving) <= self._config.group_max_size
        )

    def downgrade(self, group: ConsumerGroup) -> ClassicGroup:
        """Turn a consumer group whose members all speak the classic protocol into a classic group."""
        downgraded = ClassicGroup(group.group_id, None)
        downgraded.stored = group.stored
        downgraded.generation = group.group_epoch
        for member in group.members.values():
            member.assignment = assignment_of(member, self._cluster)
            downgraded.join(member, CONSUMER)
        downgraded.protocol = downgraded.select_protocol()
        downgraded.subscriptions = downgraded.read_subscriptions()
        downgraded.move_to(GroupState.STABLE, self._host.now_ms())
        return downgraded


def not_found(message: str) -> ApiError:
    """Return the error for a group that does not exist, or has another protocol."""
    return ApiError(kw.ErrorCode.GROUP_ID_NOT_FOUND, message)
