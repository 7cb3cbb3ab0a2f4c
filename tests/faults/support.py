"""Messages for the engine's tests."""

from __future__ import annotations

import inspect
from contextlib import suppress
from typing import Any

import kafka_wire

from krammar.faults import Faults
from krammar.faults.action import Occasion
from krammar.proxy import Close, Connection, Exchange
from krammar.wire.layout import Array, Layout, Nested
from krammar.wire.package import package_of
from krammar.wire.representation import kinds_of, named

PACKAGE = package_of(kafka_wire)


async def _no_broker(exchange: Exchange, request: Any, version: int | None) -> Any:
    raise ConnectionError("there is no broker")


def exchange(
    request: Any,
    version: int,
    *,
    client_id: str = "test",
    connection: int = 1,
    node: int | None = None,
    principal: str | None = None,
) -> Exchange:
    """Return the exchange of a request, as proxy and broker create it."""
    client = Connection(connection, "client:1", "broker:1")
    client.node, client.principal = node, principal
    known = Exchange(client, request.api_key, version, 7, client_id, _no_broker)
    known.request, known.received = request, (b"frame", 0)
    return known


class Talk:
    """A connection through rules, without a broker.

    Its methods return what the rules decide, and None if no rule acts.
    """

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._state: dict[Any, Any] = {}

    def request(self, known: Exchange) -> Occasion | None:
        """Pass a request."""
        known.connection.state = self._state
        with suppress(Close):
            result = self._faults.on_request(known.request, known)
            if inspect.iscoroutine(result):  # it waits
                result.close()
        occasion: Occasion = known.state[self._faults]
        return occasion if occasion.fired or occasion.outcome is not None else None

    def response(self, known: Exchange, response: Any) -> Occasion | None:
        """Pass a response. A request that has not passed yet passes before."""
        before = known.state.get(self._faults)
        if before is None or before.response is not None:
            known.delivery = None
            self.request(known)
        self._faults.on_response(response, known)
        occasion: Occasion = known.state[self._faults]
        return occasion if known.delivery is not None or occasion.changed else None


def engine(**options: Any) -> tuple[Faults, Talk]:
    """Return rules of faults, and the talk of one connection."""
    faults = Faults(kafka_wire, **options)
    return faults, Talk(faults)


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
