"""Makes the rules a filter, which runs in a broker or a proxy on the message-versions that rules name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from copy import copy
from functools import partial
from typing import Any, Protocol

from krammar.faults.names import LearnedNames
from krammar.faults.rules import Rule
from krammar.faults.shape import Schema
from krammar.faults.steps import Delivery, Exchange, Fate, StepTo, Verdict
from krammar.proxy.interface import SILENCE, Close, Connection, Filter, Method, Named
from krammar.proxy.interface import Exchange as Exchanged

# Names of topics are learned from the responses of this API, even if no rule applies to it.
_METADATA = "Metadata"


class Decides(Protocol):
    """The engine's side of a connection."""

    def request(self, exchange: Exchange) -> Verdict | None: ...
    def response(self, exchange: Exchange, message: Any) -> Delivery | None: ...
    def steps(self, delivery: Delivery, frame: bytes) -> list[StepTo]: ...


class FaultFilter(Filter):
    """The rules as a filter.

    ``rules``    the rules, in their order
    ``advance``  sets the broker's clock ahead, by milliseconds; also for members of groups if the second argument is true;
                 that of one node if the third is not None
    """

    in_place = False
    schema: Schema
    names: LearnedNames

    def __init__(self, advance: Callable[[int, bool, int | None], None] | None = None) -> None:
        self._rules: tuple[Rule, ...] = ()
        self._advance = advance
        self._refresh: list[Callable[[], None]] = []

    def talk(self) -> Decides:
        """Return the engine's side of a new connection."""
        raise NotImplementedError

    @property
    def rules(self) -> tuple[Rule, ...]:
        return self._rules

    @rules.setter
    def rules(self, rules: tuple[Rule, ...]) -> None:
        self._rules = rules
        self.refresh()

    def refresh(self) -> None:
        """Let the chains read again which message-versions the rules name."""
        for refresh in self._refresh:
            refresh()

    # The filter.

    def attached(self, refresh: Callable[[], None]) -> None:
        self._refresh.append(refresh)

    def methods(self) -> list[tuple[Named, Method]]:
        """Return the methods for the message-versions of all rules that have actions."""
        rules = [rule for rule in self._rules if rule.actions]
        if not rules:
            return []
        package = self.schema.package
        every = any(rule.reorders for rule in rules)
        versions = package.versions()
        wanted = {place for rule in rules for place in rule.places}
        if every:
            wanted = {
                (key, version)
                for key, (low, high) in versions.items()
                for version in range(low, high + 1)
            }
        found: list[tuple[Named, Method]] = []
        for key in sorted({key for key, _ in wanted}):
            request, response = package.request_class(key), package.response_class(key)
            for version in sorted(version for each, version in wanted if each == key):
                found.append((Named(request, version, version), self.on_request))
                if response is not None:
                    found.append((Named(response, version, version), self.on_response))
        metadata = self.schema.names().get(_METADATA)
        if metadata is not None and self.names.learns:
            response, (low, high) = package.response_class(metadata), versions[metadata]
            for version in range(low, high + 1):
                if (metadata, version) not in wanted:
                    found.append((Named(response, version, version), self.on_response))
        return found

    def closed(self, connection: Connection) -> None:
        connection.state.pop(self, None)

    def on_request(self, request: Any, exchange: Exchanged) -> Any:
        """Apply the rules to a request."""
        connection = exchange.connection
        talk: Decides = connection.state.setdefault(self, None) or self.talk()
        connection.state[self] = talk
        known = exchange.state[self] = Exchange(
            connection.number,
            exchange.api_key,
            exchange.version,
            exchange.correlation_id,
            exchange.client_id,
            request,
            exchange.frame,
            f"User:{connection.principal or 'ANONYMOUS'}",
            connection.node,
        )
        verdict = talk.request(known)
        exchange.notes += known.notes
        if verdict is None:
            return None
        act = partial(self._carry_out, talk, known, exchange, verdict)
        return _after(verdict.delay_ms / 1000, act) if verdict.delay_ms else act()

    def on_response(self, response: Any, exchange: Exchanged) -> Any:
        """Apply the rules to a response."""
        known = exchange.state.get(self)
        if known is None:  # no rule is about the request
            shape = self.schema.response(exchange.api_key, exchange.version)
            if shape is not None:
                self.names.learn(response, shape)
            return None
        talk = exchange.connection.state[self]
        delivery = self._delivery(talk, known, exchange, response)
        if delivery is None or not delivery.changed:
            return None
        return copy(response) if delivery.message is response else delivery.message

    def _carry_out(
        self, talk: Decides, known: Exchange, exchange: Exchanged, verdict: Verdict
    ) -> Any:
        if self._advance is not None:
            for ms, members, node in verdict.advance:
                self._advance(ms, members, node)
        if verdict.fate is Fate.DROP:
            raise Close("; ".join(known.notes), reset=verdict.reset)
        if verdict.fate is Fate.SWALLOW:
            return SILENCE
        if verdict.fate is Fate.ANSWER:
            delivery = self._delivery(talk, known, exchange, verdict.answer)
            return verdict.answer if delivery is None else delivery.message
        return verdict.request if verdict.changed else None

    def _delivery(
        self, talk: Decides, known: Exchange, exchange: Exchanged, message: Any
    ) -> Delivery | None:
        before = len(known.notes)
        delivery = talk.response(known, message)
        exchange.notes += known.notes[before:]
        if delivery is not None:
            exchange.delivery = partial(talk.steps, delivery)
        return delivery


async def _after(seconds: float, act: Callable[[], Any]) -> Any:
    await asyncio.sleep(seconds)
    return act()
