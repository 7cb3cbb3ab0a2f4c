"""Produce: checks each batch and appends it unchanged.

Produce, v0 to v13:

- v0 to v2 carry message sets, which are refused. v3 carries exactly one record batch v2 (KIP-98).
- v7 allows zstd (KIP-110).
- v8 reports each record that made the broker refuse its batch (KIP-467).
- v10 names the new leader of a partition that moved, and its address (KIP-951).
- v11 knows TRANSACTION_ABORTABLE. From v12 on, the broker adds partitions to the transaction
  (KIP-890).
- v13 identifies topics by id (KIP-516).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from kafka_wire import ConfigResourceType, ErrorCode, ProduceRequest, ProduceResponse

from krammar.broker.cluster import ClusterMetadata, Partition, Topic
from krammar.broker.config import BrokerConfig
from krammar.broker.errors import ApiError, CloseConnection, InvalidRecords
from krammar.broker.log.log import Appended, PartitionLog
from krammar.broker.log.validation import MOST_INVALID_RECORDS, LongCheck
from krammar.broker.nodes import Leaders, Logs, Nodes
from krammar.broker.session import Session
from krammar.broker.timers import Timers
from krammar.broker.transactions.coordinator import TransactionCoordinator
from krammar.util.logs import Seldom
from krammar.util.turns import InThread, Steps
from krammar.wire.batches import BatchHeader, Compression
from krammar.wire.batches.header import codec_of, magic_of

log = logging.getLogger("krammar.broker")

# The first versions that only allow record batches v2 (KIP-98), allow zstd (KIP-110), have topic
# ids (KIP-516).
_V2_ONLY = 3
_ZSTD = 7
# The first version that names leaders.
_LEADERS = 10
_TOPIC_IDS = 13
_ADMIN = "__admin_client"


@dataclass(eq=False)
class ProduceHandlers:
    """Handles Produce.

    Attributes:
        appended: functions that are called with the client id, the log and the offsets of each
            appended batch
    """

    config: BrokerConfig
    timers: Timers
    nodes: Nodes
    cluster: ClusterMetadata
    logs: Logs
    transactions: TransactionCoordinator
    _not_stored: Seldom = field(init=False, default_factory=lambda: Seldom(log.error))
    appended: list[Callable[[str | None, PartitionLog, Appended], None]] = field(
        init=False, default_factory=list
    )

    def produce(
        self, session: Session, request: ProduceRequest, version: int
    ) -> Steps[ProduceResponse | None]:
        """Append a batch per partition. Without acknowledgement, an error closes the connection."""
        responses = []
        # The error itself would keep the batch in the memory: its traceback refers to this frame.
        failed = ""
        listed = 0
        leaders: Leaders | None = None  # that this response names
        for data in request.topic_data:
            if version >= _TOPIC_IDS:
                find = partial(self.cluster.topics_by_id.get, data.topic_id)
                unknown = ErrorCode.UNKNOWN_TOPIC_ID
            else:
                find = partial(self.cluster.topics.get, data.name)
                unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            partitions = []
            for partition in data.partition_data:
                try:
                    if request.acks not in (-1, 0, 1):
                        raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS)
                    topic = find()  # another request may delete it between two partitions
                    if topic is None:
                        raise ApiError(unknown)
                    if topic.internal and session.client_id != _ADMIN:
                        raise ApiError(
                            ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} is an internal topic"
                        )
                    try:
                        response = self._append(session, request, topic, partition, version)
                    except LongCheck as check:
                        checked = yield InThread(check.run)
                        topic = find()
                        if topic is None:
                            raise ApiError(unknown) from None
                        response = self._append(
                            session, request, topic, partition, version, checked
                        )
                except ApiError as error:
                    failed = str(error)
                    if error.code == ErrorCode.KAFKA_STORAGE_ERROR:
                        self._not_stored(f"Produce failed: {error}")
                    response = _refusal(partition.index, error, MOST_INVALID_RECORDS - listed)
                    listed += len(response.record_errors)
                    moved = version >= _LEADERS and error.code in Leaders.CODES
                    if moved and topic is not None:
                        leaders = leaders or Leaders(self.nodes, self.config.node_id)
                        leaders.name_in(response, topic, partition.index)
                partitions.append(response)
                yield None
            responses.append(
                ProduceResponse.TopicProduceResponse(
                    name=data.name, topic_id=data.topic_id, partition_responses=partitions
                )
            )
        if request.acks == 0:
            if failed:
                raise CloseConnection(f"Produce without acknowledgement failed: {failed}")
            return None
        answer = ProduceResponse(responses=responses)
        if leaders is not None:
            kind = ProduceResponse.NodeEndpoint
            answer.node_endpoints = leaders.endpoints(session.listener, kind)
        return answer

    def _append(
        self,
        session: Session,
        request: ProduceRequest,
        topic: Topic,
        data: ProduceRequest.PartitionProduceData,
        version: int,
        checked: tuple[BatchHeader, bytes] | None = None,
    ) -> ProduceResponse.PartitionProduceResponse:
        log = self.logs.get(topic.name, data.index)
        if log is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        records = data.records
        if not records:
            raise ApiError(
                ErrorCode.INVALID_RECORD, "a partition of the request has no record batch"
            )
        magic = magic_of(records)
        if magic is not None:
            if magic < 2:
                if version < _V2_ONLY:
                    raise ApiError(
                        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                        f"message format v{magic} is no longer supported; send record batches v2",
                    )
                raise ApiError(
                    ErrorCode.INVALID_RECORD,
                    f"Produce v{version} only accepts record batches with magic 2, not {magic}",
                )
            if version < _ZSTD and codec_of(records) == Compression.ZSTD:
                raise ApiError(
                    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                    f"Produce v{version} does not allow zstd",
                )

        def check_transaction(header: BatchHeader) -> None:
            self.transactions.check(
                request.transactional_id,
                header.producer_id,
                header.producer_epoch,
                topic.name,
                data.index,
                version,
            )

        where = topic.partitions[data.index]
        if len(where.isr) < len(where.replicas) and request.acks == -1:
            self._check_in_sync(topic, where)
        appended = log.append(
            records,
            leader_epoch=where.leader_epoch,
            transaction_check=check_transaction,
            quick=True,
            checked=checked,
            now_ms=self.timers.now_ms(),
        )
        for notify in self.appended:
            notify(session.client_id, log, appended)
        return ProduceResponse.PartitionProduceResponse(
            index=data.index,
            base_offset=appended.base_offset,
            log_append_time_ms=appended.append_time,
            log_start_offset=appended.log_start_offset,
        )

    def _check_in_sync(self, topic: Topic, partition: Partition) -> None:
        """Raise ApiError if fewer replicas are in sync than `min.insync.replicas` demands."""
        configs = self.cluster.configs.get((ConfigResourceType.TOPIC, topic.name), {})
        least = int(configs.get("min.insync.replicas", self.config.min_insync_replicas))
        if len(partition.isr) < min(least, len(partition.replicas)):
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{len(partition.isr)} replica(s) of {topic.name}-{partition.index} are in sync; "
                f"min.insync.replicas is {least}",
            )


def _refusal(index: int, error: ApiError, most: int) -> ProduceResponse.PartitionProduceResponse:
    """Build the response for a refused batch, with at most ``most`` invalid records.

    More could exceed the size of a frame. Clients refuse the whole batch in any case.
    """
    response = ProduceResponse.PartitionProduceResponse(index=index, base_offset=-1)
    error.put_into(response)
    if isinstance(error, InvalidRecords):
        response.record_errors = [
            ProduceResponse.BatchIndexAndErrorMessage(
                batch_index=at, batch_index_error_message=text
            )
            for at, text in error.records[:most]
        ]
    return response
