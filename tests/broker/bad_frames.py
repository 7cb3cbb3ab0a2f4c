"""Requests that no real client sends, the same in every run: mutated, random, and unusual but well-formed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from random import Random
from typing import Any
from uuid import UUID

import kafka_wire
from kafka_wire import ApiKey, RequestHeader

from krammar.broker.apis import RANGES
from krammar.wire.errors import DecodeError, UnsupportedVersionError
from krammar.wire.layout import Array, Field, Layout, Scalar
from tests.broker.requests import batch
from tests.generated.catalogue import by_name
from tests.generated.mutations import mutations
from tests.generated.strategies import Maker, finish
from tests.generated.values import Plain

TOPIC = "fuzz"
VICTIM = "victim"  # created and deleted repeatedly

# Sensible values of fields, by name. If there are several, one is chosen.
_SENSIBLE: dict[str, tuple[Any, ...]] = {
    "acks": (1, -1, 0),
    "api_key": (0,),
    "broker_ids": (1,),
    "client_software_name": ("fuzz",),
    "client_software_version": ("1",),
    "committed": (True, False),
    "config_name": ("retention.ms", "cleanup.policy"),
    "coordinator_keys": ("fuzz-group",),
    "count": (2, 3),
    "current_leader_epoch": (-1, 0),
    "fetch_offset": (0, 1),
    "endpoint_type": (1,),
    "generation_id": (1, -1),
    "generation_id_or_member_epoch": (1, -1),
    "group_id": ("fuzz-group", "other-group"),
    "groups_names": ("fuzz-group", "other-group"),
    "groups": ("fuzz-group",),
    "group_instance_id": (None, "instance"),
    "isolation_level": (0, 1),
    "iterations": (4096,),
    "key": ("fuzz-group",),
    "key_type": (0, 1),
    "leader_epoch": (0, -1),
    "max_bytes": (1 << 20, 1),
    "max_wait_ms": (0, 1),
    "mechanism": (1, 2, "PLAIN", "SCRAM-SHA-256"),
    "member_id": ("",),
    "min_bytes": (0, 1),
    "num_partitions": (1, 2),
    "offset": (0, 1, -1),
    "partition": (0,),
    "partition_index": (0,),
    "partition_indexes": (0,),
    "response_partition_limit": (2,),
    "partition_max_bytes": (1 << 20,),
    "partitions": (0,),
    "producer_epoch": (0, -1),
    "producer_id": (0, -1, 1),
    "protocol_name": ("range",),
    "protocol_type": ("consumer",),
    "rebalance_timeout_ms": (50,),
    "replica_id": (-1,),
    "replication_factor": (1, -1),
    "resource_name": (TOPIC,),
    "resource_type": (2,),
    "retention_time_ms": (-1,),
    "session_id": (0,),
    "session_epoch": (-1, 0),
    "session_timeout_ms": (200,),
    "timeout_ms": (100,),
    "timestamp": (-1, -2, -3, 0),
    "topic": (TOPIC,),
    "transaction_timeout_ms": (200,),
    "transactional_ids": ("fuzz-transaction",),
    "transactional_id": (None, "fuzz-transaction"),
    "v3_and_below_transactional_id": ("fuzz-transaction",),
    "value": ("1000", None),
    "validate_only": (True, False),
}


class Sensible(Maker):
    """Plausible values, chosen by the name of the field."""

    def __init__(self, rng: Random, topic_id: UUID, odd: float = 0.0) -> None:
        """``odd`` is the share of fields that hold anything at all instead."""
        super().__init__(rng, "low", unknown_tags=False)
        self.odd = odd
        self.topic_id = topic_id
        self.inside: list[str] = []

    def struct(self, layout: Layout, depth: int) -> Plain:
        self.inside.append(layout.name)
        plain = super().struct(layout, depth)
        self.inside.pop()
        return plain

    def field(self, item: Field, depth: int) -> Any:
        type_ = item.type
        if self.odd and self.rng.random() < self.odd:
            return Maker(self.rng, "random").value(type_, depth)
        if item.name == "records":
            return batch(b"a", b"b")
        if item.name in ("topics", "topic_names") and str(type_).endswith("STRING]"):
            return [VICTIM if self.inside[0] == "DeleteTopicsRequest" else TOPIC]
        if item.name == "topic_id":
            return UUID(int=0) if self.inside[0] == "DeleteTopicsRequest" else self.topic_id
        if item.name == "name":
            if self.inside[-1].endswith("Config"):
                return "retention.ms"
            return VICTIM if self.inside[0] in _VICTIMS else TOPIC
        if item.name in _EMPTY and isinstance(type_, Array):
            return []
        if item.name == "cursor":
            return None
        choices = [each for each in _SENSIBLE.get(item.name, ()) if self.fits(type_, each)]
        if choices:
            return self.rng.choice(choices)
        if isinstance(type_, Array):
            element = self.rng.choice(_SENSIBLE.get(item.name, (None,)))
            if element is not None and self.fits(type_.element, element):
                return [element]
        if isinstance(type_, Scalar) and type_.code in "bhiqHI":
            return 0
        return super().field(item, depth)

    def tagged(self, item: Field, depth: int) -> Any:
        return self.field(item, depth)

    @staticmethod
    def fits(type_: Any, value: Any) -> bool:
        if value is None:
            return bool(getattr(type_, "nullable", False))
        if isinstance(value, str):
            return str(type_).endswith("STRING")
        if not isinstance(type_, Scalar):
            return False
        if isinstance(value, bool):
            return type_.code == "?"
        return type_.code in ("bhiqHI" if value < 128 else "hiqHI" if value < 1 << 15 else "iqI")


_VICTIMS = ("CreateTopicsRequest", "CreatePartitionsRequest", "DeleteTopicsRequest")
# These must match other fields.
_EMPTY = ("assignments", "forgotten_topics_data", "resource_types", "states_filter", "types_filter")


@cache
def _body_layout(key: int, version: int) -> Layout:
    found: Layout = kafka_wire.layout(kafka_wire.request_class(key), version)
    return found


def _body(key: int, version: int, maker: Maker) -> bytes:
    layout = _body_layout(key, version)
    message = by_name()[kafka_wire.request_class(key).__name__]
    plain: Plain = finish(message, layout, version, maker.struct(layout, 0))
    return layout.write(plain)


def _header(key: int, version: int, number: int) -> bytes:
    header = RequestHeader(
        request_api_key=key,
        request_api_version=version,
        correlation_id=number & 0x7FFFFFFF,
        client_id="fuzz",
    )
    return bytes(header.encode(kafka_wire.header_versions(key, version).request))


def sensible_frames(topic_id: UUID, seed: int = 0) -> Iterator[bytes]:
    """A request of each api in each version, without length prefix."""
    for key, (low, high) in RANGES.items():
        for version in range(low, high + 1):
            rng = Random(f"{seed} {key} {version}")
            yield _header(key, version, 0) + _body(key, version, Sensible(rng, topic_id))


def bad_frames(number: int, topic_id: UUID, seed: int = 0) -> Iterator[bytes]:
    """``number`` frames, without length prefix, of all apis and versions in turn."""
    rng = Random(seed)
    pairs = [
        (key, version) for key, (low, high) in RANGES.items() for version in range(low, high + 1)
    ]
    seeds: dict[tuple[int, int], list[bytes]] = {
        (key, version): [
            *(_body(key, version, Sensible(rng, topic_id)) for _ in range(4)),
            *(_body(key, version, Maker(rng, style)) for style in ("random", "null", "low")),
        ]
        for key, version in pairs
    }
    made = 0
    while made < number:
        rng.shuffle(pairs)
        for key, version in pairs:
            frame = _bad_frame(rng, key, version, seeds[key, version], topic_id, made)
            if _overdone(frame):
                continue
            yield frame
            made += 1
            if made == number:
                return


def _bad_frame(
    rng: Random, key: int, version: int, seeds: list[bytes], topic_id: UUID, number: int
) -> bytes:
    header = _header(key, version, number)
    kind = rng.randrange(20)
    if kind == 0:
        return rng.randbytes(rng.choice((0, 1, 2, 4, 8, 13, 40, 300)))
    if kind == 1:
        return header + rng.randbytes(rng.choice((0, 1, 7, 30, 200)))
    if kind == 2:
        (frame,) = mutations([header + rng.choice(seeds)], rng, 1)
        return frame
    if kind == 3:
        return header + _body(key, version, Maker(rng, "random"))
    if kind < 10:
        return header + _body(key, version, Sensible(rng, topic_id, rng.choice((0.02, 0.1, 0.3))))
    (body,) = mutations(seeds, rng, 1)
    return header + body


def _overdone(frame: bytes) -> bool:
    """Return whether a real client could send a frame, for example for many partitions or a long poll."""
    if len(frame) < 2 or int.from_bytes(frame[:2], "big") not in _COSTLY:
        return False
    try:
        _, request = kafka_wire.parse_request(frame)
    except (DecodeError, UnsupportedVersionError):
        return False
    if isinstance(request, kafka_wire.FetchRequest):
        return bool(request.max_wait_ms > 200)
    # Kafka refuses to make more than 10,000 partitions at once; some are too many for a test.
    if isinstance(request, kafka_wire.CreateTopicsRequest):
        count = sum(max(topic.num_partitions, len(topic.assignments)) for topic in request.topics)
    else:
        count = sum(topic.count for topic in request.topics or ())
    return 20 < count <= 10_000


_COSTLY = frozenset({ApiKey.FETCH, ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS})
