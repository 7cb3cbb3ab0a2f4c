"""A broker that serves as an older release has the APIs, features and settings of Apache Kafka of that release."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka_wire import ApiKey, ConfigSource

from krammar.broker import releases
from krammar.broker.config.definitions import WITH_ZOOKEEPER
from tests.broker.requests import create_topic
from tests.interop.apache import ApacheKafka, class_path
from tests.interop.processes import Krammar, Server, Unavailable
from tests.interop.release_answers import (
    BROKER,
    RELEASES,
    TOPIC,
    ReleaseClient,
    accepted,
    api_versions,
    described,
    validated,
)
from tests.interop.zookeeper import ZooKeeperKafka
from tests.support.waiting import until

# The defaults differ: a test broker has one node, consumer groups are off in 3.9, and 2.8 lists the protocols of
# listeners in another order. In 2.8, nodes have only a broker.id.
_DIFFERENT = {
    "group.consumer.assignors",
    "listener.security.protocol.map",
    "node.id",
    "offsets.topic.replication.factor",
    "share.coordinator.state.topic.replication.factor",
    "transaction.state.log.min.isr",
    "transaction.state.log.replication.factor",
}
# krammar does not act on the first, and does not accept values of 2.8 that turn something off.
_UNCHECKED = ("message.format.version=", "flush.messages=0", "segment.index.bytes=")
# Listed only if something receives the metrics of clients.
_TELEMETRY = {ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY}
# Features that krammar does not have in any release.
_FEATURES = {"eligible.leader.replicas.version", "streams.version"}


@pytest.fixture(scope="module", params=RELEASES)
def release(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def servers(release: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    """Ours as that release, and Apache Kafka, each with the topic ``t``."""
    version = RELEASES[release]
    folder = tmp_path_factory.mktemp("release")
    ours = Krammar(folder / "ours", properties={"krammar.kafka.version": release})
    theirs: Server
    try:
        if release in WITH_ZOOKEEPER:
            class_path("zookeeper", version)
            theirs = ZooKeeperKafka(folder / "theirs", version)
        else:
            class_path("broker", version)
            theirs = ApacheKafka(folder / "theirs", release=version)
    except Unavailable as missing:
        pytest.skip(str(missing))
    with ours, theirs:
        for server in (ours, theirs):
            with ReleaseClient(server.port) as client:
                create_topic(client, "t", 2)
                until(lambda client=client: is_described(client))
        yield [ours, theirs]


def is_described(client: ReleaseClient) -> bool:
    """Whether a broker has read that the topic exists."""
    try:
        return bool(described(client, TOPIC, "t"))
    except AssertionError:
        return False


def test_apis(servers: list[Server], release: str) -> None:
    """The table is what brokers of the release list, and krammar lists a part of it."""
    found = []
    for server in servers:
        with ReleaseClient(server.port) as client:
            keys = api_versions(client).api_keys
        found.append({each.api_key: (each.min_version, each.max_version) for each in keys})
    ours, theirs = found
    text = Path(releases.__file__).with_name("releases.csv").read_text("utf-8")
    table = {
        int(row["api_key"]): (int(row["low"]), int(row["high"]))
        for row in csv.DictReader(text.splitlines())
        if row["release"] == release
    }
    assert {key: each for key, each in table.items() if key not in _TELEMETRY} == theirs
    assert ours.keys() <= theirs.keys()
    outside = {
        key: (each, theirs[key])
        for key, each in ours.items()
        if not theirs[key][0] <= each[0] <= each[1] <= theirs[key][1]
    }
    assert outside == {}


def test_features(servers: list[Server], release: str) -> None:
    """The supported features and the levels of a new cluster, as far as krammar has them."""
    found = []
    for server in servers:
        with ReleaseClient(server.port) as client:
            answer = api_versions(client)
        supported = {
            each.name: (each.min_version, each.max_version) for each in answer.supported_features
        }
        levels = {each.name: each.max_version_level for each in answer.finalized_features}
        found.append((supported, levels))
    (ours, our_levels), (theirs, their_levels) = found
    assert {name: each for name, each in theirs.items() if name not in _FEATURES} == ours
    their_levels = {name: each for name, each in their_levels.items() if name not in _FEATURES}
    # Share groups are on in Kafka 4.1 only if the cluster asks for them.
    assert their_levels == our_levels


def test_settings(servers: list[Server]) -> None:
    """Names, types and defaults of the settings of topics and brokers."""
    found: list[dict[str, Any]] = []
    for server in servers:
        with ReleaseClient(server.port) as client:
            found.append(
                {
                    f"{kind.name} {setting}": answer
                    for kind, name in ((TOPIC, "t"), (BROKER, "1"))
                    for setting, answer in described(client, kind, name).items()
                    if not setting.startswith("krammar.") and setting not in _DIFFERENT
                }
            )
    ours, theirs = found
    assert ours.keys() == theirs.keys()
    assert len(ours) > 200
    different = {}
    for name, mine in ours.items():
        kafkas = theirs[name]
        is_default = mine.source == kafkas.source == ConfigSource.DEFAULT_CONFIG
        if mine.type != kafkas.type or (is_default and mine.value != kafkas.value):
            different[name] = (mine, kafkas)
    assert different == {}


def test_accepted_values(servers: list[Server]) -> None:
    """The error codes of values of a topic's settings, and of a setting that does not exist."""
    found: list[dict[str, int]] = []
    for server in servers:
        with ReleaseClient(server.port) as client:
            codes = accepted(client, TOPIC, "t", described(client, TOPIC, "t"))
            codes["no.such"] = validated(client, TOPIC, "t", "no.such", "1")
        found.append(
            {name: code for name, code in codes.items() if not name.startswith(_UNCHECKED)}
        )
    ours, theirs = found
    assert ours.keys() == theirs.keys()
    assert len(ours) > 200
    assert {name: (code, theirs[name]) for name, code in ours.items() if code != theirs[name]} == {}
