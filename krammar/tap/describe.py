"""Describes messages in a few words, for the listing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache
from typing import Any
from uuid import UUID

from krammar.tap.frame import Frame
from krammar.util.printable import escape
from krammar.util.remembered import Remembered
from krammar.wire.message import Struct
from krammar.wire.package import Package
from krammar.wire.reflection import FieldInfo, fields
from krammar.wire.representation import kinds_of, named

# Fields whose values are shown, and how.
_SHOWN = {
    "client_software_name": "{}",
    "client_software_version": "{}",
    "mechanism": "{}",
    "group_id": "group {}",
    "key": "key {}",
    "coordinator_keys": "key {}",
    "transactional_id": "transaction {}",
    "member_id": "member {}",
    "generation_id": "generation {}",
    "protocol_name": "protocol {}",
    "producer_id": "producer {}",
    "acks": "acks {}",
    "host": "at {}",
    "cluster_id": "cluster {}",
}
_ERRORS = ("error_code", "acknowledge_error_code")
# Arrays whose elements are counted, with the name of an element.
_COUNTED = {
    "brokers": "broker",
    "coordinators": "coordinator",
    "api_keys": "api",
    "members": "member",
    "groups": "group",
    "assignments": "assignment",
    "resources": "resource",
    "results": "result",
    "node_endpoints": "endpoint",
}

_PARTITION = "partition"  # an entity
# What members of share groups do with records (KIP-932), by the number of the type.
_ACKNOWLEDGED = ("skipped", "accepted", "released", "rejected", "renewed")

_MAX_STRUCTS = 2_000
_MAX_SHOWN = 3
_MAX_TEXT = 60


@dataclass(slots=True)
class Description:
    """What a message is about.

    Attributes:
        about: one line without error codes; empty if the message was not decoded
        topics: the names of topics, escaped; their ids if no message has named them
        errors: the names of error codes other than 0, and how often each one occurs
    """

    about: str = ""
    topics: list[str] = field(default_factory=list)
    errors: dict[str, int] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """One line, with the first error codes."""
        errors = [
            f"{name} x{count}" if count > 1 else name
            for name, count in list(self.errors.items())[:_MAX_SHOWN]
        ]
        return ", ".join(part for part in (self.about, *errors) if part)


class Describer:
    """Describes messages.

    It learns the names of topics from the messages that it sees, because newer versions contain only topic ids.

    Attributes:
        most_names: of topics that it remembers
    """

    most_names = 10_000

    def __init__(self, package: Package) -> None:
        self._package = package
        # Those that were learned or used last, so that a tap that runs for long knows the topics of now.
        self._names: Remembered[UUID, str] = Remembered(self.most_names)

    def __call__(self, frame: Frame) -> Description:
        """Describe the frame's message."""
        if frame.message is None:
            return Description()
        walk = _Walk()
        walk.visit(frame.message, top=True)
        for topic_id, name in walk.learned:
            self._names[topic_id] = name
        parts = walk.parts
        names = [self._name(name) for name in walk.topics]
        if names:
            shown = [
                _cut(name) + partitions
                for name, partitions in zip(names[:_MAX_SHOWN], walk.topics.values(), strict=False)
            ]
            more = len(names) - len(shown)
            parts.append(" ".join(shown) + (f" and {more} more" if more else ""))
        if walk.records:
            parts.append(f"{walk.records:,} B of records")
        parts += [f"{count:,} {word}" for word, count in walk.shared.items()]
        errors = {self._error(code): count for code, count in walk.errors.items()}
        return Description(", ".join(parts), names, errors)

    def _name(self, name: str | UUID) -> str:
        return escape(name if isinstance(name, str) else self._names.use(name) or str(name))

    def _error(self, code: int) -> str:
        try:
            codes = self._package.get("ErrorCode")
            return str(codes(code).name) if issubclass(codes, IntEnum) else f"error {code}"
        except (AttributeError, ValueError):
            return f"error {code}"


class _Walk:
    """Collects what is shown of a message, from at most ``_MAX_STRUCTS`` structs."""

    def __init__(self) -> None:
        self.left = _MAX_STRUCTS
        self.parts: list[str] = []
        self.topics: dict[str | UUID, str] = {}
        self.errors: dict[int, int] = {}
        self.records = 0
        self.shared: dict[str, int] = {}  # records of share groups, by what happens to them
        self.learned: list[tuple[UUID, str]] = []

    def visit(self, struct: Struct, *, top: bool = False) -> None:
        self.left -= 1
        if self.left < 0:
            return
        if not top:
            self._topic(struct)
            self._share(struct)
        cls: Any = type(struct)  # mypy takes instances, which have no hash, for their class
        for name, is_nested in _told_fields(cls, top):
            value = getattr(struct, name)
            if is_nested:
                if top and name in _COUNTED and value and type(value) is list:
                    word = _COUNTED[name]
                    self.parts.append(f"{len(value)} {word}{'' if len(value) == 1 else 's'}")
                for element in _structs(value):
                    if self.left <= 0:
                        break
                    self.visit(element)
            elif name in _ERRORS:
                if value and type(value) is int:
                    self.errors[value] = self.errors.get(value, 0) + 1
            elif name == "records":
                if type(value) is bytes:
                    self.records += len(value)
            elif value not in (None, "", -1, []):
                text = ", ".join(map(str, value)) if type(value) is list else str(value)
                self.parts.append(_SHOWN[name].format(shorten(text)))

    def _topic(self, struct: Struct) -> None:
        cls: Any = type(struct)
        names, ids, partitions = _topic_fields(cls)
        if not names and not ids:
            return
        name = next(
            (value for f in names if (value := getattr(struct, f)) and type(value) is str), None
        )
        topic_id = getattr(struct, ids[0]) if ids else None
        if not isinstance(topic_id, UUID) or not topic_id.int:
            topic_id = None
        if name and topic_id is not None:
            self.learned.append((topic_id, name))
        key = name or topic_id
        if key is not None and (partitions or ids):
            self.topics[key] = _numbers(getattr(struct, partitions[0])) if partitions else ""

    def _share(self, struct: Any) -> None:
        """Count the records that a member of a share group acquires or acknowledges."""
        if "acknowledge_types" in struct._fields:
            types = struct.acknowledge_types
            number = struct.last_offset - struct.first_offset + 1
            for kind, count in [(types[0], number)] if len(types) == 1 else Counter(types).items():
                is_known = 0 <= kind < len(_ACKNOWLEDGED)
                self._add_shared(_ACKNOWLEDGED[kind] if is_known else f"of type {kind}", count)
        elif "acquired_records" in struct._fields:
            for each in struct.acquired_records:
                self._add_shared("acquired", each.last_offset - each.first_offset + 1)

    def _add_shared(self, word: str, count: int) -> None:
        if count > 0:
            self.shared[word] = self.shared.get(word, 0) + count


def _structs(value: Any) -> Iterator[Struct]:
    """Yield the structs in the value of a field: a struct, an array of any depth, or None."""
    if type(value) is list:
        for element in value:
            yield from _structs(element)
    elif value is not None:
        yield value


@cache
def _told_fields(kind: type[Struct], top: bool) -> tuple[tuple[str, bool], ...]:
    """Return the fields that say something about a message, and whether they hold structs."""
    found = []
    for name in kind._fields:
        described = kinds_of(kind).get(name, ":")
        is_nested = not described.startswith(":") and hasattr(named(kind, described), "_fields")
        if is_nested or name in (*_ERRORS, "records") or (top and name in _SHOWN):
            found.append((name, is_nested))
    return tuple(found)


@cache
def _topic_fields(kind: type[Struct]) -> tuple[list[str], list[str], list[str]]:
    """Return the fields of a struct with names of a topic, with its ids, and with its partitions."""
    names = [f.name for f in fields(kind) if f.entity == "topicName" and f.type == "string"]
    ids = [f.name for f in fields(kind) if f.entity == "topicId" and f.type == "uuid"]
    partitions = [f.name for f in fields(kind) if f.type.startswith("[") and _is_of_partitions(f)]
    return names, ids, partitions


def _is_of_partitions(info: FieldInfo) -> bool:
    struct: Any = info.struct  # mypy takes instances for their class
    return info.entity == _PARTITION or (
        struct is not None and _partition_field(struct) is not None
    )


@cache
def _partition_field(kind: Any) -> str | None:
    """Return the field of a struct with the number of a partition."""
    return next((f.name for f in fields(kind) if f.entity == _PARTITION), None)


def _numbers(partitions: Any) -> str:
    """Return the partitions as ``[0,1,2]``, with offsets as ``[0@17,1@4]``, or their number."""
    if not partitions or type(partitions) is not list:
        return ""
    numbers = [_number(partition) for partition in partitions[:_MAX_SHOWN]]
    if len(partitions) > _MAX_SHOWN or None in numbers:
        return f"[{len(partitions)}]" if len(partitions) != 1 else "[1 partition]"
    shown = (f"{n}{_offset(each)}" for n, each in zip(numbers, partitions, strict=False))
    return f"[{','.join(shown)}]"


def _offset(partition: Any) -> str:
    """Return the offset that ListOffsets found, or that was committed."""
    offset = getattr(partition, "offset", getattr(partition, "committed_offset", -1))
    return f"@{offset}" if isinstance(offset, int) and offset >= 0 else ""


def _number(partition: Any) -> int | None:
    if isinstance(partition, int):
        return partition
    cls: Any = type(partition)
    name = _partition_field(cls)
    number = None if name is None else getattr(partition, name)
    return number if isinstance(number, int) else None


def shorten(text: str) -> str:
    """Return text from the wire in a form for terminals: short, and without control characters."""
    return escape(_cut(text))


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 3] + "..."
