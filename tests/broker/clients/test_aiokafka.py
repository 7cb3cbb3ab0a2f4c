"""Unmodified aiokafka, in the event loop of the broker."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from aiokafka import (
    AIOKafkaConsumer,
    AIOKafkaProducer,
    ConsumerRebalanceListener,
    OffsetAndMetadata,
    TopicPartition,
    errors,
)
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

from krammar.broker import Broker, BrokerConfig
from tests.support.waiting import PATIENCE

T0 = TopicPartition("t", 0)


class Cluster:
    """A broker in the running loop, and clients of it that are closed before it."""

    def __init__(self, broker: Broker, stack: contextlib.AsyncExitStack) -> None:
        self.broker = broker
        self.stack = stack
        self.servers = broker.bootstrap_servers

    async def _started(self, client: Any, close: Callable[[], Awaitable[None]]) -> Any:
        self.stack.push_async_callback(close)
        await client.start()
        return client

    async def admin(self) -> AIOKafkaAdminClient:
        client = AIOKafkaAdminClient(bootstrap_servers=self.servers)
        return await self._started(client, client.close)

    async def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        admin = await self.admin()
        response = await admin.create_topics(
            [NewTopic(name, partitions, 1, topic_configs=settings)]
        )
        assert response.topic_errors[0][1] == 0, response

    async def producer(self, **settings: Any) -> AIOKafkaProducer:
        client = AIOKafkaProducer(bootstrap_servers=self.servers, **settings)
        return await self._started(client, client.stop)

    async def consumer(self, *topics: str, **settings: Any) -> AIOKafkaConsumer:
        client = AIOKafkaConsumer(
            *topics,
            **{
                "bootstrap_servers": self.servers,
                "group_id": "g",
                "auto_offset_reset": "earliest",
                "enable_auto_commit": False,
                "fetch_max_wait_ms": 50,
                "heartbeat_interval_ms": 50,
                "session_timeout_ms": 30_000,
                "metadata_max_age_ms": 1000,
                **settings,
            },
        )
        return await self._started(client, client.stop)

    async def deliver(self, topic: str, values: Sequence[bytes | None], **options: Any) -> None:
        to = await self.producer()
        for value in values:
            await to.send_and_wait(topic, value, **options)


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Runs a test in a new event loop, together with a broker."""

    @wraps(test)
    def run(tmp_path: Path, **arguments: Any) -> None:
        config = BrokerConfig.defaults(
            **{
                "log.dirs": str(tmp_path),
                "listeners": "PLAINTEXT://127.0.0.1:0",
                "group.initial.rebalance.delay.ms": "0",
                "group.min.session.timeout.ms": "200",
                "offsets.topic.num.partitions": "1",
                "transaction.state.log.num.partitions": "1",
                "auto.create.topics.enable": "false",
            }
        )

        async def main() -> None:
            async with Broker(config) as broker, contextlib.AsyncExitStack() as stack:
                async with asyncio.timeout(PATIENCE):
                    await test(Cluster(broker, stack), **arguments)

        asyncio.run(main())

    # pytest is to see the test's own parameters, except for the first, and tmp_path.
    parameters = list(inspect.signature(test).parameters.values())[1:]
    path = inspect.Parameter("tmp_path", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = inspect.Signature([path, *parameters])  # type: ignore[attr-defined]
    return run


async def read(source: AIOKafkaConsumer, count: int) -> list[Any]:
    """The next ``count`` records."""
    found: list[Any] = []
    while len(found) < count:
        polled = await source.getmany(timeout_ms=200, max_records=count - len(found))
        for records in polled.values():
            found += records
    return found


def values(records: Sequence[Any]) -> list[bytes | None]:
    return [record.value for record in records]


# --- produce and consume


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@in_loop
async def test_records_come_back_as_they_were(cluster: Cluster, codec: str | None) -> None:
    await cluster.create("t")
    sent: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]], int]] = [
        (b"key-%d" % at, b"value-%d" % at * 20, [], 1_700_000_000_000 + at) for at in range(50)
    ]
    sent += [
        (None, b"no key", [], 1),
        (b"no value", None, [], 2),
        (b"", b"", [("", b"")], 4),
        (b"\xff\x00", b"\x00" * 900_000, [("h", b"1"), ("h", b"2")], 5),
        ("schlüssel".encode(), b"x", [("ключ", "値".encode())], 1_790_000_000_000),
    ]
    to = await cluster.producer(compression_type=codec)
    futures = [
        await to.send("t", value, key=key, headers=headers, timestamp_ms=timestamp)
        for key, value, headers, timestamp in sent
    ]
    offsets = [(await future).offset for future in futures]
    assert offsets == list(range(len(sent)))
    got = await read(await cluster.consumer("t"), len(sent))
    assert [(one.key, one.value, list(one.headers), one.timestamp) for one in got] == sent
    assert [one.offset for one in got] == offsets


@pytest.mark.parametrize("acks", [0, 1, "all"])
@in_loop
async def test_acknowledgements(cluster: Cluster, acks: int | str) -> None:
    await cluster.create("t")
    to = await cluster.producer(acks=acks)
    for at in range(50):
        await to.send("t", b"%d" % at)
    await to.flush()
    got = await read(await cluster.consumer("t"), 50)
    assert values(got) == [b"%d" % at for at in range(50)]


@in_loop
async def test_many_records_in_order(cluster: Cluster) -> None:
    await cluster.create("t", 2)
    to = await cluster.producer(enable_idempotence=True)
    for at in range(5000):
        await to.send("t", b"%d" % at, partition=at % 2)
    await to.flush()
    found: dict[int, list[int]] = {0: [], 1: []}
    for record in await read(await cluster.consumer("t"), 5000):
        found[record.partition].append(int(record.value))
    assert found == {part: list(range(part, 5000, 2)) for part in range(2)}


@in_loop
async def test_too_large_a_value_is_refused(cluster: Cluster) -> None:
    await cluster.create("t", max_message_bytes="2000")
    to = await cluster.producer()
    with pytest.raises(errors.MessageSizeTooLargeError):
        await to.send_and_wait("t", b"x" * 3000)
    assert (await to.send_and_wait("t", b"x")).offset == 0


@in_loop
async def test_unknown_topic(cluster: Cluster) -> None:
    to = await cluster.producer(request_timeout_ms=500)
    with pytest.raises((errors.UnknownTopicOrPartitionError, errors.KafkaTimeoutError)):
        await to.send_and_wait("nobody", b"x")
    admin = await cluster.admin()
    assert await admin.list_topics() == []


# --- transactions


@in_loop
async def test_transactions_are_seen_whole_or_not_at_all(cluster: Cluster) -> None:
    await cluster.create("t", 2)
    to = await cluster.producer(transactional_id="tx")
    for number in range(4):
        await to.begin_transaction()
        for partition in (0, 1):
            await to.send_and_wait("t", b"%d" % number, partition=partition)
        if number % 2:
            await to.abort_transaction()
        else:
            await to.commit_transaction()
    source = await cluster.consumer("t", isolation_level="read_committed")
    assert sorted(values(await read(source, 4))) == [b"0", b"0", b"2", b"2"]
    every = await cluster.consumer(group_id=None)
    every.assign([T0])
    assert values(await read(every, 4)) == [b"0", b"1", b"2", b"3"]
    assert every.last_stable_offset(T0) == 8


@in_loop
async def test_an_open_transaction_holds_back_what_is_behind_it(cluster: Cluster) -> None:
    await cluster.create("t")
    to = await cluster.producer(transactional_id="tx")
    source = await cluster.consumer("t", isolation_level="read_committed")
    async with to.transaction():
        await to.send_and_wait("t", b"inside")
        await cluster.deliver("t", [b"behind"])
        assert await source.getmany(timeout_ms=200) == {}
    assert values(await read(source, 2)) == [b"inside", b"behind"]


@in_loop
async def test_consume_transform_produce(cluster: Cluster) -> None:
    await cluster.create("in")
    await cluster.create("out")
    await cluster.deliver("in", [b"%d" % at for at in range(30)])
    at = TopicPartition("in", 0)
    to = await cluster.producer(transactional_id="tx")
    source = await cluster.consumer("in", isolation_level="read_committed")
    done = turn = 0
    while done < 30:
        turn += 1
        records = await read(source, 10)
        await to.begin_transaction()
        for record in records:
            await to.send("out", b"out " + record.value)
        await to.send_offsets_to_transaction({at: records[-1].offset + 1}, "g")
        if turn == 2:
            await to.abort_transaction()
            source.seek(at, done)
        else:
            await to.commit_transaction()
            done += 10
        assert await source.committed(at) == done
    other = await cluster.consumer("out", group_id="h", isolation_level="read_committed")
    assert values(await read(other, 30)) == [b"out %d" % number for number in range(30)]


@in_loop
async def test_a_second_producer_fences_the_first(cluster: Cluster) -> None:
    await cluster.create("t")
    first = await cluster.producer(transactional_id="tx")
    await first.begin_transaction()
    await first.send_and_wait("t", b"first")
    second = await cluster.producer(transactional_id="tx")
    with pytest.raises(errors.ProducerFenced):
        await first.commit_transaction()
    async with second.transaction():
        await second.send_and_wait("t", b"second")
    source = await cluster.consumer("t", isolation_level="read_committed")
    assert values(await read(source, 1)) == [b"second"]


# --- consumers


@in_loop
async def test_seek_positions_and_watermarks(cluster: Cluster) -> None:
    await cluster.create("t")
    await cluster.deliver("t", [b"%d" % at for at in range(50)])
    source = await cluster.consumer(group_id=None)
    source.assign([T0])
    assert await source.beginning_offsets([T0]) == {T0: 0}
    assert await source.end_offsets([T0]) == {T0: 50}
    source.seek(T0, 30)
    assert values(await read(source, 2)) == [b"30", b"31"]
    assert await source.position(T0) == 32
    assert source.highwater(T0) == 50
    await source.seek_to_beginning(T0)
    assert values(await read(source, 1)) == [b"0"]
    await source.seek_to_end(T0)
    assert await source.position(T0) == 50
    await cluster.deliver("t", [b"fresh"])
    assert values(await read(source, 1)) == [b"fresh"]
    # Out of range: auto_offset_reset applies.
    source.seek(T0, 5000)
    assert values(await read(source, 1)) == [b"0"]


@in_loop
async def test_offsets_for_times(cluster: Cluster) -> None:
    await cluster.create("t")
    to = await cluster.producer()
    for at in range(20):
        await to.send_and_wait("t", b"x", timestamp_ms=1_700_000_000_000 + at * 1000)
    source = await cluster.consumer(group_id=None)
    source.assign([T0])
    for timestamp, offset in {0: 0, 1_700_000_000_001: 1, 1_700_000_019_000: 19}.items():
        found = (await source.offsets_for_times({T0: timestamp}))[T0]
        assert (found.offset, found.timestamp) == (offset, 1_700_000_000_000 + offset * 1000)
    assert await source.offsets_for_times({T0: 1_700_000_019_001}) == {T0: None}


@in_loop
async def test_pause_and_resume(cluster: Cluster) -> None:
    await cluster.create("t", 2)
    source = await cluster.consumer(group_id=None)
    source.assign([T0, TopicPartition("t", 1)])
    source.pause(T0)
    await cluster.deliver("t", [b"paused"], partition=0)
    await cluster.deliver("t", [b"a", b"b"], partition=1)
    assert values(await read(source, 2)) == [b"a", b"b"]
    source.resume(T0)
    assert values(await read(source, 1)) == [b"paused"]


@in_loop
async def test_committed_offsets(cluster: Cluster) -> None:
    await cluster.create("t")
    await cluster.deliver("t", [b"%d" % at for at in range(10)])
    source = await cluster.consumer("t")
    assert await source.committed(T0) is None
    await read(source, 4)
    await source.commit()
    assert await source.committed(T0) == 4
    await source.commit({T0: OffsetAndMetadata(6, "said so")})
    assert await source.committed(T0) == 6
    await source.stop()
    assert values(await read(await cluster.consumer("t"), 4)) == [b"6", b"7", b"8", b"9"]


# --- groups


class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """Records when partitions were assigned."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.partitions: frozenset[int] = frozenset()

    async def on_partitions_revoked(self, revoked: Any) -> None:
        self.partitions = frozenset()

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self.partitions = frozenset(at.partition for at in assigned)
        async with self.group.changed:
            self.group.changed.notify_all()


class Group:
    """Members that join by themselves in the background."""

    def __init__(self, cluster: Cluster, **settings: Any) -> None:
        self.cluster = cluster
        self.settings = settings
        self.changed = asyncio.Condition()
        self.members: list[tuple[AIOKafkaConsumer, Listener]] = []

    async def join(self) -> None:
        consumer = await self.cluster.consumer(**self.settings)
        listener = Listener(self)
        self.members.append((consumer, listener))
        consumer.subscribe(["t"], listener=listener)

    async def leave(self) -> None:
        consumer, _ = self.members.pop(0)
        await consumer.stop()

    async def wait(self, *sizes: int) -> None:
        """Wait until the members have this number of partitions, none of them twice."""

        def reached() -> bool:
            owned = [listener.partitions for _, listener in self.members]
            return len(set().union(*owned)) == sum(sizes) and sorted(map(len, owned)) == sorted(
                sizes
            )

        async with self.changed:
            await self.changed.wait_for(reached)


@pytest.mark.parametrize("assignor", [None, RoundRobinPartitionAssignor, StickyPartitionAssignor])
@in_loop
async def test_three_members_join_and_leave(cluster: Cluster, assignor: Any) -> None:
    await cluster.create("t", 6)
    group = Group(
        cluster, **({} if assignor is None else {"partition_assignment_strategy": (assignor,)})
    )
    await group.join()
    await group.wait(6)
    await group.join()
    await group.wait(3, 3)
    await group.join()
    await group.wait(2, 2, 2)
    for partition in range(6):
        await cluster.deliver("t", [b"%d" % partition], partition=partition)
    found: list[bytes | None] = []
    for consumer, _ in group.members:
        found += values(await read(consumer, 2))
    assert sorted(map(str, found)) == [str(b"%d" % partition) for partition in range(6)]
    await group.leave()
    await group.wait(3, 3)
    await group.leave()
    await group.wait(6)


CRASHING = """
import asyncio, sys
from aiokafka import AIOKafkaConsumer
async def main():
    source = AIOKafkaConsumer(
        "t", bootstrap_servers=sys.argv[1], group_id="g", session_timeout_ms=3000,
        heartbeat_interval_ms=50, enable_auto_commit=False,
    )
    await source.start()
    await asyncio.Event().wait()
asyncio.run(main())
"""


@in_loop
async def test_a_member_that_crashes_is_replaced(cluster: Cluster) -> None:
    await cluster.create("t", 6)
    group = Group(cluster)
    await group.join()
    await group.join()
    await group.wait(3, 3)
    crashing = subprocess.Popen([sys.executable, "-c", CRASHING, cluster.servers])
    try:
        await group.wait(2, 2)
    finally:
        crashing.kill()
        crashing.wait(PATIENCE)
    await group.wait(3, 3)


@in_loop
async def test_a_static_member_comes_back(cluster: Cluster) -> None:
    """One that is away for less than its session causes no rebalance."""
    await cluster.create("t", 4)
    first = Group(cluster, group_instance_id="first")
    second = Group(cluster, group_instance_id="second")
    await first.join()
    await first.wait(4)
    await second.join()
    await second.wait(2)
    await first.wait(2)
    [(_, listener)] = first.members
    mine = listener.partitions
    await second.leave()
    await second.join()
    await second.wait(2)
    assert listener.partitions == mine
    [(_, other)] = second.members
    assert not other.partitions & mine


# --- admin


@contextlib.asynccontextmanager
async def group_with_a_member(cluster: Cluster) -> AsyncIterator[None]:
    source = await cluster.consumer("t", client_id="reader")
    await read(source, 5)
    await source.commit()
    yield
    await source.stop()


@in_loop
async def test_topics_are_made_grown_and_deleted(cluster: Cluster) -> None:
    admin = await cluster.admin()
    await cluster.create("t", 2)
    assert await admin.list_topics() == ["t"]
    again = await admin.create_topics([NewTopic("t", 1, 1)])
    assert again.topic_errors[0][1] == errors.TopicAlreadyExistsError.errno
    await admin.create_partitions({"t": NewPartitions(5)})
    [topic] = await admin.describe_topics(["t"])
    assert sorted(one["partition"] for one in topic["partitions"]) == [0, 1, 2, 3, 4]
    await admin.delete_topics(["t"])
    assert await admin.list_topics() == []


@in_loop
async def test_records_are_deleted(cluster: Cluster) -> None:
    await cluster.create("t")
    await cluster.deliver("t", [b"%d" % at for at in range(20)])
    admin = await cluster.admin()
    assert await admin.delete_records({T0: RecordsToDelete(7)}) == {T0: 7}
    source = await cluster.consumer("t")
    assert await source.beginning_offsets([T0]) == {T0: 7}
    assert values(await read(source, 1)) == [b"7"]


@in_loop
async def test_configs(cluster: Cluster) -> None:
    await cluster.create("t", retention_ms="5000")
    admin = await cluster.admin()

    async def described() -> dict[str, str]:
        [response] = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, "t")])
        [(code, _, _, name, entries)] = response.resources
        assert (code, name) == (0, "t")
        return {entry[0]: entry[1] for entry in entries}

    assert (await described())["retention.ms"] == "5000"
    assert (await described())["cleanup.policy"] == "delete"
    [altered] = await admin.alter_configs(
        [ConfigResource(ConfigResourceType.TOPIC, "t", configs={"max.message.bytes": "4000"})]
    )
    assert altered.resources[0][0] == 0
    assert (await described())["max.message.bytes"] == "4000"
    assert (await described())["retention.ms"] == "604800000"


@in_loop
async def test_groups(cluster: Cluster) -> None:
    await cluster.create("t")
    await cluster.deliver("t", [b"%d" % at for at in range(10)])
    admin = await cluster.admin()
    node = cluster.broker.config.node_id
    assert await admin.find_coordinator("g") == node
    async with group_with_a_member(cluster):
        assert await admin.list_consumer_groups() == [("g", "consumer")]
        [response] = await admin.describe_consumer_groups(["g"])
        [group] = response.groups
        assert group[:4] == (0, "g", "Stable", "consumer")
        assert await admin.list_consumer_group_offsets("g") == {T0: OffsetAndMetadata(5, "")}
    [response] = await admin.describe_consumer_groups(["g"])
    assert response.groups[0][2] == "Empty"


@in_loop
async def test_cluster_is_described(cluster: Cluster) -> None:
    admin = await cluster.admin()
    found = await admin.describe_cluster()
    [node] = found["brokers"]
    assert (node["host"], node["port"]) == (cluster.broker.host, cluster.broker.port)
    assert found["controller_id"] == node["node_id"]
