"""Apache Kafka's share consumer for Java, with our broker behind it."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.interop import content
from tests.interop.apache import java
from tests.interop.conftest import java_program, our_broker
from tests.interop.processes import Server
from tests.support.waiting import PATIENCE

_SOURCE = Path(__file__).parent / "ShareConsumers.java"

Say = Callable[[str], Any]


@pytest.fixture(scope="module")
def program(kafka_jars: str) -> Path:
    """The folder with the compiled program."""
    return java_program("broker", _SOURCE)


@pytest.fixture(scope="module")
def broker(kafka_jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A broker whose members hear of assignments soon, and whose locks can be short."""
    settings = {
        "group_share_heartbeat_interval_ms": "200",
        "group_share_min_heartbeat_interval_ms": "1",
        "group_share_min_record_lock_duration_ms": "1000",
        "share_coordinator_state_topic_num_partitions": "1",
        "share_coordinator_state_topic_replication_factor": "1",
        "share_coordinator_state_topic_min_isr": "1",
    }
    with our_broker(tmp_path_factory.mktemp("share") / "data", **settings) as running:
        yield running


@pytest.fixture
def say(request: pytest.FixtureRequest, program: Path, broker: Server) -> Say:
    """What a scenario prints, on a topic and a group of its own."""
    topic = re.sub(r"\W", "-", request.node.name)
    content.create(content.admin(broker.bootstrap), topic, 1)

    def say(scenario: str) -> Any:
        command = java(
            *("broker", "ShareConsumers", scenario, broker.bootstrap, topic),
            level="error",
            classes=program,
        )
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout)

    return say


def _once(*offsets: int) -> list[list[int]]:
    """Records that were delivered for the first time."""
    return [[offset, 1] for offset in offsets]


def test_implicit_acknowledgement(say: Say) -> None:
    """The next poll accepts; so does a commit."""
    assert say("implicit") == {
        "read": _once(*range(10)),
        "values": [str(number) for number in range(10)],
        "lock": 30_000,
        "acknowledge": "IllegalStateException",
        "called": [*range(10)],
        "problems": [],
        "lag": 0,
        "more": _once(*range(10, 15)),
        "commit": ["none"],
        "lag after a commit": 0,
    }


def test_explicit_acknowledgement(say: Say) -> None:
    """Accepted, released and rejected records; five deliveries are the limit."""
    assert say("explicit") == {
        "first": _once(*range(6)),
        "with one left": "IllegalStateException",
        "commit": ["none"],
        "twice": "IllegalStateException",
        "lag": 2,
        "again": {"1": [2, 3, 4, 5], "4": [2, 3, 4, 5]},
        "lag at the end": 0,
        "last": _once(6),
        "lag after close": 0,
    }


def test_close_acknowledges(say: Say) -> None:
    """What was not acknowledged is delivered again."""
    assert say("close") == {
        "first": _once(*range(4)),
        "lag": 2,
        "second": [[1, 2], [3, 2]],
        "lag at the end": 2,
    }


def test_a_lock_times_out(say: Say) -> None:
    assert say("time-out") == {
        "slow": _once(0, 1),
        "lock": 1000,
        "other": [[0, 2], [1, 2]],
        "late": ["InvalidRecordStateException"],
        "in time": ["none"],
        "lag": 0,
    }


def test_a_lock_is_renewed(say: Say) -> None:
    """For longer than twice its time."""
    assert say("renew") == {
        "renewals": ["none"],
        "others": 0,
        "record": _once(0),
        "accepted": ["none"],
        "lag": 0,
    }


def test_two_members_share_a_partition(say: Say) -> None:
    assert say("two") == {"repeated": 0, "members with records": 2, "lag": 0}


def test_a_limit_of_records(say: Say) -> None:
    """With record_limit, a batch can have records for two members."""
    assert say("limit") == {
        "one": _once(0, 1, 2),
        "other": _once(3, 4, 5, 6),
        "one again": _once(7, 8, 9),
        "lag": 4,
    }


def test_transactions(say: Say) -> None:
    """With read_committed, aborted records are not delivered, and open transactions are waited for."""
    committed = [f"commit {number}" for number in range(3)]
    assert say("transactions") == {
        "while open": 0,
        "values": [*committed, *committed, "open"],
        "lag": 0,
    }


def test_undecodable_records_are_rejected(say: Say) -> None:
    assert say("undecodable") == {"good": [0, 2], "bad": [1, 3]}
