"""The group coordinator of a broker: the members of its groups, and their administration."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Generic, TypeVar

import kafka_wire as kw

from krammar.broker.cluster import ClusterMetadata
from krammar.broker.config import BrokerConfig
from krammar.broker.errors import ApiError, coordinator_errors
from krammar.broker.groups.classic_group import ClassicGroup
from krammar.broker.groups.classic_protocol import ClassicProtocol
from krammar.broker.groups.consumer_group import ConsumerGroup
from krammar.broker.groups.consumer_protocol import (
    ClassicMembers,
    ConsumerProtocol,
    check_heartbeat,
)
from krammar.broker.groups.group import Group, GroupState
from krammar.broker.groups.host import AnyGroup, GroupClient, OffsetGroup
from krammar.broker.groups.member import join_error, size_of
from krammar.broker.groups.migration import Migration
from krammar.broker.groups.offset_manager import OffsetManager
from krammar.broker.groups.records import fits
from krammar.broker.groups.shards import Shards
from krammar.broker.groups.share_group import ShareGroup
from krammar.broker.groups.share_offsets import ShareOffsets, not_a
from krammar.broker.groups.share_protocol import ShareProtocol, check_share_heartbeat
from krammar.broker.nodes import Logs
from krammar.broker.share.state import ShareStates
from krammar.broker.timers import Timers
from krammar.broker.topics import Topics
from krammar.util.turns import Slices, Steps

R = TypeVar("R")
Created = TypeVar("Created", ClassicGroup, ConsumerGroup)


class GroupCoordinator:
    """All groups of a broker, in one shard per partition of `__consumer_offsets`.

    Methods that do not return a response raise ApiError.

    Attributes:
        offsets: the committed offsets of the groups
        share_offsets: the start offsets of share groups
    """

    def __init__(
        self,
        config: BrokerConfig,
        timers: Timers,
        cluster: ClusterMetadata,
        logs: Logs,
        topics: Topics,
        slices: Slices,
        share_states: ShareStates,
    ) -> None:
        self._config = config
        self._timers = timers
        self._shards = shards = Shards(config.node_id, timers, cluster, logs, topics, slices)
        shards.loaded.append(self._loaded)
        migration = Migration(shards, config, cluster)
        self._classic = ClassicProtocol(
            shards, config.group_initial_rebalance_delay_ms, config.group_max_size
        )
        self._consumer = ConsumerProtocol(shards, config, cluster, self._classic, migration)
        self._classic_members = ClassicMembers(self._consumer, cluster, migration)
        self._share = ShareProtocol(shards, config, cluster, share_states)
        self.share_offsets = ShareOffsets(shards, share_states)
        self.offsets = OffsetManager(config, timers, shards, topics, self._classic)
        self.take_over, self.close = shards.take_over, shards.close

    def start(self) -> None:
        """Start the sessions of members in the log, and the expiry of offsets."""
        self.take_over()
        self.offsets.sweep_later()

    def _loaded(self, group: AnyGroup) -> None:
        if isinstance(group, ClassicGroup):
            self._classic.loaded(group)
        elif isinstance(group, ShareGroup):
            self._share.loaded(group)
        else:
            self._consumer.loaded(group)

    # -- members

    def join(
        self, request: kw.JoinGroupRequest, client: GroupClient
    ) -> kw.JoinGroupResponse | Awaitable[kw.JoinGroupResponse]:
        """Let a member join its group, which is created if it does not exist."""
        held: Held[kw.JoinGroupResponse] = Held(self._timers)

        def reply(response: kw.JoinGroupResponse) -> None:
            if response.protocol_name is None and client.version < 7:  # null is not allowed
                response.protocol_name = ""
            held.reply(response)

        try:
            group = self._group_to_join(request)
            if isinstance(group, ClassicGroup):
                self._classic.join(group, request, client, reply)
            else:
                reply(self._classic_members.join(group, request, client))
        except ApiError as error:
            reply(join_error(error.code, request.member_id))
        return held.response()

    def _group_to_join(self, request: kw.JoinGroupRequest) -> OffsetGroup:
        if not request.group_id:
            raise ApiError(kw.ErrorCode.INVALID_GROUP_ID)
        names = (protocol.name for protocol in request.protocols)
        if not all(map(fits, (request.group_instance_id, request.protocol_type, *names))):
            raise ApiError(kw.ErrorCode.INVALID_REQUEST)
        size = size_of(request.protocols)
        if size > Group.largest:
            raise ApiError(kw.ErrorCode.INVALID_REQUEST)
        shortest = self._config.group_min_session_timeout_ms
        if not (
            shortest <= request.session_timeout_ms <= self._config.group_max_session_timeout_ms
        ):
            raise ApiError(kw.ErrorCode.INVALID_SESSION_TIMEOUT)
        shard = self._shards.of(request.group_id)
        group = shard.groups.get(request.group_id)
        if isinstance(group, ShareGroup):
            raise ApiError(kw.ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        if group is None or (isinstance(group, ConsumerGroup) and group.state is GroupState.EMPTY):
            if request.member_id:
                raise ApiError(kw.ErrorCode.UNKNOWN_MEMBER_ID)
            group = self._instead(ClassicGroup(request.group_id, self._timers.now_ms()), group)
            with coordinator_errors():
                shard.store(group)
        if not group.has_space(request.member_id, size):
            raise ApiError(kw.ErrorCode.GROUP_MAX_SIZE_REACHED)
        return group

    def _instead(self, group: Created, old: OffsetGroup | None) -> Created:
        """Return a new group, which takes the place of an empty one of the other protocol."""
        if old is not None:
            group.stored = old.stored
            self._shards.cancel_all(old)
        return group

    def sync(
        self, request: kw.SyncGroupRequest
    ) -> kw.SyncGroupResponse | Awaitable[kw.SyncGroupResponse]:
        group = self._member_group(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self._classic_members.sync(group, request)
        held: Held[kw.SyncGroupResponse] = Held(self._timers)
        self._classic.sync(group, request, held.reply)
        return held.response()

    def heartbeat(self, request: kw.HeartbeatRequest) -> None:
        group = self._member_group(request.group_id)
        if isinstance(group, ConsumerGroup):
            self._classic_members.heartbeat(group, request)
        else:
            self._classic.heartbeat(group, request)

    def _member_group(self, group_id: str) -> OffsetGroup:
        """Return a group that can have members of the classic protocol."""
        group = self._shards.named(group_id)
        if isinstance(group, ShareGroup):
            raise ApiError(kw.ErrorCode.UNKNOWN_MEMBER_ID)
        return group

    def leave(
        self, group_id: str, members: Sequence[kw.LeaveGroupRequest.MemberIdentity]
    ) -> list[kw.LeaveGroupResponse.MemberResponse]:
        if not group_id:
            raise ApiError(kw.ErrorCode.INVALID_GROUP_ID)
        group = self.find(group_id) or ClassicGroup(group_id, None)
        if isinstance(group, ShareGroup):
            raise ApiError(kw.ErrorCode.UNKNOWN_MEMBER_ID)
        if isinstance(group, ConsumerGroup):
            return self._consumer.leave(group, members)
        return self._classic.leave(group, members)

    def consumer_heartbeat(
        self, request: kw.ConsumerGroupHeartbeatRequest, client: GroupClient
    ) -> kw.ConsumerGroupHeartbeatResponse:
        """Handle the heartbeat of a member of a consumer group, which is created if it does not exist."""
        check_heartbeat(request, self._config.group_consumer_assignors)
        group_id, epoch = request.group_id, request.member_epoch
        group = self._shards.of(group_id).groups.get(group_id)
        if isinstance(group, ShareGroup):
            raise not_a(group_id, "consumer")
        if group is None and epoch != 0:
            kind = "Consumer group" if epoch > 0 else "Group"
            raise ApiError(kw.ErrorCode.GROUP_ID_NOT_FOUND, f"{kind} {group_id} not found.")
        if group is None or (
            epoch == 0 and isinstance(group, ClassicGroup) and group.state is GroupState.EMPTY
        ):
            group = self._instead(ConsumerGroup(group_id), group)
        return self._consumer.heartbeat(group, request, client)

    def share_heartbeat(
        self, request: kw.ShareGroupHeartbeatRequest, client: GroupClient
    ) -> kw.ShareGroupHeartbeatResponse:
        """Handle the heartbeat of a member of a share group, which is created if it does not exist."""
        check_share_heartbeat(request)
        group_id = request.group_id
        group = self._shards.of(group_id).groups.get(group_id)
        if group is None:
            if request.member_epoch != 0:
                kind = "Share group" if request.member_epoch > 0 else "Group"
                raise ApiError(kw.ErrorCode.GROUP_ID_NOT_FOUND, f"{kind} {group_id} not found.")
            group = ShareGroup(group_id)
        if not isinstance(group, ShareGroup):
            raise not_a(group_id, "share")
        return self._share.heartbeat(group, request, client)

    # -- administration

    def find(self, group_id: str) -> AnyGroup | None:
        """Return a group; None if it does not exist."""
        return self._shards.find(group_id)

    def all_groups(self) -> list[AnyGroup]:
        return [group for shard in self._shards.all() for group in shard.groups.values()]

    def delete(self, group_id: str) -> Steps[None]:
        """Delete a group without members, and its offsets, in steps.

        If a member joins between the steps, the deletion ends with NON_EMPTY_GROUP, and the offsets
        that are left stay.
        """
        group = self._without_members(group_id)
        if isinstance(group, ShareGroup):
            yield from self._deleting_share_group(group)
            return
        shard = self._shards.of(group_id)
        offsets = [(group_id, where) for where in shard.offsets.all_of(group_id)]
        for begin in range(0, len(offsets), shard.forgotten_at_once):
            with coordinator_errors():
                yield from shard.forgetting(offsets[begin : begin + shard.forgotten_at_once])
            self._without_members(group_id)
        # Usually none; other requests may have committed some between the steps.
        offsets = [(group_id, where) for where in shard.offsets.all_of(group_id)]
        self._shards.forget(shard, offsets, [self._without_members(group_id)])

    def _deleting_share_group(self, group: ShareGroup) -> Steps[None]:
        """Delete a share group after the states of its partitions, in steps."""
        yield from self.share_offsets.deleting_states(group)
        shard = self._shards.of(group.group_id)
        self._shards.forget(shard, [], [self._without_members(group.group_id)])

    def _without_members(self, group_id: str) -> AnyGroup:
        """Return a group. Raises ApiError if it has members, or does not exist."""
        group = self.find(group_id)
        if group is None:
            raise ApiError(kw.ErrorCode.GROUP_ID_NOT_FOUND)
        if group.state is not GroupState.EMPTY:
            raise ApiError(kw.ErrorCode.NON_EMPTY_GROUP)
        return group


class Held(Generic[R]):
    """The response to a request that may have to wait for other members."""

    def __init__(self, timers: Timers) -> None:
        self._future: asyncio.Future[R] = timers.loop.create_future()

    def reply(self, response: R) -> None:
        # Closing the connection cancels the future.
        if not self._future.done():
            self._future.set_result(response)

    def response(self) -> R | Awaitable[R]:
        """Return the response if it is available at once, else a future of it."""
        return self._future.result() if self._future.done() else self._future
