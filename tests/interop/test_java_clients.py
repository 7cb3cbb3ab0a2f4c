"""Apache Kafka's own client library for Java, as a program uses it, with our broker behind it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.interop import content
from tests.interop.apache import java
from tests.interop.conftest import java_program
from tests.interop.content import CODECS
from tests.interop.processes import Server
from tests.support.waiting import PATIENCE

SOURCE = Path(__file__).parent / "Clients.java"

Say = Callable[[str], Any]


@pytest.fixture(scope="module")
def program(kafka_jars: str) -> Path:
    """The folder with the compiled program."""
    return java_program("broker", SOURCE)


@pytest.fixture
def say(program: Path, broker: Server, topic: str) -> Say:
    """What a scenario prints."""

    def say(scenario: str) -> Any:
        command = java(
            "broker", "Clients", scenario, broker.bootstrap, topic, level="error", classes=program
        )
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return say


def test_a_producer_of_defaults(say: Say, broker: Server, topic: str) -> None:
    """Idempotent, acks=all; keys, values, headers and timestamps of all sorts."""
    seen = say("produce")
    began = 1_700_000_000_000
    assert seen["acknowledged"] == [[n % 2, n // 2, began + n] for n in range(1000)]
    read = sorted(seen["read"], key=lambda record: record["timestamp"])
    assert len(read) == 1000
    for number, record in enumerate(read):
        assert record == {
            "partition": number % 2,
            "offset": number // 2,
            "timestamp": began + number,
            "key": f"key {number}" if number % 5 else None,
            "value": f"välue {number}" if number % 7 else None,
            "headers": {} if number % 3 else {"index": str(number), "nothing": None},
            "epoch": 0,
        }
    assert seen["too large"] == "RecordTooLargeException"
    assert seen["unknown partition"] == "TimeoutException"
    # The same through another client.
    found = content.read(broker.bootstrap, [(topic, 0), (topic, 1)])
    assert {where[1]: len(records) for where, records in found.items()} == {0: 500, 1: 500}


def test_codecs(say: Say) -> None:
    expected = [f"{codec} {number} " * 9 for codec in CODECS for number in range(200)]
    assert say("codecs")["values"] == sorted(expected)


def test_positions(say: Say) -> None:
    """Offsets for times, seek, pause, commit, and where a consumer begins that knows no offset."""
    assert say("positions") == {
        "times": 42,
        "beyond": True,
        "ends": [100, 0],
        "seen": list(range(42, 52)),
        "position": 52,
        "lag": 48,
        "committed": [52, "noté", 0],
        "not committed": True,
        "reset to": 0,
        "partitions": 2,
        "goes on at": 52,
        "of the last ten hours": 90,
        "without an offset": "NoOffsetForPartitionException",
    }


def test_transactions(say: Say) -> None:
    """Of transaction.version 2: partitions join a transaction by their first batch."""
    committed = [f"commit {number} {index}" for number in (0, 2, 4) for index in range(10)]
    assert say("transactions") == {
        "committed": sorted([*committed, *(f"plain {number}" for number in range(6))]),
        "all": 66,
        "while open": 36,
        # 36 records and 6 markers lie before the open one, which has one record behind it.
        "stable end": 42,
        "end": 44,
        "after": 38,
        "state": "CompleteCommit",
    }


def test_offsets_in_transactions(say: Say) -> None:
    seen = say("offsets")
    # Every second of three transactions is aborted: the group stays where it was.
    assert seen["stored"] == [10, 10, 20, 30, 30, 40, 50, 50, 60, 70, 70, 80, 90, 90, 100]
    assert seen["late member"] == "CommitFailedException"
    assert seen["stays"] == 100
    assert seen["copies"] == sorted(f"copy of value {number}" for number in range(100))


def test_fencing(say: Say) -> None:
    assert say("fencing") == {
        "send": "InvalidProducerEpochException",
        "commit": "InvalidProducerEpochException",
        "fenced by admin": "ProducerFencedException",
        "committed": ["of the newer"],
    }


@pytest.mark.parametrize(
    ("scenario", "assignor"), [("eager", "range"), ("cooperative", "cooperative-sticky")]
)
def test_a_group_of_two(say: Say, scenario: str, assignor: str) -> None:
    """One member, then two, then one again: nothing is missed."""
    assert say(scenario) == {
        "owned": [0, 1],
        "state": "Stable",
        "type": "Classic",
        "assignor": assignor,
        "members": 2,
        "distinct": 150,
        "stored": {"0": 75, "1": 75},
        "after": "Empty",
        "failures": [],
    }


@pytest.mark.parametrize(
    ("scenario", "assignor"), [("consumer", "uniform"), ("consumer range", "range")]
)
def test_a_consumer_group_of_two(say: Say, scenario: str, assignor: str) -> None:
    """The same with the protocol of KIP-848."""
    assert say(scenario) == {
        "owned": [0, 1],
        "state": "Stable",
        "type": "Consumer",
        "assignor": assignor,
        "members": 2,
        "distinct": 150,
        "stored": {"0": 75, "1": 75},
        "after": "Empty",
        "failures": [],
    }


def test_a_pattern_that_the_broker_resolves(say: Say) -> None:
    assert say("pattern") == {"refused": "InvalidRegularExpression"}


def test_static_members(say: Say) -> None:
    assert say("static") == {
        "first": "FencedInstanceIdException",
        # Who is static stays a member when it closes.
        "stays": ["one"],
        "removed": "Empty",
    }


def test_an_admin_of_topics(say: Say) -> None:
    began = 1_700_000_000_000
    assert say("topics") == {
        "created": [3, 1],
        "created with": "-1",
        "again": "TopicExistsException",
        "replicas": "InvalidReplicationFactorException",
        "name": "InvalidTopicException",
        "config": "InvalidConfigurationException",
        "described": [3, False, 1, 1],
        "same id": True,
        "fewer": "InvalidPartitionsException",
        "compacted": "PolicyViolationException",
        "configs": {
            "cleanup.policy": "compact,delete DYNAMIC_TOPIC_CONFIG LIST",
            "max.message.bytes": "2000 DYNAMIC_TOPIC_CONFIG INT",
            "retention.ms": "604800000 DEFAULT_CONFIG LONG",
        },
        "over its limit": "RecordTooLargeException",
        "offsets": {
            "at a time": [6, began + 6000],
            "earliest": [0, -1],
            "earliest local": [0, -1],
            "latest": [20, -1],
            "max timestamp": [13, began + 99_000],
        },
        "low": 7,
        "first": 7,
        "too far": "OffsetOutOfRangeException",
        "has a size": True,
        "gone": "UnknownTopicOrPartitionException",
    }


def test_an_admin_of_groups(say: Say) -> None:
    assert say("groups") == {
        "stored": {"0": "3 by the admin", "1": "4 "},
        "listed": ["Classic", "Empty", True],
        "coordinator": 1,
        "left": 1,
        "described": ["Stable", "consumer", "range", "the member"],
        "delete while in use": "GroupNotEmptyException",
        "offsets while in use": "GroupSubscribedToTopicException",
        "failures": [],
        "gone": "GroupIdNotFoundException",
        "described when gone": "GroupIdNotFoundException",
    }


def test_an_admin_of_producers(say: Say, topic: str) -> None:
    assert say("producers") == {
        "producer": [1, 0],
        "transaction": ["Ongoing", 1, 60000, f"[{topic}-0]", True, True],
        "listed": "Ongoing",
        "unknown": "TransactionalIdNotFoundException",
        "after it": "ProducerFencedException",
        "committed": [],
    }


def test_an_admin_of_the_cluster(say: Say, broker: Server) -> None:
    seen = say("cluster")
    assert re.fullmatch(r"[\w-]{22}", seen.pop("id"))
    assert seen == {
        "nodes": [f"1 {broker.bootstrap}"],
        "controller": 1,
        "transaction.version": 2,
        "users": 0,
        "quotas": 0,
        "node.id": ["1", True, "STATIC_BROKER_CONFIG"],
    }
