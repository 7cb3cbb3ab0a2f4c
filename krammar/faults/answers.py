"""Error responses: built from a request, put into a response, or given for a part of a request only.

What a message is about is a list of *subjects*: one for each innermost element, with the values of all
its roles, such as ``{"topic": "orders", "partition": 0, ...}``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from krammar.faults.errors import FaultError
from krammar.faults.paths import TopicNames
from krammar.faults.shape import SELECTED, Branch, Place, Shape, error_places

Subject = dict[str, Any]

# Error codes whose names contain one of these concern the whole request.
_WHOLE = (
    "COORDINATOR",
    "GROUP",
    "MEMBER",
    "GENERATION",
    "SESSION",
    "CLUSTER",
    "CONTROLLER",
    "SASL",
)

# Fields beside an error code that Kafka sets to -1, although 0 is their default.
_UNKNOWN = frozenset({"base_offset", "high_watermark", "committed_offset", "node_id", "port"})

# CoordinatorType.TRANSACTION: the key of FindCoordinator is a transactional id.
_TRANSACTION = 1


@dataclass(frozen=True, slots=True)
class Selection:
    """The topics, partitions, groups and transactional ids that a rule is about, by role."""

    values: Mapping[str, tuple[Any, ...]]

    def __bool__(self) -> bool:
        return bool(self.values)

    def bound(self, subject: Subject) -> bool:
        """Whether a subject has a value for each selected role."""
        return all(
            role in subject or (role == "topic" and "topic_id" in subject) for role in self.values
        )

    def matches(self, subject: Subject, names: TopicNames) -> bool:
        """Whether a subject is selected. Roles without a value do not matter."""
        for role, wanted in self.values.items():
            value = subject.get(role)
            if role == "topic" and not value and (topic_id := subject.get("topic_id")):
                value = names(topic_id)
            elif role not in subject:
                continue
            if value not in wanted and not (role == "topic" and _is_like(value, wanted)):
                return False
        return True


def _is_like(topic: Any, patterns: tuple[str, ...]) -> bool:
    """Whether a pattern fits. Names of topics have neither ``*`` nor ``?``."""
    return isinstance(topic, str) and any(
        fnmatchcase(topic, each) for each in patterns if "*" in each or "?" in each
    )


def subjects(message: Any, shape: Shape, outer: Subject | None = None) -> Iterator[Subject]:
    """Yield the subjects of a message. A null array of topics means all topics; it yields the message's own subject."""
    subject = _of(message, shape, outer or {})
    inner = False
    for branch in shape.branches:
        for element in _elements(message, branch):
            inner = True
            if branch.shape is None:
                yield _keyed({**subject, branch.role: element})
            else:
                yield from subjects(element, branch.shape, subject)
    if not inner:
        yield subject


def _of(struct: Any, shape: Shape, outer: Subject) -> Subject:
    subject = dict(outer)
    for name, role in shape.plain:
        subject[name] = subject[role] = getattr(struct, name)
    return _keyed(subject)


def _keyed(subject: Subject) -> Subject:
    """Say what the key of FindCoordinator is: a group, or a transactional id."""
    if "key" in subject:
        role = "transactional_id" if subject.get("key_type") == _TRANSACTION else "group"
        subject[role] = subject["key"]
    return subject


def _elements(message: Any, branch: Branch) -> list[Any]:
    value = getattr(message, branch.name)
    if branch.is_array:
        return value or []
    return [] if value is None else [value]


def place_for(
    shape: Shape, code_name: str, selection: Selection, at: str | None, title: str
) -> Place:
    """Return where an error code belongs in a response. Raises FaultError if there is no such place."""
    places = error_places(shape)
    if not places:
        raise FaultError(f"{title} has no error code", code="F401")
    if at is not None:
        for place in places:
            if str(place) == at:
                return place
        raise FaultError(
            f'{title} has no error code at "{at}"',
            hint=f"it has: {', '.join(map(str, places))}",
            code="F401",
            word=at,
        )
    if any(word in code_name for word in _WHOLE):
        return places[0]
    wanted = set(selection.values)
    if not wanted:
        return next((place for place in places if place.branches), places[0])
    for place in places:
        if wanted <= place.roles | ({"topic"} if "topic_id" in place.roles else set()):
            return place
    return places[0] if wanted <= {"group", "transactional_id"} else places[-1]


def build(cls: Any, shape: Shape, about: list[Subject], place: Place, code: int) -> Any:
    """Build the response that refuses all subjects with an error code."""
    response = _build(cls, shape, about, (), _kind_getter(cls))
    for struct, inner in elements_at(response, place, lambda subject: True, shape):
        refuse(struct, inner, place, code)
    return response


def _kind_getter(cls: Any) -> Callable[[Any, str], Any]:
    from krammar.wire.message import kinds_of, named

    return lambda owner, name: named(owner, kinds_of(owner)[name])


def _build(
    cls: Any,
    shape: Shape,
    about: list[Subject],
    keys: tuple[str, ...],
    kind: Callable[[Any, str], Any],
) -> Any:
    struct = cls()
    if about:
        for name, role in shape.plain:
            # Only the broker opens fetch sessions (KIP-227).
            if name != "session_id" and role in about[0]:
                setattr(struct, name, about[0][role])
    for branch in shape.branches:
        inner = branch.shape
        if inner is None or not branch.is_array or not inner.has_errors:
            continue
        named = {role for _, role in inner.plain}
        own = [
            role for role in named if role not in keys and any(role in subject for subject in about)
        ]
        if not own:
            continue
        groups: dict[tuple[Any, ...], list[Subject]] = {}
        for subject in about:
            if all(role in subject for role in own):
                groups.setdefault(tuple(subject[role] for role in own), []).append(subject)
        inner_class = kind(cls, branch.name)
        elements = [
            _build(inner_class, inner, group, (*keys, *own), kind) for group in groups.values()
        ]
        setattr(struct, branch.name, elements)
    return struct


def refuse(struct: Any, shape: Shape, place: Place, code: int) -> None:
    """Set the error code of an element, and remove its records.

    Kafka sends empty records with an error; librdkafka does not read responses with null ones.
    """
    setattr(struct, place.attribute, code)
    for name, _ in shape.plain:
        if name in _UNKNOWN:
            setattr(struct, name, -1)
    for name in shape.records:
        setattr(struct, name, b"")


def elements_at(
    response: Any, place: Place, wanted: Callable[[Subject], bool], shape: Shape
) -> list[tuple[Any, Shape]]:
    """Return the structs in a response that hold the error code of a place and that ``wanted`` selects."""

    def visit(struct: Any, shape: Shape, depth: int, outer: Subject) -> list[tuple[Any, Shape]]:
        subject = _of(struct, shape, outer)
        if depth == len(place.branches):
            return [(struct, shape)] if not depth or wanted(subject) else []
        branch = place.branches[depth]
        inner = next(b.shape for b in shape.branches if b.name == branch.name)
        assert inner is not None
        found = []
        for element in _elements(struct, branch):
            found += visit(element, inner, depth + 1, subject)
        return found

    return visit(response, shape, 0, {})


def without(
    message: Any,
    shape: Shape,
    selection: Selection,
    names: TopicNames,
    outer: Subject | None = None,
) -> Any:
    """Return a copy of a request without the selected elements, or None if no element remains."""
    subject = _of(message, shape, outer or {})
    rest = copy(message)
    had, left = False, False
    for branch in shape.branches:
        if not branch.is_array:
            continue
        elements = _elements(message, branch)
        kept = []
        for element in elements:
            if branch.shape is None:
                inner = _keyed({**subject, branch.role: element})
                if not selection.bound(inner) or not selection.matches(inner, names):
                    kept.append(element)
                else:
                    had = True
                continue
            inner = _of(element, branch.shape, subject)
            if selection.bound(inner):
                if not selection.matches(inner, names):
                    kept.append(element)
                else:
                    had = True
                continue
            shorter = without(element, branch.shape, selection, names, subject)
            if shorter is None:
                had = True
            else:
                had = had or shorter is not element
                kept.append(shorter)
        if elements:
            setattr(rest, branch.name, kept)
            left = left or bool(kept)
    if not had:
        return message
    return rest if left else None


def merge(response: Any, refused: Any, shape: Shape) -> None:
    """Add to a broker's response the elements of an error response."""
    for branch in shape.branches:
        inner = branch.shape
        if inner is None or not branch.is_array or not inner.has_errors:
            continue
        elements = getattr(response, branch.name)
        for element in getattr(refused, branch.name) or []:
            same = next((e for e in elements or [] if _same(e, element, inner)), None)
            if same is None:
                setattr(response, branch.name, elements := [*(elements or []), element])
            elif any(b.shape and b.shape.has_errors for b in inner.branches):
                merge(same, element, inner)


def _same(left: Any, right: Any, shape: Shape) -> bool:
    roles = [name for name, role in shape.plain if role in SELECTED or role == "key"]
    return bool(roles) and all(getattr(left, name) == getattr(right, name) for name in roles)
