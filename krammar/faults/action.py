"""What all actions have in common: their fields are the declaration for Python, for files and for the documentation."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar, Self

from krammar.faults.declared import Values, declared
from krammar.faults.errors import FaultError, unknown
from krammar.faults.paths import TopicNames
from krammar.faults.steps import ResponseDelivery
from krammar.faults.targets import Target, Targets
from krammar.proxy.interface import Exchange


@dataclass(slots=True, eq=False)
class Occasion:
    """A request with its response, and what rules do with both.

    Attributes:
        received: the request as received
        request: the request to handle: another object if a rule has changed it
        outcome: what happens instead of handling it: the client gets a response, or nothing (``SILENCE``), or the
            connection is closed (``Close``)
        delay_ms: how long the request waits before
        clocks: how far clocks are set ahead then: milliseconds, whether this includes members of groups, and the
            node, or None for all nodes
        response: the response for the client; None before it exists. ``changed`` says whether a rule has changed it
        later: what is done to the response as soon as it exists
        delivery: how the response reaches the client
        sessionless: whether the response offers no fetch session
        fired: the actions of rules that have fired, by rule, and ``events`` their events
    """

    exchange: Exchange
    names: TopicNames
    delivery: ResponseDelivery
    received: Any
    request: Any
    outcome: Any = None
    delay_ms: float = 0
    clocks: list[tuple[int, bool, int | None]] = field(default_factory=list)
    response: Any = None
    changed: bool = False
    later: list[Callable[[], None]] = field(default_factory=list)
    sessionless: bool = False
    fired: dict[Any, list[Action]] = field(default_factory=dict)
    events: list[Any] = field(default_factory=list)

    def change(self, side: str) -> Any:
        """Return the request to handle, or the response, in order to change it."""
        if side == "response":
            self.changed = True
            return self.response
        version = self.exchange.version
        self.request = type(self.request).decode(self.request.encode(version), version)
        return self.request


@dataclass(eq=False)
class Action:
    """Base of all actions: dataclasses whose fields are the arguments of a rule's method and the keys of a table.

    Attributes:
        key: its name in a file; empty if files cannot have it
        told: what it does, for the history, with fields in braces
        on_request: whether it acts on the request; rules with such an action decide when the request arrives
        needs: the name of something that only krammar's broker has
        written: the kinds of values in a file, if they do not follow from the fields
        example: in a file, if a table needs several keys
    """

    key: ClassVar[str] = ""
    told: ClassVar[str] = ""
    on_request: ClassVar[bool] = False
    needs: ClassVar[str] = ""
    written: ClassVar[tuple[type, ...]] = ()
    example: ClassVar[str] = ""

    def __post_init__(self) -> None:
        single = dict not in self.in_files().kinds[:1]
        for number, (name, values) in enumerate(declared(type(self)).items()):
            # A file has the first field under the key of the action.
            label = self.key if single and not number else name
            values.check(name, getattr(self, name), label)

    def settle(self, targets: Targets) -> None:
        """Look up the names in its fields. Raises FaultError."""

    def uses(self) -> int | None:
        """Return how often the action can act; None if there is no end."""
        return None

    def acts_on_request(self, target: Target) -> bool:
        return self.on_request

    def check(self, target: Target) -> None:
        """Raise FaultError if the action cannot be applied to a message-version."""

    def fits(self, target: Target, occasion: Occasion, message: Any) -> bool:
        """Return whether the action has something to act on: in the request, if it acts on requests, else in
        the response."""
        return True

    def drawn(self) -> Self:
        """Return a copy for one match, with the choices that are made for it."""
        return copy(self)

    def act(self, target: Target, occasion: Occasion) -> None:
        """Act on the request, if it acts on requests, else on the response."""

    def describe(self, occasion: Occasion) -> str:
        """Return what the action does, in a few words, for the history."""
        return self.told.format_map(vars(self))

    # In files.

    @classmethod
    def in_files(cls) -> Values:
        """Return the values that a file can have for the action."""
        own = declared(cls)
        if cls.written:
            return Values(cls.written)
        if not own:
            return Values((bool,))
        first = next(iter(own.values())).kinds
        if first == (dict,) or sum(each.default is MISSING for each in fields(cls)) > 1:
            return Values((dict,))
        return Values((*first, dict) if len(own.keys() - {"seed"}) > 1 else first)

    @classmethod
    def from_file(cls, value: Any, seed: int) -> Self:
        """Return the action for a value of a file, whose kind was checked. Raises FaultError."""
        own = declared(cls)
        first = next(iter(own), "")
        if isinstance(value, bool) and not (own and bool in own[first].kinds):
            if not value:
                raise FaultError(f"{cls.key} needs true", hint="or leave it out", word="false")
            return cls()
        given = {"seed": seed} if "seed" in own else {}
        if not isinstance(value, dict) or own[first].kinds == (dict,):
            return cls(**{first: value, **given})
        for name in value:
            if name not in own:
                raise unknown("the key", name, own)
        for each in fields(cls):
            if each.name not in value and (each.name == first or each.default is MISSING):
                raise FaultError(
                    f"{cls.key} needs {each.name}",
                    hint=f"write {cls.example or f'{cls.key} = {{ {each.name} = … }}'}",
                )
        return cls(**{**given, **value})
