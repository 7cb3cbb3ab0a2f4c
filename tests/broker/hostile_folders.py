"""What must hold of broker, inspect and Spark's reader on the folder of a stranger."""

from __future__ import annotations

import logging
import resource
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import kafka_wire as kw

from krammar.broker import Broker
from krammar.broker.config import ConfigError
from krammar.broker.errors import BrokerError
from krammar.inspect.files import FilesError, inspect_path
from krammar.logfiles.names import METADATA_TOPIC
from krammar.spark.errors import SparkSourceError
from krammar.spark.logs.source import LogReader, schema
from krammar.spark.options import Options
from krammar.util.turns import finish
from krammar.wire.batches import Record, encode_batch, read_headers
from tests.broker.hostile_records import MEMBER, ORDERS, Case
from tests.broker.support import RawClient

SETTINGS = {
    "krammar.fsync": "off",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
# The time of all programs on one folder, and the memory that the process may need more than before. They usually need
# less than a second and no memory.
SECONDS = 60.0
MEMORY = 192 << 20
# After which sessions, retention and transactions have expired.
LONG_MS = 30 * 24 * 3600 * 1000


# Folders.


def append(data: Path, case: Case) -> Path:
    """Append the records of a case to the log of its topic, as one batch. Returns the file."""
    path = max((data / f"{case.topic}-0").glob("*.log"))
    content = path.read_bytes()
    end = max((header.next_offset for header in read_headers(content)), default=0)
    batch = encode_batch(list(case.records), base_offset=end, partition_leader_epoch=1)
    path.write_bytes(content + batch)
    return path


def listing(root: Path, without: Path) -> dict[str, bytes | None]:
    """The files and folders below ``root`` that are not in one folder, with their content."""
    return {
        str(path.relative_to(root)): path.read_bytes() if path.is_file() else None
        for path in sorted(root.rglob("*"))
        if without not in path.parents and path != without
    }


def fill(data: Path) -> None:
    """Write an ordinary folder: a topic with records, a group with offsets, an open transaction."""
    with (
        Broker.start(data_dir=data, properties=SETTINGS) as broker,
        RawClient(broker.port) as client,
    ):
        broker.call(lambda: finish(broker.topics.creating("orders", 2, topic_id=ORDERS)))
        produce(client, "orders", ORDERS)
        client.call(
            kw.OffsetCommitRequest(
                group_id="group",
                topics=[
                    kw.OffsetCommitRequest.Topic(
                        name="orders",
                        partitions=[
                            kw.OffsetCommitRequest.Partition(partition_index=0, committed_offset=1)
                        ],
                    )
                ],
            ),
            8,
        )
        client.call(kw.FindCoordinatorRequest(key="t", key_type=1), 1)
        client.call(
            kw.InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000), 4
        )
        client.call(kw.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t", v3_and_below_producer_id=0, v3_and_below_producer_epoch=0,
            v3_and_below_topics=[kw.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="orders", partitions=[0])],
        ), 3)  # fmt: skip


def produce(client: RawClient, topic: str, topic_id: UUID) -> Any:
    batch = encode_batch([Record(value=b"value")])
    return client.call(
        kw.ProduceRequest(
            acks=-1,
            timeout_ms=1000,
            topic_data=[
                kw.ProduceRequest.TopicProduceData(
                    topic_id=topic_id,
                    partition_data=[kw.ProduceRequest.PartitionProduceData(index=0, records=batch)],
                )
            ],
        )
    )


# Visits.


class NewestClient(RawClient):
    """Sends each request in the newest version that the broker serves."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        asked = kw.ApiVersionsRequest(client_software_name="t", client_software_version="1")
        self.newest = {each.api_key: each.max_version for each in super().call(asked, 3).api_keys}

    def call(self, request: Any, version: int | None = None) -> Any:
        return super().call(request, self.newest[request.api_key] if version is None else version)


def requests(client: RawClient) -> Iterator[str]:
    """Send one request after another about everything that the folder contains. Yields the name of the next one."""
    topics = client.call(kw.MetadataRequest(topics=None)).topics
    names = [topic.name for topic in topics if topic.name is not None][:20]
    ids = {topic.name: topic.topic_id for topic in topics}
    yield "ListGroups"
    groups = [group.group_id for group in client.call(kw.ListGroupsRequest()).groups][:300]
    groups = list(dict.fromkeys([*groups, "group", "classic"]))
    yield "ListTransactions"
    transactions = client.call(kw.ListTransactionsRequest()).transaction_states
    transactional = list(dict.fromkeys([*(t.transactional_id for t in transactions), "t"]))[:100]
    for name in names:
        if not name.startswith("__"):
            yield f"Produce {name[:50]}"
            produce(client, name, ids[name])
    for name in names:
        yield f"Fetch {name[:50]}"
        client.call(kw.FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=1 << 20,
            topics=[kw.FetchRequest.FetchTopic(topic_id=ids[name], partitions=[
                kw.FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
            ])],
        ))  # fmt: skip
    for request in _about_topics(names):
        yield type(request).__name__
        client.call(request)
    for group in groups:
        for request in _about_group(group):
            yield f"{type(request).__name__} {group[:50]!r}"
            client.call(request)
    for name in transactional:
        for request in _about_transaction(name):
            yield f"{type(request).__name__} {name[:50]!r}"
            client.call(request)
    for request in (
        kw.InitProducerIdRequest(transactional_id=None),
        kw.DescribeClusterRequest(),
        kw.DescribeQuorumRequest(
            topics=[kw.DescribeQuorumRequest.TopicData(topic_name=METADATA_TOPIC, partitions=[
                kw.DescribeQuorumRequest.PartitionData(partition_index=0)
            ])]
        ),
        kw.DescribeLogDirsRequest(topics=None),
        kw.DescribeUserScramCredentialsRequest(users=None),
        kw.DescribeClientQuotasRequest(),
        kw.ApiVersionsRequest(client_software_name="t", client_software_version="1"),
        kw.CreateTopicsRequest(topics=[
            kw.CreateTopicsRequest.CreatableTopic(name="created", num_partitions=1, replication_factor=1)
        ]),
        kw.ElectLeadersRequest(election_type=0, topic_partitions=None),
        kw.DeleteGroupsRequest(groups_names=groups),
        kw.DeleteTopicsRequest(topics=[
            kw.DeleteTopicsRequest.DeleteTopicState(name=name) for name in names if not name.startswith("__")
        ]),
        kw.MetadataRequest(topics=None),
    ):  # fmt: skip
        yield type(request).__name__
        client.call(request)


def _about_topics(names: Sequence[str]) -> Iterator[Any]:
    yield kw.ListOffsetsRequest(topics=[
        kw.ListOffsetsRequest.ListOffsetsTopic(name=name, partitions=[
            kw.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        ])
        for name in names for timestamp in (-1, -2, -3, 0)
    ])  # fmt: skip
    yield kw.DescribeTopicPartitionsRequest(topics=[
        kw.DescribeTopicPartitionsRequest.TopicRequest(name=name) for name in names
    ])  # fmt: skip
    yield kw.DescribeProducersRequest(topics=[
        kw.DescribeProducersRequest.TopicRequest(name=name, partition_indexes=[0]) for name in names
    ])  # fmt: skip
    resources = [*((2, name) for name in names), (4, "1"), (4, ""), (32, "group")]
    yield kw.DescribeConfigsRequest(
        resources=[
            kw.DescribeConfigsRequest.DescribeConfigsResource(
                resource_type=kind, resource_name=name
            )
            for kind, name in resources
        ],
        include_synonyms=True,
    )
    for kind, name in resources:
        yield kw.IncrementalAlterConfigsRequest(resources=[
            kw.IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=kind, resource_name=name, configs=[
                    kw.IncrementalAlterConfigsRequest.AlterableConfig(
                        name="retention.ms", config_operation=0, value="100000")
                ]
            )
        ])  # fmt: skip
    yield kw.CreatePartitionsRequest(topics=[
        kw.CreatePartitionsRequest.CreatePartitionsTopic(name=name, count=5, assignments=None) for name in names
    ])  # fmt: skip
    yield kw.DeleteRecordsRequest(topics=[
        kw.DeleteRecordsRequest.DeleteRecordsTopic(name=name, partitions=[
            kw.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=-1)
        ])
        for name in names
    ])  # fmt: skip


def _about_group(group: str) -> Iterator[Any]:
    yield kw.OffsetFetchRequest(
        groups=[kw.OffsetFetchRequest.Group(group_id=group, topics=None)], require_stable=True
    )
    yield kw.DescribeGroupsRequest(groups=[group])
    yield kw.ConsumerGroupDescribeRequest(group_ids=[group])
    yield kw.HeartbeatRequest(group_id=group, generation_id=3, member_id=MEMBER)
    yield kw.SyncGroupRequest(group_id=group, generation_id=3, member_id=MEMBER)
    yield kw.ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=MEMBER, member_epoch=3, rebalance_timeout_ms=1000,
        subscribed_topic_names=["orders"], topic_partitions=[],
    )  # fmt: skip
    yield kw.ConsumerGroupHeartbeatRequest(
        group_id=group, member_id="another", member_epoch=0, rebalance_timeout_ms=1000,
        subscribed_topic_names=["orders"], topic_partitions=[],
    )  # fmt: skip
    yield kw.OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1)
    yield kw.LeaveGroupRequest(
        group_id=group, members=[kw.LeaveGroupRequest.MemberIdentity(member_id=MEMBER)]
    )


def _about_transaction(name: str) -> Iterator[Any]:
    yield kw.DescribeTransactionsRequest(transactional_ids=[name])
    yield kw.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    yield kw.InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    yield kw.EndTxnRequest(transactional_id=name, producer_id=7, producer_epoch=3, committed=True)


@dataclass(eq=False)
class Seen(logging.Handler):
    """What a broker has logged."""

    lines: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(logging.DEBUG)

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        self.lines.append(text)
        if record.levelno >= logging.WARNING and (record.exc_info or "Traceback" in text):
            self.failures.append(text)


@dataclass
class Outcome:
    """Why each program has refused a folder, by its name, what went wrong, and what the broker has logged."""

    refusals: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)


def examine(data: Path, **properties: str) -> Outcome:
    """Run inspect, Spark's reader and a broker on a folder. Nothing else below its parent's parent may change."""
    root = data.parent.parent
    outcome = Outcome()
    before = listing(root, without=data)
    begin = time.monotonic()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    _inspect(data, outcome)
    _read_with_spark(data, outcome)
    seen = Seen()
    loggers = [logging.getLogger(name) for name in ("krammar", "asyncio")]
    for logger in loggers:
        logger.addHandler(seen)
    try:
        _serve(data, {**SETTINGS, **properties}, outcome)
    finally:
        for logger in loggers:
            logger.removeHandler(seen)
    if (seconds := time.monotonic() - begin) > SECONDS:
        outcome.problems.append(f"took {seconds:.1f} s")
    more = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) << 10
    if more > MEMORY:
        outcome.problems.append(f"needed {more >> 20} MiB")
    after = listing(root, without=data)
    if after != before:
        different = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        outcome.problems.append(f"changed outside of the folder: {sorted(different)}")
    outcome.problems += seen.failures
    outcome.lines = seen.lines
    return outcome


def _inspect(data: Path, outcome: Outcome) -> None:
    try:
        for item in inspect_path(str(data), records=True):
            item.as_json()
            item.as_text()
    except FilesError as error:
        outcome.refusals["inspect"] = str(error)
    except Exception as error:
        outcome.problems.append(f"inspect: {type(error).__name__}: {error}")


def _read_with_spark(data: Path, outcome: Outcome) -> None:
    try:
        options = Options({"source": "logs", "path": str(data), "failOnDataLoss": "false"})
        reader = LogReader(options, schema(options))
        for task in reader.partitions():
            for _ in reader.read(task):
                pass
    except SparkSourceError as error:
        outcome.refusals["spark"] = str(error)
    except Exception as error:
        outcome.problems.append(f"spark: {type(error).__name__}: {error}")


def _serve(data: Path, properties: dict[str, str], outcome: Outcome) -> None:
    at = "start"
    try:
        with Broker.start(data_dir=data, properties=properties) as broker:
            with NewestClient(broker.port) as client:
                at = "Metadata"
                for at in requests(client):  # noqa: B007  for the message
                    pass
                at = "clock"
                broker.advance_clock(LONG_MS, members=True)
                client.call(kw.MetadataRequest(topics=None))
            at = "stop"
    except (BrokerError, ConfigError) as error:
        outcome.refusals["broker"] = str(error)
    except Exception as error:
        outcome.problems.append(f"{at}: {type(error).__name__}: {error}")
