"""A rule: when it applies, what it does, and how often it has fired."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from inspect import Parameter, Signature, signature
from typing import Any, Concatenate, ParamSpec, Self, get_type_hints

from krammar.faults import answer_action, message_actions, wire_actions
from krammar.faults.action import Action, Occasion
from krammar.faults.answers import subjects
from krammar.faults.errors import FaultError, FaultNotFired
from krammar.faults.limits import Limits
from krammar.faults.targets import Target, Targets
from krammar.proxy.interface import Exchange

# Far longer than a fault takes to fire in a test that works.
PATIENCE = 30.0

# How many kinds of requests the message of FaultNotFired lists.
_SHOWN = 10

# Where an exchange has what rules select clients by.
CLIENTS: Mapping[str, Callable[[Exchange], Any]] = {
    "client_id": lambda exchange: exchange.client_id,
    "principal": lambda exchange: f"User:{exchange.connection.principal or 'ANONYMOUS'}",
    "connection": lambda exchange: exchange.connection.number,
    "node": lambda exchange: exchange.connection.node,
}

P = ParamSpec("P")


def _adds(action: Callable[P, Action]) -> Callable[Concatenate[Rule, P], Rule]:
    """Return the method that adds an action to a rule."""

    def add(self: Rule, /, *args: P.args, **kwargs: P.kwargs) -> Rule:
        return self.do(action(*args, **kwargs))

    add.action = action  # type: ignore[attr-defined]
    add.__doc__ = action.__doc__
    hints = get_type_hints(action)
    own = [
        each.replace(annotation=hints[each.name]) for each in signature(action).parameters.values()
    ]
    add.__signature__ = Signature(  # type: ignore[attr-defined]
        [Parameter("self", Parameter.POSITIONAL_ONLY), *own], return_annotation="Rule"
    )
    return add


class Rule:
    """A rule of ``Faults``. Its methods return the rule, so that calls can be chained.

    A rule is armed by its first action. Where clients are already running, set its limits before:
    ``faults.on("Produce").times(3).answer(…)``.

    ``matched`` counts the requests (or responses) that the rule applies to, ``fired`` those on which it
    acted.
    """

    def __init__(
        self,
        name: str,
        targets: Targets,
        client: Mapping[str, tuple[Any, ...]],
        *,
        about: str,
        sees: Collection[str],
        changed: threading.Condition,
        clock: Callable[[], tuple[float, float]],
        armed: Callable[[], None],
        removed: Callable[[Rule], None],
    ) -> None:
        self.name = name
        self.actions: list[Action] = []
        self.matched = 0
        self.fired = 0
        self._about = about
        self._came: Counter[str] = Counter()  # requests by API and what they are about
        self._targets = targets
        self._client = client
        self._limits = Limits()
        self._sees = sees
        self._changed = changed
        self._clock = clock
        self._made = clock()[0]
        self._armed = armed
        self._removed = removed

    def __repr__(self) -> str:
        return f"<fault {self.name!r}: matched {self.matched}, fired {self.fired}>"

    @property
    def api_keys(self) -> list[int]:
        """The keys of the APIs that the rule applies to."""
        return sorted({key for key, _ in self.places})

    @property
    def places(self) -> Collection[tuple[int, int]]:
        """The api keys and versions that the rule applies to."""
        return self._targets.places

    @property
    def reorders(self) -> bool:
        """Whether the rule holds responses back until others were sent."""
        return any(isinstance(action, wire_actions.Reorder) for action in self.actions)

    # When: limits.

    def once(self) -> Self:
        """Fire on the first match only."""
        return self.limit(times=1)

    def times(self, number: int) -> Self:
        """Fire ``number`` times at most."""
        return self.limit(times=number)

    def nth(self, number: int) -> Self:
        """Fire on the ``number``th match only, counted from 1."""
        return self.limit(nth=number)

    def every(self, number: int) -> Self:
        """Fire on every ``number``th match."""
        return self.limit(every=number)

    def with_probability(self, probability: float, *, seed: int = 0) -> Self:
        """Fire on a match with a probability between 0 and 1. The same seed gives the same choices."""
        return self.limit(probability=probability, seed=seed)

    def between(self, start: float | datetime, end: float | datetime) -> Self:
        """Fire between two moments only: two times in seconds since the rule was made, or two datetimes."""
        return self.limit(between=[start, end])

    def after(self, rule: Rule) -> Self:
        """Fire only after another rule has fired."""
        return self.limit(after=rule)

    def limit(self, **limits: Any) -> Self:
        """Set limits by their names, the fields of ``Limits``. Raises FaultError; the rule is then removed."""
        with self._or_removed():
            self._limits = replace(self._limits, **limits)
        return self

    # What: actions.

    # The fields of an action are the arguments of its method, and the keys of its table in a file.
    answer = _adds(answer_action.Answer)
    call = _adds(answer_action.Call)
    drop = _adds(wire_actions.Drop)
    delay = _adds(wire_actions.Delay)
    throttle = _adds(message_actions.Throttle)
    trickle = _adds(wire_actions.Trickle)
    bandwidth = _adds(wire_actions.Bandwidth)
    black_hole = _adds(wire_actions.BlackHole)
    truncate = _adds(wire_actions.Truncate)
    flip_bits = _adds(wire_actions.FlipBits)
    correlation_id = _adds(wire_actions.CorrelationId)
    offer = _adds(message_actions.Offer)
    corrupt = _adds(message_actions.Corrupt)
    reorder = _adds(wire_actions.Reorder)
    advance_clock = _adds(wire_actions.AdvanceClock)
    change = _adds(message_actions.Change)
    observe = _adds(wire_actions.Observe)

    def do(self, action: Action) -> Self:
        """Add an action. Raises FaultError if it cannot be applied; the rule is then removed."""
        with self._or_removed():
            action.settle(self._targets)
            if action.needs and action.needs not in self._sees:
                raise FaultError(
                    f"only krammar's broker has a {action.needs} to set",
                    hint="use krammar broker --faults",
                    code="F501",
                )
            self._targets.keep(action.check)
            self._targets.keep(partial(self._check_side, action))
        with self._changed:
            if self._limits.times is None and (uses := action.uses()):
                self._limits = replace(self._limits, times=uses)
            self.actions = [*self.actions, action]
            self._armed()
        return self

    def _check_side(self, action: Action, target: Target) -> None:
        if not action.acts_on_request(target):
            return
        if not self._targets.are_known_from_request(target):
            raise FaultError(
                f'the rule "{self.name}" looks at the response, so it cannot act on the request',
                hint="use an action on the response, or a condition on the request",
                code="F501",
            )

    @contextmanager
    def _or_removed(self) -> Iterator[None]:
        """Remove the rule if it turns out to be invalid, so that no part of it acts or is expected to fire."""
        try:
            yield
        except FaultError:
            self._removed(self)
            raise

    # Verify.

    def expect(self, times: int | None = None) -> Self:
        """Check that the rule has fired: ``times`` times, or at least once. Raises FaultNotFired."""
        if self.fired != times if times is not None else not self.fired:
            wanted = "at all" if times is None else f"{times} times"
            raise FaultNotFired(self._not_fired(wanted))
        return self

    def wait(self, *number: float, times: int = 1, timeout: float = PATIENCE) -> Self:
        """Wait until the rule has fired ``times`` times. Raises FaultNotFired after ``timeout`` seconds.

        A number without a name could mean times or seconds, so it raises TypeError.
        """
        if number:
            raise TypeError(
                f"wait({number[0]}): write wait(times={number[0]}) or wait(timeout={number[0]})"
            )
        with self._changed:
            if not self._changed.wait_for(lambda: self.fired >= times, timeout):
                raise FaultNotFired(self.missed(times, timeout))
        return self

    def missed(self, times: int, timeout: float) -> str:
        """Describe that the rule has not fired ``times`` times in so many seconds."""
        return self._not_fired(f"{times} times in {timeout:g} s")

    def _not_fired(self, wanted: str) -> str:
        """Describe what the rule waited for, and which requests of its APIs came."""
        actions = ", ".join(each.key or type(each).__name__.lower() for each in self.actions)
        came = ", ".join(
            f"{what} ({count} time{'s' * (count > 1)})" for what, count in self._came.items()
        )
        return (
            f'the fault "{self.name}" did not fire {wanted}: it matched {self.matched} times and '
            f"fired {self.fired} times. It is about {self._about} and "
            f"{f'does: {actions}' if actions else 'has no action, such as drop()'}; "
            f"what came: {came or 'nothing'}"
        )

    # What the engine asks.

    def target(self, exchange: Exchange) -> Target | None:
        """Return the message-version to act on; None if the rule is not armed, or is not about the exchange."""
        if not self.actions:
            return None
        if any(CLIENTS[name](exchange) not in wanted for name, wanted in self._client.items()):
            return None
        return self._targets.get(exchange.api_key, exchange.version)

    def note(self, target: Target, occasion: Occasion) -> None:
        """Count a request for the message of FaultNotFired, by what it is about."""
        roles = target.selection.values
        found = set()
        for subject in subjects(occasion.received, target.request) if roles else ():
            for role in roles:
                value = subject.get(role)
                if role == "topic" and not value and (topic_id := subject.get("topic_id")):
                    value = occasion.names(topic_id)
                if value is not None:
                    found.add(f"{role}={value!r}")
        what = " ".join((target.api, *sorted(found)[:_SHOWN]))
        self._came[what if what in self._came or len(self._came) < _SHOWN else "others"] += 1

    def decides_on_request(self, target: Target) -> bool:
        return any(action.acts_on_request(target) for action in self.actions)

    def keeps_no_sessions(self) -> bool:
        """Whether the rule needs the partitions of every Fetch. A rule that only observes takes what comes."""
        if all(isinstance(action, wire_actions.Observe) for action in self.actions):
            return False
        targets = self._targets
        names_elements = {"topic", "partition"} & targets.selection.values.keys() or any(
            condition.path.side == "request" and condition.path.steps[0].index is not None
            for condition in targets.conditions
        )
        return bool(names_elements) and not self._limits.is_spent(
            self.matched, self.fired, *self._times()
        )

    def matches(self, target: Target, occasion: Occasion) -> bool:
        """Whether selection and conditions hold for a request, or for a response as soon as it exists."""
        request, response, names = occasion.received, occasion.response, occasion.names
        selection = target.selection
        if selection:
            about = list(subjects(request, target.request))
            if response is not None:
                about += subjects(response, target.response)
            if not any(selection.bound(each) and selection.matches(each, names) for each in about):
                return False
        for condition in self._targets.conditions:
            message = request if condition.path.side == "request" else response
            if message is None or not condition.holds(message, names):
                return False
        return all(
            action.fits(target, occasion, request if response is None else response)
            for action in self.actions
            if action.acts_on_request(target) == (response is None)
        )

    def draw(self) -> bool:
        """Count a match, and return whether the rule fires on it."""
        if self._limits.waits(*self._times()):
            return False
        self.matched += 1
        if not self._limits.fires(self.matched, self.fired):
            return False
        self.fired += 1
        return True

    def _times(self) -> tuple[float, float]:
        """Return the seconds since the rule was made, and since 1970."""
        now, today = self._clock()
        return now - self._made, today


# The actions that files can have, by their keys, in the order in which hints list them.
ACTIONS: dict[str, type[Action]] = {
    method.action.key: method.action
    for method in vars(Rule).values()
    if hasattr(method, "action") and method.action.key
}
