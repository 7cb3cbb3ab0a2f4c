"""The engine: decides which rules act on a request and on its response. It does no I/O.

```python
talk = faults.talk()                             # for each connection
verdict = talk.request(exchange)                 # None: nothing happens to the request
delivery = talk.response(exchange, response)     # None: nothing happens to the response
steps = talk.steps(delivery, frame)              # what to do instead of sending the frame
```
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from itertools import count
from types import ModuleType
from typing import Any

from krammar.faults.action import Occasion
from krammar.faults.answers import Selection
from krammar.faults.declared import declared, is_of, kinds_in_words
from krammar.faults.errors import FaultError, FaultNotFired
from krammar.faults.event import Event
from krammar.faults.filter import FaultFilter
from krammar.faults.names import LearnedNames
from krammar.faults.paths import TopicNames
from krammar.faults.rules import Rule
from krammar.faults.shape import Schema
from krammar.faults.steps import (
    Close,
    Delivery,
    Exchange,
    Fate,
    Hold,
    Send,
    StepTo,
    Verdict,
    Wait,
)
from krammar.wire.package import package_of

# The number of events in the history.
HISTORY = 10_000

# Rules can select by these; they are not part of messages.
_OF_CLIENTS = ("client_id", "principal", "connection", "node")
# Extra knowledge of krammar's broker.
OF_THE_BROKER = ("principal", "clock")
_FETCH = "Fetch"
_SESSION_NOT_FOUND = "FETCH_SESSION_ID_NOT_FOUND"


class Faults(FaultFilter):
    """The rules of a broker or a tap.

    Rules can be added and removed from any thread, while clients are connected. The object is a filter:
    ``Proxy.start(upstream, [faults])``.

    Args:
        protocol: a generated package, such as ``kafka_wire``.
        topic_names: returns the name of a topic by its id, or None. The engine also learns names from responses.
        sees: extra knowledge of the host, a part of ``OF_THE_BROKER``.
        clock: a monotonic time in seconds.
        advance: sets the broker's clock ahead, by milliseconds; see ``FaultFilter``.
    """

    def __init__(
        self,
        protocol: ModuleType,
        *,
        topic_names: TopicNames | None = None,
        sees: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
        advance: Callable[[int, bool, int | None], None] | None = None,
    ) -> None:
        super().__init__(advance)
        self.history: deque[Event] = deque(maxlen=HISTORY)
        self.schema = Schema(package_of(protocol))
        self.names = LearnedNames(topic_names)
        self.changed = threading.Condition(threading.RLock())
        self.clock = clock
        self._sees = sees
        self._numbers = count(1)

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
        if principal is not None and "principal" not in self._sees:
            raise FaultError(
                "only krammar's broker knows the principal of a client",
                hint="select by client_id, or use krammar broker --faults",
                code="F501",
                key="principal",
            )
        given = {
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
        selected = {key: _several(key, v) for key, v in given.items() if v is not None}
        client = {key: selected.pop(key) for key in _OF_CLIENTS if key in selected}
        with self.changed:
            rule = Rule(
                self.schema,
                apis,
                name=name or f"fault {next(self._numbers)}",
                versions=versions,
                client=client,
                where=selected.pop("where", ()),
                selection=Selection(selected),
                seen=self._sees,
                changed=self.changed,
                now=(self.clock(), time.time()),
                armed=self.refresh,
                removed=self.remove,
            )
            self.rules = (*self.rules, rule)
        return rule

    def remove(self, rule: Rule) -> None:
        """Remove a rule. Faults that it has begun continue."""
        with self.changed:
            self.rules = tuple(each for each in self.rules if each is not rule)

    def clear(self) -> None:
        """Remove all rules and forget the history."""
        with self.changed:
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

    def talk(self) -> Talk:
        """Return the engine's side of a new connection."""
        return Talk(self)


class Talk:
    """What the engine knows of one connection."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._held: list[bytes] = []
        # Whether a black hole has swallowed the connection.
        self.dark = False

    def request(self, exchange: Exchange) -> Verdict | None:
        """Decide about a request before it is handled."""
        faults = self._faults
        verdict = Verdict(exchange.request)
        if self.dark:
            verdict.fate = Fate.SWALLOW
            return verdict
        with faults.changed:
            for rule in faults.rules:
                target = rule.target(exchange)
                if target is None:
                    continue
                if target.api == _FETCH and rule.keeps_no_sessions(faults.clock(), time.time()):
                    exchange.sessionless = True
                    if self._refuses_session(exchange, verdict):
                        return verdict
                occasion = Occasion(target, exchange, faults.names)
                if not rule.decides_on_request(target) or not rule.matches(occasion, None):
                    continue
                if not self._fires(rule, exchange, None):
                    continue
                exchange.fired.append(rule)
                for action in rule.actions:
                    action.request(occasion, verdict)
                if verdict.fate is not Fate.PASS:
                    break
        self.dark = verdict.fate is Fate.SWALLOW
        return verdict if exchange.fired else None

    def response(self, exchange: Exchange, message: Any) -> Delivery | None:
        """Decide about a response. ``message`` may be changed."""
        faults = self._faults
        delivery = Delivery(message)
        acted = bool(self._held)
        with faults.changed:
            shape = faults.schema.response(exchange.api_key, exchange.version)
            if shape is not None and faults.schema.names_topics(exchange.api_key, exchange.version):
                faults.names.learn(message, shape)
            if exchange.sessionless and message.session_id:
                message.session_id = 0
                acted = delivery.changed = True
            for rule in dict.fromkeys((*exchange.fired, *faults.rules)):
                target = rule.target(exchange)
                if target is None:
                    continue
                occasion = Occasion(target, exchange, faults.names)
                if rule not in exchange.fired:
                    if rule.decides_on_request(target) or not rule.matches(occasion, message):
                        continue
                    if not self._fires(rule, exchange, message):
                        continue
                acted = True
                for action in rule.actions:
                    action.response(occasion, delivery)
            for event in exchange.events:
                event.response = delivery.message
        return delivery if acted else None

    def steps(self, delivery: Delivery, frame: bytes) -> list[StepTo]:
        """Return how a frame, length prefix included, reaches the client."""
        for transform in delivery.transforms:
            frame = transform(frame)
        steps: list[StepTo] = []
        if delivery.delay_ms:
            steps.append(Wait(delivery.delay_ms / 1000))
        if delivery.drop:
            return [*steps, Close(delivery.reset)]
        if delivery.cut_at is not None:
            size = delivery.cut_at if delivery.cut_at >= 1 else len(frame) * delivery.cut_at
            frame = frame[: max(1, min(int(size), len(frame) - 1))]
        if delivery.hold_ms is not None:
            self._held.append(frame)
            return [*steps, Hold(delivery.hold_ms / 1000, self.release)]
        size, pause = delivery.trickle or (len(frame), 0.0)
        for begin in range(0, len(frame), size):
            if begin and pause:
                steps.append(Wait(pause / 1000))
            steps.append(Send(frame[begin : begin + size]))
        if delivery.cut_at is not None:
            return [*steps, Close(delivery.reset)]
        return [*steps, *(Send(held) for held in self.release())]

    def release(self) -> list[bytes]:
        """Return the frames that were held, oldest first."""
        held, self._held = self._held, []
        return held

    def _refuses_session(self, exchange: Exchange, verdict: Verdict) -> bool:
        """Refuse a fetch that names only what has changed since the last one (KIP-227).

        A rule about a topic needs requests that name all their partitions. FETCH_SESSION_ID_NOT_FOUND makes
        the client send a full request, and no response opens another session.
        """
        if not exchange.request.session_id:
            return False
        package = self._faults.schema.package
        code = package.get("ErrorCode")[_SESSION_NOT_FOUND]
        verdict.fate = Fate.ANSWER
        verdict.answer = package.response_class(exchange.api_key)(error_code=int(code))
        return True

    def _fires(self, rule: Rule, exchange: Exchange, response: Any) -> bool:
        faults = self._faults
        today = time.time()
        if not rule.draw(faults.clock(), today):
            return False
        for action in rule.actions:
            action.fire(exchange)
            what = action.describe(exchange)
            exchange.notes.append(f"{rule.name}: {what}")
            event = Event(
                rule,
                what,
                today,
                exchange.connection,
                exchange.client_id,
                faults.schema.name(exchange.api_key),
                exchange.version,
                exchange.correlation_id,
                exchange.frame,
                exchange.request,
                response,
            )
            exchange.events.append(event)
            faults.history.append(event)
        faults.changed.notify_all()
        return True


def _several(key: str, value: Any) -> tuple[Any, ...]:
    """Return one value or several as a tuple. Raises FaultError for values of another kind."""
    kinds = declared(Faults.on)[key].kinds[:1]
    is_list = isinstance(value, Iterable) and not isinstance(value, (str, bytes))
    values = tuple(value) if is_list else (value,)
    for each in values:
        if not is_of(each, kinds):
            raise FaultError(f"{each!r} is not {kinds_in_words(kinds)}", word=str(each), key=key)
    return values
