"""The requests of brokers to the share coordinator (KIP-932): the states of share partitions.

InitializeShareGroupState, v0; ReadShareGroupState, v0; DeleteShareGroupState, v0.

WriteShareGroupState, v0 to v1, and ReadShareGroupStateSummary, v0 to v1: v1 has the number of finished records
(KIP-1226).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import kafka_wire as kw

from krammar.broker.cluster import SHARE_STATE_TOPIC
from krammar.broker.errors import ApiError, errors_in
from krammar.broker.share.records import UNKNOWN, ShareStateUpdate, state_batches
from krammar.broker.share.state import ShareStates, coordinator_key
from krammar.util.turns import Steps

if TYPE_CHECKING:
    from krammar.broker.nodes import Logs
    from krammar.broker.session import Session
    from krammar.broker.topics import Topics


# The classes of the responses' topics.
_RESULTS = (
    *("InitializeStateResult", "ReadStateResult", "WriteStateResult"),
    *("DeleteStateResult", "ReadStateSummaryResult"),
)
# Handles one partition of a request: its topic id, the partition, and the result to complete.
Handle = Callable[[UUID, Any, Any], None]
T = TypeVar("T")


@dataclass(eq=False)
class ShareStateHandlers:
    coordinated: Logs
    topics: Topics
    share_states: ShareStates

    def initialize(
        self, session: Session, request: kw.InitializeShareGroupStateRequest, version: int
    ) -> Steps[kw.InitializeShareGroupStateResponse]:
        def initialize(topic_id: UUID, asked: Any, result: Any) -> None:
            self.share_states.initialize(
                request.group_id, topic_id, asked.partition, asked.state_epoch, asked.start_offset
            )

        return self._answer(kw.InitializeShareGroupStateResponse, request, initialize)

    def read(
        self, session: Session, request: kw.ReadShareGroupStateRequest, version: int
    ) -> Steps[kw.ReadShareGroupStateResponse]:
        def read(topic_id: UUID, asked: Any, result: Any) -> None:
            state = self.share_states.load(
                request.group_id, topic_id, asked.partition, asked.leader_epoch
            )
            result.state_epoch, result.start_offset = state.state_epoch, state.start_offset
            result.state_batches = [
                kw.ReadShareGroupStateResponse.StateBatch(
                    first_offset=each.first_offset,
                    last_offset=each.last_offset,
                    delivery_state=each.delivery_state,
                    delivery_count=each.delivery_count,
                )
                for each in state.batches
            ]

        return self._answer(kw.ReadShareGroupStateResponse, request, read)

    def write(
        self, session: Session, request: kw.WriteShareGroupStateRequest, version: int
    ) -> Steps[kw.WriteShareGroupStateResponse]:
        def write(topic_id: UUID, asked: Any, result: Any) -> None:
            update = ShareStateUpdate(
                asked.state_epoch,
                asked.leader_epoch,
                asked.start_offset,
                asked.delivery_complete_count,
                state_batches(asked.state_batches),
            )
            self.share_states.store(request.group_id, topic_id, asked.partition, update)

        return self._answer(kw.WriteShareGroupStateResponse, request, write)

    def delete(
        self, session: Session, request: kw.DeleteShareGroupStateRequest, version: int
    ) -> Steps[kw.DeleteShareGroupStateResponse]:
        def delete(topic_id: UUID, asked: Any, result: Any) -> None:
            self.share_states.delete(request.group_id, topic_id, asked.partition)

        return self._answer(kw.DeleteShareGroupStateResponse, request, delete)

    def read_summary(
        self, session: Session, request: kw.ReadShareGroupStateSummaryRequest, version: int
    ) -> Steps[kw.ReadShareGroupStateSummaryResponse]:
        def read(topic_id: UUID, asked: Any, result: Any) -> None:
            stored = self.share_states.read_summary(request.group_id, topic_id, asked.partition)
            result.start_offset = UNKNOWN
            if stored is not None:
                state = stored.state
                result.state_epoch, result.leader_epoch = state.state_epoch, stored.leader_epoch
                result.start_offset = state.start_offset
                result.delivery_complete_count = state.delivery_complete_count

        return self._answer(kw.ReadShareGroupStateSummaryResponse, request, read)

    def _answer(self, kind: Callable[..., T], request: Any, handle: Handle) -> Steps[T]:
        """Build the response of a class from the results of all partitions, in steps."""
        of: Any = kind
        make_topic = next(each for each in _RESULTS if hasattr(of, each))
        results = []
        for topic in request.topics:
            result = getattr(of, make_topic)(topic_id=topic.topic_id)
            results.append(result)
            for asked in topic.partitions:
                partition = of.PartitionResult(partition=asked.partition)
                result.partitions.append(partition)
                with errors_in(partition):
                    self._check(request.group_id, topic.topic_id, asked.partition)
                    handle(topic.topic_id, asked, partition)
                yield None
        return kind(results=results)

    def _check(self, group_id: str, topic_id: UUID, partition: int) -> None:
        """Raise ApiError(NOT_COORDINATOR) if another node coordinates a share partition."""
        if not group_id:
            raise ApiError(kw.ErrorCode.INVALID_GROUP_ID)
        key = coordinator_key(group_id, topic_id, partition)
        self.topics.check_coordinator(self.coordinated, SHARE_STATE_TOPIC, key)
