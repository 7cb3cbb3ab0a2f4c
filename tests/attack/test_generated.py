"""The most expensive requests of every API, smaller than ``make attack`` sends them: answered, and in slices.

How long each takes is what ``make attack`` measures; here the work of a step is bounded, not the time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import kafka_wire
import pytest
from kafka_wire import ApiKey, ApiVersionsRequest

from krammar.broker import Broker, Cluster
from krammar.broker.apis import RANGES
from krammar.broker.handlers.groups import GroupHandlers
from tests.attack.generate import FIXED, VALUES, Case, _arrays, cases, different, equal, served
from tests.broker.attacks import PROPERTIES, TOPIC, Attacker, InProcess, fill
from tests.broker.requests import create_topic
from tests.broker.support import RawClient

pytestmark = pytest.mark.xdist_group("attacks")

ELEMENTS = 400
# Their work grows with their elements by more than 1 µs each.
SLICED = [
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.LEAVE_GROUP,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.CREATE_TOPICS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.ELECT_LEADERS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.OFFSET_DELETE,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.DESCRIBE_LOG_DIRS,
]


@pytest.fixture(scope="module")
def victim() -> Iterator[tuple[InProcess, Broker]]:
    with (
        patch("krammar.broker.broker.new_event_loop", asyncio.new_event_loop),
        Broker.start(properties=PROPERTIES) as broker,
    ):
        ports = {name: port for name, (_, port) in broker.addresses.items()}
        target = InProcess(ports["PLAINTEXT"], ports["SASL_PLAINTEXT"])
        fill(target.port)
        yield target, broker


def send(target: InProcess, case: Case) -> None:
    """Send a request until there is an answer. Some wait for other members of a group."""
    with Attacker(target.port) as client:
        client.socket.settimeout(0.3)
        with contextlib.suppress(TimeoutError, ConnectionError):
            client.send(case.request, case.version)
            client.receive()


@pytest.mark.parametrize("key", SLICED, ids=lambda key: key.name)
def test_each_element_is_a_step(
    victim: tuple[InProcess, Broker], monkeypatch: pytest.MonkeyPatch, key: ApiKey
) -> None:
    """With slices that have no time, each slice is one step."""
    target, broker = victim
    slices = broker.connections.slices
    monkeypatch.setattr(slices.budget, "seconds", 0)
    monkeypatch.setattr(GroupHandlers, "leaving_at_once", 1)
    most = 0
    for case in cases(key, RANGES[key][1], {"different": different}, ELEMENTS):
        before = broker.call(lambda: slices.count)
        with Attacker(target.port) as client:
            client.call(case.request, case.version)
        most = max(most, broker.call(lambda: slices.count) - before)
    assert most >= ELEMENTS / 8


def test_a_fetch_session_is_read_and_answered_in_steps(
    victim: tuple[InProcess, Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    target, broker = victim
    slices = broker.connections.slices
    monkeypatch.setattr(slices.budget, "seconds", 0)
    before = broker.call(lambda: slices.count)
    partitions = [kafka_wire.FetchRequest.FetchPartition(partition=n) for n in range(ELEMENTS)]
    topic = kafka_wire.FetchRequest.FetchTopic(topic="nowhere", partitions=partitions)
    request = kafka_wire.FetchRequest(session_epoch=0, max_wait_ms=0, topics=[topic])
    with Attacker(target.port) as client:
        response = client.call(request, 12)
    assert len(response.responses[0].partitions) == ELEMENTS
    # Each partition is one step of reading, and one of the response.
    assert broker.call(lambda: slices.count) - before >= 2 * ELEMENTS - 1


def test_many_committed_offsets_become_a_batch_in_a_thread(
    victim: tuple[InProcess, Broker],
) -> None:
    target, broker = victim
    worker = broker.connections.slices.worker
    before = broker.call(lambda: worker.count)
    partition = kafka_wire.OffsetCommitRequest.Partition(committed_offset=1)
    topic = kafka_wire.OffsetCommitRequest.Topic(name=TOPIC, partitions=[partition] * 1001)
    request = kafka_wire.OffsetCommitRequest(group_id="many", topics=[topic])
    with Attacker(target.port) as client:
        response = client.call(request, 9)
    assert {each.error_code for each in response.topics[0].partitions} == {0}
    assert broker.call(lambda: worker.count) == before + 1


@pytest.mark.parametrize(
    ("key", "version"),
    list(served(newest=True)),
    ids=str,
)
def test_every_api_answers(
    victim: tuple[InProcess, Broker], caplog: pytest.LogCaptureFixture, key: int, version: int
) -> None:
    target, _ = victim
    for case in cases(key, version, {"different": different, "equal": equal}, ELEMENTS):
        send(target, case)
    with RawClient(target.port) as other:
        assert other.call(ApiVersionsRequest(), 0).api_keys
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == []


def test_the_search_reaches_every_array() -> None:
    """In every version of every API, with all values, within the limit of elements."""
    for key, (low, high) in RANGES.items():
        cls = kafka_wire.request_class(key)
        for version in {low, high}:
            arrays = list(_arrays(cls, version))
            found = list(cases(key, version, elements=60))
            assert found, (key, version)
            names = {case.name for case in found}
            assert len(names) == len(found)
            for path in arrays:
                there = [name for name in names if f": {'.'.join(path)} x " in name]
                assert there, (cls.__name__, version, path)
    assert len(VALUES) == 5


def test_every_node_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also nodes that do not lead a partition, or do not coordinate a group."""
    monkeypatch.setitem(FIXED, "path", str(tmp_path))
    with (
        patch("krammar.broker.broker.new_event_loop", asyncio.new_event_loop),
        Cluster.start(nodes=3, data_dir=tmp_path) as cluster,
    ):
        ports = [
            int(address.rpartition(":")[2]) for address in cluster.bootstrap_servers.split(",")
        ]
        with RawClient(ports[0]) as client:
            create_topic(client, TOPIC)
        for key, version in served(newest=True):
            if key == ApiKey.DELETE_TOPICS:
                continue  # the others need it
            for port in ports:
                for case in cases(key, version, {"equal": equal}, 20):
                    send(InProcess(port, port), case)
        leaders = {each.leader for each in cluster.cluster.topics[TOPIC].partitions.values()}
    assert len(leaders) == 1
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == []
