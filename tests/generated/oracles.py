"""Other implementations of Kafka's protocol, driven by our layouts: kio and kafka-python.

An oracle knows some messages in some versions. Each gives a ``Shape`` for those it knows: its own
fields, in its own order, found by looking at its classes and not at ours. A shape and a layout are
walked side by side, so plain forms (see ``values``) turn into the oracle's objects and back.

What an oracle cannot hold is brought into its range first (``fit``), by the kind of the field:

- kio's ``error_code`` is an enum of the codes of its release;
- kio's ``timedelta_i32/i64`` and ``datetime_i64`` go through floating-point seconds, and dates
  begin in 1970;
- kafka-python's ``bitfield`` is a set of bits, where ``None`` stands for {31}.

Unknown tagged fields: kio fails on them with a KeyError, where the protocol asks a reader to skip them.
kafka-python 3's classes keep them in ``unknown_tags`` but never write them, and fail on them inside a struct
that is itself a tagged field.

kafka-python has two generations of classes: those of release 3, made from Kafka's schemas, and older ones
written by hand (``kafka.protocol.old``), which serve here for the versions that the first do not know.
"""

from __future__ import annotations

import datetime
import importlib
import io
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import Any

import kafka.coordinator.assignors.sticky.user_data  # defines a subclass of ApiData
import kafka.protocol
import kafka.protocol.old
from kafka.protocol.api_data import ApiData
from kafka.protocol.api_header import ApiHeader
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.old import types as old_types
from kafka.protocol.old.api import Request as OldRequest
from kafka.protocol.old.api import Response as OldResponse
from kio.index import load_entity_schema
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.serial._introspect import EntityField, EntityTupleField, classify_field

from krammar.wire.layout import Array, Field, Layout, Nested, default_of
from tests.generated.catalogue import Message, by_name
from tests.generated.strategies import NULL_UUID
from tests.generated.values import Plain, same

NOT_SAID = object()
MILLISECOND = datetime.timedelta(milliseconds=1)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
# Greatest numbers of milliseconds that survive kio's way through float seconds, to the millisecond.
EXACT_SPAN = 1 << 50
EXACT_DATE = 8_000_000_000_000
KIO_CODES = sorted(code.value for code in KioErrorCode)


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Kind:
    """How values of one kind of an oracle's fields relate to plain ones."""

    to_oracle: Callable[[Any], Any] = _same
    to_plain: Callable[[Any], Any] = _same
    fit: Callable[[Any], Any] = _same


def _bits(value: int) -> set[int] | None:
    found = {bit for bit in range(32) if value >> bit & 1}
    return None if found == {31} else found


def _from_bits(bits: set[int] | None) -> int:
    number = sum(1 << bit for bit in ({31} if bits is None else bits))
    return number - (1 << 32) if number >> 31 else number


PLAIN = Kind()
UUIDS = Kind(lambda u: None if u == NULL_UUID else u, lambda u: NULL_UUID if u is None else u)
BYTES = Kind(to_plain=lambda data: None if data is None else bytes(data))
KINDS = {
    "error_code": Kind(
        KioErrorCode, lambda code: int(code.value), lambda n: KIO_CODES[n % len(KIO_CODES)]
    ),
    "timedelta_i32": Kind(lambda n: n * MILLISECOND, lambda delta: delta // MILLISECOND),
    "timedelta_i64": Kind(
        lambda n: n * MILLISECOND,
        lambda delta: delta // MILLISECOND,
        lambda n: n if abs(n) <= EXACT_SPAN else n % EXACT_SPAN,
    ),
    "datetime_i64": Kind(
        lambda n: EPOCH + n * MILLISECOND,
        lambda date: (date - EPOCH) // MILLISECOND,
        lambda n: n if 0 <= n <= EXACT_DATE else n % EXACT_DATE,
    ),
    "uuid": UUIDS,
    "bytes": BYTES,
    "records": BYTES,
    "bitfield": Kind(_bits, _from_bits),
}


# Fields that an oracle needs to have one value. kafka-python decodes every ApiVersionsResponse with an
# error at version 0, though only UNSUPPORTED_VERSION is answered so (KIP-511).
ONLY: dict[tuple[str, str], Plain] = {("kafka-python", "ApiVersionsResponse"): {"error_code": 0}}

# What an oracle has wrong, with the reason: it does not count as known.
WRONG = {
    (
        "kafka-python-old",
        "DescribeLogDirsRequest",
        0,
    ): "Partitions is a single int32 there; Kafka's schema has an array of int32 since version 0.",
}


@dataclass
class Slot:
    """A field of an oracle's struct. ``nullable`` and ``default`` are None and NOT_SAID where the
    oracle does not say."""

    name: str
    kind: Kind = PLAIN
    shape: Shape | None = None
    array: bool = False
    nullable: bool | None = None
    default: Any = NOT_SAID


@dataclass
class Shape:
    """A struct as an oracle has it: plain fields in the order of the wire, tagged fields by tag."""

    slots: list[Slot]
    tags: dict[int, Slot] = field(default_factory=dict)
    make: Callable[[dict[str, Any]], Any] = dict
    read: Callable[[Any, Slot], Any] = lambda value, slot: getattr(value, slot.name)
    # The unknown tags of a decoded object; None where the oracle fails on unknown tags.
    unknown: Callable[[Any], dict[int, bytes]] | None = None


@dataclass(repr=False)
class Known:
    """A message at a version, as an oracle knows it."""

    oracle: str
    message: Message
    version: int
    layout: Layout
    shape: Shape
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    # The size of our version field, which the oracle does not know.
    skip: int = 0

    def __repr__(self) -> str:
        return f"<{self.oracle}: {self.message.name} v{self.version}>"

    @property
    def pairs(self) -> list[tuple[Field, Slot]]:
        return pairs(self.layout, self.shape)

    def fit(self, plain: Plain) -> Plain:
        """``plain``, with what the oracle cannot hold brought into its range; our version field,
        which the oracle may not have, stays."""
        fitted = _fit(self.layout, self.shape, plain, inside_tag=False)
        outside = {name: value for name, value in plain.items() if name != "unknown_tags"}
        return {**outside, **fitted, **ONLY.get((self.oracle, self.message.name), {})}

    def build(self, plain: Plain) -> Any:
        """The oracle's object, without unknown tags: none of them writes those."""
        return _build(self.layout, self.shape, plain)

    def content(self, value: Any) -> Plain:
        """The plain form of the oracle's object."""
        return _content(self.layout, self.shape, value)


def pairs(layout: Layout, shape: Shape) -> list[tuple[Field, Slot]]:
    """Return pairs of our fields and the oracle's. Raises AssertionError if their number or tags differ."""
    ours = layout.fields
    if len(ours) != len(shape.slots):
        raise AssertionError(
            f"{layout.name} v{layout.version}: fields {[f.name for f in ours]} are not "
            f"{[slot.name for slot in shape.slots]}"
        )
    found = list(zip(ours, shape.slots, strict=True))
    tags = {item.tag: item for item in layout.tags}
    if tags.keys() != shape.tags.keys():
        raise AssertionError(
            f"{layout.name} v{layout.version}: tags {set(tags)} are not {set(shape.tags)}"
        )
    return found + [(tags[tag], slot) for tag, slot in sorted(shape.tags.items())]


def inner(item: Field) -> Layout:
    """Return the layout of the struct in a field or in its array."""
    type_ = item.type.element if isinstance(item.type, Array) else item.type
    assert isinstance(type_, Nested), f"{item.name} is {type_}, no struct"
    return type_.layout


def _map(item: Field, slot: Slot, value: Any, leaf: Callable[[Any], Any], struct: Any) -> Any:
    def one(value: Any) -> Any:
        if slot.shape is None:
            return leaf(value)
        return None if value is None else struct(inner(item), slot.shape, value)

    if not slot.array:
        return one(value)
    return None if value is None else [one(element) for element in value]


def _fit(layout: Layout, shape: Shape, plain: Plain, *, inside_tag: bool) -> Plain:
    fitted: Plain = {}
    for item, slot in pairs(layout, shape):
        inside = inside_tag or item.tag is not None

        def struct(inner: Layout, of: Shape, value: Plain, inside: bool = inside) -> Plain:
            return _fit(inner, of, value, inside_tag=inside)

        value = plain[item.name]
        if value is None and slot.nullable is False and item.tag is None:
            value = default_of(item) or b""  # see NULLS in test_oracles
        fitted[item.name] = _map(item, slot, value, slot.kind.fit, struct)
    if "unknown_tags" in plain and shape.unknown is not None and not inside_tag:
        fitted["unknown_tags"] = plain["unknown_tags"]
    return fitted


def _build(layout: Layout, shape: Shape, plain: Plain) -> Any:
    values: dict[str, Any] = {}
    for item, slot in pairs(layout, shape):
        value = plain[item.name]
        if item.tag is not None and slot.default is None and same(value, default_of(item)):
            values[slot.name] = None  # kafka-python has None where Kafka has a struct of defaults
        else:
            values[slot.name] = _map(item, slot, value, slot.kind.to_oracle, _build)
    return shape.make(values)


def _content(layout: Layout, shape: Shape, value: Any) -> Plain:
    plain: Plain = {}
    for item, slot in pairs(layout, shape):
        found = shape.read(value, slot)
        if item.tag is not None and found is None and slot.default is None:
            plain[item.name] = default_of(item)
        else:
            plain[item.name] = _map(item, slot, found, slot.kind.to_plain, _content)
    unknown = shape.unknown(value) if shape.unknown is not None else None
    if unknown:
        plain["unknown_tags"] = unknown
    return plain


# ---- kio ---------------------------------------------------------------------------------------


@cache
def kio() -> dict[tuple[str, int], Known]:
    """Everything that kio's index lists, by our names and versions."""
    ours = by_name()
    found = {}
    for name, versions in schema_name_map.items():
        for version, kinds in versions.items():
            for kind in kinds:
                entity = load_entity_schema(name, version, kind)
                message = ours[entity.__name__]
                found[message.name, int(version)] = _kio(message, int(version), entity)
    return found


def _kio(message: Message, version: int, entity: Any) -> Known:
    shape = _kio_shape(entity)
    reader: Any = entity_reader(entity)
    writer = entity_writer(entity)

    def decode(data: bytes) -> Any:
        value, end = reader(data, 0)
        assert end == len(data), f"kio read {end} of {len(data)} bytes"
        return value

    def encode(value: Any) -> bytes:
        out = io.BytesIO()
        writer(out, value)
        return out.getvalue()

    layout = message.layout(version)
    skip = 0
    if message.version_field and not any(s.name == "version" for s in shape.slots[:1]):
        # Kafka's schemas of the consumer protocol begin behind the version.
        skip = 2
        layout = _without_version(layout)
    return Known("kio", message, version, layout, shape, encode, decode, skip)


def _without_version(layout: Layout) -> Layout:
    return Layout(layout.name, layout.version, layout.flexible, layout.fields[1:], layout.tags)


@cache
def _kio_shape(entity: Any) -> Shape:

    def make(values: dict[str, Any]) -> Any:
        # Tagged arrays are compared with the default (), so a list would always be written.
        return entity(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})

    shape = Shape([], make=make)
    for item in fields(entity):
        form = classify_field(item)
        kafka_type = item.metadata.get("kafka_type", "")
        nested = isinstance(form, (EntityField, EntityTupleField))
        kind = KINDS.get(kafka_type, PLAIN)
        array = bool(form.is_array)
        nullable = None
        if kafka_type != "uuid":  # None stands for the null uuid
            nullable = str(item.type).endswith("| None")
        slot = Slot(
            item.name,
            kind,
            _kio_shape(form.type_) if nested else None,
            array,
            nullable,
            NOT_SAID if item.default is MISSING else item.default,
        )
        if "tag" in item.metadata:
            shape.tags[item.metadata["tag"]] = slot
        else:
            shape.slots.append(slot)
    return shape


# ---- kafka-python 3: classes made from Kafka's schemas -----------------------------------------


@cache
def kafka_python() -> dict[tuple[str, int], Known]:
    """Every message, header and data class of kafka-python, in the versions that it declares valid.

    Its classes take versions below those as well, but the schemas have lost the fields of them.
    """
    for module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        if not module.name.endswith("generate_stubs"):
            importlib.import_module(module.name)
    ours = by_name()
    found = {}
    for base in (ApiMessage, ApiData, ApiHeader):
        for cls in _below(base):
            if getattr(cls, "_class_version", None) is not None:
                continue  # a view of the class at one version
            low, high = cls._valid_versions
            for version in range(low, high + 1):
                message = ours[cls.__name__]
                found[message.name, version] = _kafka_python(message, version, cls, base)
    return found


def _below(cls: type) -> Iterator[Any]:
    sub: Any
    for sub in cls.__subclasses__():
        yield sub
        yield from _below(sub)


def _kafka_python(message: Message, version: int, cls: Any, base: type) -> Known:
    layout = message.layout(version)
    skip = 0
    if message.version_field:
        layout = _without_version(layout)
        skip = 2
    flexible = layout.flexible
    if base is ApiHeader:

        def decode(data: bytes) -> Any:
            stream = io.BytesIO(data)
            value = cls.decode(stream, flexible=flexible)
            assert stream.tell() == len(data)
            return value

        def encode(value: Any) -> bytes:
            data: bytes = value.encode(flexible=flexible)
            return data

    elif base is ApiData:

        def decode(data: bytes) -> Any:
            stream = io.BytesIO(data)
            value = cls.decode(stream, version=version, header=False)
            assert stream.tell() == len(data)
            return value

        def encode(value: Any) -> bytes:
            data: bytes = value.encode(version=version, header=False)
            return data

    else:

        def decode(data: bytes) -> Any:
            value = cls.decode(data, version=version)
            value._header = None  # only its constructor sets it, and DeleteTopicsRequest needs it
            return value

        def encode(value: Any) -> bytes:
            data: bytes = value.encode()
            return data

    shape = _kp_shape(cls._struct, version, cls)
    return Known("kafka-python", message, version, layout, shape, encode, decode, skip)


def _kp_shape(struct: Any, version: int, cls: Any) -> Shape:
    def make(values: dict[str, Any]) -> Any:
        return cls(version=version, **values)

    def unknown(value: Any) -> dict[int, bytes]:
        tags = value.unknown_tags or {}
        return {int(name[1:]): data for name, data in tags.items()}

    return Shape(
        [_kp_slot(item, version) for item in struct.untagged_fields(version)],
        {tag: _kp_slot(item, version) for tag, item in struct.tagged_fields(version)._tags.items()},
        make,
        unknown=unknown,
    )


def _kp_slot(item: Any, version: int) -> Slot:
    array = item.is_array()
    inner = item.array_of if array else item
    shape = _kp_shape(inner, version, inner.data_class) if inner.is_struct() else None
    kind = KINDS.get(inner.type_str, PLAIN) if shape is None else PLAIN
    default = NOT_SAID if shape is not None and not array and item.tag is None else item.default
    nullable = item.nullable_for_version_q(version)
    return Slot(item.name, kind, shape, array, nullable, default)


# ---- kafka-python's older classes: manual schemas, one class per version -----------------


@cache
def kafka_python_old() -> dict[tuple[str, int], Known]:
    """The classes of kafka-python before version 3, for messages that the newer ones do not know."""
    for module in pkgutil.iter_modules(kafka.protocol.old.__path__, "kafka.protocol.old."):
        importlib.import_module(module.name)
    ours = by_name()
    found = {}
    for cls in (*_below(OldRequest), *_below(OldResponse)):
        name, mark, number = cls.__name__.rpartition("_v")
        if not mark:
            continue
        wrong = ("kafka-python-old", name, int(number)) in WRONG
        if not wrong and (name, int(number)) not in kafka_python():
            found[name, int(number)] = _kafka_python_old(ours[name], int(number), cls)
    return found


def _kafka_python_old(message: Message, version: int, cls: Any) -> Known:
    layout = message.layout(version)
    shape = _old_shape(cls.SCHEMA, cls)

    def decode(data: bytes) -> Any:
        stream = io.BytesIO(data)
        value = cls.decode(stream)
        assert stream.tell() == len(data)
        return value

    def encode(value: Any) -> bytes:
        data: bytes = value.encode()
        return data

    return Known("kafka-python-old", message, version, layout, shape, encode, decode)


def _old_shape(schema: Any, cls: Any = None) -> Shape:
    names = schema.names
    place = {name: index for index, name in enumerate(names)}

    def make(values: dict[str, Any]) -> Any:
        return cls(**values) if cls else tuple(values[name] for name in names)

    def read(value: Any, slot: Slot) -> Any:
        return getattr(value, slot.name) if cls else value[place[slot.name]]

    return Shape(
        [_old_slot(name, type_) for name, type_ in zip(names, schema.fields, strict=True)],
        make=make,
        read=read,
    )


def _old_slot(name: str, type_: Any) -> Slot:
    array = isinstance(type_, old_types.Array)
    inner = type_.array_of if array else type_
    if isinstance(inner, old_types.Schema):
        return Slot(name, shape=_old_shape(inner), array=array)
    kinds = {old_types.UUID: KINDS["uuid"], old_types.BitField: KINDS["bitfield"]}
    return Slot(name, kinds.get(inner, PLAIN), array=array)


ORACLES: dict[str, Callable[[], dict[tuple[str, int], Known]]] = {
    "kio": kio,
    "kafka-python": kafka_python,
    "kafka-python-old": kafka_python_old,
}
