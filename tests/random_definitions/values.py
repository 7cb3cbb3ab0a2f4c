"""Random values of a struct at a version, in the reference codec's plain form and as generated objects."""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID

from krammar.wire.reflection import fields
from tests.random_definitions.model import (
    Array,
    Counted,
    Enum,
    EnumOf,
    Field,
    Inline,
    Named,
    Number,
    Struct,
    Text,
    Type,
    Versions,
    struct_in,
)
from tests.random_definitions.reference import Value, bounds, has, is_default

# On both sides of the borders where the length of a length changes.
BORDERS = (126, 127, 128)
LETTERS = "aZ0 -é߿€\uffff\U0001f600\"'\\\n\0"
REALS = (0.0, -0.0, 1.5, -2.25, 5e-324, 1.7976931348623157e308, float("inf"), float("-inf"))
REALS_32 = (0.0, -0.0, 1.5, -2.25, 1.401298464324817e-45, float("inf"))
TAGS = (0, 1, 2, 3, 127, 128, 16384, 0x7FFFFFFE)


class Values:
    """Random values. Fields that a version lacks have their defaults."""

    def __init__(self, rng: Random, *, unknown_tags: bool = True, crowd: int = 0) -> None:
        self.rng = rng
        self.unknown_tags = unknown_tags
        # The number of elements of each array; 0: a few.
        self.crowd = crowd
        self.left = 300

    def message(self, kind: Struct, version: int) -> Value:
        """A value of a struct that can be encoded alone."""
        self.left = 300
        found = self.struct(kind, version, kind.flexible(version))
        if kind.role == "versioned":
            found[kind.fields[0].name] = version
        return found

    def struct(self, kind: Struct, version: int, flexible: bool) -> Value:
        found: Value = {}
        if self.crowd:  # a crowd of large structs would take minutes
            self.left -= len(kind.fields)
        for item in kind.fields:
            usual = not has(item, version, flexible) or (
                item.tag is not None and self.rng.random() < 0.4
            )
            if usual:
                found[item.name] = item.default
            elif isinstance(item.type, Counted):
                found[item.name] = self.counted(kind, item, item.type, found)
            else:
                found[item.name] = self.value(item.type, version, flexible and not item.classic)
                if item.tag is not None and is_default(found[item.name], item.default):
                    found[item.name] = (
                        item.default
                    )  # so that the sign of zero is that of the default
        if flexible and self.unknown_tags and self.rng.random() < 0.15:
            known = {
                item.tag
                for item in kind.fields
                if item.tag is not None and version in item.versions
            }
            chosen = {tag for tag in self.rng.sample(TAGS, 2) if tag not in known}
            if chosen:
                found["unknown_tags"] = {
                    tag: self.rng.randbytes(self.rng.choice((0, 1, 2, 127)))
                    for tag in sorted(chosen)
                }
        return found

    def counted(self, kind: Struct, item: Field, type_: Counted, found: Value) -> bytes:
        """The bytes that a length counts. It sets the length."""
        length = next(each for each in kind.fields if each.name == type_.length)
        assert isinstance(length.type, Number)
        low, high = bounds(length.type.name)
        least = max(0, low - type_.minus, -type_.minus + low)
        most = min(high - type_.minus, 40)
        data = self.rng.randbytes(self.rng.randint(least, max(least, most)))
        found[type_.length] = len(data) + type_.minus
        return data

    def value(self, type_: Type, version: int, flexible: bool) -> Any:
        rng = self.rng
        match type_:
            case Number(name) | EnumOf(Enum(type=name)):
                if isinstance(type_, EnumOf) and rng.random() < 0.6:
                    return rng.choice(type_.enum.members)[0]
                return self.number(name)
            case Text(kind, nullable, prefix):
                if (prefix == "varint" or _in(nullable, version)) and rng.random() < 0.3:
                    return None
                length = rng.choice((0, 1, 2, 5)) if rng.random() < 0.9 else rng.choice(BORDERS)
                self.left -= length // 20
                if kind == "bytes":
                    return rng.randbytes(length)
                return "k" * length if length > 5 else "".join(rng.choices(LETTERS, k=length))
            case Array(element, nullable, _):
                if self.crowd:
                    self.left -= self.crowd
                    count = self.crowd if self.left > -1500 else 0
                    return [self.value(element, version, flexible) for _ in range(count)]
                if _in(nullable, version) and rng.random() < 0.3:
                    return None
                count = rng.choice((0, 1, 2, 3)) if self.left > 0 else 0
                if isinstance(element, Number) and rng.random() < 0.05:
                    count = rng.choice(BORDERS)
                self.left -= count
                return [self.value(element, version, flexible) for _ in range(count)]
            case Inline(kind, nullable):
                if nullable and rng.random() < 0.4:
                    return None
                self.left -= 1
                return self.struct(kind, version, flexible)
            case Named(kind, nullable):
                if nullable and rng.random() < 0.4:
                    return None
                self.left -= 1
                if kind.role == "versioned":
                    return self.message(kind, rng.choice(versions_of(kind)))
                return self.struct(kind, version, flexible)
        raise AssertionError(type_)

    def number(self, name: str) -> Any:
        rng = self.rng
        if name == "bool":
            return rng.random() < 0.5
        if name == "uuid":
            return UUID(int=rng.choice((0, rng.getrandbits(128), (1 << 128) - 1)))
        if name == "float64":
            return rng.choice((*REALS, rng.random()))
        if name == "float32":
            return rng.choice(REALS_32)
        low, high = bounds(name)
        if rng.random() < 0.5:
            return rng.choice(
                (0, 1, max(low, -1), low, high, min(high, 127), min(high, 128), max(low, -65))
            )
        return rng.randint(low, high) >> rng.randrange(8)


def _in(nullable: Versions | None, version: int) -> bool:
    return nullable is not None and version in nullable


def versions_of(kind: Struct) -> list[int]:
    """The versions of a struct that can be encoded alone, and some above if it has no last one."""
    if kind.highest is not None:
        return [*range(kind.lowest, kind.highest + 1)]
    if kind.role == "versioned":
        return [0, 1, 7, 32767]  # no version is named, so any value is accepted
    return [*range(kind.lowest, max(kind.lowest, 6) + 2)]


def build(cls: Any, kind: Struct, value: Value) -> Any:
    """An object of a generated class."""
    given = {
        info.name: _build(info.struct, item.type, value[item.name])
        for info, item in zip(fields(cls), kind.fields, strict=True)
    }
    result = cls(**given)
    return result.with_unknown_tags(value.get("unknown_tags"))


def _build(cls: Any, type_: Type, value: Any) -> Any:
    if isinstance(value, list):
        assert isinstance(type_, Array)
        return [_build(cls, type_.element, each) for each in value]
    if isinstance(value, dict):
        inner = struct_in(type_)
        assert inner is not None
        return build(cls, inner, value)
    return value


def plain(cls: Any, kind: Struct, version: int, flexible: bool, value: Value) -> dict[str, Any]:
    """What ``Layout.read`` returns: the fields that the bytes contain, by attribute."""
    if kind.role == "versioned":
        version = value[kind.fields[0].name]
        flexible = kind.flexible(version)
        if version not in versions_of(kind) and kind.highest is not None:
            # The default of a struct whose default version does not exist.
            return {fields(cls)[0].name: version}
    found = {
        info.name: _plain(
            info.struct, item.type, version, flexible and not item.classic, value[item.name]
        )
        for info, item in zip(fields(cls), kind.fields, strict=True)
        if has(item, version, flexible)
    }
    if value.get("unknown_tags"):
        found["unknown_tags"] = value["unknown_tags"]
    return found


def _plain(cls: Any, type_: Type, version: int, flexible: bool, value: Any) -> Any:
    if isinstance(value, list):
        assert isinstance(type_, Array)
        return [_plain(cls, type_.element, version, flexible, each) for each in value]
    if isinstance(value, dict):
        inner = struct_in(type_)
        assert inner is not None
        return plain(cls, inner, version, flexible, value)
    return value
