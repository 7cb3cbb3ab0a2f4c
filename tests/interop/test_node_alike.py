"""One node's answers about itself: our broker says what Apache Kafka says."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from kafka_wire import (
    ApiKey,
    ConfigResourceType,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)

from krammar.broker import metadata_records
from krammar.broker.metadata_records import (
    KAFKA_FEATURES,
    KRAFT_VERSION,
    METADATA_VERSION,
    NEW_FEATURES,
    OLDEST_LEVEL,
    SHARE_VERSION,
    SUPPORTED_FEATURES,
)
from tests.broker.support import RawClient
from tests.interop.apache import tool
from tests.interop.node_cases import CASES, at_version, feature, update
from tests.interop.processes import Server

# What our broker does not serve; the test kit or Kafka has it.
_OTHERS = re.compile("SHARE|STREAMS|RAFT_VOTER|UNREGISTER_CONTROLLER")
# Features that only Kafka has differ in level and number.
_METADATA = re.compile(r"metadata\.version|only supports versions|from \d+ to")
_VARIES = {
    "replica_directory_id",
    "log_end_offset",
    "high_watermark",
    "leader_epoch",
    "last_fetch_timestamp",
    "last_caught_up_timestamp",
    "nodes",
}


def plain(value: Any) -> Any:
    """Convert a response to what can be compared; orders of partitions do not count."""
    if isinstance(value, list):
        return sorted(map(plain, value), key=repr)
    if hasattr(value, "_fields"):
        return {
            name: "…" if name in _VARIES else plain(getattr(value, name)) for name in value._fields
        }
    return value


def heard(server: Server, name: str) -> list[Any]:
    found = []
    for request in CASES[name](server.folder):
        first = {34: 1, 38: 1, 39: 1, 40: 1, 41: 1, 29: 1, 30: 1, 31: 1}.get(request.api_key, 0)
        for version in range(first, type(request).max_version + 1):
            with RawClient(server.port) as client:
                found.append((version, plain(client.call(at_version(request, version), version))))
    return found


@pytest.mark.parametrize("name", [name for name in CASES if name != "ApiVersions"])
def test_the_same_answers(brokers: list[Server], name: str) -> None:
    ours, theirs = (heard(server, name) for server in brokers)
    assert len(ours) == len(theirs)
    for mine, kafkas in zip(ours, theirs, strict=True):
        if _METADATA.search(repr(kafkas)):  # the levels differ, so the codes are compared
            mine, kafkas = mine[1]["error_code"], kafkas[1]["error_code"]
        assert mine == kafkas


def test_the_same_apis(brokers: list[Server]) -> None:
    [request] = CASES["ApiVersions"](brokers[0].folder)
    found = []
    for server in brokers:
        with RawClient(server.port) as client:
            response = client.call(request)
        found.append(
            {
                ApiKey(each.api_key).name: (each.min_version, each.max_version)
                for each in response.api_keys
            }
        )
    ours, theirs = found
    missing = {name for name in theirs if name not in ours and not _OTHERS.search(name)}
    assert missing <= {
        "ELECT_LEADERS",
        "ALTER_PARTITION_REASSIGNMENTS",
        "LIST_PARTITION_REASSIGNMENTS",
        "CONSUMER_GROUP_DESCRIBE",
    }
    different = {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]}
    assert not different


def _features(server: Server, version: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the supported and the finalized features that ApiVersions lists: each with its range of levels."""
    [request] = CASES["ApiVersions"](server.folder)
    with RawClient(server.port) as client:
        response = client.call(at_version(request, version), version)
    supported = {f.name: (f.min_version, f.max_version) for f in response.supported_features}
    finalized = {
        f.name: (f.min_version_level, f.max_version_level) for f in response.finalized_features
    }
    return supported, finalized


@pytest.mark.parametrize("version", [3, 4, 5])
def test_the_same_levels_of_features(brokers: list[Server], version: int) -> None:
    """Kafka has more features, and its new folders have the newest metadata.version."""
    (ours, our_levels), (theirs, their_levels) = (_features(each, version) for each in brokers)
    assert theirs == {
        # Before v4, clients cannot decode ranges that begin at 0.
        name: levels
        for name, levels in KAFKA_FEATURES.items()
        if version >= 4 or levels[0] > 0
    }
    assert ours.keys() >= theirs.keys() & SUPPORTED_FEATURES
    assert ours.items() <= theirs.items()
    # Here, the first share group of a folder turns them on.
    assert our_levels.keys() >= SUPPORTED_FEATURES.keys() - {SHARE_VERSION}
    del our_levels["metadata.version"], their_levels["metadata.version"]
    assert our_levels.items() <= their_levels.items()


def _mapping(release: str) -> dict[str, int]:
    """Return the levels that Kafka gives a new folder with a metadata.version, such as 4.0-IV3."""
    told = tool(
        "kafka.tools.StorageTool", "version-mapping", "--release-version", release, jars="broker"
    ).stdout
    found = re.findall(r"^([a-z.]+)=(\d+)", told, re.MULTILINE)
    return {name: int(level) for name, level in found}


def test_levels_of_a_new_folder(kafka_jars: str) -> None:
    """Those of Kafka 4.0, and kraft.version 1 as control record."""
    assert _mapping("4.0-IV3").items() >= {**NEW_FEATURES, KRAFT_VERSION: 1}.items()


def test_metadata_versions_have_the_same_levels(kafka_jars: str) -> None:
    """LEVEL_4_0_IV3 is Kafka's 4.0-IV3."""
    ours = {
        f"{found[1]}.{found[2]}-{found[3]}": level
        for name, level in vars(metadata_records).items()
        if (found := re.fullmatch(r"LEVEL_(\d)_(\d)_(IV\d)", name))
    }
    assert len(ours) >= 6
    assert {release: _mapping(release)[METADATA_VERSION] for release in ours} == ours
    assert _mapping("3.3-IV3")[METADATA_VERSION] == OLDEST_LEVEL


def _set_least(client: RawClient, node: str, value: str | None) -> None:
    """Set or delete ``min.insync.replicas`` of a node, or of all nodes ("")."""
    Resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = IncrementalAlterConfigsRequest.AlterableConfig(
        name="min.insync.replicas", config_operation=int(value is None), value=value
    )
    resource = Resource(
        resource_type=ConfigResourceType.BROKER, resource_name=node, configs=[config]
    )
    (result,) = client.call(IncrementalAlterConfigsRequest(resources=[resource])).responses
    assert result.error_code == 0, result


def _least(client: RawClient) -> list[Any]:
    """Describe ``min.insync.replicas`` of all nodes, of node 1 and of a topic."""
    resources = [
        DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=["min.insync.replicas"]
        )
        for kind, name in [
            (ConfigResourceType.BROKER, ""),
            (ConfigResourceType.BROKER, "1"),
            (ConfigResourceType.TOPIC, "t"),
        ]
    ]
    response = client.call(DescribeConfigsRequest(resources=resources, include_synonyms=True))
    return [
        (each.value, each.config_source, [(s.name, s.value, s.source) for s in each.synonyms])
        for result in response.results
        for each in result.configs
    ]


def test_min_insync_replicas_without_eligible_leader_replicas(brokers: list[Server]) -> None:
    """With the feature, Kafka gives every cluster a setting of its own (KIP-966)."""
    ours, theirs = brokers
    with RawClient(ours.port) as mine, RawClient(theirs.port) as kafkas:
        off = update(feature("eligible.leader.replicas.version", 0, 2), dry=False)
        assert kafkas.call(at_version(off, 2), 2).error_code == 0
        for node, value in [("", None), ("1", "2"), ("", "3"), ("1", None), ("", None)]:
            for client in (mine, kafkas):
                _set_least(client, node, value)
            expected = _least(mine)
            ends = time.monotonic() + 10
            # Kafka's brokers read changes from the metadata log, a moment later.
            while (found := _least(kafkas)) != expected and time.monotonic() < ends:
                time.sleep(0.05)
            assert found == expected, (node, value)
