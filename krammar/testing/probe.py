"""What tests ask about a broker, answered in its process from its own state: records, groups, topics."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, cast
from uuid import UUID

from kafka_wire import AccessControlEntryRecord, ConfigResourceType, ErrorCode

from krammar.auth.scram import BY_NAME
from krammar.auth.scram_server import new_credential
from krammar.authorization.acls import Acl
from krammar.broker import Broker, ConfigError
from krammar.broker.cluster import TRANSACTIONS_TOPIC
from krammar.broker.errors import ApiError
from krammar.broker.meta_properties import random_uuid
from krammar.broker.quotas.entities import check_quota_entity, check_quota_value, quota_record
from krammar.broker.recent import RecentRequests
from krammar.broker.security.users import record_of
from krammar.testing.client_metrics import ClientMetricsPush, Pushes
from krammar.testing.groups import Group, groups_of, settled_ms
from krammar.testing.records import Batch, Record, Seed, batch_within, batches_of
from krammar.util.clock import monotonic
from krammar.wire.batches import Record as KafkaRecord

if TYPE_CHECKING:
    from kafka_wire import PushTelemetryRequest

    from krammar.broker.fetch_sessions import Key
    from krammar.broker.log.log import Appended, PartitionLog
    from krammar.broker.node import Node
    from krammar.broker.session import Session
    from krammar.testing.share_groups import ShareGroup


# How a transaction of ``append_transaction`` can end.
TRANSACTIONS = ("committed", "aborted", "open")
# After this, in milliseconds, an open one is aborted: the default of Kafka's producers.
_TRANSACTION_TIMEOUT_MS = 60_000
# How many partitions an error message names.
_NAMED = 20


class Probe(Protocol):
    """The questions and changes of tests. ``BrokerProbe`` answers them in the broker's process."""

    def add_users(self, mechanism: str, passwords: Mapping[str, str]) -> None:
        """Add users of SCRAM, with their passwords by name."""

    def add_acls(self, acls: Sequence[tuple[Any, ...]]) -> None:
        """Add ACLs, as the fields of ``krammar.authorization.acls.Acl``."""

    def set_quotas(
        self, entity: Mapping[str, str | None], values: Mapping[str, float | None]
    ) -> None:
        """Set quotas of an entity, by key; None removes one. Raises ConfigError."""

    def subscribe(self, name: str, settings: Mapping[str, str]) -> None:
        """Ask clients for metrics, with the settings of a subscription."""

    def create_topic(self, name: str, partitions: int | None) -> None:
        """Create a topic. Raises ConfigError if it exists."""

    def append(self, records: Sequence[Seed], topic: str) -> list[Record]:
        """Append records to a topic, which is created if it does not exist."""

    def append_transaction(
        self, records: Sequence[Seed], topic: str, transactional_id: str, outcome: str
    ) -> list[Record]:
        """Append records in a transaction. ``outcome`` is one of ``TRANSACTIONS``."""

    def compact(self, topic: str) -> None:
        """Compact all partitions of a topic at once."""

    def records(self, topic: str, partition: int | None, committed: bool) -> list[Record]:
        """Return the records of a topic, by partition and offset."""

    def produced_by(self, client_id: str) -> list[Record]:
        """Return what a client has produced, in the order of arrival."""

    def groups(self) -> dict[str, Group]:
        """Return the groups, by id."""

    def share_groups(self) -> dict[str, ShareGroup]:
        """Return the share groups, by id."""

    def client_metrics(self) -> list[ClientMetricsPush]:
        """Return what clients have pushed of their metrics, the oldest first."""

    def topics(self) -> dict[str, int]:
        """Return the number of partitions of each topic, by name, without internal topics."""

    def unread(self, group_id: str) -> str:
        """Describe why the members of a group do not read all their partitions yet; empty if they do."""

    def requests(self, since_ns: int) -> list[str]:
        """Return the last requests since a time in nanoseconds since 1970, one line each."""


@dataclass(frozen=True, slots=True)
class _Produced:
    """A batch that a client has produced. Its partition has another log after a restart of the broker."""

    client_id: str | None
    topic_id: UUID
    partition: int
    first: int
    last: int


class BrokerProbe:
    """Notes what clients do, and answers questions. Its methods can be called from any thread.

    Args:
        notes_batches: whether it notes each batch that clients produce, for ``produced_by``
    """

    def __init__(self, broker: Broker, *, notes_batches: bool = True) -> None:
        self._broker = broker
        self._notes_batches = notes_batches
        self._produced: list[_Produced] = []
        # The end of each partition after the last batch of a client.
        self._ends: dict[tuple[UUID, int], int] = {}
        # When clients have fetched partitions last, by ``monotonic``.
        self._fetched: dict[tuple[str | None, str, int], float] = {}
        self._recent = RecentRequests()
        self._pushes = Pushes()
        for node in broker.nodes.values():
            self._attach(node)
        broker.equipped.append(self._attach)

    def _attach(self, node: Node) -> None:
        """Observe a node. Its handlers are others after a restart."""
        from krammar.broker.handlers.fetch import FetchHandlers
        from krammar.broker.handlers.produce import ProduceHandlers

        node.connections.recent = self._recent
        if self._notes_batches:
            node.handlers.of(ProduceHandlers).appended.append(self._note)
        node.handlers.of(FetchHandlers).fetched.append(self._note_fetch)
        if node.config.client_telemetry:
            from krammar.broker.handlers.telemetry import TelemetryHandlers

            node.handlers.of(TelemetryHandlers).receivers.append(self._note_push)

    def _note_push(self, session: Session, request: PushTelemetryRequest, data: bytes) -> None:
        self._pushes.add(
            ClientMetricsPush(
                session.client_id,
                request.client_instance_id,
                *session.software,
                self._broker.timers.now_ms(),
                request.terminating,
                data,
            )
        )

    def _note_fetch(self, client_id: str | None, partitions: Iterable[Key]) -> None:
        now, by_id = monotonic(), self._broker.cluster.topics_by_id
        for topic, partition in partitions:
            if isinstance(topic, UUID):
                found = by_id.get(topic)
                topic = "" if found is None else found.name
            self._fetched[client_id, topic, partition] = now

    def _note(self, client_id: str | None, log: PartitionLog, appended: Appended) -> None:
        if not appended.duplicate:
            place, first, last = (
                (log.topic_id, log.partition),
                appended.base_offset,
                appended.last_offset,
            )
            if first < self._ends.get(place, 0):  # the log was truncated
                self._produced = [
                    each
                    for each in self._produced
                    if (each.topic_id, each.partition) != place or each.last < first
                ]
            self._ends[place] = last + 1
            self._produced.append(_Produced(client_id, *place, first, last))

    def _log(self, produced: _Produced) -> PartitionLog | None:
        topic = self._broker.cluster.topics_by_id.get(produced.topic_id)
        return None if topic is None else self._broker.logs.get(topic.name, produced.partition)

    def add_users(self, mechanism: str, passwords: Mapping[str, str]) -> None:
        """Add users of SCRAM, with their passwords by name."""
        kind = BY_NAME[mechanism]
        records = [
            record_of(name, kind, new_credential(kind, password))
            for name, password in passwords.items()
        ]
        self._broker.call(self._broker.cluster.append, records)

    def add_acls(self, acls: Sequence[tuple[Any, ...]]) -> None:
        """Add ACLs, as the fields of ``Acl``; those that exist already count as added."""
        cluster = self._broker.cluster

        def add() -> None:
            known = {Acl.of(record) for record in cluster.acls.values()}
            new = dict.fromkeys(Acl(*each) for each in acls)
            cluster.append(
                [
                    AccessControlEntryRecord(id=random_uuid(), **each._asdict())
                    for each in new
                    if each not in known
                ]
            )

        self._broker.call(add)

    def set_quotas(
        self, entity: Mapping[str, str | None], values: Mapping[str, float | None]
    ) -> None:
        """Set quotas of an entity, by key; None removes one. Raises ConfigError."""
        try:
            check_quota_entity(entity)
            for key, value in values.items():
                if value is not None:
                    check_quota_value(entity, key, value)
        except ApiError as error:
            raise ConfigError("quotas", None, error.message or error.code.name) from None
        records = [quota_record(entity, key, value) for key, value in values.items()]
        self._broker.call(self._broker.cluster.append, records)

    def subscribe(self, name: str, settings: Mapping[str, str]) -> None:
        """Ask clients for metrics, with the settings of a subscription, which are valid."""
        broker = self._broker
        broker.call(broker.topics.set_configs, ConfigResourceType.CLIENT_METRICS, name, settings)

    def create_topic(self, name: str, partitions: int | None) -> None:
        """Create a topic. Raises ConfigError if it exists."""
        broker = self._broker

        def create() -> None:
            if name in broker.cluster.topics:
                raise ConfigError("topics", name, "exists already")
            broker.topics.create(name, partitions or broker.config.num_partitions)

        broker.call(create)

    def append(self, records: Sequence[Seed], topic: str) -> list[Record]:
        """Append records to a topic, which is created if it does not exist, and return them as stored.

        Raises:
            ValueError: the topic has no such partition, or the log refuses a record.
        """
        return self._broker.call(lambda: self._append(self._placed(records, topic)))

    def append_transaction(
        self, records: Sequence[Seed], topic: str, transactional_id: str, outcome: str
    ) -> list[Record]:
        """Append records in a transaction. Raises ValueError as ``append``, and if the transaction is refused.

        An open transaction of the same transactional id is aborted before, as by a new producer.

        Args:
            outcome: one of ``TRANSACTIONS``
        """

        def append() -> list[Record]:
            placed = self._placed(records, topic)
            transactions = self._broker.transactions
            try:
                producer = self._producer(transactional_id)
                identity = transactional_id, *producer
                partitions = {(topic, log.partition): None for _, log in placed}
                transactions.add_partitions(identity, partitions, 0)
                stored = self._append(placed, producer)
                if outcome != "open":
                    transactions.end(identity, outcome == "committed", 0)
            except ApiError as error:
                raise ValueError(f"transaction of {transactional_id!r}: {error}") from None
            return stored

        return self._broker.call(append)

    def _producer(self, transactional_id: str) -> tuple[int, int]:
        """Return the producer id and epoch of a new producer. Raises ApiError."""
        broker = self._broker
        broker.topics.ensure_internal(TRANSACTIONS_TOPIC)
        for _ in range(2):
            try:
                return broker.transactions.init_producer_id(
                    transactional_id, _TRANSACTION_TIMEOUT_MS, None
                )
            except ApiError as error:
                if error.code is not ErrorCode.CONCURRENT_TRANSACTIONS:
                    raise
                refused = error  # the open transaction was aborted; the next attempt succeeds
        raise refused

    def _placed(self, records: Sequence[Seed], topic: str) -> list[tuple[Seed, PartitionLog]]:
        """Return the log for each record. The topic is created if it does not exist."""
        # Most tests store no records by key, and the client library takes a while to load.
        from krammar.client.partitioner import partition_of_key

        broker = self._broker
        known = broker.cluster.topics.get(topic)
        if known is None:
            broker.topics.create(topic, broker.config.num_partitions)
            known = broker.cluster.topics[topic]
        count = len(known.partitions)
        keyless = 0
        placed = []
        for each in records:
            index = each.partition
            if index is None and each.key is not None:
                index = partition_of_key(each.key, count)
            elif index is None:
                index, keyless = keyless % count, keyless + 1
            log = broker.logs.get(topic, index)
            if log is None:
                raise ValueError(
                    f"topic {topic!r} has no partition {index}, but {count} partitions"
                )
            placed.append((each, log))
        return placed

    def _append(
        self,
        placed: Iterable[tuple[Seed, PartitionLog]],
        producer: tuple[int, int] | None = None,
    ) -> list[Record]:
        """Append each record as a batch; of a transaction if there is a ``producer`` with its epoch."""
        stored = []
        for each, log in placed:
            timestamp = each.timestamp
            if timestamp is None:
                timestamp = self._broker.timers.now_ms()
            record = KafkaRecord(-1, timestamp, each.key, each.value, list(each.headers))
            producer_id, epoch = producer or (-1, -1)
            batch = log.encode_records(
                [record],
                producer_id=producer_id,
                producer_epoch=epoch,
                is_transactional=producer is not None,
            )
            try:
                appended = log.append_encoded(batch)
            except ApiError as error:
                raise ValueError(
                    f"{log.topic}-{log.partition}: {error.message or error.code.name}"
                ) from None
            place = log.topic, log.partition, appended.base_offset
            stored.append(Record(*place, timestamp, each.key, each.value, each.headers))
        return stored

    def compact(self, topic: str) -> None:
        """Compact all partitions of a topic at once. Raises ValueError."""
        broker = self._broker

        def compact() -> None:
            known = broker.cluster.topics.get(topic)
            if known is None:
                raise ValueError(f"topic {topic!r} does not exist")
            logs = [broker.logs.get(topic, index) for index in sorted(known.partitions)]
            for log in filter(None, logs):
                if not log.config.compacts:
                    raise ValueError(
                        f"topic {topic!r} is not compacted: create it with cleanup.policy=compact"
                    )
                try:
                    broker.logs.cleaner.compact_now(log)
                except ApiError as error:
                    raise ValueError(f"{topic}-{log.partition}: {error}") from None

        broker.call(compact)

    def records(self, topic: str, partition: int | None, committed: bool) -> list[Record]:
        """Return the records of a topic, by partition and offset; none if it does not exist.

        Args:
            committed: whether records of open and aborted transactions are left out
        """
        broker = self._broker

        def read() -> list[Batch]:
            found = broker.cluster.topics.get(topic)
            indexes = sorted(found.partitions) if found is not None else []
            logs = (broker.logs.get(topic, at) for at in indexes if partition in (None, at))
            return [
                b for log in logs if log is not None for b in batches_of(log, committed=committed)
            ]

        # Records are decoded here, not in the broker's loop, so that clients need not wait.
        return [record for batch in broker.call(read) for record in batch.records()]

    def produced_by(self, client_id: str) -> list[Record]:
        """Return what a client has produced, in the order of arrival, without deleted records."""

        def read() -> list[tuple[_Produced, Batch | None]]:
            return [
                (each, batch_within(log, each.first, each.last))
                for each in self._produced
                if each.client_id == client_id and (log := self._log(each)) is not None
            ]

        return [
            record
            for produced, batch in self._broker.call(read)
            if batch is not None
            for record in batch.records()
            if produced.first <= record.offset <= produced.last
        ]

    def groups(self) -> dict[str, Group]:
        """Return the groups, by id."""
        coordinators = [node.groups for node in self._broker.nodes.values()]
        return self._broker.call(groups_of, coordinators, self._broker.cluster, self._broker.logs)

    def share_groups(self) -> dict[str, ShareGroup]:
        """Return the share groups, by id."""
        return self._broker.call(self._share_groups)

    def _share_groups(self) -> dict[str, ShareGroup]:
        from krammar.broker.handlers.share_fetch import ShareFetchHandlers
        from krammar.testing.share_groups import share_groups_of

        broker = self._broker
        led = [
            each
            for node in broker.nodes.values()
            for each in node.handlers.of(ShareFetchHandlers).partitions
        ]
        coordinators = [node.groups for node in broker.nodes.values()]
        return share_groups_of(coordinators, led, broker.share_states, broker.cluster)

    def client_metrics(self) -> list[ClientMetricsPush]:
        """Return what clients have pushed of their metrics, the oldest first."""
        return self._broker.call(self._pushes.all)

    def topics(self) -> dict[str, int]:
        """Return the number of partitions of each topic, by name, without internal topics."""
        topics = self._broker.cluster.topics
        return self._broker.call(
            lambda: {t.name: len(t.partitions) for t in topics.values() if not t.internal}
        )

    def requests(self, since_ns: int) -> list[str]:
        """Return the last requests since a time in nanoseconds since 1970, one line each.

        The broker's loop takes no part, so that the answer comes even if it is blocked.
        """
        from krammar.testing.requests import request_lines  # only tests that fail need it

        nodes = self._broker.nodes.values()
        is_open = {each.number for node in nodes for each in list(node.connections.open)}
        found = [each for each in self._recent.exchanges.copy() if each.request.time_ns >= since_ns]
        return request_lines(found, is_open)

    def unread(self, group_id: str) -> str:
        """Describe why the members of a group do not read all their partitions yet; empty if they do."""
        return self._broker.call(self._unread, group_id)

    def _unread(self, group_id: str) -> str:
        group = self.groups().get(group_id)
        if group is None:
            return "does not exist"
        if group.state != "Stable":
            return f"is in the state {group.state}"
        if not any(member.partitions for member in group.members):
            return "has no partitions"
        # A fetch from before the last rebalance can be another member's.
        coordinated = (
            (node.timers, each)
            for node in self._broker.nodes.values()
            for each in node.groups.all_groups()
        )
        timers, kafka_group = next(
            (timers, each) for timers, each in coordinated if each.group_id == group_id
        )
        since = monotonic() - (timers.now_ms() - settled_ms(kafka_group)) / 1000
        unread = [
            f"{topic}-{partition}"
            for member in group.members
            for topic, partition in member.partitions
            if self._fetched.get((member.client_id, topic, partition), -math.inf) < since
        ]
        return f"does not fetch {', '.join(unread[:_NAMED])} yet" if unread else ""


def append_seeds(
    probe: Probe,
    records: Sequence[Seed],
    topic: str,
    transaction: str | None,
    transactional_id: str | None,
) -> list[Record]:
    """Append records, in a transaction if ``transaction`` is one of ``TRANSACTIONS``. Raises ValueError."""
    if transaction is None and transactional_id is None:
        return probe.append(records, topic)
    if transaction not in TRANSACTIONS:
        known = ", ".join(map(repr, TRANSACTIONS))
        raise ValueError(f"transaction: {transaction!r} is not one of {known}")
    if transactional_id is None:
        transactional_id = f"seed-{os.urandom(4).hex()}"
    return probe.append_transaction(records, topic, transactional_id, transaction)


def remote_probe(call: Callable[..., Any]) -> Probe:
    """Return what asks the probe in the process of a broker. ``call`` calls its methods by name."""
    return cast("Probe", _Remote(call))


class _Remote:
    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self._call, name)
