"""Bytes written manually, field by field, from Kafka's protocol guide and schemas.

Among them are messages that no oracle knows: the ones that Kafka 4 dropped, and the records of the
internal topics and the files beside a log.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import kafka_wire as k
import pytest
import wafka_wire as w

from krammar.wire.errors import DecodeError

ID = UUID("00112233-4455-6677-8899-aabbccddeeff")


def octets(text: str) -> bytes:
    """The bytes of hexadecimal text with a comment behind ``#`` on each line."""
    return bytes.fromhex("".join(line.partition("#")[0] for line in text.splitlines()))


VECTORS: list[tuple[str, Any, int | None, str]] = [
    (
        "request header v2",
        k.RequestHeader(
            request_api_key=18,
            request_api_version=4,
            correlation_id=0x6F7FC661,
            client_id="kafka-cli",
        ),
        2,
        """
        0012                        # api key 18
        0004                        # version 4
        6f7fc661                    # correlation id
        0009 6b61666b612d636c69     # client id, classic even in a flexible header
        00                          # no tagged fields
        """,
    ),
    (
        "request header v1 without client id",
        k.RequestHeader(
            request_api_key=3, request_api_version=1, correlation_id=-1, client_id=None
        ),
        1,
        "0003 0001 ffffffff ffff",
    ),
    (
        "request header v0, of ControlledShutdown v0 alone",
        k.RequestHeader(request_api_key=7, request_api_version=0, correlation_id=9),
        0,
        "0007 0000 00000009",
    ),
    ("response header v0", k.ResponseHeader(correlation_id=7), 0, "00000007"),
    ("response header v1", k.ResponseHeader(correlation_id=7), 1, "00000007 00"),
    ("ApiVersions request v2", k.ApiVersionsRequest(), 2, ""),
    (
        "ApiVersions request v3",
        k.ApiVersionsRequest(client_software_name="kafka-cli", client_software_version="0.1"),
        3,
        """
        0a 6b61666b612d636c69       # nine characters: ten is written
        04 302e31
        00                          # no tagged fields
        """,
    ),
    (
        "ApiVersions response v0",
        k.ApiVersionsResponse(
            error_code=35,
            api_keys=[k.ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=4)],
        ),
        0,
        """
        0023                        # UNSUPPORTED_VERSION
        00000001                    # one key
        0012 0000 0004
        """,
    ),
    (
        "ApiVersions response v2",
        k.ApiVersionsResponse(
            api_keys=[
                k.ApiVersionsResponse.ApiVersion(api_key=1, min_version=4, max_version=16),
                k.ApiVersionsResponse.ApiVersion(api_key=75, min_version=0, max_version=0),
            ],
            throttle_time_ms=100,
        ),
        2,
        """
        0000
        00000002                    # two keys
        0001 0004 0010
        004b 0000 0000
        00000064                    # throttle time
        """,
    ),
    (
        "ApiVersions response v3",
        k.ApiVersionsResponse(
            api_keys=[k.ApiVersionsResponse.ApiVersion(api_key=18, min_version=0, max_version=4)],
            supported_features=[
                k.ApiVersionsResponse.SupportedFeatureKey(
                    name="kraft", min_version=0, max_version=1
                )
            ],
            finalized_features_epoch=5,
        ),
        3,
        """
        0000
        02                          # one key, plus one
        0012 0000 0004 00           # key, versions, no tagged fields
        00000000                    # throttle time
        02                          # two tagged fields
        00 0c                       # tag 0, twelve bytes: supported features
          02                        # one feature, plus one
          06 6b72616674 0000 0001 00
        01 08 0000000000000005      # tag 1, eight bytes: epoch
        """,
    ),
    (
        "Fetch response v10",
        k.FetchResponse(
            session_id=3,
            responses=[
                k.FetchResponse.FetchableTopicResponse(
                    topic="t",
                    partitions=[
                        k.FetchResponse.PartitionData(
                            partition_index=1,
                            high_watermark=10,
                            last_stable_offset=9,
                            log_start_offset=2,
                            aborted_transactions=[
                                k.FetchResponse.AbortedTransaction(producer_id=1000, first_offset=4)
                            ],
                            records=b"rec",
                        )
                    ],
                )
            ],
        ),
        10,
        """
        00000000 0000 00000003      # throttle time, error code, session id
        00000001                    # one topic
        0001 74                     # "t"
        00000001                    # one partition
        00000001 0000               # its number, error code
        000000000000000a            # high watermark
        0000000000000009            # last stable offset
        0000000000000002            # log start offset
        00000001                    # one aborted transaction
        00000000000003e8 0000000000000004
        00000003 726563             # records
        """,
    ),
    (
        "Fetch response v16",
        k.FetchResponse(
            session_id=3,
            responses=[
                k.FetchResponse.FetchableTopicResponse(
                    topic_id=ID,
                    partitions=[
                        k.FetchResponse.PartitionData(
                            partition_index=1,
                            error_code=6,
                            high_watermark=-1,
                            last_stable_offset=-1,
                            log_start_offset=-1,
                            aborted_transactions=None,
                            preferred_read_replica=-1,
                            records=None,
                            current_leader=k.FetchResponse.LeaderIdAndEpoch(
                                leader_id=2, leader_epoch=7
                            ),
                        )
                    ],
                )
            ],
            node_endpoints=[
                k.FetchResponse.NodeEndpoint(node_id=2, host="b2", port=9092, rack=None)
            ],
        ),
        16,
        """
        00000000 0000 00000003
        02                          # one topic, plus one
        00112233445566778899aabbccddeeff
        02                          # one partition, plus one
        00000001 0006               # its number, NOT_LEADER_OR_FOLLOWER
        ffffffffffffffff ffffffffffffffff ffffffffffffffff
        00                          # null for the aborted transactions
        ffffffff                    # no preferred replica
        00                          # null records
        01                          # one tagged field of the partition
          01 09                     # tag 1, nine bytes: the current leader
          00000002 00000007 00
        00                          # none of the topic
        01                          # one of the response
          00 0e                     # tag 0, fourteen bytes: node endpoints
          02 00000002 03 6232 00002384 00 00
        """,
    ),
    (
        "DescribeTopicPartitions request v0 without cursor",
        k.DescribeTopicPartitionsRequest(
            topics=[k.DescribeTopicPartitionsRequest.TopicRequest(name="orders")],
            response_partition_limit=100,
            cursor=None,
        ),
        0,
        """
        02 07 6f7264657273 00       # one topic
        00000064                    # limit
        ff                          # null
        00
        """,
    ),
    (
        "DescribeTopicPartitions request v0 with a cursor",
        k.DescribeTopicPartitionsRequest(
            response_partition_limit=1,
            cursor=k.DescribeTopicPartitionsRequest.Cursor(topic_name="t", partition_index=3),
        ),
        0,
        """
        01                          # no topics
        00000001
        01 02 74 00000003 00        # present: topic, partition, no tagged fields
        00
        """,
    ),
    (
        "DescribeTopicPartitions response v0",
        k.DescribeTopicPartitionsResponse(
            topics=[
                k.DescribeTopicPartitionsResponse.Topic(
                    error_code=3, name=None, topic_authorized_operations=-2147483648
                )
            ],
            next_cursor=None,
        ),
        0,
        """
        00000000
        02
        0003 00                     # UNKNOWN_TOPIC_OR_PARTITION, null
        00000000000000000000000000000000
        00                          # not internal
        01                          # no partitions
        80000000 00
        ff                          # null
        00
        """,
    ),
    (
        "Metadata request v1 for all topics",
        k.MetadataRequest(topics=None),
        1,
        "ffffffff",
    ),
    (
        "Produce request v3",
        k.ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=1500,
            topic_data=[
                k.ProduceRequest.TopicProduceData(
                    name="t",
                    partition_data=[
                        k.ProduceRequest.PartitionProduceData(index=2, records=b"\x01\x02")
                    ],
                )
            ],
        ),
        3,
        """
        ffff                        # null
        ffff                        # acks -1: all
        000005dc
        00000001 0001 74
        00000001 00000002 00000002 0102
        """,
    ),
    (
        "DescribeLogDirs request v0",
        k.DescribeLogDirsRequest(
            topics=[k.DescribeLogDirsRequest.DescribableLogDirTopic(topic="t", partitions=[0, 5])]
        ),
        0,
        "00000001 0001 74 00000002 00000000 00000005",
    ),
    ("DescribeLogDirs request v0 for all", k.DescribeLogDirsRequest(topics=None), 0, "ffffffff"),
    # ---- messages that Kafka 4 removed
    (
        "UpdateMetadata request v0",
        k.UpdateMetadataRequest(
            controller_id=1,
            controller_epoch=2,
            ungrouped_partition_states=[
                k.UpdateMetadataRequest.UpdateMetadataPartitionState(
                    topic_name="t",
                    partition_index=3,
                    controller_epoch=2,
                    leader=4,
                    leader_epoch=5,
                    isr=[4, 6],
                    zk_version=7,
                    replicas=[4, 6],
                )
            ],
            live_brokers=[
                k.UpdateMetadataRequest.UpdateMetadataBroker(id=4, v0_host="h", v0_port=9092)
            ],
        ),
        0,
        """
        00000001 00000002
        00000001                    # one partition
        0001 74 00000003 00000002 00000004 00000005
        00000002 00000004 00000006  # in sync
        00000007
        00000002 00000004 00000006  # replicas
        00000001                    # one broker
        00000004 0001 68 00002384
        """,
    ),
    (
        "UpdateMetadata request v8",
        k.UpdateMetadataRequest(
            controller_id=1,
            is_k_raft_controller=True,
            controller_epoch=2,
            broker_epoch=3,
            topic_states=[
                k.UpdateMetadataRequest.UpdateMetadataTopicState(
                    topic_name="t",
                    topic_id=ID,
                    partition_states=[
                        k.UpdateMetadataRequest.UpdateMetadataPartitionState(
                            partition_index=0,
                            controller_epoch=2,
                            leader=4,
                            leader_epoch=5,
                            isr=[4],
                            zk_version=7,
                            replicas=[4],
                            offline_replicas=[],
                        )
                    ],
                )
            ],
            live_brokers=[
                k.UpdateMetadataRequest.UpdateMetadataBroker(
                    id=4,
                    endpoints=[
                        k.UpdateMetadataRequest.UpdateMetadataEndpoint(
                            port=9093, host="h", listener="TLS", security_protocol=1
                        )
                    ],
                    rack=None,
                )
            ],
            type=1,
        ),
        8,
        """
        00000001 01 00000002 0000000000000003
        02 02 74 00112233445566778899aabbccddeeff
          02 00000000 00000002 00000004 00000005
             02 00000004
             00000007
             02 00000004
             01
             00
          00
        02 00000004
          02 00002385 02 68 04 544c53 0001 00
          00 00
        01 00 01 01                 # tag 0, one byte: the type
        """,
    ),
    (
        "LeaderAndIsr request v7",
        k.LeaderAndIsrRequest(
            controller_id=1,
            controller_epoch=2,
            broker_epoch=3,
            type=2,
            topic_states=[
                k.LeaderAndIsrRequest.LeaderAndIsrTopicState(
                    topic_name="t",
                    topic_id=ID,
                    partition_states=[
                        k.LeaderAndIsrRequest.LeaderAndIsrPartitionState(
                            partition_index=1,
                            controller_epoch=2,
                            leader=3,
                            leader_epoch=4,
                            isr=[3],
                            partition_epoch=5,
                            replicas=[3, 6],
                            adding_replicas=[6],
                            removing_replicas=[],
                            is_new=True,
                            leader_recovery_state=1,
                        )
                    ],
                )
            ],
            live_leaders=[
                k.LeaderAndIsrRequest.LeaderAndIsrLiveLeader(broker_id=3, host_name="h", port=1)
            ],
        ),
        7,
        """
        00000001 00 00000002 0000000000000003 02
        02 02 74 00112233445566778899aabbccddeeff
          02 00000001 00000002 00000003 00000004
             02 00000003
             00000005
             03 00000003 00000006
             02 00000006
             01
             01 01 00
          00
        02 00000003 02 68 00000001 00
        00
        """,
    ),
    (
        "StopReplica request v0",
        k.StopReplicaRequest(
            controller_id=1,
            controller_epoch=2,
            delete_partitions=True,
            ungrouped_partitions=[
                k.StopReplicaRequest.StopReplicaPartitionV0(topic_name="t", partition_index=3)
            ],
        ),
        0,
        "00000001 00000002 01 00000001 0001 74 00000003",
    ),
    (
        "ControlledShutdown request v3",
        k.ControlledShutdownRequest(broker_id=1, broker_epoch=-1),
        3,
        "00000001 ffffffffffffffff 00",
    ),
    (
        "ControlledShutdown response v0",
        k.ControlledShutdownResponse(
            remaining_partitions=[
                k.ControlledShutdownResponse.RemainingPartition(topic_name="t", partition_index=3)
            ]
        ),
        0,
        "0000 00000001 0001 74 00000003",
    ),
    (
        "WriteTxnMarkers request v0",
        k.WriteTxnMarkersRequest(
            markers=[
                k.WriteTxnMarkersRequest.WritableTxnMarker(
                    producer_id=1,
                    producer_epoch=2,
                    transaction_result=True,
                    topics=[
                        k.WriteTxnMarkersRequest.WritableTxnMarkerTopic(
                            name="t", partition_indexes=[3]
                        )
                    ],
                    coordinator_epoch=4,
                )
            ]
        ),
        0,
        "00000001 0000000000000001 0002 01 00000001 0001 74 00000001 00000003 00000004",
    ),
    # ---- internal topics
    (
        "key of an offset",
        k.OffsetCommitKey(version=1, group="g", topic="t", partition=2),
        None,
        "0001 0001 67 0001 74 00000002",
    ),
    (
        "offset v1",
        k.OffsetCommitValue(
            version=1, offset=5, metadata="m", commit_timestamp=1, expire_timestamp=2
        ),
        None,
        "0001 0000000000000005 0001 6d 0000000000000001 0000000000000002",
    ),
    (
        "offset v3",
        k.OffsetCommitValue(version=3, offset=5, leader_epoch=9, metadata="", commit_timestamp=1),
        None,
        "0003 0000000000000005 00000009 0000 0000000000000001",
    ),
    (
        "offset v4",
        k.OffsetCommitValue(
            version=4, offset=5, leader_epoch=-1, metadata="", commit_timestamp=1, topic_id=ID
        ),
        None,
        """
        0004 0000000000000005 ffffffff 01 0000000000000001
        01 00 10 00112233445566778899aabbccddeeff
        """,
    ),
    ("key of a group", k.GroupMetadataKey(version=2, group="g"), None, "0002 0001 67"),
    (
        "group v3",
        k.GroupMetadataValue(
            version=3,
            protocol_type="consumer",
            generation=4,
            protocol="range",
            leader=None,
            current_state_timestamp=-1,
            members=[
                k.GroupMetadataValue.MemberMetadata(
                    member_id="m",
                    group_instance_id=None,
                    client_id="c",
                    client_host="/h",
                    rebalance_timeout=60000,
                    session_timeout=45000,
                    subscription=b"\x00\x01",
                    assignment=b"",
                )
            ],
        ),
        None,
        """
        0003
        0008 636f6e73756d6572 00000004 0005 72616e6765 ffff ffffffffffffffff
        00000001
        0001 6d ffff 0001 63 0002 2f68
        0000ea60 0000afc8
        00000002 0001 00000000
        """,
    ),
    (
        "member of a new consumer group, joined by the classic protocol",
        k.ConsumerGroupMemberMetadataValue(
            version=0,
            instance_id=None,
            rack_id=None,
            client_id="c",
            client_host="h",
            subscribed_topic_names=["t"],
            subscribed_topic_regex=None,
            rebalance_timeout_ms=-1,
            server_assignor=None,
            classic_member_metadata=k.ConsumerGroupMemberMetadataValue.ClassicMemberMetadata(
                session_timeout_ms=7
            ),
        ),
        None,
        """
        0000 00 00 02 63 02 68 02 02 74 00 ffffffff 00
        01 00 07                    # tag 0, seven bytes
        01                          # present
        00000007 01 00
        """,
    ),
    (
        "key of a transaction",
        k.TransactionLogKey(version=0, transactional_id="tx"),
        None,
        "0000 0002 7478",
    ),
    (
        "transaction v1",
        k.TransactionLogValue(
            version=1,
            producer_id=1,
            producer_epoch=2,
            transaction_timeout_ms=60000,
            transaction_status=1,
            transaction_partitions=[
                k.TransactionLogValue.PartitionsSchema(topic="t", partition_ids=[0, 1])
            ],
            transaction_last_update_timestamp_ms=3,
            transaction_start_timestamp_ms=4,
            client_transaction_version=2,
        ),
        None,
        """
        0001 0000000000000001 0002 0000ea60 01
        02 02 74 03 00000000 00000001 00
        0000000000000003 0000000000000004
        01 02 02 0002               # tag 2, two bytes
        """,
    ),
    (
        "share group snapshot",
        k.ShareSnapshotValue(
            version=0,
            snapshot_epoch=1,
            state_epoch=2,
            leader_epoch=3,
            start_offset=4,
            create_timestamp=5,
            write_timestamp=6,
            state_batches=[
                k.ShareSnapshotValue.StateBatch(
                    first_offset=7, last_offset=8, delivery_state=2, delivery_count=9
                )
            ],
        ),
        None,
        """
        0000 00000001 00000002 00000003
        0000000000000004 0000000000000005 0000000000000006
        02 0000000000000007 0000000000000008 02 0009 00
        00
        """,
    ),
    # ---- the metadata log, and the other files of a log
    ("topic record", k.TopicRecord(name="t", topic_id=ID), 0, f"02 74 {ID.hex} 00"),
    (
        "partition record v2",
        k.PartitionRecord(
            partition_id=1,
            topic_id=ID,
            replicas=[1, 2],
            isr=[1],
            leader=1,
            leader_epoch=3,
            partition_epoch=4,
            directories=[ID],
            eligible_leader_replicas=[2],
        ),
        2,
        f"""
        00000001 {ID.hex}
        03 00000001 00000002
        02 00000001
        01 01                       # neither removing nor adding
        00000001 00000003 00000004
        02 {ID.hex}
        01 01 05 02 00000002        # tag 1, five bytes
        """,
    ),
    (
        "partition change record v0",
        k.PartitionChangeRecord(partition_id=1, topic_id=ID, isr=[1], leader=-1),
        0,
        f"""
        00000001 {ID.hex}
        02
        00 05 02 00000001           # tag 0: in sync
        01 04 ffffffff              # tag 1: no leader
        """,
    ),
    (
        "broker record v3",
        k.RegisterBrokerRecord(
            broker_id=1,
            is_migrating_zk_broker=False,
            incarnation_id=ID,
            broker_epoch=2,
            end_points=[
                k.RegisterBrokerRecord.BrokerEndpoint(
                    name="P", host="h", port=65535, security_protocol=0
                )
            ],
            features=[],
            rack="r",
            fenced=True,
            in_controlled_shutdown=False,
            log_dirs=[ID],
        ),
        3,
        f"""
        00000001 00 {ID.hex} 0000000000000002
        02 02 50 02 68 ffff 0000 00
        01 02 72 01 00
        01 00 11 02 {ID.hex}
        """,
    ),
    ("no-op record", k.NoOpRecord(), 0, "00"),
    (
        "quorum state v1",
        k.QuorumStateData(leader_id=1, leader_epoch=2, voted_id=-1, voted_directory_id=UUID(int=0)),
        1,
        "00000001 00000002 ffffffff 00000000000000000000000000000000 00",
    ),
    (
        "entry of a transaction index",
        k.AbortedTxn(version=0, producer_id=1, first_offset=2, last_offset=3, last_stable_offset=4),
        None,
        "0000 0000000000000001 0000000000000002 0000000000000003 0000000000000004",
    ),
    (
        "entry of an offset index",
        k.OffsetIndexEntry(relative_offset=1, position=4096),
        0,
        "00000001 00001000",
    ),
    (
        "entry of a time index",
        k.TimeIndexEntry(timestamp=1, relative_offset=2),
        0,
        "0000000000000001 00000002",
    ),
    # ---- records
    (
        "record",
        k.Record(
            length=12,
            timestamp_delta=-1,
            offset_delta=64,
            key=None,
            value=b"ab",
            headers=[k.Header(key="h", value=None)],
        ),
        0,
        """
        18                          # length 12, zig-zag
        00
        01                          # -1
        8001                        # 64
        01                          # null
        04 6162
        02 02 68 01                 # one header
        """,
    ),
    # ---- Wafka
    (
        "Wafka request header",
        w.RequestHeader(request_api_key=0, request_api_version=3, correlation_id=1, client_id="c"),
        1,
        "0000 0003 00000001 0001 63",
    ),
    (
        "Wafka produce request",
        w.ProduceRequest(
            acks=1,
            topic_data=[
                w.ProduceRequest.TopicData(
                    name="t",
                    partition_data=[w.ProduceRequest.PartitionData(index=0, records=["a", ""])],
                )
            ],
        ),
        3,
        """
        ffff 0001 00003a98          # no transaction, one acknowledgement, 15 seconds
        00000001 0001 74
        00000001 00000000
        00000002 0001 61 0000
        """,
    ),
]


@pytest.mark.parametrize(
    ("value", "version", "text"), [v[1:] for v in VECTORS], ids=[v[0] for v in VECTORS]
)
def test_bytes_by_hand(value: Any, version: int | None, text: str) -> None:
    data = octets(text)
    assert value.encode(version).hex(" ") == data.hex(" ")
    assert type(value).decode(data, version) == value


def test_a_record_says_its_length() -> None:
    """Twelve bytes follow the length of the record above."""
    data = octets(next(vector[3] for vector in VECTORS if vector[0] == "record"))
    assert len(data) - 1 == 12


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_varints(number: int, text: str) -> None:
    data = k.Record(length=number).encode(0)
    assert data.startswith(bytes.fromhex(text) + b"\0")
    assert k.Record.decode(data, 0).length == number


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (2**63 - 1, "feffffffffffffffff01"),
        (-(2**63), "ffffffffffffffffff01"),
        (2**35, "808080808002"),
    ],
)
def test_varlongs(number: int, text: str) -> None:
    data = k.Record(timestamp_delta=number).encode(0)
    assert data[2:].startswith(bytes.fromhex(text) + b"\0")
    assert k.Record.decode(data, 0).timestamp_delta == number


@pytest.mark.parametrize(
    ("length", "text"),
    [(0, "01"), (126, "7f"), (127, "8001"), (16382, "ff7f"), (16383, "808001")],
)
def test_compact_lengths(length: int, text: str) -> None:
    value = k.SaslAuthenticateRequest(auth_bytes=b"x" * length)
    data = value.encode(2)
    assert data == bytes.fromhex(text) + b"x" * length + b"\0"
    assert k.SaslAuthenticateRequest.decode(data, 2) == value


def test_unknown_tags_by_hand() -> None:
    """Unknown tags keep their bytes, and are written in ascending order among the known ones."""
    data = octets("""
        0000 01 00000000
        03                          # three tagged fields
        01 08 0000000000000005      # known: epoch
        05 02 abcd                  # unknown
        8001 00                     # unknown: tag 128, empty
        """)
    value = k.ApiVersionsResponse.decode(data, 3)
    assert value.finalized_features_epoch == 5
    assert value.unknown_tags == {5: b"\xab\xcd", 128: b""}
    assert value.encode(3) == data
    value.unknown_tags = {128: b"", 5: b"\xab\xcd"}
    assert value.encode(3) == data


def test_a_null_that_takes_two_bytes() -> None:
    """A varint may be written longer than it need be; Kafka reads 80 00 as 0, which is null here."""
    for data in (octets("8000 00 00 00"), octets("00 00 00 00")):
        assert k.MetadataRequest.decode(data, 12).topics is None
    value = k.SyncGroupResponse.decode(octets("00000000 0000 8000 808000 01 00"), 5)
    assert (value.protocol_type, value.protocol_name) == (None, None)
    for text in ("02 00112233445566778899aabbccddeeff 8000 00 01 00 00",):
        assert k.MetadataRequest.decode(octets(text), 12).topics == [
            k.MetadataRequest.Topic(topic_id=ID, name=None)
        ]
    with pytest.raises(DecodeError) as caught:
        k.SyncGroupResponse.decode(octets("00000000 0000 00 00 8000 00"), 5)
    assert str(caught.value) == (
        "SyncGroupResponse v5: assignment: null at offset 8, which this version does not allow"
    )
