"""What all actions have in common: their fields are the declaration for Python, for files and for the documentation."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Protocol, Self

from krammar.faults.answers import Selection
from krammar.faults.declared import Values, declared
from krammar.faults.errors import FaultError, unknown
from krammar.faults.paths import Path, TopicNames
from krammar.faults.shape import Schema, Shape
from krammar.faults.steps import Delivery, Exchange, Verdict


@dataclass(frozen=True, slots=True)
class Target:
    """A message-version that a rule applies to."""

    schema: Schema
    api_key: int
    version: int
    selection: Selection

    @property
    def api(self) -> str:
        return self.schema.name(self.api_key)

    @property
    def request(self) -> Shape:
        return self.schema.request(self.api_key, self.version)

    @property
    def response(self) -> Shape:
        """Raises FaultError for a request without a response."""
        shape = self.schema.response(self.api_key, self.version)
        if shape is None:
            raise FaultError(f"{self.api} has no response", code="F401")
        return shape

    def shape(self, side: str) -> Shape:
        """Return the request's or the response's shape."""
        return self.request if side == "request" else self.response

    def title(self, side: str) -> str:
        return f"{self.api}{side.capitalize()} v{self.version}"


@dataclass(frozen=True, slots=True)
class Occasion:
    """A request, or its response, on which a rule acts. ``names`` knows the names of topics."""

    target: Target
    exchange: Exchange
    names: TopicNames


class Names(Protocol):
    """Looks up the names in an action's fields, for the messages of a rule. All raise FaultError."""

    schema: Schema

    def error_code(self, code: int | str) -> tuple[int, str]: ...
    def find_path(self, text: str) -> Path: ...


@dataclass(eq=False)
class Action:
    """Base of all actions: dataclasses whose fields are the arguments of a rule's method and the keys of a table.

    ``key``         its name in a file; empty if files cannot have it
    ``told``        what it does, for the history, with fields in braces
    ``on_request``  whether it acts on the request; rules with such an action decide when the request arrives
    ``needs``       the name of something that only krammar's broker has
    ``written``     the kinds of values in a file, if they do not follow from the fields
    ``example``     in a file, if a table needs several keys
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

    def settle(self, names: Names) -> None:
        """Look up the names in its fields. Raises FaultError."""

    def uses(self) -> int | None:
        """Return how often the action can act; None if there is no end."""
        return None

    def acts_on_request(self, target: Target) -> bool:
        return self.on_request

    def check(self, target: Target) -> None:
        """Raise FaultError if the action cannot be applied to a message-version."""

    def fits(self, occasion: Occasion, message: Any) -> bool:
        """Return whether the action has something to act on: in the request, if it acts on requests, else in
        the response."""
        return True

    def request(self, occasion: Occasion, verdict: Verdict) -> None:
        """Act on a request."""

    def response(self, occasion: Occasion, delivery: Delivery) -> None:
        """Act on a response."""

    def fire(self, exchange: Exchange) -> None:
        """Handle that the rule fires, before ``describe`` and the methods that act."""

    def describe(self, exchange: Exchange) -> str:
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


def copied(message: Any, shape: Shape) -> Any:
    """Return a copy of a request whose records are bytes: memoryviews of the frame cannot be copied."""
    return deepcopy(_without_views(message, shape))


def _without_views(message: Any, shape: Shape) -> Any:
    for name in shape.records:
        value = getattr(message, name)
        if isinstance(value, memoryview):
            setattr(message, name, bytes(value))
    for branch in shape.branches:
        if branch.shape is not None and branch.shape.has_records:
            for element in getattr(message, branch.name) or []:
                _without_views(element, branch.shape)
    return message
