"""The rules of a broker in another process: ``Faults`` and ``Rule`` with calls to that process."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import count
from types import ModuleType
from typing import Any, Self

from krammar.faults.engine import Faults
from krammar.faults.errors import FaultError, FaultNotFired
from krammar.faults.event import Event
from krammar.faults.rules import PATIENCE, Rule
from krammar.util.clock import monotonic
from krammar.wire.package import package_of

# Calls a method of ``ServedFaults`` in the broker's process, by its name.
Call = Callable[..., Any]
# The pause between two looks at a rule that a test waits for, in seconds.
PAUSE = 0.005

_LIMITS = ("once", "times", "nth", "every", "with_probability", "between", "limit")
_ACTIONS = tuple(name for name, method in vars(Rule).items() if hasattr(method, "action"))


class ServedFaults:
    """Rules in the process of the broker, by number. Another process calls its methods."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._numbers = count(1)
        self._rules: dict[int, Rule] = {}

    def on(self, apis: tuple[Any, ...], selection: dict[str, Any]) -> tuple[int, str]:
        """Add a rule, and return its number and name."""
        return self._numbered(self._faults.on(*apis, **selection))

    def _numbered(self, rule: Rule) -> tuple[int, str]:
        number = next((number for number, each in self._rules.items() if each is rule), 0)
        if not number:
            number = next(self._numbers)
            self._rules[number] = rule
        return number, rule.name

    def rules(self) -> list[tuple[int, str]]:
        """Return the numbers and names of all rules, in their order."""
        return [self._numbered(rule) for rule in self._faults.rules]

    def apply(self, number: int, method: str, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        """Call a method of a rule."""
        getattr(self._rules[number], method)(*args, **named)

    def after(self, number: int, other: int) -> None:
        """Let a rule fire only after another one."""
        self._rules[number].after(self._rules[other])

    def counts(self, number: int) -> tuple[int, int]:
        """Return how often a rule has matched and fired."""
        rule = self._rules[number]
        return rule.matched, rule.fired

    def api_keys(self, number: int) -> list[int]:
        """Return the keys of the APIs of a rule."""
        return self._rules[number].api_keys

    def missed(self, number: int, times: int, timeout: float) -> str:
        """Describe that a rule has not fired ``times`` times in so many seconds."""
        return self._rules[number].missed(times, timeout)

    def remove(self, number: int) -> None:
        """Remove a rule."""
        self._faults.remove(self._rules[number])

    def clear(self) -> None:
        """Remove all rules and forget the history."""
        self._faults.clear()

    def expect(self, numbers: tuple[int, ...]) -> None:
        """Check that rules have fired; without numbers, all rules."""
        self._faults.expect(*(self._rules[number] for number in numbers))

    def history(self) -> list[tuple[Any, ...]]:
        """Return the events: number and name of the rule, the fields of ``Event``, and the encoded response."""
        return [
            (
                *self._numbered(event.rule),
                event.action,
                event.time,
                event.connection,
                event.client_id,
                event.api,
                event.version,
                event.correlation_id,
                event.frame,
                None if event.response is None else event.response.encode(event.version),
            )
            for event in list(self._faults.history)
        ]


class RemoteRule:
    """A rule of ``RemoteFaults``. It has the methods of ``Rule``, without ``do``."""

    def __init__(self, call: Call, number: int, name: str) -> None:
        self._call = call
        self.number = number
        self.name = name

    def __repr__(self) -> str:
        return f"<fault {self.name!r}: matched {self.matched}, fired {self.fired}>"

    def __getattr__(self, name: str) -> Callable[..., RemoteRule]:
        # Limits and actions, whose arguments the broker's process checks.
        if name not in _LIMITS and name not in _ACTIONS:
            raise AttributeError(f"a rule of a broker in another process has no {name!r}")

        def applied(*args: Any, **named: Any) -> RemoteRule:
            for each in (*args, *named.values()):
                if callable(each):
                    self._call("remove", self.number)
                    raise FaultError(
                        f"{name}: {each!r} is a function, and the broker runs in another process",
                        hint="start the broker without process=True",
                        code="F501",
                    )
            self._call("apply", self.number, name, args, named)
            return self

        return applied

    def after(self, rule: RemoteRule) -> Self:
        """Fire only after another rule has fired."""
        self._call("after", self.number, rule.number)
        return self

    @property
    def matched(self) -> int:
        """How many requests or responses the rule applied to."""
        return int(self._call("counts", self.number)[0])

    @property
    def fired(self) -> int:
        """On how many of them it acted."""
        return int(self._call("counts", self.number)[1])

    @property
    def api_keys(self) -> list[int]:
        """The keys of the APIs that the rule applies to."""
        return list(self._call("api_keys", self.number))

    def expect(self, times: int | None = None) -> Self:
        """Check that the rule has fired: ``times`` times, or at least once. Raises FaultNotFired."""
        self._call("apply", self.number, "expect", (times,), {})
        return self

    def wait(self, *, times: int = 1, timeout: float = PATIENCE) -> Self:
        """Wait until the rule has fired ``times`` times. Raises FaultNotFired after ``timeout`` seconds."""
        # The other process has one call at a time, so that it must not wait.
        ends = monotonic() + timeout
        while self.fired < times:
            if monotonic() >= ends:
                raise FaultNotFired(self._call("missed", self.number, times, timeout))
            time.sleep(PAUSE)
        return self


class RemoteFaults:
    """The rules of a broker in another process. It has the methods of ``Faults`` that tests use.

    Args:
        call: calls a method of ``ServedFaults`` in that process
        protocol: the generated package of the requests
    """

    def __init__(self, call: Call, protocol: ModuleType) -> None:
        self._call = call
        self._protocol = protocol

    def on(self, *apis: Any, **selection: Any) -> RemoteRule:
        """Add a rule, with the arguments of ``Faults.on``. Raises FaultError."""
        return self._rule(*self._call("on", apis, selection))

    def _rule(self, number: int, name: str) -> RemoteRule:
        return RemoteRule(self._call, number, name)

    def remove(self, rule: RemoteRule) -> None:
        """Remove a rule. Faults that it has begun continue."""
        self._call("remove", rule.number)

    def clear(self) -> None:
        """Remove all rules and forget the history."""
        self._call("clear")

    def expect(self, *rules: RemoteRule) -> None:
        """Check that rules have fired; without arguments, all rules. Raises FaultNotFired."""
        self._call("expect", tuple(rule.number for rule in rules))

    @property
    def rules(self) -> tuple[RemoteRule, ...]:
        """The rules, in their order."""
        return tuple(self._rule(*each) for each in self._call("rules"))

    @property
    def history(self) -> list[Event]:
        """What has fired."""
        return [self._event(*each) for each in self._call("history")]

    def _event(self, number: int, name: str, action: str, *fields: Any) -> Event:
        *known, frame, response = fields
        api, version = known[3], known[4]
        request = self._protocol.parse_request(frame)[1]
        if response is not None:
            package = package_of(self._protocol)
            response = package.response_class(request.api_key).decode(response, version)
        rule: Any = self._rule(number, name)
        moment, connection, client_id, _, _, correlation_id = known
        return Event(
            rule,
            action,
            moment,
            connection,
            client_id,
            api,
            version,
            correlation_id,
            frame,
            request,
            response,
        )
