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
from krammar.faults.shape import SELECTED, Container, Place, Shape, error_places
from krammar.wire.representation import kinds_of, named

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


def structs(
    message: Any, shape: Shape, outer: Subject | None = None
) -> Iterator[tuple[Any, Shape, Subject]]:
    """Yield all structs of a message, outermost first, with their shapes and what they are about."""
    subject = _of(message, shape, outer or {})
    yield message, shape, subject
    for branch in shape.branches:
        if branch.shape is not None:
            for element in branch.elements(message):
                yield from structs(element, branch.shape, subject)


def subjects(message: Any, shape: Shape) -> Iterator[Subject]:
    """Yield the subjects of a message. A null array of topics means all topics; it yields the message's own subject."""
    for struct, own, subject in structs(message, shape):
        elements = [(branch, each) for branch in own.branches for each in branch.elements(struct)]
        if not elements:
            yield subject
        for branch, element in elements:
            if branch.shape is None:
                yield _in(branch, element, subject)


def _of(struct: Any, shape: Shape, outer: Subject) -> Subject:
    subject = dict(outer)
    for name, role in shape.plain:
        subject[name] = subject[role] = getattr(struct, name)
    return _keyed(subject)


def _in(branch: Container, element: Any, outer: Subject) -> Subject:
    """Return the subject of an element of an array, without what is inside of it."""
    if branch.shape is None:
        return _keyed({**outer, branch.role: element})
    return _of(element, branch.shape, outer)


def _keyed(subject: Subject) -> Subject:
    """Say what the key of FindCoordinator is: a group, or a transactional id."""
    if "key" in subject:
        role = "transactional_id" if subject.get("key_type") == _TRANSACTION else "group"
        subject[role] = subject["key"]
    return subject


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
    response = _build(cls, shape, about, frozenset())
    for struct, inner in elements_at(response, shape, place, lambda subject: True):
        refuse(struct, inner, place, code)
    return response


def _build(cls: Any, shape: Shape, about: list[Subject], outer: frozenset[str]) -> Any:
    """Build a struct with an element for each different subject. Roles of ``outer`` structs do not distinguish them."""
    struct = cls()
    for name, role in shape.plain:
        # Only the broker opens fetch sessions (KIP-227).
        if about and name != "session_id" and role in about[0]:
            setattr(struct, name, about[0][role])
    known = {role for subject in about for role in subject}
    for branch in shape.branches:
        inner = branch.shape
        if inner is None or not branch.is_array or not inner.has_errors:
            continue
        own = ({role for _, role in inner.plain} & known) - outer
        groups: dict[tuple[Any, ...], list[Subject]] = {}
        for subject in about:
            if own and own <= subject.keys():
                groups.setdefault(tuple(subject[role] for role in own), []).append(subject)
        if own:
            inner_class = named(cls, kinds_of(cls)[branch.name])
            elements = [_build(inner_class, inner, group, outer | own) for group in groups.values()]
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
    response: Any, shape: Shape, place: Place, wanted: Callable[[Subject], bool]
) -> list[tuple[Any, Shape]]:
    """Return the structs in a response that hold the error code of a place and that ``wanted`` selects."""
    found = [(response, shape, _of(response, shape, {}))]
    for branch in place.branches:
        assert branch.shape is not None
        found = [
            (element, branch.shape, _in(branch, element, subject))
            for struct, _, subject in found
            for element in branch.elements(struct)
        ]
    return [(struct, own) for struct, own, about in found if not place.branches or wanted(about)]


def without(
    message: Any,
    shape: Shape,
    selection: Selection,
    names: TopicNames,
    outer: Subject | None = None,
) -> Any:
    """Return a copy of a request without the selected elements: the request itself if it has none, and None if no
    other element remains."""
    subject = _of(message, shape, outer or {})
    rest = copy(message)
    same, left = True, False
    for branch in shape.branches:
        elements = branch.elements(message) if branch.is_array else []
        kept = []
        for element in elements:
            about = _in(branch, element, subject)
            if selection.bound(about):
                remains = None if selection.matches(about, names) else element
            elif branch.shape is None:
                remains = element
            else:
                remains = without(element, branch.shape, selection, names, subject)
            same = same and remains is element
            if remains is not None:
                kept.append(remains)
        if elements:
            setattr(rest, branch.name, kept)
            left = left or bool(kept)
    if same:
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
