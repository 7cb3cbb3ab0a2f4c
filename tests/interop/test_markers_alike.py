"""WriteTxnMarkers and hanging transactions: our broker does what Apache Kafka does."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from krammar.broker.topics import partition_of
from tests.broker.markers import markers, write
from tests.broker.requests import batch, create_topic, fetch, produce_request
from tests.broker.support import RawClient
from tests.broker.transactions.support import Producer, Where, committed_offset, producers
from tests.interop.apache import ApacheKafka, java, tool
from tests.interop.conftest import java_program, our_broker
from tests.interop.processes import Server
from tests.interop.transaction_cases import patient, prepared
from tests.support.waiting import PATIENCE

_OFFSETS = "__consumer_offsets"


@pytest.fixture(scope="module")
def servers(kafka_jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    """Ours and Apache Kafka, which let old clients write where they like, so that transactions can hang."""
    folder = tmp_path_factory.mktemp("markers")
    setting = {"transaction.partition.verification.enable": "false"}
    with (
        our_broker(folder / "ours", **setting) as ours,
        ApacheKafka(folder / "theirs", properties=setting) as theirs,
    ):
        for server in (ours, theirs):
            with prepared(server.port) as client:
                create_topic(client, "h", 40)
        yield [ours, theirs]


def hang(client: RawClient, where: Where, producer_id: int, epoch: int, sequence: int = 0) -> int:
    """Write a record of a transaction that no coordinator knows; the error code."""
    sent = batch(
        b"hangs",
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        is_transactional=True,
    )
    request = produce_request(where[0], sent, partition=where[1], transactional_id="nobody")
    response = client.call(request, 11)
    code: int = response.responses[0].partition_responses[0].error_code
    return code


def state(client: RawClient, where: Where) -> Any:
    """The ends, aborted transactions and producers of a partition."""
    found = fetch(client, where[0], partition=where[1], isolation_level=1)
    aborted = [(each.producer_id, each.first_offset) for each in found.aborted_transactions or ()]
    known = [
        (
            each.producer_id,
            each.producer_epoch,
            each.last_sequence,
            each.coordinator_epoch,
            each.current_txn_start_offset,
        )
        for each in producers(client, *where).active_producers
    ]
    return found.high_watermark, found.last_stable_offset, aborted, sorted(known)


def story(client: RawClient) -> list[Any]:
    told: list[Any] = []
    # Each case begins with a transaction of producer 5, epoch 3, in a partition of its own.
    cases: list[list[dict[str, Any]]] = [
        [{}],
        [{"commit": True}],
        [{"coordinator_epoch": 7}, {"coordinator_epoch": 6}, {"coordinator_epoch": 7}],
        [{"coordinator_epoch": -1}, {"coordinator_epoch": -2}],
        *(
            [{"epoch": epoch, "transaction_version": version}] * 2
            for epoch in (2, 3, 4, 5)
            for version in (0, 1, 2, 3)
        ),
        [{"epoch": 4, "transaction_version": 2}, {"epoch": 3, "transaction_version": 2}],
        [{"epoch": -1}],
        [{"transaction_version": -1}],
        [{"producer_id": 6}, {}],
        [
            {"producer_id": 6, "transaction_version": 2},
            {"producer_id": 6, "transaction_version": 2},
        ],
        [{"producer_id": -1}],
    ]
    for number, sends in enumerate(cases):
        where = ("h", number)
        told.append(patient(lambda where=where: hang(client, where, 5, 3)))
        for changes in sends:
            for version in (2,) if "transaction_version" in changes else (1, 2):
                marker = markers(*_identity(changes), where, **_rest(changes))
                told.append((changes, version, write(client, marker, version=version)))
                told.append(state(client, where))
        told.append(hang(client, where, 5, 3, 1))
        told.append(hang(client, where, 5, 4, 0))
        told.append(state(client, where))
    told.append(write(client, markers(5, 3, ("h", 99), ("missing", 0))))
    told.append(write(client))
    told.append(write(client, markers(5, 3), markers(6, 3)))
    assert hang(client, ("h", 38), 5, 3) == hang(client, ("h", 39), 5, 3) == 0
    several = (
        markers(5, 3, ("h", 38)),
        markers(5, 3, ("h", 39), ("h", 99)),
        markers(8, 0, ("h", 39)),
    )
    told.append(sorted(write(client, *several).items()))
    told += [state(client, ("h", 38)), state(client, ("h", 39))]
    return told


def _identity(changes: dict[str, Any]) -> tuple[int, int]:
    return changes.get("producer_id", 5), changes.get("epoch", 3)


def _rest(changes: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in changes.items() if key not in ("producer_id", "epoch")}


def offsets(client: RawClient) -> list[Any]:
    """Markers in the partition of a group; the coordinators of both brokers have given ids of their own."""
    told: list[Any] = []
    for commit in (False, True):
        for epochs in (0, 1):
            producer = Producer(client, f"{commit} {epochs}")
            assert patient(producer.init) == 0
            group = f"group {commit} {epochs}"
            assert patient(lambda p=producer, g=group: p.commit_offset(g, "t", 9)) == 0
            partition = partition_of(group, 5)
            marker = markers(
                producer.id, producer.epoch + epochs, (_OFFSETS, partition), commit=commit
            )
            told.append(list(write(client, marker).values()))
            told.append(committed_offset(client, group, "t"))
            told.append(producer.describe().transaction_state)
            told.append(patient(lambda p=producer, c=commit: p.end(c)).name)
            told.append(committed_offset(client, group, "t"))
    return told


@pytest.mark.parametrize("tell", [story, offsets])
def test_the_same_answers(servers: list[Server], tell: Any) -> None:
    found = []
    for server in servers:
        with RawClient(server.port) as client:
            found.append(tell(client))
    ours, theirs = found
    assert len(ours) == len(theirs) > 10
    different = [
        f"{mine}\n  instead of {kafkas}"
        for mine, kafkas in zip(*found, strict=True)
        if mine != kafkas
    ]
    assert not different, "\n".join(different)


def test_java_aborts_a_transaction(servers: list[Server]) -> None:
    program = java_program("broker", Path(__file__).parent / "Abort.java")
    said = []
    for server in servers:
        with RawClient(server.port) as client:
            create_topic(client, "java", 1)
            assert patient(lambda client=client: hang(client, ("java", 0), 5, 3)) == 0
            command = java(
                "broker", "Abort", server.bootstrap, "java", level="error", classes=program
            )
            done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
            assert done.returncode == 0, done.stderr[-3000:]
            said.append((done.stdout.split("\n"), state(client, ("java", 0))))
    assert said[0] == said[1]
    assert said[0][0][:3] == ["InvalidProducerEpochException", "aborted", "aborted"]
    assert said[0][1][:3] == (3, 3, [(5, 0)])


def test_the_tool_aborts_a_transaction(servers: list[Server]) -> None:
    main = "org.apache.kafka.tools.TransactionsCommand"
    said = []
    for server in servers:
        with RawClient(server.port) as client:
            create_topic(client, "tool", 1)
            assert patient(lambda client=client: hang(client, ("tool", 0), 5, 3)) == 0
            where = ("--topic", "tool", "--partition", "0")
            arguments = ("--bootstrap-server", server.bootstrap)
            hanging = tool(
                main, *arguments, "find-hanging", *where, "--max-transaction-timeout", "0"
            )
            ended = tool(main, *arguments, "abort", *where, "--start-offset", "0")
            said.append(
                (
                    [line.split()[:4] for line in hanging.stdout.splitlines()],
                    ended.stdout,
                    state(client, ("tool", 0)),
                )
            )
    assert said[0] == said[1]
    assert re.search(r"tool\s+0\s+5\s+3", " ".join(said[0][0][1]))
    assert said[0][2][:3] == (2, 2, [(5, 0)])
