"""The meaning of the fields of messages, from their layouts: error codes, records, and what elements identify.

A *role* is what a field identifies: ``topic``, ``topic_id``, ``partition``, ``group``,
``transactional_id``; every other field has its own name as its role. Requests and responses name
the same thing by different fields (``topic_data[*].index``, ``partition_responses[*].index``), and the
role connects them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from krammar.wire.layout import Array, Field, Layout, Nested, Scalar, Text
from krammar.wire.package import Package

ERROR_CODE = "ErrorCode"

# By the entity of a field in the definitions.
_ENTITIES = {
    "topicName": "topic",
    "topicId": "topic_id",
    "partition": "partition",
    "groupId": "group",
    "transactionalId": "transactional_id",
}
# FindCoordinator has a key, and in newer versions an array of keys.
_KEYS = "coordinator_keys"
# AddPartitionsToTxn has its fields twice, for old and for new versions.
_OLD = "v3_and_below_"
# The roles that rules select by.
SELECTED = ("topic", "topic_id", "partition", "group", "transactional_id")


@dataclass(frozen=True, slots=True)
class Container:
    """A field that holds a struct or an array. ``shape`` is None for an array of plain values, whose
    elements have ``role``."""

    name: str
    is_array: bool
    shape: Shape | None
    role: str

    def elements(self, struct: Any) -> list[Any]:
        """Return the elements of the array, or the struct, as far as there are any."""
        value = getattr(struct, self.name)
        if self.is_array:
            return value or []
        return [] if value is None else [value]


@dataclass(frozen=True, slots=True)
class Shape:
    """The fields of a struct at one version, by their use.

    ``plain`` are attributes and roles of plain fields, ``errors`` and ``records`` the attributes that
    hold error codes and record batches.
    """

    layout: Layout
    plain: tuple[tuple[str, str], ...]
    branches: tuple[Container, ...]
    errors: tuple[str, ...]
    records: tuple[str, ...]

    @property
    def roles(self) -> frozenset[str]:
        """The roles of all fields, in nested structs too."""
        found = {role for _, role in self.plain}
        for branch in self.branches:
            found |= {branch.role} if branch.shape is None else branch.shape.roles
        if "key" in found:  # FindCoordinator: a group or a transactional id
            found |= {"group", "transactional_id"}
        return frozenset(found)

    @property
    def has_errors(self) -> bool:
        return bool(self.errors) or any(b.shape and b.shape.has_errors for b in self.branches)

    @property
    def has_records(self) -> bool:
        return bool(self.records) or any(b.shape and b.shape.has_records for b in self.branches)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a message holds an error code: the branches on the way, and the attribute.

    ``roles`` are the roles of the structs on the way, without the message's own.
    """

    branches: tuple[Container, ...]
    attribute: str
    roles: frozenset[str]

    def __str__(self) -> str:
        steps = [f"{b.name}[*]" if b.is_array else b.name for b in self.branches]
        return ".".join([*steps, self.attribute])

    def structs(self, message: Any) -> list[Any]:
        """Return the structs of a message that hold the error code."""
        found = [message]
        for branch in self.branches:
            found = [element for struct in found for element in branch.elements(struct)]
        return found


class Schema:
    """The shapes of a protocol's messages."""

    def __init__(self, package: Package) -> None:
        self.package = package
        self._shapes: dict[tuple[str, int], Shape] = {}
        self._places: dict[tuple[int, int], list[Place]] = {}

    def class_of(self, side: str, api_key: int) -> Any:
        """Return the class of a request or a response; None for a request without a response."""
        package = self.package
        find = package.request_class if side == "request" else package.response_class
        return find(api_key)

    def side(self, side: str, api_key: int, version: int) -> Shape | None:
        """Return the shape of a request or a response; None for a request without a response."""
        cls = self.class_of(side, api_key)
        return None if cls is None else self.shape(cls, version)

    def request(self, api_key: int, version: int) -> Shape:
        return self.shape(self.package.request_class(api_key), version)

    def response(self, api_key: int, version: int) -> Shape | None:
        """Return the response's shape; None for a request without a response."""
        return self.side("response", api_key, version)

    def shape(self, cls: Any, version: int) -> Shape:
        key = (cls.__name__, version)
        known = self._shapes.get(key)
        if known is None:
            known = self._shapes[key] = _shape(self.package.layout(cls, version))
        return known

    def error_codes(self, api_key: int, version: int, response: Any) -> Iterator[int]:
        """Yield all error codes of a response, 0 for success included."""
        places = self._places.get((api_key, version))
        if places is None:
            shape = self.response(api_key, version)
            places = [] if shape is None else error_places(shape)
            self._places[api_key, version] = places
        for place in places:
            for struct in place.structs(response):
                yield getattr(struct, place.attribute)

    def name(self, api_key: int) -> str:
        """Return the name of an API, such as ``Produce``."""
        return self.package.requests[api_key].api_name

    def names(self) -> dict[str, int]:
        """Return the api keys by the names of APIs."""
        return {self.name(key): key for key in sorted(self.package.requests)}


def _shape(layout: Layout) -> Shape:
    plain, branches, errors, records = [], [], [], []
    for field in (*layout.fields, *layout.tags):
        kind, is_array = field.type, False
        while isinstance(kind, Array):
            kind, is_array = kind.element, True
        if isinstance(kind, Nested):
            branches.append(Container(field.name, is_array, _shape(kind.layout), ""))
        elif is_array:
            branches.append(Container(field.name, True, None, _role(field)))
        elif isinstance(kind, Scalar) and kind.enum == ERROR_CODE:
            errors.append(field.name)
        elif isinstance(kind, Text) and kind.records:
            records.append(field.name)
        else:
            plain.append((field.name, _role(field)))
    return Shape(layout, tuple(plain), tuple(branches), tuple(errors), tuple(records))


def _role(field: Field) -> str:
    name = field.name.removeprefix(_OLD)
    return _ENTITIES.get(field.entity) or ("key" if name == _KEYS else name)


def error_places(shape: Shape) -> list[Place]:
    """Return where a message can hold an error code, outermost first."""
    found: list[Place] = []

    def visit(shape: Shape, branches: tuple[Container, ...], roles: frozenset[str]) -> None:
        for name in shape.errors:
            found.append(Place(branches, name, roles))
        for branch in shape.branches:
            if branch.shape is not None:
                own = frozenset(role for _, role in branch.shape.plain)
                visit(branch.shape, (*branches, branch), roles | own)

    visit(shape, (), frozenset())
    return sorted(found, key=lambda place: len(place.branches))
