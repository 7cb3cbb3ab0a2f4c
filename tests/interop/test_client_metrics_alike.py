"""Client telemetry (KIP-714): our broker answers what Apache Kafka answers, and its clients push to it."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from kafka_wire import (
    AlterConfigOp,
    AlterConfigsRequest,
    ApiVersionsRequest,
    ConfigResourceType,
    DescribeConfigsRequest,
    ErrorCode,
    GetTelemetrySubscriptionsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
    PushTelemetryRequest,
)

from krammar.testing import KafkaBroker
from krammar.wire.batches import Compression
from krammar.wire.batches.compression import compress
from tests.broker.requests import subscribe
from tests.broker.support import RawClient
from tests.interop.apache import ApacheKafka, java, tool
from tests.interop.conftest import java_program
from tests.interop.processes import Krammar, Server
from tests.support.waiting import PATIENCE, until

KIND = ConfigResourceType.CLIENT_METRICS
_HERE = Path(__file__).parent
_NO_ID = UUID(int=0)


@pytest.fixture(scope="module")
def servers(kafka_jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    """Ours and Apache Kafka, which both receive the metrics of clients."""
    classes = java_program("broker", _HERE / "Receiver.java")
    folder = tmp_path_factory.mktemp("metrics")
    ours = Krammar(
        folder / "ours",
        properties={"krammar.client.telemetry": "true", "telemetry.max.bytes": "2000"},
    )
    theirs = ApacheKafka(
        folder / "theirs",
        properties={"metric.reporters": "Receiver", "telemetry.max.bytes": "2000"},
        classes=classes,
    )
    with ours, theirs:
        yield [ours, theirs]


def compare(servers: list[Server], story: Callable[[RawClient], list[Any]]) -> list[Any]:
    """Tell both brokers a story, and return what both have answered."""
    found = []
    for server in servers:
        with RawClient(server.port) as client:
            named = ApiVersionsRequest(client_software_name="lib", client_software_version="1.2")
            assert client.call(named).error_code == 0
            found.append(story(client))
    ours, theirs = found
    assert len(ours) == len(theirs)
    different = [
        f"{mine}\n  instead of {kafkas}"
        for mine, kafkas in zip(*found, strict=True)
        if mine != kafkas
    ]
    assert not different, "\n".join(different)
    return ours


# Settings.

VALUES = [
    *(
        ("interval.ms", text)
        for text in ("100", "99", "3600000", "3600001", "x", "", " 200 ", "-1")
    ),
    *(("metrics", text) for text in ("", "*", "a.,b.", "a.,,b.", "a.,a.", " a. , b. ", ",")),
    *(
        ("match", text)
        for text in ("", "client_id=a", "client_id", "client_id=", "=a", "client_id=a=b")
    ),
    *(
        ("match", text)
        for text in ("client_id=a==", "client_id=(", "speed=1", " client_id = a ", "client_id=a,")
    ),
    *(
        ("match", text)
        for text in ("client_id=a,client_id=b", "client_id=[a,b]", "CLIENT_ID=a", "client_id= ")
    ),
    ("speed", "1"),
    ("", "1"),
]


def described(client: RawClient, name: str, *keys: str) -> Any:
    kind = DescribeConfigsRequest
    resource = kind.DescribeConfigsResource(
        resource_type=KIND, resource_name=name, configuration_keys=list(keys) or None
    )
    (result,) = client.call(kind(resources=[resource], include_synonyms=True)).results
    found = result.to_dict()
    for each in found["configs"]:
        del each["documentation"]
    found["configs"].sort(key=lambda each: each["name"])
    return found


def listed(client: RawClient, version: int) -> list[str]:
    kinds = [KIND] if version else []
    response = client.call(ListConfigResourcesRequest(resource_types=kinds), version)
    assert response.error_code == 0
    return sorted(each.resource_name for each in response.config_resources)


def test_settings(servers: list[Server]) -> None:
    def story(client: RawClient) -> list[Any]:
        told: list[Any] = []
        for key, text in VALUES:
            for validate_only in (True, False):
                told.append(
                    (key, text, validate_only, set_one(client, "v", key, text, validate_only))
                )
            told.append(replaced(client, "v", key, text))
        told += [subscribe(client, "", metrics="a."), replaced(client, "", "metrics", "a.")]
        told += [set_one(client, "w", "metrics", None), set_one(client, "w", "metrics", None, op=2)]
        for op, text in ((AlterConfigOp.APPEND, "c."), (AlterConfigOp.SUBTRACT, "c.")):
            told.append(set_one(client, "w", "metrics", text, op=op))
            told.append(set_one(client, "w", "interval.ms", "200", op=op))
            told.append(set_one(client, "w", "speed", "200", op=op))
        return told

    assert len(compare(servers, story)) > 3 * len(VALUES)


def set_one(
    client: RawClient,
    name: str,
    key: str,
    text: str | None,
    validate_only: bool = False,
    op: int = AlterConfigOp.SET,
) -> tuple[int, str | None]:
    kind = IncrementalAlterConfigsRequest
    config = kind.AlterableConfig(name=key, config_operation=op, value=text)
    resource = kind.AlterConfigsResource(resource_type=KIND, resource_name=name, configs=[config])
    request = kind(resources=[resource], validate_only=validate_only)
    (result,) = client.call(request).responses
    return result.error_code, result.error_message


def replaced(client: RawClient, name: str, key: str, text: str) -> tuple[int, str | None]:
    """Send the request that replaces all settings."""
    kind = AlterConfigsRequest
    resource = kind.AlterConfigsResource(
        resource_type=KIND,
        resource_name=name,
        configs=[kind.AlterableConfig(name=key, value=text)],
    )
    (result,) = client.call(kind(resources=[resource])).responses
    return result.error_code, result.error_message


def test_descriptions(servers: list[Server]) -> None:
    def story(client: RawClient) -> list[Any]:
        told: list[Any] = [subscribe(client, "d", metrics="a.,b.", interval_ms="2000")]
        until(lambda: "d" in listed(client, 0))
        told += [listed(client, 0).count("d"), listed(client, 1).count("d")]
        told += [described(client, "d"), described(client, "d", "match", "speed")]
        told += [described(client, "nobody"), described(client, "")]
        told.append(subscribe(client, "d", metrics=None, interval_ms=None))
        until(lambda: "d" not in listed(client, 0))
        told.append(described(client, "d"))
        return told

    compare(servers, story)


# Requests of clients.


class Teller:
    """Sends the requests of clients, and notes the answers without ids."""

    def __init__(self, client: RawClient) -> None:
        self.client = client
        self.told: list[Any] = []
        self.instance = _NO_ID
        self.subscription = 0

    def ask(self, instance: UUID | None = None) -> None:
        asked = self.instance if instance is None else instance
        response = self.client.call(GetTelemetrySubscriptionsRequest(client_instance_id=asked))
        if response.error_code == 0:
            assert asked in (_NO_ID, response.client_instance_id)
            self.instance, self.subscription = response.client_instance_id, response.subscription_id
            response.client_instance_id, response.subscription_id = _NO_ID, 0
        response.requested_metrics.sort()
        self.told.append(response)

    def push(self, data: bytes = b"x", **changes: Any) -> None:
        request = PushTelemetryRequest(
            client_instance_id=self.instance, subscription_id=self.subscription, metrics=data
        )
        for name, value in changes.items():
            setattr(request, name, value)
        code = self.client.call(request).error_code
        self.told.append((len(data), changes, ErrorCode(code).name))

    def until_wanted(self, *metrics: str) -> None:
        """Wait until the broker has read the settings."""

        def is_wanted() -> bool:
            asked = GetTelemetrySubscriptionsRequest()
            return sorted(self.client.call(asked).requested_metrics) == sorted(metrics)

        until(is_wanted)


def telling(story: Callable[[Teller], None]) -> Callable[[RawClient], list[Any]]:
    def told(client: RawClient) -> list[Any]:
        teller = Teller(client)
        story(teller)
        return teller.told

    return told


def test_subscriptions(servers: list[Server]) -> None:
    def story(teller: Teller) -> None:
        client = teller.client
        teller.ask()
        for name, settings, wanted in (
            ("a", {"metrics": "x.,y.", "interval_ms": "2000"}, ["x.", "y."]),
            ("b", {"metrics": "y.,z.", "match": "client_id=te.t"}, ["x.", "y.", "z."]),
            (
                "c",
                {"metrics": "c.", "match": "client_software_name=lib,client_source_port=[0-9]+"},
                ["x.", "y.", "z.", "c."],
            ),
            (
                "d",
                {"metrics": "d.", "match": "client_software_version=1"},
                ["x.", "y.", "z.", "c."],
            ),
            ("e", {"metrics": "e.", "interval_ms": "1000"}, ["x.", "y.", "z.", "c.", "e."]),
            ("f", {"metrics": "*,e."}, ["*"]),
        ):
            assert subscribe(client, name, **settings)[0] == 0
            teller.until_wanted(*wanted)
            teller.ask(_NO_ID)
        for name in "abcdef":
            gone = {"metrics": None, "interval_ms": None, "match": None}
            assert subscribe(client, name, **gone)[0] == 0
        teller.until_wanted()
        teller.ask(_NO_ID)

    compare(servers, telling(story))


def test_pushes(servers: list[Server]) -> None:
    def story(teller: Teller) -> None:
        assert subscribe(teller.client, "p", metrics="x.", interval_ms="100")[0] == 0
        teller.until_wanted("x.")
        teller.ask(_NO_ID)

        def push(*arguments: Any, **changes: Any) -> None:
            time.sleep(0.15)
            teller.push(*arguments, **changes)

        for codec in Compression:
            push(compress(b"metrics", codec), compression_type=codec)
            if codec:
                push(b"not compressed", compression_type=codec)
                push(compress(bytes(2001), codec), compression_type=codec)
        push(b"")
        push(bytes(2000))
        push(bytes(2001))
        push(compression_type=5)
        push(compression_type=-1)
        push(subscription_id=7)
        push(subscription_id=7, compression_type=5)
        push(client_instance_id=_NO_ID)
        push(client_instance_id=UUID(int=1))
        push(client_instance_id=UUID(int=2))
        push(client_instance_id=UUID(int=1 << 64))
        # The answer to a new client.
        push(client_instance_id=UUID(int=12345 << 80))
        push()
        # The last one comes at any time.
        teller.push(terminating=True)
        push()
        push(terminating=True)
        teller.ask()
        push()
        time.sleep(0.15)
        teller.ask()
        teller.push()
        assert subscribe(teller.client, "p", metrics=None, interval_ms=None)[0] == 0
        teller.until_wanted()

    compare(servers, telling(story))


def test_intervals(servers: list[Server]) -> None:
    def story(teller: Teller) -> None:
        assert subscribe(teller.client, "i", metrics="x.", interval_ms="60000")[0] == 0
        teller.until_wanted("x.")
        teller.ask(_NO_ID)
        teller.ask()
        time.sleep(0.01)
        teller.push()
        teller.push()
        teller.ask()
        # A refused client asks again at once, but only once.
        assert subscribe(teller.client, "j", metrics="j.", interval_ms="50000")[0] == 0
        teller.until_wanted("x.", "j.")
        teller.push()
        teller.ask()
        teller.ask()
        time.sleep(0.01)
        teller.push(compression_type=9)
        teller.ask()
        teller.push()
        for name in "ij":
            assert subscribe(teller.client, name, metrics=None, interval_ms=None)[0] == 0
        teller.until_wanted()

    compare(servers, telling(story))


def test_the_same_apis(servers: list[Server]) -> None:
    def story(client: RawClient) -> list[Any]:
        asked = ApiVersionsRequest(client_software_name="lib", client_software_version="1")
        keys = {each.api_key: each for each in client.call(asked).api_keys}
        return [keys[71], keys[72]]

    assert len(compare(servers, story)) == 2


def test_a_broker_without_receivers_answers_too(brokers: list[Server]) -> None:
    def story(teller: Teller) -> None:
        asked = ApiVersionsRequest(client_software_name="lib", client_software_version="1")
        keys = {each.api_key for each in teller.client.call(asked).api_keys}
        teller.told.append(sorted(keys & {71, 72}))
        teller.ask()
        time.sleep(0.01)
        teller.push(b"no gzip", compression_type=1)

    compare(brokers, telling(story))


# Apache Kafka's tool and client.


def test_the_tool(servers: list[Server]) -> None:
    found = []
    for server in servers:

        def run(*arguments: str, server: Server = server) -> str:
            main = "org.apache.kafka.tools.ClientMetricsCommand"
            return tool(main, "--bootstrap-server", server.bootstrap, *arguments).stdout

        settings = ["--metrics", "a.,b.", "--interval", "1000", "--match", "client_id=x"]
        said: list[Any] = [run("--alter", "--name", "tool", *settings)]
        with RawClient(server.port) as client:
            until(lambda client=client: "tool" in listed(client, 0))
        said += [
            run("--describe", "--name", "tool"),
            sorted(run("--list").split()),
            run("--delete", "--name", "tool"),
        ]
        with RawClient(server.port) as client:
            until(lambda client=client: "tool" not in listed(client, 0))
        said.append(sorted(run("--list").split()))
        found.append(said)
    assert found[0] == found[1]
    assert "interval.ms=1000" in found[0][1]


def test_java_clients_push(kafka_jars: str) -> None:
    program = java_program("broker", _HERE / "Telemetry.java")
    with KafkaBroker.start(client_metrics=True, topics={"orders": 1}) as broker:
        command = java(
            "broker",
            "Telemetry",
            broker.bootstrap_servers,
            "orders",
            level="error",
            classes=program,
        )
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr[-3000:]
        instances = json.loads(done.stdout)
        pushes = broker.client_metrics
    assert {each.client_id for each in pushes} == {"producer", "consumer", "admin"}
    for name, prefix in (
        ("producer", "org.apache.kafka.producer."),
        ("consumer", "org.apache.kafka.consumer."),
        ("admin", "org.apache.kafka.admin.client."),
    ):
        own = [each for each in pushes if each.client_id == name]
        assert {str(each.client_instance_id) for each in own} == {instances[name]}
        assert {each.software_name for each in own} == {"apache-kafka-java"}
        names = {metric.name for each in own for metric in each.metrics}
        assert any(each.startswith(prefix) for each in names), names
