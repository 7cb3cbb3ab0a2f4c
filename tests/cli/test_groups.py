"""``krammar groups``: groups of all kinds, with members of librdkafka."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer
from kafka_wire import ShareGroupHeartbeatRequest

from krammar.broker import Broker
from krammar.cli.groups import groups
from krammar.client import Client
from tests.broker.requests import batch, create_topic, produce
from tests.broker.support import RawClient
from tests.support.waiting import until


def run(broker: Broker, *arguments: str, code: int = 0) -> str:
    """Run a command of ``krammar groups`` with the broker, and return its output."""
    result = CliRunner().invoke(groups, [*arguments, "-b", broker.bootstrap_servers])
    assert result.exit_code == code, result.output
    return result.output


def described(broker: Broker, group: str) -> Any:
    return json.loads(run(broker, "describe", group, "--json"))


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A broker with the topic t of two partitions, three records in the first one."""
    with Broker.start() as broker, RawClient(broker.port) as client:
        create_topic(client, "t", 2)
        produce(client, "t", batch(b"1", b"2", b"3"))
        yield broker


def heartbeat(broker: Broker, epoch: int = 0) -> None:
    """Let a member join the share group "workers", or leave it."""
    topics = ["t"] if epoch == 0 else None
    request = ShareGroupHeartbeatRequest(
        group_id="workers", member_id="m", member_epoch=epoch, subscribed_topic_names=topics
    )
    with RawClient(broker.port) as client:
        assert client.call(request).error_code == 0


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_of_consumers(broker: Broker, protocol: str) -> None:
    settings = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers"}
    consumer = Consumer({**settings, "group.protocol": protocol, "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    message = until(lambda: consumer.poll(0.1))
    consumer.commit(message, asynchronous=False)
    assert run(broker).splitlines()[1].split() == ["readers", protocol, "Stable"]
    assert described(broker, "readers")["offsets"][0] == {
        "topic": "t",
        "partition": 0,
        "offset": 1,
        "lag": 2,
        "members": [consumer.memberid()],
    }
    assert "UNKNOWN_MEMBER_ID" in run(broker, "reset", "readers", "t", "--to", "latest", code=1)
    consumer.close()
    until(lambda: described(broker, "readers")["state"] == "Empty")
    told = run(broker, "reset", "readers", "t", "--to", "latest")
    assert told == "readers continues at latest in 2 partitions of t\n"
    offsets = described(broker, "readers")["offsets"]
    assert [(each["offset"], each["lag"]) for each in offsets] == [(3, 0), (0, 0)]


def test_share_groups(broker: Broker) -> None:
    heartbeat(broker)
    assert json.loads(run(broker, "list", "--json")) == [
        {"group": "workers", "type": "share", "state": "Stable"}
    ]
    lines = run(broker, "describe", "workers").splitlines()
    assert lines[0] == "workers  share  Stable  1 member"
    assert [line.split() for line in lines[2:]] == [
        ["t", "0", "-", "-", "m"],
        ["t", "1", "-", "-", "m"],
    ]
    assert "NON_EMPTY_GROUP" in run(broker, "reset", "workers", "t", "--to", "1", code=1)
    heartbeat(broker, -1)
    told = run(broker, "reset", "workers", "t", "--partition", "0", "--to", "1")
    assert told == "workers continues at 1 in 1 partition of t\n"
    (first,) = described(broker, "workers")["offsets"]
    assert (first["partition"], first["offset"], first["lag"]) == (0, 1, 2)
    run(broker, "reset", "workers", "t", "--to", "earliest")
    offsets = described(broker, "workers")["offsets"]
    assert [(each["offset"], each["lag"]) for each in offsets] == [(0, 3), (0, 0)]


def test_mistakes(broker: Broker) -> None:
    assert "GROUP_ID_NOT_FOUND" in run(broker, "describe", "none", code=1)
    assert "--to must be earliest" in run(broker, "reset", "g", "t", "--to", "soon", code=2)
    assert "UNKNOWN_TOPIC_OR_PARTITION" in run(broker, "reset", "g", "none", "--to", "0", code=1)


def test_a_group_that_only_commits(broker: Broker) -> None:
    with Client(broker.bootstrap_servers) as client:
        client.groups.commit("plain", {("t", 1): 0})
    found = described(broker, "plain")
    assert (found["type"], found["state"], found["members"]) == ("classic", "Empty", [])
    assert found["offsets"][0]["partition"] == 1
