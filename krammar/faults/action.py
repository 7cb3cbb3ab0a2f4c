"""What all actions have in common: their fields are the declaration for Python, for files and for the documentation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Protocol, Self, get_args, get_origin, get_type_hints

from krammar.faults.answers import Selection
from krammar.faults.errors import FaultError, unknown
from krammar.faults.paths import Path, TopicNames
from krammar.faults.shape import Schema, Shape
from krammar.faults.steps import Delivery, Exchange, Verdict

WORDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "a table",
}


def kinds_in_words(kinds: tuple[type, ...]) -> str:
    """Return the kinds of values that a key accepts, such as ``a number or a table``."""
    words = [WORDS[kind] for kind in kinds if kind in WORDS]
    if WORDS[float] in words and WORDS[int] in words:
        words.remove(WORDS[int])
    return " or ".join(words)


def is_of(value: Any, kinds: tuple[type, ...]) -> bool:
    """Return whether a value is of one of some kinds. A bool is no number."""
    return bool in kinds if isinstance(value, bool) else isinstance(value, kinds)


def checked(check: Callable[[Any], bool], wrong: str, hint: str = "") -> dict[str, Any]:
    """Return the metadata of a field: its check, and the error, in which ``{}`` is the value."""
    return {"check": check, "wrong": wrong, "hint": hint}


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

    def title(self, side: str) -> str:
        return f"{self.api}{side.capitalize()} v{self.version}"


class Names(Protocol):
    """Looks up the names in an action's fields, for the messages of a rule. All raise FaultError."""

    schema: Schema

    def error_code(self, code: int | str) -> tuple[int, str]: ...
    def find_path(self, text: str) -> Path: ...


@dataclass(eq=False)
class Action:
    """Base of all actions: dataclasses whose fields are the arguments of a rule's method and the keys of a table.

    ``key``         its name in a file
    ``on_request``  whether it acts on the request; a rule with such an action decides when the request comes
    ``needs``       what only krammar's broker has
    ``written``     the kinds of values in a file, if they do not follow from the fields
    ``example``     in a file, if a table needs several keys
    """

    key: ClassVar[str] = ""
    on_request: ClassVar[bool] = False
    needs: ClassVar[str] = ""
    written: ClassVar[tuple[type, ...]] = ()
    example: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for each in fields(self):
            if not each.init:
                continue
            value, kinds = getattr(self, each.name), kinds_of_fields(type(self))[each.name]
            if kinds and not is_of(value, kinds):
                raise FaultError(
                    f"{each.name} needs {kinds_in_words(kinds)}", word=str(value), key=each.name
                )
            if "check" in each.metadata and not each.metadata["check"](value):
                raise FaultError(
                    each.metadata["wrong"].format(value),
                    hint=each.metadata["hint"],
                    word=str(value),
                )

    def settle(self, names: Names) -> None:
        """Look up the names in its fields. Raises FaultError."""

    def uses(self) -> int | None:
        """Return how often the action can act; None if there is no end."""
        return None

    def acts_on_request(self, target: Target) -> bool:
        return self.on_request

    def check(self, target: Target) -> None:
        """Raise FaultError if the action cannot be applied to a message-version."""

    def fits(self, target: Target, message: Any, names: TopicNames) -> bool:
        """Return whether there is something to act on: in the request, if the action acts on it, else in
        the response."""
        return True

    def request(
        self, target: Target, exchange: Exchange, verdict: Verdict, names: TopicNames
    ) -> None:
        """Act on a request."""

    def response(
        self, target: Target, exchange: Exchange, delivery: Delivery, names: TopicNames
    ) -> None:
        """Act on a response."""

    def fire(self, exchange: Exchange) -> None:
        """Handle that the rule fires, before ``describe`` and the methods that act."""

    def describe(self, exchange: Exchange) -> str:
        """Return what the action does, in a few words, for the history."""
        return self.key

    # In files.

    @classmethod
    def kinds_in_files(cls) -> tuple[type, ...]:
        """Return the kinds of values that a file can have for the action."""
        if cls.written:
            return cls.written
        own = kinds_of_fields(cls)
        if not own:
            return (bool,)
        first = next(iter(own.values()))
        if (
            first == (dict,)
            or sum(each.default is MISSING for each in fields(cls) if each.init) > 1
        ):
            return (dict,)
        several = len(own.keys() - {"seed"}) > 1
        return (*first, dict) if several else first

    @classmethod
    def from_file(cls, value: Any, seed: int) -> Self:
        """Return the action for a value of a file, whose kind was checked. Raises FaultError."""
        own = kinds_of_fields(cls)
        if isinstance(value, bool) and bool not in next(iter(own.values()), ()):
            if value is not True:
                raise FaultError(
                    f"{cls.key} needs true", hint="or leave it out", word=str(value).lower()
                )
            return cls()
        given = {"seed": seed} if "seed" in own else {}
        first = next(iter(own))
        if not isinstance(value, dict) or own[first] == (dict,):
            return cls(**{first: value, **given})
        for name in value:
            if name not in own:
                raise unknown("the key", name, own)
        for each in fields(cls):
            if each.name not in value and (each.name == first or _is_required(each)):
                raise FaultError(
                    f"{cls.key} needs {each.name}",
                    hint=f"write {cls.example or f'{cls.key} = {{ {each.name} = … }}'}",
                )
        return cls(**{**given, **value})


def _is_required(field: Any) -> bool:
    return field.init and field.default is MISSING and field.default_factory is MISSING


def kinds_of_fields(cls: type[Action]) -> dict[str, tuple[type, ...]]:
    """Return the kinds of values of an action's fields, from their annotations; empty for any value."""
    hints = get_type_hints(cls)
    return {each.name: _kinds(hints[each.name]) for each in fields(cls) if each.init}


def _kinds(hint: Any) -> tuple[type, ...]:
    if hint is Any or get_origin(hint) is Callable:
        return ()
    if hint is float:
        return (int, float)
    origin = get_origin(hint)
    if origin is Mapping:
        return (dict,)
    if origin is list:
        return (list,)
    arguments = get_args(hint)
    return tuple(kind for each in arguments for kind in _kinds(each)) if arguments else (hint,)


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


__all__ = ["Action", "Names", "Target", "checked", "copied", "is_of", "kinds_in_words"]
