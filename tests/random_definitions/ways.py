"""Every way through the values of a protocol, compared with the reference codec."""

from __future__ import annotations

import copy
import json
import pickle
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from random import Random
from types import ModuleType
from typing import Any
from uuid import UUID

from krammar.wire.errors import EncodeError, WireError
from krammar.wire.reflection import entity_paths, fields, walker
from tests.random_definitions import reference
from tests.random_definitions.model import (
    Array,
    Counted,
    Package,
    Struct,
    Type,
    struct_in,
)
from tests.random_definitions.reference import Value, has, same
from tests.random_definitions.values import Values, build, plain, versions_of

# Elements without bytes that a message can have, as docs/definitions.md says.
EMPTY = 1024
# Bytes of memory for each byte of a message: an element of one byte becomes an object with all of its fields.
MEMORY = 2000


@dataclass
class Case:
    """A value of a struct at a version, with its bytes."""

    module: ModuleType
    kind: Struct
    version: int
    value: Value
    rng: Random

    @cached_property
    def cls(self) -> Any:
        return getattr(self.module, self.kind.name)

    @cached_property
    def data(self) -> bytes:
        return reference.encode(self.kind, self.version, self.value)

    @cached_property
    def message(self) -> Any:
        return build(self.cls, self.kind, self.value)

    @cached_property
    def layout(self) -> Any:
        return self.module.layout(self.cls, self.version)

    @property
    def arguments(self) -> tuple[int, ...]:
        """What encode and decode need beside the value: nothing, if the value has its version."""
        return () if self.kind.role == "versioned" else (self.version,)

    @property
    def plain(self) -> dict[str, Any]:
        return plain(
            self.cls, self.kind, self.version, self.kind.flexible(self.version), self.value
        )


def expect(condition: object, text: str, *values: object) -> None:
    """Fail with some values."""
    if not condition:
        raise AssertionError("\n  ".join([text, *map(repr, values)]))


def codec(case: Case) -> None:
    """encode, encode_into, decode and decode_from."""
    cls, data, message = case.cls, case.data, case.message
    encoded = message.encode(*case.arguments)
    expect(encoded == data, "encode", encoded, data, message)
    out = bytearray(b"ab")
    message.encode_into(out, *case.arguments)
    expect(out == b"ab" + data, "encode_into", bytes(out), data)
    for form in (bytes, bytearray, memoryview):
        decoded = cls.decode(form(data), *case.arguments)
        expect(decoded == message, f"decode {form.__name__}", decoded, message, data)
    expect(identical(decoded, message), "decode", decoded, message)
    expect(cls.decode(data, *case.arguments, copy=False) == message, "decode without copy", data)
    padded = b"\xff" + data + b"\x01\x02"
    for whole in (padded, memoryview(padded)):
        part, end = cls.decode_from(whole, 1, *case.arguments)
        expect(part == message and end == 1 + len(data), "decode_from", part, end)


def layouts(case: Case) -> None:
    """What a layout reads, writes, measures and traces."""
    layout, data = case.layout, case.data
    found = layout.read(data)
    expect(same(found, case.plain), "Layout.read", found, case.plain)
    for given in (case.plain, case.message):
        written = layout.write(given)
        expect(written == data, "Layout.write", written, data, given)
        expect(layout.size_of(given) == len(data), "Layout.size_of")
        expect(layout.validate(given) is given, "Layout.validate")
    root = layout.trace(data)
    expect(root.offset == 0 and root.end == len(data), "Layout.trace", root.offset, root.end)
    for _, node in root.walk():
        expect(0 <= node.offset <= node.end <= len(data), "a node of the trace", node)
    expect(str(layout).startswith(case.kind.name), "str(layout)", str(layout))


def newer(case: Case) -> None:
    """A newer version is read as the newest, whatever bytes follow."""
    kind = case.kind
    if not kind.reads_newer or case.version != kind.highest:
        return
    for version in (kind.highest + 1, 32767):
        data = version.to_bytes(2, "big") + case.data[2:] + case.rng.choice((b"", b"\xff\x00"))
        found = case.cls.decode(data)
        expect(identical(found, case.message), "a newer version", data, found, case.message)
        part, end = case.cls.decode_from(b"ab" + data, 2)
        expect(identical(part, case.message) and end == 2 + len(data), "decode_from", part, end)


def lengths(case: Case) -> None:
    """Encoding ignores the values of lengths, and ``with_lengths`` says what it writes."""
    wrong = _with_wrong_lengths(case.message, case.kind, case.rng)
    if wrong is None:
        return
    data = wrong.encode(*case.arguments)
    expect(data == case.data, "encode with other lengths", data, case.data, wrong)
    found = case.cls.decode(data, *case.arguments)
    expect(identical(found, wrong.with_lengths()), "with_lengths", found, wrong.with_lengths())
    expect(case.layout.write(wrong) == data, "Layout.write with other lengths", wrong)


def _with_wrong_lengths(message: Any, kind: Struct, rng: Random) -> Any:
    """A copy of a message whose own lengths are wrong, or None if it has none."""
    made = None
    counting = {item.type.length for item in kind.fields if isinstance(item.type, Counted)}
    for info, item in zip(fields(type(message)), kind.fields, strict=True):
        if item.name in counting:
            made = copy.copy(message) if made is None else made
            setattr(made, info.name, rng.choice((0, 3, 100)))
    return made


def dictionaries(case: Case) -> None:
    """to_dict and from_dict, through JSON."""
    text = json.dumps(case.message.to_dict())
    again = case.cls.from_dict(json.loads(text))
    expect(identical(again, case.message), "from_dict(to_dict)", again, case.message)
    expect(again.encode(*case.arguments) == case.data, "from_dict(to_dict).encode")


def copies(case: Case) -> None:
    """pickle, copy, deepcopy and copy.replace."""
    message = case.message
    made_by = {
        "pickle": pickle.loads(pickle.dumps(message)),
        "copy": copy.copy(message),
        "deepcopy": copy.deepcopy(message),
        "replace": message.__replace__(),
        "with_lengths": message.with_lengths(),
    }
    for name, made in made_by.items():
        expect(type(made) is type(message) and identical(made, message), name, made, message)


def representation(case: Case) -> None:
    """repr can be pasted."""
    scope = {name: getattr(case.module, name) for name in dir(case.module) if name[0].isupper()}
    if "UUID" in scope:
        return  # the definition has the name of Python's class
    text = repr(case.message)
    again = eval(text, {**scope, "UUID": UUID})
    expect(identical(again, case.message), "eval(repr)", text)


def reflected(case: Case) -> None:
    """Entities: the walker finds and replaces what the reference finds."""
    entities = sorted({item.entity for item in _fields_in(case.kind) if item.entity})
    for wanted in entities:
        expected = list(
            _entities(case.kind, case.version, case.kind.flexible(case.version), case.value, wanted)
        )
        found: list[Any] = []
        walk = walker(case.cls, case.version, wanted)
        walk(case.message, found.append)
        expect(same(found, expected), f"walker {wanted}", found, expected)
        if expected:
            expect(entity_paths(case.cls, case.version, wanted), "entity_paths", wanted)
    infos = fields(case.cls)
    expect(len(infos) == len(case.kind.fields), "fields", infos)
    fresh = case.cls()
    for info, item in zip(infos, case.kind.fields, strict=True):
        expect(info.tag == item.tag and info.ignorable == item.is_dropped, "FieldInfo", info)
        expect(info.entity == item.entity, "FieldInfo.entity", info)
        default = getattr(fresh, info.name)
        if isinstance(item.default, dict):
            inner = struct_in(item.type)
            assert inner is not None
            expect(identical(default, build(info.struct, inner, item.default)), "default", default)
        else:
            expect(same(default, item.default), "default", default, item.default)


def refusals(case: Case) -> None:
    """Wrong values raise EncodeError, and leave the buffer as it was."""
    infos = fields(case.cls)
    flexible = case.kind.flexible(case.version)
    for info, item in zip(infos, case.kind.fields, strict=True):
        wrong = case.rng.choice(
            (object(), 1 << 70, "x\ud800", [object()], [None], {}, 1.5, b"\xff", None, -1, [[]])
        )
        broken = copy.copy(case.message)
        setattr(broken, info.name, wrong)
        out = bytearray(b"ab")
        try:
            broken.encode_into(out, *case.arguments)
        except WireError:
            expect(out == b"ab", "encode_into after an error", bytes(out))
        except Exception as error:
            raise AssertionError(f"{info.name} = {wrong!r}: {error!r}") from error
        if not has(item, case.version, flexible) and not isinstance(item.default, dict):
            other = next(
                value for value in (5, 0, True, False, "y", b"z", [], None) if value != item.default
            )
            broken = copy.copy(case.message)
            setattr(broken, info.name, other)
            try:
                encoded = broken.encode(*case.arguments)
                expect(
                    item.is_dropped and encoded == case.data,
                    "an absent field is lost",
                    info.name,
                    other,
                )
            except EncodeError:
                expect(not item.is_dropped, "an ignorable field is refused", info.name, other)


def mutations(case: Case) -> None:
    """Changed bytes are a value or a WireError, the same for the decoder, the layout and the reference."""
    for data in mutated(case.rng, case.data):
        version = case.version
        if case.kind.role == "versioned" and len(data) > 1:
            version = int.from_bytes(data[:2], "big", signed=True)
        read = _outcome(_read, case, version, data)
        decoded = _outcome(case.cls.decode, data, *case.arguments)
        is_newer = reference.is_newer(case.kind, data)  # no layout has such a version
        expect(
            is_newer or isinstance(decoded, WireError) == isinstance(read, WireError),
            "decoder and layout differ",
            data,
            decoded,
            read,
        )
        try:
            expected: Any = reference.decode(case.kind, data, case.version)
        except reference.Unbounded:
            continue
        except reference.Invalid:
            expect(isinstance(decoded, WireError), "invalid bytes are accepted", data, decoded)
            continue
        if isinstance(decoded, WireError):
            raise AssertionError(f"valid bytes are refused: {data!r}\n  {decoded}\n  {expected}")
        if _has_nan(expected):
            continue
        message = build(case.cls, case.kind, expected)
        expect(identical(decoded, message), "decode", data, decoded, message)
        if is_newer:
            continue
        shown = plain(case.cls, case.kind, version, case.kind.flexible(version), expected)
        expect(same(read, shown), "Layout.read", data, read, shown)


def bounded(case: Case) -> None:
    """Memory stays within a multiple of the bytes. Of elements without bytes, a message has at most ``EMPTY``."""
    if case.rng.random() < 0.95 or not any(
        isinstance(i.type, Array) for i in _fields_in(case.kind)
    ):
        return  # one in twenty, because measuring memory takes long
    value = Values(case.rng, crowd=40).message(case.kind, case.version)
    empty = reference.empty_elements(
        case.kind, case.version, case.kind.flexible(case.version), value
    )
    data = reference.encode(case.kind, case.version, value)
    for name, read in (
        ("decode", lambda: case.cls.decode(data, *case.arguments)),
        ("Layout.read", lambda: case.layout.read(data)),
    ):
        tracemalloc.start()
        try:
            found = _outcome(read)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        expect(peak < MEMORY * len(data) + 2_000_000, f"memory of {name}", peak, len(data))
        expect(
            isinstance(found, WireError) == (empty > EMPTY),
            f"{name} of {empty} elements without bytes",
            found,
        )


VALUE_WAYS: tuple[Callable[[Case], None], ...] = (
    codec,
    newer,
    lengths,
    layouts,
    dictionaries,
    copies,
    representation,
    reflected,
    refusals,
    mutations,
    bounded,
)


def identical(one: Any, other: Any) -> bool:
    """Whether two objects are equal, bit by bit."""
    if hasattr(one, "_fields"):
        return (
            type(one) is type(other)
            and (one._unknown_tags or None) == (other._unknown_tags or None)
            and all(identical(getattr(one, name), getattr(other, name)) for name in one._fields)
        )
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(identical, one, other))
    if isinstance(one, int) and isinstance(other, int) and not isinstance(one, bool):
        return not isinstance(other, bool) and one == other  # an enum's member is its number
    return same(one, other)


def cases(package: Package, module: ModuleType, rng: Random, each: int) -> Iterator[Case]:
    """Random values of all structs of a package that can be encoded alone, in all versions."""
    values = Values(rng)
    for kind in package.structs:
        if kind.encodes:
            for version in versions_of(kind):
                for _ in range(each):
                    yield Case(module, kind, version, values.message(kind, version), rng)


def _read(case: Case, version: int, data: bytes) -> Any:
    return case.module.layout(case.cls, version).read(data)


def _outcome(action: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return action(*arguments)
    except WireError as error:
        return error


def mutated(rng: Random, data: bytes) -> Iterator[bytes]:
    """Changed, shortened and longer bytes."""
    yield data[: rng.randrange(len(data) + 1)]
    yield data + rng.randbytes(1)
    for _ in range(6):
        changed = bytearray(data)
        for _ in range(rng.choice((1, 1, 2, 4))):
            if not changed:
                break
            at = rng.randrange(len(changed))
            kind = rng.randrange(4)
            if kind == 0:
                changed[at] ^= 1 << rng.randrange(8)
            elif kind == 1:
                changed[at] = rng.choice((0, 1, 2, 0x7F, 0x80, 0xFF, 0xFE))
            elif kind == 2:
                del changed[at : at + rng.choice((1, 2, 4))]
            else:
                changed[at:at] = rng.randbytes(rng.choice((1, 2)))
        yield bytes(changed)


def _fields_in(kind: Struct) -> Iterator[Any]:
    for item in kind.fields:
        yield item
        inner = struct_in(item.type)
        if inner is not None:
            yield from _fields_in(inner)


def _entities(
    kind: Struct, version: int, flexible: bool, value: Value, wanted: str
) -> Iterator[Any]:
    """The values of an entity, in the order of the layout: tagged fields come last, by tag."""
    if kind.role == "versioned":
        version = value[kind.fields[0].name]
        flexible = kind.flexible(version)
        if version not in versions_of(kind) and kind.highest is not None:
            return  # a default whose version does not exist has no fields
    for item in sorted(kind.fields, key=lambda item: -1 if item.tag is None else item.tag):
        if has(item, version, flexible):
            yield from _entity_values(
                item.type,
                version,
                flexible and not item.classic,
                value[item.name],
                wanted,
                item.entity == wanted,
            )


def _entity_values(
    type_: Type, version: int, flexible: bool, value: Any, wanted: str, named: bool
) -> Iterator[Any]:
    if value is None:
        return
    if isinstance(type_, Array):
        for each in value:
            yield from _entity_values(type_.element, version, flexible, each, wanted, named)
    elif isinstance(value, dict):
        inner = struct_in(type_)
        assert inner is not None
        yield from _entities(inner, version, flexible, value, wanted)
    elif named:
        yield value


def _has_nan(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_nan, value.values()))
    if isinstance(value, list):
        return any(map(_has_nan, value))
    return isinstance(value, float) and value != value
