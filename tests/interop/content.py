"""What the brokers write for each other: content made through a client, and all that a client can see of it.

``write`` leaves the same content in either broker; ``observe`` reads a broker back into plain values, so
that two brokers on the same folder can be compared with ``==``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.support.waiting import PATIENCE, until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

# Long enough that no open transaction is aborted because of its age.
OPEN_TRANSACTION_MS = 900_000

DYNAMIC = frozenset(
    source.value
    for source in (
        ConfigSource.DYNAMIC_TOPIC_CONFIG,
        ConfigSource.DYNAMIC_BROKER_CONFIG,
        ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
    )
)


@dataclass(frozen=True)
class Written:
    """The state after ``write``, with which tests continue."""

    began: int
    open_transactions: tuple[str, ...] = ("tx-open", "tx-open-offsets")
    groups: tuple[str, ...] = ("g-plain", "g-joined", "g-transactional", "g-pending")
    users: dict[str, str] = field(default_factory=lambda: {"alice": "alice-secret", "bob": "b"})


def settings(bootstrap: str, **more: Any) -> dict[str, Any]:
    """Of a client; names in ``more`` have underscores for dots. Its own log is for emergencies: a client
    outlives the brokers here, and would say so again and again."""
    named = {name.replace("_", "."): value for name, value in more.items()}
    return {"bootstrap.servers": bootstrap, "log_level": 2, **named}


def admin(bootstrap: str) -> AdminClient:
    """Return an admin client with the settings of these tests."""
    return AdminClient(settings(bootstrap))


def create(client: AdminClient, name: str, partitions: int = 1, **config: str) -> None:
    """A topic; underscores in the names of ``config`` stand for dots."""
    topic = NewTopic(
        name, partitions, 1, config={key.replace("_", "."): value for key, value in config.items()}
    )
    client.create_topics([topic], operation_timeout=PATIENCE)[name].result(PATIENCE)


def producer(bootstrap: str, **config: Any) -> Producer:
    """A producer that makes a batch of what is between two flushes."""
    return Producer({"linger.ms": 20, "acks": "all", **settings(bootstrap, **config)})


def consumer(bootstrap: str, group: str, **config: Any) -> Consumer:
    """A consumer that begins at the earliest record and commits only if the test commits."""
    kept = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "group.id": group}
    return Consumer({**kept, **settings(bootstrap, **config)})


def flush(source: Producer) -> None:
    left = source.flush(PATIENCE)
    assert left == 0, f"{left} records are not acknowledged"


def write(bootstrap: str) -> Written:
    """All kinds of content, the same every time but for times, ids and keys of passwords."""
    client = admin(bootstrap)
    began = int(time.time() * 1000) - 3_600_000
    _plain(client, bootstrap, began)
    _codecs(client, bootstrap, began)
    _segments(client, bootstrap, began)
    _compacted(client, bootstrap, began)
    _topics(client, bootstrap)
    _transactions(client, bootstrap)
    _groups(bootstrap)
    _configs_and_users(client)
    return Written(began)


def _plain(client: AdminClient, bootstrap: str, began: int) -> None:
    create(client, "plain", 3)
    source = producer(bootstrap)
    for number in range(300):
        source.produce(
            "plain",
            value=None if number % 17 == 0 else f"value {number} é".encode(),
            key=None if number % 13 == 0 else f"key-{number}".encode(),
            headers=[("n", str(number).encode()), ("n", None)] if number % 5 == 0 else None,
            partition=number % 3,
            timestamp=began + number * 1000 - (5000 if number % 50 == 7 else 0),
        )
        if number % 25 == 24:
            flush(source)
    flush(source)
    idempotent = producer(bootstrap, enable_idempotence=True)
    for number in range(60):
        idempotent.produce("plain", f"idempotent {number}", partition=number % 3)
        if number % 10 == 9:
            flush(idempotent)
    flush(idempotent)
    create(client, "append-time", 1, message_timestamp_type="LogAppendTime")
    for number in range(10):
        source.produce("append-time", str(number), timestamp=began + number)
        flush(source)


def _codecs(client: AdminClient, bootstrap: str, began: int) -> None:
    create(client, "codecs", len(CODECS))
    for partition, codec in enumerate(CODECS):
        source = producer(bootstrap, compression_type=codec)
        for batch in range(3):
            for number in range(200):
                source.produce(
                    "codecs",
                    f"{codec} {number} ".encode() * 8,
                    key=str(number % 7),
                    partition=partition,
                    timestamp=began + batch * 60_000 + number,
                )
            flush(source)
    # The broker compresses again, so the bytes on the disk are its own.
    create(client, "recompressed", 1, compression_type="zstd")
    source = producer(bootstrap, compression_type="gzip")
    for number in range(100):
        source.produce("recompressed", f"again {number} ".encode() * 20, timestamp=began + number)
    flush(source)


def _segments(client: AdminClient, bootstrap: str, began: int) -> None:
    create(client, "rolled", 1, segment_bytes="1048576")
    source = producer(bootstrap, batch_size=20_000)
    for number in range(3500):
        source.produce(
            "rolled", number.to_bytes(4, "big") + bytes(996), timestamp=began + number * 100
        )
    flush(source)
    create(client, "cut", 1)
    for number in range(100):
        source.produce("cut", str(number), timestamp=began + number)
        if number % 10 == 9:
            flush(source)
    until(lambda: _is_cut(client))


def _is_cut(client: AdminClient) -> bool:
    """Delete the first records of "cut"; False if librdkafka knows no leader, which it does not wait for."""
    [cut] = client.delete_records([TopicPartition("cut", 0, 45)]).values()
    try:
        cut.result(PATIENCE)
    except KafkaException as error:
        if error.args[0].code() == KafkaError._NOENT:
            return False
        raise
    return True


def _compacted(client: AdminClient, bootstrap: str, began: int) -> None:
    create(
        client,
        "compacted",
        1,
        cleanup_policy="compact",
        segment_bytes="1048576",
        min_cleanable_dirty_ratio="0.01",
    )
    source = producer(bootstrap, batch_size=50_000)
    for number in range(3000):
        value = None if number % 10 == 3 and number > 2900 else number.to_bytes(4, "big") * 200
        source.produce("compacted", value, key=f"k{number % 40}", timestamp=began + number)
    flush(source)


def _topics(client: AdminClient, bootstrap: str) -> None:
    create(client, "grown", 1)
    client.create_partitions([NewPartitions("grown", 4)])["grown"].result(PATIENCE)
    create(client, "dropped", 2)
    source = producer(bootstrap)
    source.produce("dropped", "gone", partition=1)
    source.produce("grown", "here", partition=3)
    flush(source)
    client.delete_topics(["dropped"], operation_timeout=PATIENCE)["dropped"].result(PATIENCE)
    create(client, "empty.topic-with_all.chars", 2)


def transactional(bootstrap: str, name: str) -> Producer:
    source = producer(
        bootstrap, transactional_id=name, transaction_timeout_ms=str(OPEN_TRANSACTION_MS)
    )
    source.init_transactions(PATIENCE)
    return source


def _transactions(client: AdminClient, bootstrap: str) -> None:
    create(client, "transactional", 2)
    plain = producer(bootstrap)
    first, second = transactional(bootstrap, "tx-1"), transactional(bootstrap, "tx-2")
    for number in range(6):
        # Two transactions at a time over both partitions, one of them aborted, plain records between.
        for source, name in ((first, "first"), (second, "second")):
            source.begin_transaction()
            for index in range(4):
                source.produce("transactional", f"{name} {number} {index}", partition=index % 2)
            flush(source)
            plain.produce("transactional", f"plain {number} {name}", partition=number % 2)
            flush(plain)
        for index, source in enumerate((first, second)):
            if (number + index) % 3:
                source.commit_transaction(PATIENCE)
            else:
                source.abort_transaction(PATIENCE)

    reader = consumer(bootstrap, "g-transactional")
    for name, offset, end in (("tx-offsets", 11, "commit"), ("tx-offsets", 13, "abort")):
        source = transactional(bootstrap, name)
        source.begin_transaction()
        source.produce("transactional", f"with offsets {offset}", partition=0)
        source.send_offsets_to_transaction(
            [TopicPartition("plain", 1, offset)], reader.consumer_group_metadata(), PATIENCE
        )
        getattr(source, f"{end}_transaction")(PATIENCE)
    reader.close()

    # Left open: the last stable offset stays below them, their offsets stay pending.
    create(client, "open", 2)
    plain.produce("open", "before", partition=0)
    flush(plain)
    left = transactional(bootstrap, "tx-open")
    left.begin_transaction()
    left.produce("open", "undecided", partition=0)
    flush(left)
    plain.produce("open", "after", partition=0)
    plain.produce("open", "elsewhere", partition=1)
    flush(plain)
    reader = consumer(bootstrap, "g-pending")
    left_offsets = transactional(bootstrap, "tx-open-offsets")
    left_offsets.begin_transaction()
    left_offsets.send_offsets_to_transaction(
        [TopicPartition("plain", 0, 5)], reader.consumer_group_metadata(), PATIENCE
    )
    reader.close()


def _groups(bootstrap: str) -> None:
    reader = consumer(bootstrap, "g-plain")
    reader.commit(
        offsets=[TopicPartition("plain", p, 10 + p, metadata=f"noté {p}") for p in range(3)],
        asynchronous=False,
    )
    reader.commit(offsets=[TopicPartition("plain", 0, 99)], asynchronous=False)
    reader.close()
    member = consumer(bootstrap, "g-joined")
    member.subscribe(["codecs"])
    seen = 0
    deadline = time.monotonic() + PATIENCE
    while seen < 600 * len(CODECS):
        assert time.monotonic() < deadline, f"the group has read {seen} records"
        seen += sum(message.error() is None for message in member.consume(500, 1.0))
    member.commit(asynchronous=False)
    member.close()


def _configs_and_users(client: AdminClient) -> None:
    changes = {
        ("plain", ResourceType.TOPIC): {
            "retention.ms": "864000000",
            "max.message.bytes": "2000000",
        },
        ("1", ResourceType.BROKER): {"log.cleaner.threads": "2"},
        ("", ResourceType.BROKER): {"message.max.bytes": "1500000"},
    }
    for (name, kind), values in changes.items():
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in values.items()
        ]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        if name:
            client.incremental_alter_configs([resource])[resource].result(PATIENCE)
    set_password(client, "alice", "alice-secret", ScramMechanism.SCRAM_SHA_256)
    set_password(client, "bob", "b", ScramMechanism.SCRAM_SHA_512)


def set_password(client: AdminClient, user: str, password: str, mechanism: ScramMechanism) -> None:
    change = UserScramCredentialUpsertion(
        user, ScramCredentialInfo(mechanism, 4096), password.encode(), b"salt of " + user.encode()
    )
    client.alter_user_scram_credentials([change])[user].result(PATIENCE)


# --- reading back


Where = tuple[str, int]


def read(
    bootstrap: str, partitions: Iterable[Where], *, committed: bool = False
) -> dict[Where, list[tuple[Any, ...]]]:
    """Every record that a client sees in some partitions: offset, kind and value of its timestamp, key,
    value, headers."""
    found: dict[Where, list[tuple[Any, ...]]] = {where: [] for where in partitions}
    reader = consumer(
        bootstrap,
        "unused",
        enable_partition_eof=True,
        check_crcs=True,
        fetch_wait_max_ms=20,
        isolation_level="read_committed" if committed else "read_uncommitted",
    )
    try:
        reader.assign([TopicPartition(*where, OFFSET_BEGINNING) for where in found])
        unread = set(found)
        deadline = time.monotonic() + PATIENCE
        while unread:
            assert time.monotonic() < deadline, f"no end of {sorted(unread)}"
            for message in reader.consume(1000, 0.1):
                where, error = (message.topic(), message.partition()), message.error()
                if error is None:
                    seen = (message.offset(), *message.timestamp(), message.key(), message.value())
                    found[where].append((*seen, message.headers()))
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(where)
                else:
                    raise KafkaException(error)
    finally:
        reader.close()
    return found


def wait_for_compaction(bootstrap: str, topic: str, written: int) -> None:
    """Until the cleaner has been over a topic of one partition, and has nothing more to do."""
    deadline = time.monotonic() + PATIENCE
    before = written
    while True:
        left = len(read(bootstrap, [(topic, 0)])[topic, 0])
        if left == before < written:
            return
        before = left
        assert time.monotonic() < deadline, f"still {left} records"
        time.sleep(1)


def topics(bootstrap: str) -> dict[str, int]:
    """Number of partitions of each topic that is not the broker's own."""
    found = admin(bootstrap).list_topics(timeout=PATIENCE).topics.values()
    return {topic.topic: len(topic.partitions) for topic in found if topic.topic[:2] != "__"}


def observe(bootstrap: str, *, without_records: Iterable[str] = ()) -> dict[str, Any]:
    """All that a client sees of a broker's content, in plain values."""
    client = admin(bootstrap)
    names = topics(bootstrap)
    hidden = set(without_records)
    partitions = [
        (name, index)
        for name, count in names.items()
        if name not in hidden
        for index in range(count)
    ]
    records = read(bootstrap, partitions)
    return {
        "cluster": client.list_topics(timeout=PATIENCE).cluster_id,
        "topics": _describe_topics(client, names),
        "offsets": _offsets(client, records),
        "records": records,
        "committed records": read(bootstrap, partitions, committed=True),
        "configs": {
            **{name: configs(client, ResourceType.TOPIC, name) for name in names},
            "broker": configs(client, ResourceType.BROKER, "1"),
        },
        "groups": _groups_seen(client),
        "users": _users(client),
    }


def _describe_topics(client: AdminClient, names: dict[str, int]) -> dict[str, Any]:
    from confluent_kafka import TopicCollection

    futures = client.describe_topics(TopicCollection(list(names)), request_timeout=PATIENCE)
    described = {name: future.result(PATIENCE) for name, future in futures.items()}
    return {
        name: {
            "id": str(topic.topic_id),
            "partitions": [
                (item.id, item.leader.id, [node.id for node in item.replicas])
                for item in sorted(topic.partitions, key=lambda item: item.id)
            ],
        }
        for name, topic in described.items()
    }


def _offsets(
    client: AdminClient, records: dict[Where, list[tuple[Any, ...]]]
) -> dict[Where, dict[str, Any]]:
    """The result of ListOffsets for each partition: ends, and the first record at or after a time, for times
    between records, on them, before the first and behind the last."""
    found: dict[Where, dict[str, Any]] = {where: {} for where in records}
    times: dict[Where, list[int]] = {}
    for where, seen in records.items():
        if where[0] == "compacted":
            # Apache Kafka is wrong here: a segment that compaction has emptied counts as being as new as
            # its file is, is searched for all times before that, and hides the records behind it.
            continue
        stamps = sorted({record[2] for record in seen})
        some = stamps[:: max(1, len(stamps) // 20)]
        times[where] = sorted({stamp + step for stamp in some for step in (-1, 0, 1)} | {0, 2**62})

    def ask(what: dict[Where, tuple[str, OffsetSpec]], isolation: IsolationLevel) -> None:
        specs = {TopicPartition(*where): spec for where, (_, spec) in what.items()}
        for place, future in client.list_offsets(specs, isolation_level=isolation).items():
            where = (place.topic, place.partition)
            answer = future.result(PATIENCE)
            name = f"{what[where][0]}, {isolation.name.lower()}"
            found[where][name] = (answer.offset, answer.timestamp)

    for isolation in (IsolationLevel.READ_COMMITTED, IsolationLevel.READ_UNCOMMITTED):
        for name, spec in (
            ("earliest", OffsetSpec.earliest()),
            ("latest", OffsetSpec.latest()),
            ("greatest time", OffsetSpec.max_timestamp()),
        ):
            ask(dict.fromkeys(records, (name, spec)), isolation)
    for index in range(max(map(len, times.values()), default=0)):
        ask(
            {
                where: (f"at {stamps[index]}", OffsetSpec.for_timestamp(stamps[index]))
                for where, stamps in times.items()
                if index < len(stamps)
            },
            IsolationLevel.READ_UNCOMMITTED,
        )
    return found


def configs(client: AdminClient, kind: ResourceType, name: str) -> dict[str, str]:
    """What has been set for a resource."""
    resource = ConfigResource(kind, name)
    entries = client.describe_configs([resource])[resource].result(PATIENCE)
    return {
        entry.name: entry.value
        for entry in entries.values()
        if (entry.source.value if hasattr(entry.source, "value") else entry.source) in DYNAMIC
    }


def _groups_seen(client: AdminClient) -> dict[str, Any]:
    listed = client.list_consumer_groups().result(PATIENCE)
    assert not listed.errors, listed.errors
    found: dict[str, Any] = {}
    for group in listed.valid:
        name = group.group_id
        asked = [ConsumerGroupTopicPartitions(name)]
        stored = client.list_consumer_group_offsets(asked)[name].result(PATIENCE)
        described = client.describe_consumer_groups([name])[name].result(PATIENCE)
        found[name] = {
            "state": described.state.name,
            "offsets": sorted(
                (item.topic, item.partition, item.offset, item.metadata, item.leader_epoch)
                for item in stored.topic_partitions
            ),
        }
    return found


def _users(client: AdminClient) -> dict[str, Any]:
    described = client.describe_user_scram_credentials().result(PATIENCE)
    return {
        name: sorted((info.mechanism.name, info.iterations) for info in user.scram_credential_infos)
        for name, user in described.items()
    }


def differences(theirs: Any, ours: Any, path: str = "") -> list[str]:
    """Where two observations differ, one line each."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        found = []
        for name in sorted(theirs.keys() | ours.keys()):
            if name not in ours:
                found.append(f"{path}/{name}: missing, was {str(theirs[name])[:200]}")
            elif name not in theirs:
                found.append(f"{path}/{name}: new, is {str(ours[name])[:200]}")
            else:
                found += differences(theirs[name], ours[name], f"{path}/{name}")
        return found
    if isinstance(theirs, list) and isinstance(ours, list) and theirs != ours:
        if len(theirs) != len(ours):
            return [f"{path}: {len(ours)} entries, were {len(theirs)}; {ours[:3]}, {theirs[:3]}"]
        index = next(
            i for i, pair in enumerate(zip(theirs, ours, strict=True)) if pair[0] != pair[1]
        )
        return [f"{path}[{index}]: {ours[index]!r}, was {theirs[index]!r}"]
    return [] if theirs == ours else [f"{path}: {ours!r}, was {theirs!r}"]
