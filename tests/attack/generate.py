"""The most expensive requests of an API, built from the fields of its generated class.

For each array of a request, one request has as many elements there as the broker accepts, and one element in every
other array. Names and numbers are all equal, all different, unknown, empty, or as long as a string can be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any
from uuid import UUID

import kafka_wire

from krammar.broker.apis import RANGES
from krammar.broker.connection import MAX_PLAIN_FRAME
from krammar.wire.reflection import FieldInfo, fields
from krammar.wire.skip import MAX_ELEMENTS

# A little less than the limit, which counts tagged fields too.
MOST = MAX_ELEMENTS - 100
# The longest string that all versions can carry, in bytes.
LONGEST = 32_767
# Fields whose value decides whether the rest is looked at.
FIXED: dict[str, Any] = {
    "acks": -1,
    "assignor": "uniform",
    "isolation_level": 0,
    "iterations": 4096,
    "max_bytes": 1 << 30,
    "max_wait_ms": 0,
    "mechanism": 1,
    "member_epoch": 0,
    "num_partitions": 1,
    "partition_max_bytes": 1 << 30,
    "rebalance_timeout_ms": 1000,
    "replica_id": -1,
    "replication_factor": 1,
    "resource_type": 2,
    "salt": b"s" * 16,
    "salted_password": b"p" * 32,
    "session_timeout_ms": 30_000,
    "timeout_ms": 1000,
    "validate_only": False,
}
# What exists in the broker, by entity.
KNOWN = {"topicName": "large", "groupId": "group", "transactionalId": "abcdefghij", "brokerId": 1}

Values = Callable[[FieldInfo, int], Any]


def _text(field: FieldInfo, name: str) -> Any:
    kind = field.type.strip("[]")
    if kind in ("string",):
        return name
    if kind == "bytes":
        return name.encode()
    if kind == "uuid":
        return UUID(int=0)
    return None


def equal(field: FieldInfo, number: int) -> Any:
    """The same name of something that exists, everywhere."""
    known = KNOWN.get(field.entity)
    return known if known is not None else _text(field, "large")


def unknown(field: FieldInfo, number: int) -> Any:
    """The same name of something that does not exist."""
    return _text(field, "nowhere")


def different(field: FieldInfo, number: int) -> Any:
    """A new name or number each time."""
    kind = field.type.strip("[]")
    if kind == "uuid":
        return UUID(int=number + 1)
    if kind in ("int32", "int64") and field.entity != "brokerId":
        return number
    return _text(field, f"made-{number}")


def empty(field: FieldInfo, number: int) -> Any:
    """Nothing at all."""
    return _text(field, "")


def long(field: FieldInfo, number: int) -> Any:
    """Strings of 32 kB that differ at their end."""
    return _text(field, f"{number:>{LONGEST}}".replace(" ", "x"))


VALUES: dict[str, Values] = {
    "equal": equal,
    "unknown": unknown,
    "different": different,
    "empty": empty,
    "long": long,
}


@dataclass(frozen=True)
class Case:
    """A request. ``name`` states what there is most of."""

    name: str
    request: Any
    version: int


def _arrays(cls: Any, version: int, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of each array in a version of a request."""
    for field in fields(cls):
        if version not in field.versions:
            continue
        here = (*path, field.name)
        if field.type.startswith("["):
            yield here
        if field.struct is not None:
            yield from _arrays(field.struct, version, here)


class _Builder:
    """Builds one request whose array at ``many`` is full."""

    def __init__(self, version: int, many: tuple[str, ...], values: Values, most: int) -> None:
        self.version = version
        self.many = many
        self.values = values
        self.most = most
        self.numbers = count()

    def struct(self, cls: Any, path: tuple[str, ...] = ()) -> Any:
        given = {}
        for field in fields(cls):
            if self.version not in field.versions:
                continue
            value = self.value(field, (*path, field.name))
            if value is not None:
                given[field.name] = value
        return cls(**given)

    def value(self, field: FieldInfo, path: tuple[str, ...]) -> Any:
        if field.type == "records":
            return None
        if field.type.startswith("["):
            size = self.most if path == self.many else 1
            if self.values in (equal, unknown, empty):  # building one is enough
                return [self.element(field, path)] * size
            return [self.element(field, path) for _ in range(size)]
        if field.tag is not None:
            return None
        return self.element(field, path)

    def element(self, field: FieldInfo, path: tuple[str, ...]) -> Any:
        if field.struct is not None:
            return self.struct(field.struct, path)
        fixed = FIXED.get(field.name)
        if fixed is not None and isinstance(fixed, str) == (field.type == "string"):
            return fixed
        if field.enum is not None and field.type.strip("[]").startswith("int"):
            return next(iter(field.enum))
        found = self.values(field, next(self.numbers))
        return _zero(field) if found is None and field.type.startswith("[") else found


def _zero(field: FieldInfo) -> Any:
    kind = field.type.strip("[]")
    return False if kind == "bool" else 0.0 if kind == "float64" else 0


def cases(
    key: int, version: int, values: dict[str, Values] | None = None, elements: int = MOST
) -> Iterator[Case]:
    """Yield the most expensive requests of one API in one version, with this number of array elements."""
    cls: Any = kafka_wire.request_class(key)
    arrays = list(_arrays(cls, version)) or [()]
    for many in arrays:
        for name, make in (VALUES if values is None else values).items():
            # Elements around the array, and one of each array inside, count too.
            depth = sum(1 for path in arrays if path[: len(many)] == many)
            most = elements // max(depth, 1) - len(arrays)
            if make is long:
                most = min(most, MAX_PLAIN_FRAME // (LONGEST + 50) // max(depth, 1) // 4)
            try:
                request = _Builder(version, many, make, most).struct(cls)
                request.encode(version)
            except ValueError:
                continue  # values that this version cannot carry
            where = ".".join(many) or "no array"
            label = f"{cls.__name__.removesuffix('Request')} v{version}: {where} x {most:,}, {name}"
            yield Case(label if many else f"{label.split(':')[0]}: {name}", request, version)


def served(*, newest: bool = False) -> Iterator[tuple[int, int]]:
    """Yield each served API key and version, newest versions first.

    A version is skipped if its request and its response have the same layouts as those of the next version.
    """
    for key, (low, high) in RANGES.items():
        pair = kafka_wire.request_class(key), kafka_wire.response_class(key)
        last = None
        for version in [high] if newest else range(high, low - 1, -1):
            # The first line names the version.
            layouts = [str(kafka_wire.layout(cls, version)).partition("=>")[2] for cls in pair]
            if layouts != last:
                yield key, version
            last = layouts
