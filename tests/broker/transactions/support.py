"""A transactional producer that sends raw requests, in any version."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID, uuid4

import pytest
from kafka_wire import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    DescribeProducersRequest,
    DescribeTransactionsRequest,
    EndTxnRequest,
    ErrorCode,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
    OffsetFetchRequest,
    TxnOffsetCommitRequest,
)

from krammar.util import boot as boot_module
from tests.broker.requests import NO_ID, batch, fetch, produce_request
from tests.broker.support import RawClient

Where = tuple[str, int]


def find_coordinators(client: RawClient, group: str = "group") -> None:
    """Find both coordinators, like every client at its start. This creates the internal topics."""
    for kind, key in ((0, group), (1, "id")):
        response = client.call(FindCoordinatorRequest(key=key, key_type=kind), 3)
        assert response.error_code == 0, response


def restart(patch: pytest.MonkeyPatch, boot: UUID | None = None) -> None:
    """Let the machine have another run, as after a power cut."""
    boot = boot or uuid4()
    patch.setattr(boot_module, "_boot", lambda: boot)


class Clock:
    """The time, put forward by ``ahead_ms`` milliseconds."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def __call__(self) -> int:
        return time.time_ns() // 1_000_000 + self.ahead_ms


class Producer:
    """A transactional id, with the producer id and epoch that it was last given."""

    def __init__(self, client: RawClient, name: str = "id") -> None:
        self.client = client
        self.name = name
        self.id = -1
        self.epoch = -1
        self.sequences: dict[Where, int] = {}

    def init(
        self, *, timeout: int = 60000, known: tuple[int, int] = (-1, -1), version: int = 5
    ) -> ErrorCode:
        """Send InitProducerId, and use the producer id and epoch of the response."""
        request = InitProducerIdRequest(
            transactional_id=self.name,
            transaction_timeout_ms=timeout,
            producer_id=known[0],
            producer_epoch=known[1],
        )
        response = self.client.call(request, version)
        if response.error_code == 0:
            self.id, self.epoch = response.producer_id, response.producer_epoch
            self.sequences.clear()
        else:
            assert (response.producer_id, response.producer_epoch) == (-1, -1)
        return ErrorCode(response.error_code)

    def begun(self, **options: Any) -> Producer:
        """Itself, after InitProducerId."""
        assert self.init(**options) is ErrorCode.NONE
        return self

    def _identity(self, epoch: int | None, producer_id: int | None) -> tuple[int, int]:
        return (
            self.id if producer_id is None else producer_id,
            self.epoch if epoch is None else epoch,
        )

    def add(
        self,
        *partitions: Where,
        version: int = 3,
        epoch: int | None = None,
        producer_id: int | None = None,
        verify_only: bool = False,
    ) -> dict[Where, ErrorCode]:
        """AddPartitionsToTxn; the code of each partition."""
        producer, epoch = self._identity(epoch, producer_id)
        topics = [
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(
                name=name, partitions=[index for topic, index in partitions if topic == name]
            )
            for name in dict.fromkeys(topic for topic, _ in partitions)
        ]
        if version < 4:
            response = self.client.call(
                AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=self.name,
                    v3_and_below_producer_id=producer,
                    v3_and_below_producer_epoch=epoch,
                    v3_and_below_topics=topics,
                ),
                version,
            )
            results = response.results_by_topic_v3_and_below
        else:
            transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
                transactional_id=self.name,
                producer_id=producer,
                producer_epoch=epoch,
                verify_only=verify_only,
                topics=topics,
            )
            request = AddPartitionsToTxnRequest(transactions=[transaction])
            response = self.client.call(request, version)
            [only] = response.results_by_transaction
            assert only.transactional_id == self.name
            results = only.topic_results
        return {
            (topic.name, result.partition_index): ErrorCode(result.partition_error_code)
            for topic in results
            for result in topic.results_by_partition
        }

    def produce(
        self,
        topic: Where,
        *values: bytes,
        version: int = 12,
        epoch: int | None = None,
        producer_id: int | None = None,
        sequence: int | None = None,
        topic_id: UUID | None = None,
    ) -> ErrorCode:
        """A batch in the transaction; ``topic_id`` for versions that have no names."""
        producer, epoch = self._identity(epoch, producer_id)
        values = values or (b"x",)
        first = self.sequences.get(topic, 0) if sequence is None else sequence
        records = batch(
            *values,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=first,
            is_transactional=True,
            # The current time, as in markers: an older time would begin a new segment.
            timestamp=Clock()(),
        )
        request = produce_request(
            topic_id or topic[0], records, partition=topic[1], transactional_id=self.name
        )
        response = self.client.call(request, version)
        code = ErrorCode(response.responses[0].partition_responses[0].error_code)
        if code is ErrorCode.NONE:
            self.sequences[topic] = first + len(values)
        return code

    def add_offsets(self, group: str, *, version: int = 4, epoch: int | None = None) -> ErrorCode:
        producer, epoch = self._identity(epoch, None)
        request = AddOffsetsToTxnRequest(
            transactional_id=self.name,
            producer_id=producer,
            producer_epoch=epoch,
            group_id=group,
        )
        return ErrorCode(self.client.call(request, version).error_code)

    def commit_offset(
        self,
        group: str,
        topic: str,
        offset: int,
        *,
        version: int = 5,
        epoch: int | None = None,
        topic_id: Any = NO_ID,
    ) -> ErrorCode:
        """TxnOffsetCommit of partition 0."""
        producer, epoch = self._identity(epoch, None)
        request = TxnOffsetCommitRequest(
            transactional_id=self.name,
            group_id=group,
            producer_id=producer,
            producer_epoch=epoch,
            topics=[
                TxnOffsetCommitRequest.Topic(
                    name=topic,
                    topic_id=topic_id,
                    partitions=[
                        TxnOffsetCommitRequest.Partition(partition_index=0, committed_offset=offset)
                    ],
                )
            ],
        )
        response = self.client.call(request, version)
        return ErrorCode(response.topics[0].partitions[0].error_code)

    def end(
        self,
        commit: bool = True,
        *,
        version: int = 5,
        epoch: int | None = None,
        producer_id: int | None = None,
    ) -> ErrorCode:
        """Send EndTxn, and use the producer id and epoch of the response, if it has any."""
        producer, epoch = self._identity(epoch, producer_id)
        request = EndTxnRequest(
            transactional_id=self.name,
            producer_id=producer,
            producer_epoch=epoch,
            committed=commit,
        )
        response = self.client.call(request, version)
        if response.producer_id >= 0:
            assert version >= 5
            assert response.error_code == 0
            self.id, self.epoch = response.producer_id, response.producer_epoch
            self.sequences.clear()
        return ErrorCode(response.error_code)

    def describe(self) -> Any:
        """The answer of DescribeTransactions."""
        return describe(self.client, self.name)[0]

    @property
    def state(self) -> str:
        state = self.describe().transaction_state
        assert isinstance(state, str)
        return state


def describe(client: RawClient, *names: str) -> list[Any]:
    """Send DescribeTransactions, and return the states."""
    response = client.call(DescribeTransactionsRequest(transactional_ids=names), 0)
    states: list[Any] = response.transaction_states
    return states


def listed(client: RawClient, version: int = 2, **filters: Any) -> dict[str, str]:
    """The states that ListTransactions shows, by transactional id."""
    response = client.call(ListTransactionsRequest(**filters), version)
    assert response.error_code == 0
    return {
        state.transactional_id: state.transaction_state for state in response.transaction_states
    }


def producers(client: RawClient, topic: str, partition: int = 0) -> Any:
    """The result of DescribeProducers for a partition."""
    request = DescribeProducersRequest(
        topics=[DescribeProducersRequest.TopicRequest(name=topic, partition_indexes=[partition])]
    )
    return client.call(request, 0).topics[0].partitions[0]


def committed_offset(client: RawClient, group: str, topic: str) -> int:
    """The committed offset of partition 0; -1 if there is none."""
    request = OffsetFetchRequest(
        group_id=group, topics=[OffsetFetchRequest.Topic(name=topic, partition_indexes=[0])]
    )
    partition = client.call(request, 7).topics[0].partitions[0]
    assert partition.error_code == 0
    offset = partition.committed_offset
    assert isinstance(offset, int)
    return offset


def ends(client: RawClient, topic: str) -> tuple[int, int, list[tuple[int, int]]]:
    """High watermark, last stable offset, and aborted transactions (producer id, first offset)."""
    partition = fetch(client, topic, isolation_level=1)
    aborted = [
        (aborted.producer_id, aborted.first_offset)
        for aborted in partition.aborted_transactions or ()
    ]
    return partition.high_watermark, partition.last_stable_offset, aborted


def await_bytes(client: RawClient, topic: str) -> None:
    """Wait until a record is below the last stable offset."""
    partition = fetch(client, topic, isolation_level=1, max_wait_ms=50000)
    assert partition.error_code == 0
    assert partition.records
