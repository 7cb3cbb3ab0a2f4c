"""A client that does what changes the broker's files, and knows what was acknowledged."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kafka_wire import (
    AlterUserScramCredentialsRequest,
    ConfigResourceType,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DeleteTopicsRequest,
    ErrorCode,
    IncrementalAlterConfigsRequest,
    InitProducerIdRequest,
    UpdateFeaturesRequest,
)

from krammar.broker import Broker
from krammar.util.turns import finish
from krammar.wire.batches import Record, encode_batch, read_batches
from tests.broker.groups.support import codes, commit_request
from tests.broker.groups.support import fetch as committed_offsets
from tests.broker.requests import create_topic, fetch, list_offset, produce
from tests.broker.support import RawClient

HOUR = "3600000"
PROPERTIES = {
    "krammar.fsync.interval.ms": HOUR,
    "log.cleaner.backoff.ms": HOUR,
    "log.retention.check.interval.ms": HOUR,
    "log.segment.delete.delay.ms": "0",
}
# So that each call of the broker comes up: short segments, and compaction that is always due.
CONFIGS = {
    "cleanup_policy": "compact,delete",
    "internal_segment_bytes": "400",
    "min_cleanable_dirty_ratio": "0",
    "retention_ms": "-1",
    "file_delete_delay_ms": "0",
}

# The errors of coordinators whose log cannot be written; clients retry.
COORDINATOR = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)


def records(number: int, key: bytes) -> bytes:
    """Encode a batch with one numbered record."""
    return encode_batch([Record(timestamp=1_700_000_000_000, key=key, value=b"%040d" % number)])


@dataclass
class Job:
    """A client's requests, and what the broker has acknowledged.

    ``values``    the keys and values by topic and offset
    ``starts``    the log start offsets that topic t can have
    ``commits``   the offsets that can be committed: the last acknowledged one, and later ones without answer
    ``attempted`` all offsets that were committed, acknowledged or not
    ``flushed``   called after each flush of the logs
    ``raised``    the errors of periodic flushes, which `Upkeep` logs
    ``topics``    the topics that exist, by name; None if an answer was an error
    ``setting``, ``iterations``, ``levels``  the values that a topic's setting, a login and a feature can have
    """

    broker: Broker
    client: RawClient
    values: dict[str, dict[int, tuple[bytes, bytes]]] = field(
        default_factory=lambda: {"t": {}, "other": {}}
    )
    starts: set[int] = field(default_factory=lambda: {0})
    commits: set[int] = field(default_factory=lambda: {-1})
    topics: dict[str, bool | None] = field(default_factory=dict)
    setting: set[str] = field(default_factory=lambda: {"1000"})
    iterations: set[int] = field(default_factory=set)
    levels: set[int] = field(default_factory=lambda: {1})
    cluster_id: str = ""
    producer_ids: list[int] = field(default_factory=list)
    errors: list[tuple[str, ErrorCode]] = field(default_factory=list)
    attempted: set[int] = field(default_factory=set)
    flushed: Callable[[], None] = lambda: None
    raised: list[str] = field(default_factory=list)
    number: int = 0

    def _noted(self, what: str, code: int) -> bool:
        if code:
            self.errors.append((what, ErrorCode(code)))
        return not code

    def produce(self, topic: str, key: bytes = b"k") -> bool:
        self.number += 1
        answer = produce(self.client, topic, records(self.number, key))
        if self._noted(f"produce {topic}", answer.error_code):
            self.values[topic][answer.base_offset] = key, b"%040d" % self.number
        return not answer.error_code

    def commit(self, offset: int) -> None:
        self.commits.add(offset)
        self.attempted.add(offset)
        code = codes(self.client.call(commit_request({0: offset}), 9))[0]
        if self._noted("commit", code):
            self.commits = {offset}

    def create(self, name: str) -> None:
        known, self.topics[name] = self.topics.get(name, False), None
        topic = CreateTopicsRequest.CreatableTopic(
            name=name, num_partitions=1, replication_factor=1
        )
        answer = self.client.call(CreateTopicsRequest(topics=[topic], timeout_ms=10000), 7)
        code = answer.topics[0].error_code
        if code == ErrorCode.TOPIC_ALREADY_EXISTS and known is not False:
            code = 0  # the deletion has failed
        ok = self._noted("create", code)
        self.topics[name] = True if ok else None

    def delete(self, name: str) -> None:
        known, self.topics[name] = self.topics[name], None
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=10000)
        code = self.client.call(request, 5).responses[0].error_code
        if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not known:
            code = 0  # the creation has failed
        self.topics[name] = False if self._noted("delete", code) else None

    def delete_records(self, before: int) -> None:
        self.starts.add(before)
        partition = DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=before)
        topic = DeleteRecordsRequest.DeleteRecordsTopic(name="t", partitions=[partition])
        answer = self.client.call(DeleteRecordsRequest(topics=[topic], timeout_ms=1000), 2)
        if self._noted("delete records", answer.topics[0].partitions[0].error_code):
            self.starts = {before}

    def configure(self, value: str) -> None:
        self.setting.add(value)
        change = IncrementalAlterConfigsRequest.AlterableConfig(
            name="max.message.bytes", config_operation=0, value=value
        )
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=ConfigResourceType.TOPIC, resource_name="other", configs=[change]
        )
        answer = self.client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        if self._noted("configure", answer.responses[0].error_code):
            self.setting = {value}

    def add_login(self, iterations: int) -> None:
        self.iterations.add(iterations)
        login = AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
            name="alice",
            mechanism=1,
            iterations=iterations,
            salt=b"salt",
            salted_password=bytes(32),
        )
        answer = self.client.call(AlterUserScramCredentialsRequest(upsertions=[login]), 0)
        if self._noted("login", answer.results[0].error_code):
            self.iterations = {iterations}

    def set_feature(self, level: int) -> None:
        self.levels.add(level)
        update = UpdateFeaturesRequest.FeatureUpdateKey(
            feature="group.version", max_version_level=level, upgrade_type=1 + (level == 0)
        )
        answer = self.client.call(UpdateFeaturesRequest(feature_updates=[update]), 1)
        if self._noted("feature", answer.error_code):
            self.levels = {level}

    def new_producer(self) -> None:
        answer = self.client.call(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4
        )
        if self._noted("producer id", answer.error_code):
            self.producer_ids.append(answer.producer_id)

    def use_up_producer_ids(self) -> None:
        """The next one needs a new block, which is a record of the metadata."""
        self.broker.call(lambda: list(self.broker.transactions.ids._block))

    def keep(self) -> None:
        """Run the broker's periodic tasks."""

        def work() -> None:
            logs = self.broker.logs
            for _ in range(2):
                try:
                    logs.flush()
                    self.flushed()
                except OSError as error:
                    self.raised.append(str(error))
                finish(logs.maintaining())
                logs.cleaner.compact()
            self.broker.cluster._snapshot()

        self.broker.call(work)

    def begin(self) -> None:
        create_topic(self.client, "t", **CONFIGS)
        create_topic(self.client, "other", max_message_bytes="1000", retention_ms="-1")
        self.produce("t", b"first")
        self.produce("other")
        self.commit(0)
        self.new_producer()
        self.add_login(5000)
        self.cluster_id = self.broker.cluster.cluster_id
        assert self.errors == []

    def work(self, place: tuple[str, str] = ("", "")) -> None:
        """All that changes files. Nothing may go wrong with topic other, unless its new name cannot be stored."""
        steps: list[Callable[[], object]] = [
            *(lambda at=at: self.produce("t", b"%d" % (at % 4)) for at in range(8)),  # type: ignore[misc]
            lambda: self.commit(1),
            lambda: self.create("new"),
            lambda: self.configure("2000"),
            lambda: self.add_login(6000),
            lambda: self.set_feature(0),
            self.use_up_producer_ids,
            self.new_producer,
            lambda: self.delete_records(min(2, max(self.values["t"]))),
            self.keep,
            lambda: self.produce("t"),
            lambda: self.delete("new"),
            lambda: self.create("new"),
            lambda: self.commit(2),
            self.keep,
        ]
        for step in steps:
            step()
            assert self.produce("other") or place == ("fsync", "."), self.errors

    def check(self, broker: Broker, client: RawClient) -> None:
        """Check that nothing acknowledged is lost."""
        self.broker, self.client = broker, client
        for topic, values in self.values.items():
            start = list_offset(client, topic, -2).offset
            assert start <= (max(self.starts) if topic == "t" else 0)
            found = everything(client, topic, start)
            assert all(int(value) <= self.number for _, value in found.values())
            newest = {key: offset for offset, (key, _) in sorted(found.items())}
            for offset, (key, value) in values.items():
                # Records were deleted before the start of topic t, and compaction removes older ones of a key.
                gone = topic == "t" and (offset < start or newest.get(key, -1) > offset)
                assert gone or found.get(offset) == (key, value), (topic, offset)
        for name, exists in self.topics.items():
            assert exists in (None, name in broker.cluster.topics)
        committed, _, code = committed_offsets(client, 7)["t", 0]
        assert code == 0
        assert committed in self.commits
        assert broker.cluster.configs[2, "other"]["max.message.bytes"] in self.setting
        [login] = broker.cluster.scram.values()
        assert login.iterations in self.iterations
        assert broker.cluster.features.get("group.version", 0) in self.levels
        assert broker.cluster.cluster_id == self.cluster_id
        issued = list(self.producer_ids)
        self.new_producer()
        assert self.producer_ids.pop() not in issued


def everything(client: RawClient, topic: str, offset: int) -> dict[int, tuple[bytes, bytes]]:
    """The keys and values of a topic by their offsets."""
    found: dict[int, tuple[bytes, bytes]] = {}
    while True:
        answer = fetch(client, topic, offset)
        assert answer.error_code == 0, (topic, offset, answer)
        if not answer.records:
            return found
        for one in read_batches(answer.records):
            offset = one.next_offset
            for record in one:
                assert record.key is not None and record.value is not None
                found[record.offset] = record.key, record.value


@contextlib.contextmanager
def started(folder: Path, fsync: str) -> Iterator[tuple[Broker, RawClient]]:
    """Start a broker on a folder, with a client."""
    with (
        Broker.start(data_dir=folder, properties={**PROPERTIES, "krammar.fsync": fsync}) as broker,
        RawClient(broker.port) as client,
    ):
        yield broker, client
