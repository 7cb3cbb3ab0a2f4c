"""Leader epochs and where they begin and end (KIP-101, KIP-320), over random histories of a partition.

The model is the rule of Kafka's leader epoch cache: an epoch begins where the log ended when its leader took over, even if nothing
is written in it; the next epoch's start is its end; and epochs without records give way to a later epoch.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from kafka_wire import (
    ErrorCode,
    FetchRequest,
    ListOffsetsRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
)

from krammar.broker import Cluster
from krammar.client import Client
from krammar.wire.batches import Record, encode_batch
from tests.broker.support import RawClient

EARLIEST, LATEST = -2, -1
STEPS = 25


class Model:
    """The log of a partition: where it begins and ends, and its epochs with their starts."""

    def __init__(self) -> None:
        self.start = self.end = self.current = 0
        self.epochs = [(0, 0)]

    def lead(self, epoch: int) -> None:
        self.epochs = [entry for entry in self.epochs if entry[1] < self.end] + [(epoch, self.end)]
        self.current = epoch

    def truncate(self, end: int) -> None:
        self.epochs = [entry for entry in self.epochs if entry[1] < end]
        self.end = end

    def delete_before(self, start: int) -> None:
        later = [entry for entry in self.epochs if entry[1] > start]
        self.epochs = [(max(e for e, at in self.epochs if at <= start), start), *later]
        self.start = start

    def at(self, offset: int) -> int:
        return max((epoch for epoch, start in self.epochs if start <= offset), default=-1)

    def end_of(self, epoch: int) -> tuple[int, int]:
        if epoch == self.current:
            return epoch, self.end
        later = [start for each, start in self.epochs if each > epoch]
        if epoch < 0 or not later:
            return -1, -1
        return max((each for each, _ in self.epochs if each <= epoch), default=epoch), later[0]


@pytest.mark.parametrize("seed", range(6))
def test_random_histories(seed: int) -> None:
    rng, model = Random(seed), Model()
    with Cluster.start(nodes=3) as cluster, Client(cluster.bootstrap_servers) as client:
        client.admin.create_topic("orders", partitions=1, replication_factor=3)
        for _ in range(STEPS):
            _change(rng, cluster, client, model)
            _compare(rng, cluster, model)


def _change(rng: Random, cluster: Cluster, client: Client, model: Model) -> None:
    leader = cluster.leader("orders", 0)
    match rng.randrange(5):
        case 0 | 1:
            count = rng.randint(1, 3)
            for _ in range(
                count
            ):  # a batch for each record, so that any number of them can be lost
                data = encode_batch([Record(value=b"x")])
                part = ProduceRequest.PartitionProduceData(index=0, records=data)
                topic = ProduceRequest.TopicProduceData(name="orders", partition_data=[part])
                request = ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[topic])
                (answer,) = _call(cluster, request, 9).responses[0].partition_responses
                assert answer.error_code == ErrorCode.NONE
            model.end += count
        case 2:
            cluster.move_leader("orders", 0, leader % 3 + 1)
            model.lead(model.current + 1)
        case 3:
            lose = rng.randint(1, 3)
            end = cluster.unclean_election("orders", 0, lose=lose)
            assert end == max(model.start, model.end - lose)
            model.truncate(end)
            model.lead(model.current + 1)
        case 4:
            start = rng.randint(model.start, model.end)
            client.admin.delete_records({("orders", 0): start})
            model.delete_before(start)
    assert cluster.partition("orders", 0).leader_epoch == model.current


def _compare(rng: Random, cluster: Cluster, model: Model) -> None:
    current = model.current
    for epoch in range(-1, current + 2):
        part = OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
            partition=0, leader_epoch=epoch, current_leader_epoch=current
        )
        asked = OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic="orders", partitions=[part])
        answer = _call(cluster, OffsetForLeaderEpochRequest(topics=[asked]), 4)
        (end,) = answer.topics[0].partitions
        assert (end.leader_epoch, end.end_offset) == model.end_of(epoch)
    for timestamp, offset in ((EARLIEST, model.start), (LATEST, model.end)):
        place = ListOffsetsRequest.ListOffsetsPartition(
            partition_index=0, current_leader_epoch=current, timestamp=timestamp
        )
        topic = ListOffsetsRequest.ListOffsetsTopic(name="orders", partitions=[place])
        (found,) = _call(cluster, ListOffsetsRequest(topics=[topic]), 7).topics[0].partitions
        assert (found.offset, found.leader_epoch) == (offset, model.at(offset))
    offset, last = rng.randint(model.start, model.end), rng.randint(0, current + 1)
    fetch = FetchRequest.FetchPartition(
        partition=0,
        fetch_offset=offset,
        current_leader_epoch=current,
        last_fetched_epoch=last,
        partition_max_bytes=1_000_000,
    )
    wanted = FetchRequest.FetchTopic(topic="orders", partitions=[fetch])
    request = FetchRequest(session_epoch=-1, max_bytes=1_000_000, max_wait_ms=0, topics=[wanted])
    (got,) = _call(cluster, request, 12).responses[0].partitions
    epoch, end_offset = model.end_of(last)
    if epoch < 0:
        assert got.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    elif epoch < last or end_offset < offset:
        diverging = got.diverging_epoch
        assert (diverging.epoch, diverging.end_offset) == (epoch, end_offset)
    else:
        assert got.error_code == ErrorCode.NONE and got.diverging_epoch.epoch == -1
        assert bool(got.records) == (offset < model.end)


def _call(cluster: Cluster, request: Any, version: int) -> Any:
    leader = cluster.nodes[cluster.leader("orders", 0)]
    with RawClient(leader.addresses["PLAINTEXT"][1]) as client:
        return client.call(request, version)
