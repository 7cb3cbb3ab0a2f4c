"""AlterReplicaLogDirs, DescribeQuorum, UpdateFeatures, UnregisterBroker, and features that are off."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafka_wire import (
    AlterReplicaLogDirsRequest,
    ApiVersionsRequest,
    CreateDelegationTokenRequest,
    DescribeQuorumRequest,
    ErrorCode,
    FeatureUpdateType,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
    UnregisterBrokerRequest,
    UpdateFeaturesRequest,
)

from krammar.broker import Broker
from krammar.broker.errors import ApiError
from tests.broker.requests import create_topic
from tests.broker.support import RawClient

UP, DOWN, UNSAFE = 1, FeatureUpdateType.SAFE_DOWNGRADE, FeatureUpdateType.UNSAFE_DOWNGRADE


def move(client: RawClient, folder: str, topic: str, *partitions: int) -> list[int]:
    topics = [AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=topic, partitions=partitions)]
    request = AlterReplicaLogDirsRequest(
        dirs=[AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=folder, topics=topics)]
    )
    [result] = client.call(request, 2).results
    assert result.topic_name == topic
    return [each.error_code for each in result.partitions]


def test_folders_of_partitions(tmp_path: Path) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    properties = {"log.dirs": ",".join(map(str, folders)), "krammar.fsync": "never"}
    with Broker.start(properties=properties) as broker, RawClient(broker.port) as client:
        create_topic(client, "t")
        log = broker.logs.get("t", 0)
        assert log is not None
        here = log.path.parent
        [other] = set(folders) - {here}
        assert move(client, str(here), "t", 0, 1) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert move(client, str(other), "t", 0) == [ErrorCode.UNSUPPORTED_VERSION]
        assert move(client, "/nowhere", "t", 0) == [ErrorCode.LOG_DIR_NOT_FOUND]


def quorum(client: RawClient, topic: str, version: int = 2) -> tuple[int, object]:
    partition = DescribeQuorumRequest.PartitionData(partition_index=0)
    request = DescribeQuorumRequest(
        topics=[DescribeQuorumRequest.TopicData(topic_name=topic, partitions=[partition])]
    )
    response = client.call(request, version)
    assert response.error_code == 0
    [found] = response.topics[0].partitions
    return found.error_code, found


def test_the_quorum_is_this_node(broker: Broker, client: RawClient) -> None:
    create_topic(client, "t")
    code, found = quorum(client, "__cluster_metadata")
    [voter] = found.current_voters  # type: ignore[attr-defined]
    assert (code, voter.replica_id, found.leader_id) == (0, 1, 1)  # type: ignore[attr-defined]
    end_offset = broker.cluster.last_offset + 1
    assert voter.log_end_offset == found.high_watermark == end_offset  # type: ignore[attr-defined]
    assert voter.replica_directory_id == broker.cluster.directory_ids[0]
    assert found.leader_epoch == broker.cluster.log.epoch == 1  # type: ignore[attr-defined]
    assert quorum(client, "t")[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def update(
    client: RawClient, *updates: tuple[str, int, int], dry: bool = False
) -> tuple[int, str | None]:
    request = UpdateFeaturesRequest(
        feature_updates=[
            UpdateFeaturesRequest.FeatureUpdateKey(
                feature=name, max_version_level=level, upgrade_type=kind
            )
            for name, level, kind in updates
        ],
        validate_only=dry,
    )
    response = client.call(request, 2)
    return response.error_code, response.error_message


def levels(client: RawClient) -> dict[str, int]:
    response = client.call(
        ApiVersionsRequest(client_software_name="a", client_software_version="1"), 4
    )
    return {each.name: each.max_version_level for each in response.finalized_features}


def test_levels_of_features_change_and_last(tmp_path: Path) -> None:
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        before = levels(client)
        assert update(client, ("transaction.version", 1, DOWN), dry=True) == (0, None)
        assert levels(client) == before
        both = ("transaction.version", 0, DOWN), ("metadata.version", 26, UP)
        assert update(client, *both) == (0, None)
        create_topic(client, "t")
    with Broker.start(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        assert "t" in broker.cluster.topics
        found = levels(client)
        assert (found["metadata.version"], "transaction.version" in found) == (26, False)
        assert update(client, ("transaction.version", 2, UP)) == (0, None)
        assert levels(client)["transaction.version"] == 2


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("speed", 1, UP), "feature speed. Local controller 1 does not support this feature."),
        (("speed", -1, UP), "feature speed. A feature version cannot be less than 0."),
        (("transaction.version", 3, UP), "Local controller 1 only supports versions 0-2"),
        (("transaction.version", 1, UP), "Can't downgrade the version of this feature without"),
        (("transaction.version", 1, 0), "does not support the given upgrade type."),
        (("transaction.version", 1, 4), "does not support the given upgrade type."),
        (("metadata.version", 33, DOWN), "Can't downgrade to a newer version."),
        (("kraft.version", 0, DOWN), "Can't downgrade the version of this feature."),
        (("metadata.version", 20, DOWN), "Refusing to perform the requested downgrade"),
        (("metadata.version", 20, UNSAFE), "Unsafe metadata downgrade is not supported"),
    ],
)
def test_one_wrong_update_stops_all(
    client: RawClient, change: tuple[str, int, int], reason: str
) -> None:
    before = levels(client)
    code, text = update(client, ("transaction.version", 0, DOWN), change)
    assert code == ErrorCode.INVALID_UPDATE_VERSION
    assert text is not None
    assert text.startswith("The update failed for all features since the following feature had an")
    assert reason in text
    assert levels(client) == before


def test_features_that_cannot_be_written(
    broker: Broker, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(records: object) -> None:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "disk full")

    monkeypatch.setattr(broker.cluster, "append", fail)
    change = ("transaction.version", 0, DOWN)
    assert update(client, change) == (ErrorCode.KAFKA_STORAGE_ERROR, "disk full")


def test_no_broker_is_unregistered(client: RawClient) -> None:
    other = client.call(UnregisterBrokerRequest(broker_id=7))
    assert other.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    assert other.error_message == "Broker ID 7 is not currently registered"
    own = client.call(UnregisterBrokerRequest(broker_id=1))
    assert own.error_code == ErrorCode.INVALID_REQUEST
    assert "belongs to a node of this process" in own.error_message


def test_delegation_tokens_are_off_for_users_too() -> None:
    properties = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        'user_alice="secret";',
    }
    with Broker.start(properties=properties) as broker, RawClient(broker.port) as client:
        client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        client.call(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"))
        response = client.call(CreateDelegationTokenRequest(max_lifetime_ms=1))
    assert response.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    assert (response.principal_type, response.principal_name) == ("User", "alice")
    assert response.max_timestamp_ms == -1
