"""Quotas in a folder that goes from our broker to Apache Kafka and back, and kafka-configs of both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.broker.quotas.support import alter, describe
from tests.broker.support import RawClient
from tests.interop.apache import ApacheKafka, tool
from tests.interop.group_cases import ready
from tests.interop.processes import Krammar, Server
from tests.support.waiting import until

ENTITIES: list[tuple[dict[str, str | None], dict[str, float]]] = [
    ({"user": "alice"}, {"producer_byte_rate": 1000, "request_percentage": 12.5}),
    ({"user": None}, {"consumer_byte_rate": 2000}),
    ({"user": "alice", "client-id": "app"}, {"controller_mutation_rate": 0.5}),
    ({"user": None, "client-id": None}, {"producer_byte_rate": 3000}),
    ({"client-id": "app"}, {"producer_byte_rate": 4000}),
    ({"ip": "192.0.2.1"}, {"connection_creation_rate": 8}),
    ({"ip": None}, {"connection_creation_rate": 1000}),
]
Quotas = dict[frozenset[tuple[str, str | None]], dict[str, float]]


def quotas(port: int) -> Quotas:
    with RawClient(port) as client:
        return {frozenset(entity): values for entity, values in describe(client).items()}


def wanted(*without: int) -> Quotas:
    return {
        frozenset(entity.items()): dict(values)
        for number, (entity, values) in enumerate(ENTITIES)
        if number not in without
    }


def test_there_and_back(kafka_jars: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    ours, theirs = Krammar(folder), ApacheKafka(folder)
    with ours:
        ready(ours.port)
        with RawClient(ours.port) as client:
            for entity, values in ENTITIES:
                result = alter(client, entity, dict(values))
                assert result.error_code == 0, result
        assert quotas(ours.port) == wanted()
    with theirs:
        ready(theirs.port)
        until(lambda: quotas(theirs.port) == wanted())
        with RawClient(theirs.port) as client:
            assert alter(client, {"user": None}, {"consumer_byte_rate": None}).error_code == 0
            changed = {"request_percentage": None, "consumer_byte_rate": 5000.0}
            assert alter(client, {"user": "alice"}, changed).error_code == 0
        after = wanted(1) | {
            frozenset({("user", "alice")}): {"producer_byte_rate": 1000, "consumer_byte_rate": 5000}
        }
        until(lambda: quotas(theirs.port) == after)
    with ours:
        ready(ours.port)
        assert quotas(ours.port) == after
        with RawClient(ours.port) as client:
            for entity, values in after.items():
                removed = dict.fromkeys(values)
                assert alter(client, dict(entity), removed).error_code == 0
        assert quotas(ours.port) == {}
    with theirs:
        ready(theirs.port)
        assert quotas(theirs.port) == {}


# Arguments of kafka-configs, one command after the other.
COMMANDS = [
    "--alter --entity-type users --entity-name alice --add-config producer_byte_rate=1024,consumer_byte_rate=2048",
    "--alter --entity-type users --entity-default --add-config request_percentage=50",
    "--alter --entity-type users --entity-name alice --entity-type clients --entity-name app"
    " --add-config controller_mutation_rate=10",
    "--alter --entity-type clients --entity-default --add-config producer_byte_rate=4096",
    "--alter --entity-type ips --entity-name 192.0.2.1 --add-config connection_creation_rate=5",
    "--alter --entity-type ips --entity-default --add-config connection_creation_rate=50",
    "--describe --entity-type users",
    "--describe --entity-type users --entity-name alice",
    "--describe --entity-type users --entity-default",
    "--describe --entity-type users --entity-type clients",
    "--describe --entity-type users --entity-name alice --entity-type clients --entity-name app",
    "--describe --entity-type clients",
    "--describe --entity-type ips",
    "--describe --entity-type ips --entity-default",
    "--alter --entity-type users --entity-name alice --delete-config producer_byte_rate",
    "--describe --entity-type users --entity-name alice",
    "--alter --entity-type users --entity-name alice --add-config producer_byte_rate=-1",
    "--alter --entity-type users --entity-name alice --add-config speed=1",
    "--alter --entity-type ips --entity-name nobody.invalid --add-config connection_creation_rate=5",
]


def told(server: Server) -> list[Any]:
    """What kafka-configs prints for each command, with the lines in order."""
    ready(server.port)
    found: list[Any] = []
    for command in COMMANDS:
        run = tool(
            "kafka.admin.ConfigCommand",
            "--bootstrap-server",
            server.bootstrap,
            *command.split(),
            check=False,
        )
        lines = sorted(
            line for line in run.stdout.splitlines() if line and not line.startswith("\tat ")
        )
        found.append((command, run.returncode, lines))
    return found


def test_kafka_configs_prints_the_same(kafka_jars: str, tmp_path: Path) -> None:
    ours, theirs = Krammar(tmp_path / "ours"), ApacheKafka(tmp_path / "theirs")
    with ours, theirs:
        mine, kafkas = told(ours), told(theirs)
    different = [
        f"{one}\n  instead of {other}"
        for one, other in zip(mine, kafkas, strict=True)
        if one != other
    ]
    assert not different, "\n".join(different)
