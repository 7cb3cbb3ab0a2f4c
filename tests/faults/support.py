"""Messages for the engine's tests."""

from __future__ import annotations

from typing import Any

import kafka_wire

from krammar.faults import Faults, Talk
from krammar.faults.steps import Exchange
from krammar.wire.layout import Array, Layout, Nested
from krammar.wire.message import kinds_of, named
from krammar.wire.package import package_of

PACKAGE = package_of(kafka_wire)


def exchange(request: Any, version: int, *, client_id: str = "test", **known: Any) -> Exchange:
    """Return an exchange, as an adapter builds it for a request."""
    known = {"connection": 1, **known}
    return Exchange(
        known.pop("connection"), request.api_key, version, 7, client_id, request, b"frame", **known
    )


def engine(**options: Any) -> tuple[Faults, Talk]:
    """Return rules of faults, and the talk of one connection."""
    faults = Faults(kafka_wire, **options)
    return faults, faults.talk()


def filled(cls: Any, layout: Layout) -> Any:
    """A message in which every array has one element."""
    message = cls()
    for field in layout.fields:
        kind = field.type
        if isinstance(kind, Array):
            element = kind.element
            if isinstance(element, Nested):
                inner = named(cls, kinds_of(cls)[field.name])
                setattr(message, field.name, [filled(inner, element.layout)])
            elif not isinstance(element, Array):
                value = getattr(element, "kind", "") == "string"
                setattr(message, field.name, ["x"] if value else [_zero(element)])
    return message


def _zero(kind: Any) -> Any:
    from uuid import UUID

    if getattr(kind, "kind", "") == "bytes":
        return b""
    return UUID(int=1) if getattr(kind, "code", "") == "16s" else 0
