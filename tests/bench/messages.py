"""The messages that are measured: contents as a real cluster has them, in versions that all know."""

from __future__ import annotations

import hashlib
import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import kafka_wire as k


@dataclass(frozen=True)
class Case:
    """One message at one version. ``build`` makes a new value; ``copy=False`` leaves fields of bytes as
    memoryviews, which only decoding is measured with."""

    name: str
    version: int
    build: Callable[[], Any]
    copy: bool = True


def _uuid(seed: str) -> uuid.UUID:
    return uuid.UUID(bytes=hashlib.md5(seed.encode()).digest())


def _member(n: int) -> str:
    return f"consumer-orders-{n}-{_uuid(f'member {n}')}"


def _blob(size: int) -> bytes:
    """Bytes for a records field: codecs of messages carry them as they are, whatever they hold."""
    return random.Random(size).randbytes(size)


def heartbeat_request() -> Any:
    return k.HeartbeatRequest(
        group_id="orders-aggregator",
        generation_id=17,
        member_id=_member(1),
        group_instance_id=None,
    )


def api_versions_request() -> Any:
    return k.ApiVersionsRequest(
        client_software_name="apache-kafka-java", client_software_version="3.9.1"
    )


def api_versions_response() -> Any:
    """What a broker of release 4 answers: about 60 keys and its features."""
    features = ("eligible.leader.replicas.version", "group.version", "kraft.version")
    return k.ApiVersionsResponse(
        api_keys=[
            k.ApiVersionsResponse.ApiVersion(
                api_key=key, min_version=key % 3, max_version=key % 14 + 2
            )
            for key in range(62)
        ],
        supported_features=[
            k.ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=0, max_version=1)
            for name in features
        ],
        finalized_features_epoch=7,
        finalized_features=[
            k.ApiVersionsResponse.FinalizedFeatureKey(
                name=name, max_version_level=1, min_version_level=1
            )
            for name in features
        ],
    )


def metadata_response(topics: int, partitions: int) -> Any:
    """Three brokers, three replicas a partition, all in sync, none offline."""
    nodes = (1, 2, 3)
    return k.MetadataResponse(
        brokers=[
            k.MetadataResponse.Broker(
                node_id=node, host=f"broker-{node}.kafka.internal", port=9092, rack=f"eu-1{node}"
            )
            for node in nodes
        ],
        cluster_id="Y2x1c3Rlci1mb3ItYmVuY2g",
        controller_id=2,
        topics=[
            k.MetadataResponse.Topic(
                name=f"shop.orders.events-{topic:03}",
                topic_id=_uuid(f"topic {topic}"),
                partitions=[
                    k.MetadataResponse.Partition(
                        partition_index=partition,
                        leader_id=nodes[(topic + partition) % 3],
                        leader_epoch=4 + partition % 5,
                        replica_nodes=[nodes[(topic + partition + i) % 3] for i in range(3)],
                        isr_nodes=[nodes[(topic + partition + i) % 3] for i in range(3)],
                    )
                    for partition in range(partitions)
                ],
            )
            for topic in range(topics)
        ],
    )


def find_coordinator_response() -> Any:
    return k.FindCoordinatorResponse(
        coordinators=[
            k.FindCoordinatorResponse.Coordinator(
                key="orders-aggregator",
                node_id=2,
                host="broker-2.kafka.internal",
                port=9092,
                error_message=None,
            )
        ]
    )


def list_offsets_response() -> Any:
    return k.ListOffsetsResponse(
        topics=[
            k.ListOffsetsResponse.ListOffsetsTopicResponse(
                name=f"shop.orders.events-{topic:03}",
                partitions=[
                    k.ListOffsetsResponse.ListOffsetsPartitionResponse(
                        partition_index=partition,
                        timestamp=-1,
                        offset=1_000_000 * topic + 1_000 * partition,
                        leader_epoch=4,
                    )
                    for partition in range(12)
                ],
            )
            for topic in range(10)
        ]
    )


def offset_commit_request() -> Any:
    return k.OffsetCommitRequest(
        group_id="orders-aggregator",
        generation_id_or_member_epoch=17,
        member_id=_member(1),
        group_instance_id=None,
        topics=[
            k.OffsetCommitRequest.Topic(
                name=f"shop.orders.events-{topic:03}",
                partitions=[
                    k.OffsetCommitRequest.Partition(
                        partition_index=partition,
                        committed_offset=1_000_000 * topic + 1_000 * partition,
                        committed_leader_epoch=4,
                        committed_metadata="",
                    )
                    for partition in range(12)
                ],
            )
            for topic in range(10)
        ],
    )


def join_group_response() -> Any:
    """What the leader of a group of 20 gets: every member's subscription."""
    return k.JoinGroupResponse(
        generation_id=17,
        protocol_type="consumer",
        protocol_name="cooperative-sticky",
        leader=_member(0),
        member_id=_member(0),
        members=[
            k.JoinGroupResponse.Member(
                member_id=_member(n),
                metadata=k.ConsumerProtocolSubscription(
                    version=3,
                    topics=[f"shop.orders.events-{topic:03}" for topic in range(5)],
                    user_data=None,
                    owned_partitions=[],
                    generation_id=16,
                    rack_id=None,
                ).encode(),
            )
            for n in range(20)
        ],
    )


def describe_configs_response() -> Any:
    """Three topics of 32 configs, each with its synonyms and a line of documentation."""
    return k.DescribeConfigsResponse(
        results=[
            k.DescribeConfigsResponse.DescribeConfigsResult(
                error_message=None,
                resource_type=2,
                resource_name=f"shop.orders.events-{topic:03}",
                configs=[
                    k.DescribeConfigsResponse.DescribeConfigsResourceResult(
                        name=f"segment.setting.number.{n}",
                        value=str(n * 1024),
                        config_source=5,
                        synonyms=[
                            k.DescribeConfigsResponse.DescribeConfigsSynonym(
                                name=f"log.segment.setting.number.{n}",
                                value=str(n * 1024),
                                source=5,
                            )
                        ],
                        config_type=n % 9 + 1,
                        documentation=f"What setting {n} is about, in a sentence of some length.",
                    )
                    for n in range(32)
                ],
            )
            for topic in range(3)
        ]
    )


def produce_request() -> Any:
    """Twelve batches of 16 kB, the default batch.size of Kafka's producer."""
    return k.ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            k.ProduceRequest.TopicProduceData(
                name="shop.orders.events-001",
                partition_data=[
                    k.ProduceRequest.PartitionProduceData(
                        index=partition, records=_blob(16_384 - partition)
                    )
                    for partition in range(12)
                ],
            )
        ],
    )


def fetch_response(topics: int = 2, partitions: int = 8) -> Any:
    """One megabyte of records."""
    size = (1 << 20) // topics // partitions
    return k.FetchResponse(
        session_id=1_284_402_011,
        responses=[
            k.FetchResponse.FetchableTopicResponse(
                topic_id=_uuid(f"topic {topic}"),
                partitions=[
                    k.FetchResponse.PartitionData(
                        partition_index=partition,
                        high_watermark=1_000_000 + partition,
                        last_stable_offset=1_000_000 + partition,
                        log_start_offset=0,
                        aborted_transactions=None,
                        preferred_read_replica=-1,
                        records=_blob(size - partition),
                    )
                    for partition in range(partitions)
                ],
            )
            for topic in range(topics)
        ],
    )


UNCOPIED_FETCH = "FetchResponse, 1 MB of records in one partition, copy=False"
LARGE_METADATA = "MetadataResponse, 200 topics x 12 partitions"

CASES = (
    Case("HeartbeatRequest", 4, heartbeat_request),
    Case("ApiVersionsRequest", 4, api_versions_request),
    Case("ApiVersionsResponse", 4, api_versions_response),
    Case("FindCoordinatorResponse", 6, find_coordinator_response),
    Case("MetadataResponse, 3 topics x 3 partitions", 12, lambda: metadata_response(3, 3)),
    Case(LARGE_METADATA, 12, lambda: metadata_response(200, 12)),
    Case("ListOffsetsResponse", 10, list_offsets_response),
    Case("OffsetCommitRequest", 9, offset_commit_request),
    Case("JoinGroupResponse", 9, join_group_response),
    Case("DescribeConfigsResponse", 4, describe_configs_response),
    Case("ProduceRequest, 200 kB of records", 12, produce_request),
    Case("FetchResponse, 1 MB of records", 17, fetch_response),
    Case("FetchResponse, 1 MB of records, copy=False", 17, fetch_response, copy=False),
    Case(UNCOPIED_FETCH, 17, lambda: fetch_response(1, 1), copy=False),
)
