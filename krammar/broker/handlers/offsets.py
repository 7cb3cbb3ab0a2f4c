"""ListOffsets and OffsetForLeaderEpoch: the offsets of partitions.

ListOffsets, v1 to v11:

- v2 has the isolation level: with READ_COMMITTED, the latest offset is the last stable one
  (KIP-98).
- v4 sends the leader epoch that the client knows, and returns that of the offset (KIP-320).
- v7, v8, v9 and v11 each allow one more of the timestamps with a special meaning (``_SINCE``).

OffsetForLeaderEpoch, v2 to v4:

- v2 sends the leader epoch that the client knows (KIP-320). v3 and v4 add nothing that concerns a
  broker without followers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from kafka_wire import (
    ErrorCode,
    IsolationLevel,
    ListOffsetsRequest,
    ListOffsetsResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)

from krammar.broker.cluster import ClusterMetadata
from krammar.broker.errors import ApiError, errors_in
from krammar.broker.log.log import PartitionLog
from krammar.broker.nodes import Logs
from krammar.broker.session import Session
from krammar.util.turns import Steps, one_by_one

# Timestamps with a special meaning, and the first version that has each. The last two are about
# tiered storage, which this broker does not have: the latest tiered (KIP-1005) and the earliest
# pending (KIP-1023).
LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3  # KIP-734
EARLIEST_LOCAL = -4  # KIP-405
_SINCE = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, -5: 9, -6: 11}


def partition_log(
    cluster: ClusterMetadata,
    get: Callable[[str, int], PartitionLog | None],
    topic: str,
    index: int,
    current_leader_epoch: int,
) -> PartitionLog:
    """Return the log of a partition. Raises ApiError, also if the leader epoch is not current (KIP-320)."""
    known = cluster.topics.get(topic)
    if known is None or index not in known.partitions:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if current_leader_epoch != -1:
        epoch = known.partitions[index].leader_epoch
        if current_leader_epoch < epoch:
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
        if current_leader_epoch > epoch:
            raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH)
    log = get(topic, index)
    if log is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    log.check_online()
    return log


@dataclass(eq=False)
class OffsetHandlers:
    cluster: ClusterMetadata
    logs: Logs

    def list_offsets(
        self, session: Session, request: ListOffsetsRequest, version: int
    ) -> Steps[ListOffsetsResponse]:
        asked = Counter(
            (topic.name, part.partition_index)
            for topic in request.topics
            for part in topic.partitions
        )
        topics = []
        for topic in request.topics:
            look_up = partial(self._look_up, topic.name, request.isolation_level, version, asked)
            partitions = yield from one_by_one(look_up, topic.partitions)
            topics.append(
                ListOffsetsResponse.ListOffsetsTopicResponse(name=topic.name, partitions=partitions)
            )
        return ListOffsetsResponse(topics=topics)

    def _look_up(
        self,
        topic: str,
        isolation_level: int,
        version: int,
        asked: Counter[tuple[str, int]],
        part: ListOffsetsRequest.ListOffsetsPartition,
    ) -> ListOffsetsResponse.ListOffsetsPartitionResponse:
        """Answer for a partition. One that the request lists more than once is refused."""
        index, timestamp = part.partition_index, part.timestamp
        response = ListOffsetsResponse.ListOffsetsPartitionResponse(partition_index=index)
        with errors_in(response):
            if asked[topic, index] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST)
            log = partition_log(
                self.cluster, self.logs.get, topic, index, part.current_leader_epoch
            )
            if timestamp < 0 and version < _SINCE.get(timestamp, 99):
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
            committed = isolation_level == IsolationLevel.READ_COMMITTED
            end = log.last_stable_offset if committed else log.end_offset
            found: tuple[int, int] | None = None
            if timestamp == LATEST:
                found = (-1, end)
            elif timestamp in (EARLIEST, EARLIEST_LOCAL):
                found = (-1, log.log_start_offset)
            elif timestamp == MAX_TIMESTAMP:
                found = log.reader.offset_of_max_timestamp()
            elif timestamp >= 0:
                found = log.reader.offset_for_timestamp(timestamp)
            # A client may only learn about records that it can read.
            looked_up = timestamp >= 0 or timestamp == MAX_TIMESTAMP
            if found is not None and not (looked_up and found[1] >= end):
                response.timestamp, response.offset = found
                if version >= 4:
                    response.leader_epoch = log.epoch_at(response.offset)
        return response

    def offset_for_leader_epoch(
        self, session: Session, request: OffsetForLeaderEpochRequest, version: int
    ) -> Steps[OffsetForLeaderEpochResponse]:
        """Return where the records of a leader epoch end, so that clients detect truncation (KIP-320)."""
        topics = []
        for topic in request.topics:
            partitions = []
            for part in topic.partitions:
                index, current = part.partition, part.current_leader_epoch
                response = OffsetForLeaderEpochResponse.EpochEndOffset(partition=index)
                with errors_in(response):
                    log = partition_log(self.cluster, self.logs.get, topic.topic, index, current)
                    found = log.epoch_end_offset(part.leader_epoch)
                    response.leader_epoch, response.end_offset = found
                partitions.append(response)
                yield None
            topics.append(
                OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                    topic=topic.topic, partitions=partitions
                )
            )
        return OffsetForLeaderEpochResponse(topics=topics)
