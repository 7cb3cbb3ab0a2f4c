"""Records of `__cluster_metadata` and of internal topics with hostile values in every field, built from the definitions."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import kafka_wire as kw

from krammar.broker.metadata_records import encode_frame
from krammar.logfiles.internal_topics import KINDS
from krammar.logfiles.metadata_frame import TYPES
from krammar.logfiles.names import METADATA_TOPIC
from krammar.wire.batches import Record
from krammar.wire.errors import EncodeError, UnsupportedVersionError
from krammar.wire.message import Codec
from krammar.wire.reflection import FieldInfo, fields

ORDERS = UUID("00000000-0000-4000-8000-000000000001")
NEW = UUID("00000000-0000-4000-8000-000000000002")
# The newest `metadata.version`, whose versions of records have all fields.
NEWEST_LEVEL = 33


# Hostile values.


def texts(outside: Path) -> list[str]:
    """Strings that are paths, that end or leave what contains them, or that are long."""
    return [
        "",
        ".",
        "..",
        "../outside",
        "../../outside",
        str(outside / "absolute"),
        "a/b",
        "orders/../../outside",
        "nul\0byte",
        "line\nbreak",
        "\x1b]0;title\x07",
        "\u202eodd",
        "é" * 200,
        "x" * 250,
        "x" * 32_767,
        "-1",
        "9" * 5_000,
        "[" * 1_000,
        METADATA_TOPIC,
    ]


_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64, "uint16": 16, "uint32": 32, "enum": 16}


def numbers(kind: str) -> list[int]:
    """The extremes of an integer type, and numbers that no enum and no count has."""
    bits = _BITS[kind]
    if kind.startswith("u"):
        return [0, 1, (1 << bits) - 1]
    top = 1 << bits - 1
    return [-top, -3, -2, -1, 0, 1, 5, 99, top - 2, top - 1]


def values(info: FieldInfo, outside: Path) -> list[Any]:
    """The hostile values of a field."""
    kind = info.type.removeprefix("[").removesuffix("]")
    is_array = info.type.startswith("[")
    found: list[Any]
    if info.struct is not None:
        found = [info.struct()]
        if is_array:
            return [[], found * 2, found * 300]
        return []
    if kind == "string":
        found = list(texts(outside))
    elif kind == "bytes":
        found = [b"", b"\0" * 4, b"\xff" * 40_000]
    elif kind == "uuid":
        found = [UUID(int=0), UUID(int=1), ORDERS, UUID(int=(1 << 128) - 1)]
    elif kind == "bool":
        found = [True, False]
    elif kind == "float64":
        found = [0.0, -1.0, float("inf"), float("nan")]
    elif kind.startswith("enum"):
        # The number of bits is the definition's: values that do not fit cannot be encoded, and are left out.
        found = [each for bits in ("int8", "int16", "int32") for each in numbers(bits)]
    else:
        found = list(numbers(kind))
    if is_array:
        found = [[], [found[0]] * 500, *([each] for each in found)]
    return [None, *found] if info.nullable_versions else found


# Records.


def places(cls: type[Any]) -> Iterator[tuple[FieldInfo, ...]]:
    """The fields of a class and of the structs in it, each with the fields that lead to it."""
    for info in fields(cls):
        yield (info,)
        if info.struct is not None:
            for inner in places(info.struct):
                yield (info, *inner)


def changed(seed: Codec, place: Sequence[FieldInfo], value: Any) -> Codec:
    """A copy of a record with another value in one field; the structs around it are added where they are missing."""
    record: Any = copy.deepcopy(seed)
    inside = record
    for info in place[:-1]:
        found = getattr(inside, info.name)
        assert info.struct is not None
        if info.type.startswith("["):
            if not found:
                found = [info.struct()]
                setattr(inside, info.name, found)
            inside = found[0]
        else:
            if found is None:
                found = info.struct()
                setattr(inside, info.name, found)
            inside = found
    setattr(inside, place[-1].name, value)
    whole: Codec = record
    return whole


@dataclass(frozen=True)
class Case:
    """Records to append to a topic's log. ``name`` says which field has which value."""

    topic: str
    name: str
    records: tuple[Record, ...]

    def __str__(self) -> str:
        return self.name


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 60 else f"{text[:40]}… ({len(text)})"


# What each record of the metadata log needs to have an effect: a topic, a broker, a setting that exist.
_METADATA_SEEDS: dict[str, Callable[[], Codec]] = {
    "RegisterBrokerRecord": lambda: kw.RegisterBrokerRecord(
        broker_id=2,
        broker_epoch=50,
        end_points=[
            kw.RegisterBrokerRecord.BrokerEndpoint(
                name="PLAINTEXT", host="localhost", port=9092, security_protocol=0
            )
        ],
        fenced=False,
    ),
    "UnregisterBrokerRecord": lambda: kw.UnregisterBrokerRecord(broker_id=1),
    "TopicRecord": lambda: kw.TopicRecord(name="new", topic_id=NEW),
    "PartitionRecord": lambda: kw.PartitionRecord(
        topic_id=ORDERS,
        partition_id=2,
        replicas=[1],
        isr=[1],
        leader=1,
        leader_epoch=0,
        partition_epoch=0,
    ),
    "PartitionChangeRecord": lambda: kw.PartitionChangeRecord(
        topic_id=ORDERS, partition_id=0, leader=1, isr=[1]
    ),
    "ConfigRecord": lambda: kw.ConfigRecord(
        resource_type=2, resource_name="orders", name="segment.bytes", value="1048576"
    ),
    "FenceBrokerRecord": lambda: kw.FenceBrokerRecord(id=1),
    "UnfenceBrokerRecord": lambda: kw.UnfenceBrokerRecord(id=1),
    "RemoveTopicRecord": lambda: kw.RemoveTopicRecord(topic_id=ORDERS),
    "UserScramCredentialRecord": lambda: kw.UserScramCredentialRecord(
        name="u",
        mechanism=1,
        salt=b"s" * 16,
        stored_key=b"k" * 32,
        server_key=b"k" * 32,
        iterations=4096,
    ),
    "FeatureLevelRecord": lambda: kw.FeatureLevelRecord(
        name="transaction.version", feature_level=2
    ),
    "ProducerIdsRecord": lambda: kw.ProducerIdsRecord(broker_id=1, next_producer_id=5000),
    "BrokerRegistrationChangeRecord": lambda: kw.BrokerRegistrationChangeRecord(broker_id=1),
}
# Settings of each kind of resource, with hostile texts.
_RESOURCES = {2: "orders", 4: "1", 32: "group"}
_SETTINGS = {
    2: ("segment.bytes", "retention.ms", "max.message.bytes", "index.interval.bytes", "cleanup.policy",
        "segment.index.bytes", "segment.ms", "flush.messages", "flush.ms", "message.timestamp.type",
        "compression.type", "compression.gzip.level", "compression.zstd.level", "compression.lz4.level",
        "min.cleanable.dirty.ratio", "file.delete.delay.ms", "delete.retention.ms", "max.compaction.lag.ms",
        "min.compaction.lag.ms", "internal.segment.bytes", "message.timestamp.before.max.ms",
        "message.timestamp.after.max.ms", "min.insync.replicas", "retention.bytes", "unknown.setting"),
    4: ("log.segment.bytes", "log.retention.ms", "message.max.bytes", "log.roll.ms", "log.index.interval.bytes",
        "log.cleaner.backoff.ms", "producer.id.expiration.ms", "log.segment.delete.delay.ms", "group.max.size",
        "log.dirs", "unknown.setting"),
    32: ("consumer.session.timeout.ms", "consumer.heartbeat.interval.ms", "unknown.setting"),
}  # fmt: skip
_TEXTS = ("", "0", "-1", "-2", "1", str(1 << 31), str((1 << 31) - 1), str((1 << 63) - 1), "1e999", "nan", "x\0y", "../x")  # fmt: skip


def _around(record: Codec) -> list[Codec]:
    """Records without which a record has no effect."""
    if isinstance(record, kw.TopicRecord):
        partition = kw.PartitionRecord(
            topic_id=record.topic_id, partition_id=0, replicas=[1], isr=[1], leader=1,
            leader_epoch=0, partition_epoch=0,
        )  # fmt: skip
        return [record, partition]
    return [record]


def metadata_cases(outside: Path) -> Iterator[Case]:
    """Every field of every record of the cluster metadata log with every hostile value."""
    for name in TYPES.values():
        cls = getattr(kw, name)
        seed = _METADATA_SEEDS.get(name, cls)()
        for place in places(cls):
            where = ".".join(info.name for info in place)
            for value in values(place[-1], outside):
                record = changed(seed, place, value)
                try:
                    frames = [encode_frame(each, NEWEST_LEVEL) for each in _around(record)]
                except EncodeError:
                    continue
                text = f"{name}.{where}={_shown(value)}"
                yield Case(METADATA_TOPIC, text, tuple(Record(value=frame) for frame in frames))
    for kind, settings in _SETTINGS.items():
        for name in settings:
            for text in _TEXTS:
                record = kw.ConfigRecord(
                    resource_type=kind, resource_name=_RESOURCES[kind], name=name, value=text
                )
                frame = Record(value=encode_frame(record, NEWEST_LEVEL))
                yield Case(METADATA_TOPIC, f"setting {kind} {name}={text!r}", (frame,))


MEMBER = "member-1"
_KEY_SEEDS: dict[str, dict[str, Any]] = {
    "group": {"group": "classic"},
    "group_id": {"group_id": "group"},
    "topic": {"topic": "orders"},
    "member_id": {"member_id": MEMBER},
    "regular_expression": {"regular_expression": "ord.*"},
    "transactional_id": {"transactional_id": "hostile"},
}
_VALUE_SEEDS: dict[str, Callable[[], Codec]] = {
    "OffsetCommit": lambda: kw.OffsetCommitValue(version=4, offset=3, commit_timestamp=1),
    "GroupMetadata": lambda: kw.GroupMetadataValue(
        version=4,
        protocol_type="consumer",
        generation=3,
        protocol="range",
        leader=MEMBER,
        members=[
            kw.GroupMetadataValue.MemberMetadata(
                member_id=MEMBER, client_id="c", client_host="/127.0.0.1", rebalance_timeout=60_000,
                session_timeout=60_000, subscription=b"", assignment=b"",
            )
        ],
    ),
    "ConsumerGroupMetadata": lambda: kw.ConsumerGroupMetadataValue(epoch=3),
    "ConsumerGroupMemberMetadata": lambda: kw.ConsumerGroupMemberMetadataValue(
        client_id="c", client_host="/127.0.0.1", subscribed_topic_names=["orders"],
        rebalance_timeout_ms=60_000, server_assignor="uniform",
    ),
    "ConsumerGroupTargetAssignmentMetadata": lambda: kw.ConsumerGroupTargetAssignmentMetadataValue(
        assignment_epoch=3
    ),
    "ConsumerGroupCurrentMemberAssignment": lambda: kw.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=3, previous_member_epoch=2, state=1
    ),
    "TransactionLog": lambda: kw.TransactionLogValue(
        version=1, producer_id=7, producer_epoch=3, transaction_timeout_ms=60_000, transaction_status=1,
        transaction_partitions=[
            kw.TransactionLogValue.PartitionsSchema(topic="orders", partition_ids=[0])
        ],
        transaction_last_update_timestamp_ms=1, transaction_start_timestamp_ms=1,
        client_transaction_version=2,
    ),
}  # fmt: skip


def internal_cases(topic: str, outside: Path) -> Iterator[Case]:
    """Every field of every key and value of an internal topic with every hostile value.

    Each case has one value of each field, in groups or transactional ids of their own, so that none replaces another one.
    """
    columns = [
        list(column)
        for kind in KINDS[topic]
        if hasattr(kw, f"{kind}Key")
        for column in _columns(kind, outside)
    ]
    for number in range(max(map(len, columns))):
        found = [record for column in columns for record in column[number : number + 1]]
        yield Case(topic, f"value {number}", tuple(itertools.chain.from_iterable(found)))


def _columns(kind: str, outside: Path) -> Iterator[Iterator[list[Record]]]:
    """The records of each field of a key and its value."""
    key = _key(kind)
    value: Codec = _VALUE_SEEDS.get(kind, getattr(kw, f"{kind}Value"))()
    for whole in (key, value):
        for place in places(type(whole)):
            yield _column(kind, key, value, whole, place, outside)


def _column(
    kind: str, key: Codec, value: Codec, whole: Codec, place: Sequence[FieldInfo], outside: Path
) -> Iterator[list[Record]]:
    where = ".".join(info.name for info in place)
    for hostile in values(place[-1], outside):
        own_key: Any = copy.deepcopy(key)
        own_value: Any = copy.deepcopy(value)
        for owner in ("group", "group_id", "transactional_id"):
            if hasattr(own_key, owner):
                setattr(own_key, owner, f"{type(whole).__name__}.{where}")
        if whole is key:
            own_key = changed(own_key, place, hostile)
        else:
            own_value = changed(own_value, place, hostile)
            if where != "version" and hasattr(own_value, "version"):
                # The newest version with the field.
                own_value.version = min(type(own_value).max_version, place[0].versions[-1])
        try:
            record = Record(key=own_key.encode(), value=own_value.encode())
        except (EncodeError, UnsupportedVersionError):
            continue
        yield [*_around_member(kind, own_key), record]


def _key(kind: str) -> Codec:
    cls = getattr(kw, f"{kind}Key")
    known: dict[str, Any] = {}
    for info in fields(cls):
        known |= _KEY_SEEDS.get(info.name, {})
    found: Codec = cls(**known)
    return found


def _around_member(kind: str, key: Any) -> list[Record]:
    """The records without which one of a consumer group's member has no effect."""
    if not kind.startswith("ConsumerGroup"):
        return []
    found = []
    for other in ("ConsumerGroupMetadata", "ConsumerGroupMemberMetadata"):
        if other != kind:
            own_key: Any = getattr(kw, f"{other}Key")(group_id=key.group_id)
            if hasattr(own_key, "member_id"):
                own_key.member_id = getattr(key, "member_id", MEMBER)
            own_value: Any = _VALUE_SEEDS[other]()
            found.append(Record(key=own_key.encode(), value=own_value.encode()))
    return found
