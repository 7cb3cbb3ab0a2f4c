"""The engine beside pure Python, for every request and response of Kafka at its newest version."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import kafka_wire

from krammar.wire.message import REPLACED
from tests.bench.peers import PURE
from tests.bench.timing import OURS, Statement, measure
from tests.generated.catalogue import Message
from tests.generated.strategies import samples
from tests.generated.values import build


@dataclass(frozen=True)
class Ratio:
    """How many times as long as the engine pure Python takes, for one message."""

    name: str
    decode: float
    encode: float


def ratios(*, rounds: int, slice_: float) -> list[Ratio]:
    """Measure all messages. Empty without the engine."""
    found = []
    for info in kafka_wire.requests() if REPLACED else ():
        for cls in (kafka_wire.request_class(info.key), kafka_wire.response_class(info.key)):
            found.append(_ratio(cls, rounds, slice_))
    return found


def _ratio(cls: Any, rounds: int, slice_: float) -> Ratio:
    version = cls.max_version
    value = _usual(cls, version)
    names = {"cls": cls, "data": value.encode(version), "value": value, "version": version}
    found = {}
    for verb, ours, pure in (
        ("decode", "cls.decode(data, version)", "pure(cls, data, version)"),
        ("encode", "value.encode(version)", "pure(value, version)"),
    ):
        statements = {
            OURS: Statement(ours, names),
            PURE: Statement(pure, {**names, "pure": REPLACED[verb]}),
        }
        found[verb] = measure(statements, rounds=rounds, slice_=slice_).ratio(PURE)
    return Ratio(cls.__name__, **found)


def _usual(cls: Any, version: int) -> Any:
    """A random value of middling size; the same in every run."""
    message = Message(kafka_wire, cls, (version,))
    plains = samples(message, version, seed=9)
    values = [build(message, message.layout(version), plain) for plain in plains]
    values.sort(key=lambda value: len(value.encode(version)))
    return values[len(values) // 2]
