"""The libraries we are compared with: the same message in each, as its documentation says to use it."""

from __future__ import annotations

import dataclasses
import datetime
import gc
import io
import re
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from importlib import import_module
from importlib.metadata import version as version_of
from typing import Any
from uuid import UUID

import kafka_wire
import kio.serial
from kafka.protocol import admin, consumer, metadata, producer

from krammar import __version__
from krammar.wire.message import REPLACED
from tests.bench.messages import CASES, Case
from tests.bench.timing import OURS, Statement

KAFKA_PYTHON = "kafka-python"
KIO = "kio"
# krammar without its engine.
PURE = "pure"
VERSIONS = {
    OURS: __version__,
    **{name: version_of(name) for name in (KAFKA_PYTHON, KIO, "aiokafka")},
}


@dataclass(frozen=True)
class Contender:
    """One library and one message."""

    name: str
    decode: Statement
    encode: Statement
    # Reads the bytes once, for the measurement of memory.
    load: Callable[[], Any]


class Disagreement(Exception):
    """A library cannot read or write this message, so there is no comparison."""


def contenders(case: Case) -> list[Contender]:
    """All libraries with one message, after a check that they read the same content from the same
    bytes and write the same bytes again."""
    built = case.build()
    cls = type(built)
    data = built.encode(version=case.version)
    ours = cls.decode(data, version=case.version, copy=case.copy)
    if ours != built or ours.encode(version=case.version) != data:
        raise Disagreement(f"{case.name}: krammar does not read what it wrote")
    expected = list(_leaves(kafka_wire.layout(cls, case.version).read(data)))
    names = {"cls": cls, "data": data, "value": ours, "version": case.version}
    copy = "" if case.copy else ", copy=False"
    found = [
        Contender(
            OURS,
            Statement(f"cls.decode(data, version=version{copy})", names),
            Statement("value.encode(version=version)", names),
            lambda: cls.decode(data, version=case.version),
        )
    ]
    if REPLACED:
        decode, encode = REPLACED["decode"], REPLACED["encode"]
        if encode(ours, case.version) != data:
            raise Disagreement(f"{case.name}: pure Python writes other bytes")
        pure = {**names, "decode": decode, "encode": encode}
        found.append(
            Contender(
                PURE,
                Statement(f"decode(cls, data, version=version{copy})", pure),
                Statement("encode(value, version=version)", pure),
                lambda: decode(cls, data, version=case.version),
            )
        )
    for make in (_kafka_python, _kio):
        contender, value, written = make(cls.__name__, case.version, data)
        content = list(_leaves(value))
        if content != expected:
            at = next(
                (
                    i
                    for i, pair in enumerate(zip(content, expected, strict=False))
                    if len({*pair}) > 1
                ),
                min(len(content), len(expected)),
            )
            raise Disagreement(
                f"{case.name}: {contender.name} reads {_short(content[at : at + 3])} as value {at}, "
                f"not {_short(expected[at : at + 3])}"
            )
        if written != data:
            raise Disagreement(f"{case.name}: {contender.name} writes other bytes")
        found.append(contender)
    return found


def frames() -> list[tuple[str, dict[str, Statement]]]:
    """Whole frames of a Heartbeat, with their headers, beside kio with the body alone."""
    case = next(case for case in CASES if case.name == "HeartbeatRequest")
    body = case.build().encode(version=case.version)
    header = kafka_wire.RequestHeader(
        request_api_key=12, request_api_version=case.version, correlation_id=7, client_id="orders"
    )
    frame = header.encode(version=2) + body
    parsed = kafka_wire.parse_request(frame)
    if parsed != (header, case.build()):
        raise Disagreement("parse_request: krammar does not read what it wrote")
    kio, _, _ = _kio("HeartbeatRequest", case.version, body)
    names = {"parse": kafka_wire.parse_request, "frame": frame}
    ours = Statement("parse(frame)", names)
    return [("`parse_request` of a Heartbeat; kio: its body alone", {OURS: ours, KIO: kio.decode})]


def memory(contender: Contender) -> int:
    """Bytes that the decoded message takes."""
    contender.load()  # what is made once, such as a compiled decoder, is no part of a message
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        value = contender.load()
        gc.collect()
        size = tracemalloc.get_traced_memory()[0] - before
        del value
    finally:
        tracemalloc.stop()
    return size


def _kafka_python(name: str, version: int, data: bytes) -> tuple[Contender, Any, bytes]:
    cls = next(
        getattr(module, name)
        for module in (metadata, consumer, producer, admin)
        if hasattr(module, name)
    )
    value = cls.decode(data, version=version)
    value._header = None  # decode leaves it unset, and encode looks at it
    names = {"cls": cls, "data": data, "value": value, "version": version}
    contender = Contender(
        KAFKA_PYTHON,
        Statement("cls.decode(data, version=version)", names),
        Statement("value.encode(version=version)", names),
        lambda: cls.decode(data, version=version),
    )
    return contender, value, value.encode(version=version)


def _kio(name: str, version: int, data: bytes) -> tuple[Contender, Any, bytes]:
    message, kind = re.fullmatch(r"(\w+)(Request|Response)", name).groups()  # type: ignore[union-attr]
    folder = re.sub(r"(?<!^)(?=[A-Z])", "_", message).lower()
    cls = getattr(import_module(f"kio.schema.{folder}.v{version}.{kind.lower()}"), name)
    read, write = kio.serial.entity_reader(cls), kio.serial.entity_writer(cls)
    value, size = read(data, 0)
    if size != len(data):
        raise Disagreement(f"{name}: kio reads {size} of {len(data)} bytes")
    names = {"read": read, "write": write, "data": data, "value": value, "BytesIO": io.BytesIO}
    encode = "out = BytesIO(); write(out, value); out.getvalue()"
    contender = Contender(
        KIO,
        Statement("read(data, 0)[0]", names),
        Statement(encode, names),
        lambda: read(data, 0)[0],
    )
    out = io.BytesIO()
    write(out, value)
    return contender, value, out.getvalue()


def _short(values: list[Any]) -> str:
    return repr([value[:20] if isinstance(value, bytes) else value for value in values])


def _leaves(value: Any) -> Iterator[Any]:
    """The values of a message's fields in wire order, each library's types brought to plain ones.

    Null and -1 are left out: an absent tagged struct is None to kafka-python and a struct of -1 to
    the others. That they are written again shows that they were read.
    """
    if isinstance(value, dict):  # a layout's reading
        for inside in value.values():
            yield from _leaves(inside)
    elif isinstance(value, (list, tuple)):
        yield len(value)
        for inside in value:
            yield from _leaves(inside)
    elif dataclasses.is_dataclass(value):  # kio
        for field in dataclasses.fields(value):
            yield from _leaves(getattr(value, field.name))
    elif hasattr(value, "_struct"):  # kafka-python
        for field in value._struct._fields:
            if field.for_version_q(value.version):
                inside = getattr(value, field.name)
                if field.type_str == "bitfield":
                    bits = {31} if inside is None else inside
                    inside = sum(1 << bit for bit in bits) - ((31 in bits) << 32)
                yield from _leaves(inside)
    elif isinstance(value, datetime.timedelta):
        yield value // datetime.timedelta(milliseconds=1)
    elif isinstance(value, datetime.datetime):
        yield round(value.timestamp() * 1000)
    elif isinstance(value, IntEnum):
        yield int(value)
    elif isinstance(value, UUID):
        yield from _leaves(value.int or None)
    elif value is not None and value != -1:
        yield value
