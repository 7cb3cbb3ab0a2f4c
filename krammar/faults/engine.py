"""The engine: a filter that decides which rules act on a request and on its response. It does no I/O."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from copy import copy
from itertools import count
from types import ModuleType
from typing import Any
from uuid import UUID

from krammar.faults.action import Occasion
from krammar.faults.answers import Selection
from krammar.faults.declared import declared, several
from krammar.faults.errors import FaultError, FaultNotFired
from krammar.faults.event import Event
from krammar.faults.paths import TopicNames
from krammar.faults.rules import CLIENTS, Rule
from krammar.faults.shape import Schema, Shape
from krammar.faults.steps import ResponseDelivery
from krammar.faults.targets import Target, Targets
from krammar.proxy.interface import Close, Connection, Exchange, Filter, Method, Named, Silence
from krammar.util.clock import monotonic, time_seconds
from krammar.util.remembered import Remembered
from krammar.wire.kafka import FETCH, has_fetch_sessions
from krammar.wire.package import package_of


class LearnedNames:
    """The names of topics by their ids, which newer versions send instead. Responses that have both are the source.

    Args:
        known: returns names that were not learned.
    """

    # No cluster has more topics; a hostile peer could name more.
    MOST = 100_000

    def __init__(self, known: TopicNames | None = None) -> None:
        self._known = known
        # Those that were learned or used last, so that rules know the topics of now.
        self._names: Remembered[UUID, str] = Remembered(self.MOST)

    @property
    def learns(self) -> bool:
        """Whether names come from messages only."""
        return self._known is None

    def __call__(self, topic_id: UUID) -> str | None:
        name = self._names.use(topic_id)
        return self._known(topic_id) if name is None and self._known is not None else name

    def learn(self, message: Any, shape: Shape) -> None:
        """Learn from a message."""
        roles = {role: name for name, role in shape.plain}
        if "topic" in roles and "topic_id" in roles:
            topic, topic_id = getattr(message, roles["topic"]), getattr(message, roles["topic_id"])
            if topic and isinstance(topic, str) and isinstance(topic_id, UUID) and topic_id.int:
                self._names[topic_id] = topic
        for branch in shape.branches:
            if branch.shape is not None and "topic_id" in branch.shape.roles:
                for element in branch.elements(message):
                    self.learn(element, branch.shape)


# The number of events in the history.
HISTORY = 10_000

# Extra knowledge of krammar's broker.
OF_THE_BROKER = ("principal", "clock")
_SESSION_NOT_FOUND = 70  # FETCH_SESSION_ID_NOT_FOUND
# Names of topics are learned from the responses of this API, even if no rule applies to it.
_METADATA = "Metadata"


def _about(
    apis: Iterable[str], selected: Mapping[str, tuple[Any, ...]], conditions: Iterable[str]
) -> str:
    """Describe the selection of a rule, such as ``Produce topic='orders'``."""
    words = [", ".join(apis) or "every API"]
    for name, values in selected.items():
        words.append(f"{name}={', '.join(map(repr, values))}")
    return " ".join((*words, *(f"where {each}" for each in conditions)))


class Faults(Filter):
    """The rules of a broker, a proxy or a tap.

    Rules can be added and removed from any thread, while clients are connected. The object is a filter:
    ``Proxy.start(upstream, [faults])``.

    Args:
        protocol: a generated package, such as ``kafka_wire``.
        topic_names: returns the name of a topic by its id, or None. The engine also learns names from responses.
        sees: extra knowledge of the host, a part of ``OF_THE_BROKER``.
        clock: a monotonic time in seconds.
        advance: sets the broker's clock ahead, by milliseconds; also for members of groups if the second argument is
            true; that of one node if the third is not None.
    """

    in_place = False

    def __init__(
        self,
        protocol: ModuleType,
        *,
        topic_names: TopicNames | None = None,
        sees: Collection[str] = (),
        clock: Callable[[], float] = monotonic,
        advance: Callable[[int, bool, int | None], None] | None = None,
    ) -> None:
        self.history: deque[Event] = deque(maxlen=HISTORY)
        self.schema = Schema(package_of(protocol))
        self._names = LearnedNames(topic_names)
        self._changed = threading.Condition(threading.RLock())
        self._clock = clock
        self._advance = advance
        self._sees = sees
        self._numbers = count(1)
        self._rules: tuple[Rule, ...] = ()
        self._refresh: list[Callable[[], None]] = []

    def on(
        self,
        *apis: Any,
        versions: int | str | tuple[int, int] | range | None = None,
        client_id: str | Iterable[str] | None = None,
        principal: str | Iterable[str] | None = None,
        connection: int | Iterable[int] | None = None,
        node: int | Iterable[int] | None = None,
        topic: str | Iterable[str] | None = None,
        partition: int | Iterable[int] | None = None,
        group: str | Iterable[str] | None = None,
        transactional_id: str | Iterable[str] | None = None,
        where: str | Iterable[str] | None = None,
        name: str = "",
    ) -> Rule:
        """Add a rule. It does nothing until it has an action.

        A request must match all arguments. Most arguments also accept a list of values.

        Args:
            apis: names, request classes or api keys. Default: every API that the rule can apply to.
            versions: ``7``, ``"3-7"`` or ``"3-"``.
            principal: such as ``User:alice``; only krammar's broker knows it.
            connection: the number of a connection, counted from 1 in the order of their first requests.
            node: the id of the node that the client talks to.
            topic: a topic that the message names, by name or by id.
            where: conditions on fields: ``acks == -1``, ``topic_data[*].name == "orders"``.
            name: the rule's name in messages and in the history.

        Raises:
            FaultError: a name does not exist, or the rule cannot apply to a message-version that it names.
        """
        package = self.schema.package
        if not package.is_kafka_like:
            raise FaultError(
                f"rules cannot apply to {package.name}, which has headers of its own or one-way requests",
                hint="a proxy and a tap pass its frames unread",
                code="F401",
            )
        if principal is not None and "principal" not in self._sees:
            raise FaultError(
                "only krammar's broker knows the principal of a client",
                hint="select by client_id, or use krammar broker --faults",
                code="F501",
                key="principal",
            )
        selected = {
            "client_id": client_id,
            "principal": principal,
            "connection": connection,
            "node": node,
            "topic": topic,
            "partition": partition,
            "group": group,
            "transactional_id": transactional_id,
            "where": where,
        }
        kinds = declared(Faults.on)
        given = {key: several(key, v, kinds[key]) for key, v in selected.items() if v is not None}
        client = {key: given.pop(key) for key in CLIENTS if key in given}
        conditions = given.pop("where", ())
        targets = Targets(self.schema, apis, versions, Selection(given), conditions)
        with self._changed:
            rule = Rule(
                name or f"fault {next(self._numbers)}",
                targets,
                client,
                about=_about(
                    (
                        [
                            self.schema.name(key)
                            for key in sorted({key for key, _ in targets.places})
                        ]
                        if apis
                        else ()
                    ),
                    {**client, **given},
                    conditions,
                ),
                sees=self._sees,
                changed=self._changed,
                clock=lambda: (self._clock(), time_seconds()),
                armed=self.refresh,
                removed=self.remove,
            )
            self.rules = (*self.rules, rule)
        return rule

    def remove(self, rule: Rule) -> None:
        """Remove a rule. Faults that it has begun continue."""
        with self._changed:
            self.rules = tuple(each for each in self.rules if each is not rule)

    def clear(self) -> None:
        """Remove all rules and forget the history."""
        with self._changed:
            self.rules = ()
            self.history.clear()

    def expect(self, *rules: Rule) -> None:
        """Check that rules have fired; without arguments, all rules. Raises FaultNotFired."""
        failures = []
        for rule in rules or self.rules:
            try:
                rule.expect()
            except FaultNotFired as error:
                failures.append(str(error))
        if failures:
            raise FaultNotFired("\n".join(failures))

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules, in their order."""
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

    def closed(self, connection: Connection) -> None:
        connection.state.pop(self, None)

    def methods(self) -> list[tuple[Named, Method]]:
        """Return the methods for the message-versions of all rules that have actions."""
        rules = [rule for rule in self._rules if rule.actions]
        if not rules:
            return []
        package = self.schema.package
        every = {
            (key, version)
            for key, (low, high) in package.versions().items()
            for version in range(low, high + 1)
        }
        wanted = {place for rule in rules for place in (every if rule.reorders else rule.places)}
        learned = set()
        if self._names.learns and (metadata := self.schema.names().get(_METADATA)) is not None:
            learned = {place for place in every if place[0] == metadata}
        found: list[tuple[Named, Method]] = []
        for key, version in sorted(wanted | learned):
            if (key, version) in wanted:
                request = package.request_class(key)
                found.append((Named(request, version, version), self.on_request))
            if (response := package.response_class(key)) is not None:
                found.append((Named(response, version, version), self.on_response))
        return found

    def on_request(self, request: Any, exchange: Exchange) -> Any:
        """Apply the rules to a request."""
        held = exchange.connection.state.setdefault(self, [])
        occasion = Occasion(exchange, self._names, ResponseDelivery(held), request, request)
        exchange.state[self] = occasion
        with self._changed:
            for rule in self._rules:
                target = rule.target(exchange)
                if target is None:
                    continue
                if (
                    target.api_key == FETCH
                    and has_fetch_sessions(self.schema.package)
                    and rule.keeps_no_sessions()
                ):
                    occasion.sessionless = True
                    if request.session_id:
                        occasion.outcome = self._refused_session(exchange)
                        break
                rule.note(target, occasion)
                if rule.decides_on_request(target) and rule.matches(target, occasion):
                    self._fire(rule, target, occasion)
                if occasion.outcome is not None:
                    break
        return self._settle_later(occasion) if occasion.delay_ms else self._settle(occasion)

    def on_response(self, response: Any, exchange: Exchange) -> Any:
        """Apply the rules to a response."""
        occasion: Occasion | None = exchange.state.get(self)
        if occasion is None:  # no rule is about the request
            self._names.learn(response, self.schema.shape(type(response), exchange.version))
            return None
        self._respond(occasion, response)
        # Only another object is encoded again.
        return copy(occasion.response) if occasion.changed else None

    async def _settle_later(self, occasion: Occasion) -> Any:
        await asyncio.sleep(occasion.delay_ms / 1000)
        return self._settle(occasion)

    def _settle(self, occasion: Occasion) -> Any:
        """Return what the request's method returns."""
        if self._advance is not None:
            for ms, members, node in occasion.clocks:
                self._advance(ms, members, node)
        outcome, exchange = occasion.outcome, occasion.exchange
        if isinstance(outcome, Close):
            raise Close("; ".join(exchange.notes), reset=outcome.reset)
        if outcome is None:
            return None if occasion.request is occasion.received else occasion.request
        if isinstance(outcome, Silence):
            return outcome
        self._respond(occasion, outcome)
        return occasion.response

    def _respond(self, occasion: Occasion, response: Any) -> None:
        """Apply the rules to a response, of the broker or of a rule."""
        exchange = occasion.exchange
        occasion.response = response
        with self._changed:
            shape = self.schema.shape(type(response), exchange.version)
            if {"topic", "topic_id"} <= shape.roles:
                self._names.learn(response, shape)
            if occasion.sessionless and response.session_id:
                occasion.change("response").session_id = 0
            for act in occasion.later:
                act()
            for rule in dict.fromkeys((*occasion.fired, *self._rules)):
                target = rule.target(exchange)
                if target is None:
                    continue
                decided = rule in occasion.fired or rule.decides_on_request(target)
                if not decided and rule.matches(target, occasion):
                    self._fire(rule, target, occasion)
                for action in occasion.fired.get(rule, ()):
                    if not action.acts_on_request(target):
                        action.act(target, occasion)
            for event in occasion.events:
                event.response = occasion.response
        if occasion.fired or occasion.delivery.held:
            exchange.delivery = occasion.delivery.steps

    def _refused_session(self, exchange: Exchange) -> Any:
        """Return the refusal of a fetch that names only what has changed since the last one (KIP-227).

        A rule about a topic needs requests that name all their partitions. FETCH_SESSION_ID_NOT_FOUND makes
        the client send a full request, and no response opens another session.
        """
        response = self.schema.package.response_class(exchange.api_key)
        return response(error_code=_SESSION_NOT_FOUND)

    def _fire(self, rule: Rule, target: Target, occasion: Occasion) -> None:
        """Let a rule fire, if its limits allow it; its actions on requests act now."""
        if not rule.draw():
            return
        exchange, today = occasion.exchange, time_seconds()
        actions = occasion.fired[rule] = [action.drawn() for action in rule.actions]
        for action in actions:
            what = action.describe(occasion)
            exchange.notes.append(f"{rule.name}: {what}")
            event = Event(
                rule,
                what,
                today,
                exchange.connection.number,
                exchange.client_id,
                target.api,
                exchange.version,
                exchange.correlation_id,
                exchange.frame,
                occasion.received,
                occasion.response,
            )
            occasion.events.append(event)
            self.history.append(event)
        self._changed.notify_all()
        if occasion.response is None:
            for action in actions:
                if action.acts_on_request(target):
                    action.act(target, occasion)
