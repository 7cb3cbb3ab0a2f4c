"""Paths to fields (``topic_data[*].name``) and conditions on them (``acks == -1``)."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from krammar.faults.errors import FaultError, unknown
from krammar.wire.errors import EncodeError
from krammar.wire.layout import Array, Layout, Nested, Scalar, Type
from krammar.wire.package import Package
from krammar.wire.representation import kinds_of, named

# Returns the name of a topic by its id, or None.
TopicNames = Callable[[UUID], "str | None"]

_STEP = re.compile(r"(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?:\[(?P<index>\*|\d+)\])?")
_CONDITION = re.compile(
    r"\s*(?P<path>[^\s=!<>]+)\s*(?P<operator>==|!=|<=|>=|<|>|in\b)\s*(?P<value>.+?)\s*"
)
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "in": lambda value, values: value in values,
}


@dataclass(frozen=True, slots=True)
class PathStep:
    """A field, and for an array the index of an element; -1 means every element."""

    name: str
    index: int | None

    def places(self, holder: Any) -> list[tuple[Any, str | int]]:
        """Return the places of the values in a struct: itself and the attribute, or the list and indexes."""
        if self.index is None:
            return [(holder, self.name)]
        elements = getattr(holder, self.name) or []
        indexes = range(len(elements)) if self.index < 0 else [self.index]
        return [(elements, index) for index in indexes if index < len(elements)]


@dataclass(frozen=True, slots=True)
class Path:
    """The way to a field. ``side`` is "request" or "response", or empty if the text names none."""

    text: str
    side: str
    steps: tuple[PathStep, ...]

    @classmethod
    def parse(cls, text: str) -> Path:
        """Read a path. Raises FaultError."""
        side, _, rest = text.partition(".")
        if side not in ("request", "response") or not rest:
            side, rest = "", text
        steps = []
        for part in rest.split("."):
            found = _STEP.fullmatch(part)
            if found is None:
                raise FaultError(
                    f'"{part}" in the path "{text}" is not a field',
                    hint='write a path such as "topics[*].partitions[0].leader_id"',
                    code="F101",
                    word=part,
                )
            steps.append(PathStep(found["name"], _index(found["index"])))
        return cls(text, side, tuple(steps))

    def type_in(self, layout: Layout) -> Type | None:
        """Return the type of the field in a layout; None if the layout does not have it.

        Raises FaultError if an array has no index, or something else has one.
        """
        kind: Type | None = None
        for number, step in enumerate(self.steps):
            field = next((f for f in (*layout.fields, *layout.tags) if f.name == step.name), None)
            if field is None:
                return None
            kind = field.type
            last = number == len(self.steps) - 1
            if step.index is not None:
                if not isinstance(kind, Array):
                    raise FaultError(
                        f'"{step.name}" in the path "{self.text}" is not an array',
                        hint=f'write "{step.name}" without an index',
                        word=step.name,
                    )
                kind = kind.element
            elif isinstance(kind, Array) and not last:
                raise FaultError(
                    f'"{step.name}" in the path "{self.text}" is an array',
                    hint=f'write "{step.name}[*]" for every element, or "{step.name}[0]" for the first',
                    word=step.name,
                )
            if not last:
                if not isinstance(kind, Nested):
                    raise FaultError(
                        f'"{step.name}" in the path "{self.text}" has no fields', word=step.name
                    )
                layout = kind.layout
        return kind

    def missing(self, cls: Any) -> FaultError | None:
        """Return the error for a path that exists in no version of a class; None if it exists in one."""
        for step in self.steps:
            if step.name not in cls._fields:
                return unknown(f"{cls.__qualname__}: the field", step.name, cls._fields)
            kind = kinds_of(cls).get(step.name, ":")
            inner = None if kind.startswith(":") else named(cls, kind)
            if inner is None or not hasattr(inner, "_fields"):
                return None
            cls = inner
        return None

    def owners(self, message: Any) -> list[tuple[Any, str | int]]:
        """Return the places of the values: a struct and an attribute, or a list and an index."""
        places: list[tuple[Any, str | int]] = []
        holders = [message]
        for step in self.steps:
            places = [place for holder in holders for place in step.places(holder)]
            holders = [value for place in places if (value := value_in(*place)) is not None]
        return places

    def values(self, message: Any, names: TopicNames) -> Iterator[Any]:
        """Yield the values of the field. A topic that a message names by its id alone has its name."""
        for holder, key in self.owners(message):
            value = value_in(holder, key)
            topic_id = getattr(holder, "topic_id", None) if value == "" else None
            yield (names(topic_id) or value) if topic_id else value

    def assign(self, message: Any, value: Any) -> None:
        """Set the field wherever the message has it."""
        for holder, key in self.owners(message):
            if isinstance(key, int):
                holder[key] = value
            else:
                setattr(holder, key, value)


def value_in(holder: Any, key: str | int) -> Any:
    """Return the value of a struct's attribute, or of a list's index."""
    return holder[key] if isinstance(key, int) else getattr(holder, key)


def _index(text: str | None) -> int | None:
    if text is None:
        return None
    return -1 if text == "*" else int(text)


@dataclass(frozen=True, slots=True)
class Condition:
    """A field compared with a value: true if it is true for one of the path's values."""

    text: str
    path: Path
    operator: str
    value: Any

    @classmethod
    def parse(cls, text: str) -> Condition:
        """Read a condition. A value is JSON, or the name of an enum's member. Raises FaultError."""
        found = _CONDITION.fullmatch(text)
        if found is None:
            raise FaultError(
                f'"{text}" is not a condition',
                hint='write a path, an operator (== != < <= > >= in) and a value: "acks == -1"',
                code="F101",
                word=text,
            )
        try:
            value = json.loads(found["value"])
        except ValueError:
            if not found["value"].isidentifier():
                raise FaultError(
                    f"{found['value']} is not a value",
                    hint="write a number, true, false, null, a string in double quotes, a list, or the "
                    "name of an enum's member",
                    code="F101",
                    word=found["value"],
                ) from None
            value = Name(found["value"])
        if found["operator"] == "in" and not isinstance(value, list):
            raise FaultError(
                f'"in" needs a list, not {found["value"]}',
                hint="for example: error_code in [3, 6]",
                code="F101",
                word=found["value"],
            )
        return cls(text, Path.parse(found["path"]), found["operator"], value)

    def holds(self, message: Any, names: TopicNames) -> bool:
        compare = _OPERATORS[self.operator]
        for value in self.path.values(message, names):
            if isinstance(value, UUID):
                value = str(value)
            try:
                if compare(value, self.value):
                    return True
            except TypeError:  # null is neither less nor more than anything
                continue
        return False


class Name(str):
    """A bare word in a condition: the name of an enum's member, until the path's type is known."""


def value_of(value: Any, kind: Type, package: Package, *, what: str) -> Any:
    """Return a value as a field of that type holds it: members of enums by name, uuids from text.

    Raises FaultError for a value that the field cannot hold.
    """
    if isinstance(value, str) and isinstance(kind, Scalar) and kind.enum:
        members = package.get(kind.enum).__members__
        if value not in members:
            raise unknown(f"{kind.enum}:", str(value), members)
        return int(members[value])
    if isinstance(value, Name):
        raise FaultError(
            f'"{value}" is not a value of {what}',
            hint=f'write a string in double quotes: "{value}"',
            word=str(value),
        )
    if isinstance(value, str) and isinstance(kind, Scalar) and kind.code == "16s":
        try:
            value = UUID(value)
        except ValueError:
            raise FaultError(f'"{value}" is not a uuid', word=value) from None
    if isinstance(value, str) and getattr(kind, "kind", "") == "bytes":
        value = value.encode()
    try:
        kind.validate(value)
    except EncodeError as error:
        raise FaultError(
            f"{json.dumps(value, default=str)} does not fit {what}: {str(error).partition(': ')[2]}",
            word=str(value),
        ) from None
    if any(isinstance(each, dict) for each in (value if isinstance(value, list) else [value])):
        raise FaultError(
            f"{what} contains structs, which cannot be replaced",
            hint="change their fields, one by one",
        )
    return value
