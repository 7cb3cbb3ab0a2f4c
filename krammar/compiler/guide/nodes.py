"""What the stages of reading a guide pass on: messages as trees of nodes, and the user's answers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from krammar.compiler.names import snake_case
from krammar.util.diagnostics import Position


@dataclass(frozen=True)
class Answers:
    """What a text does not say.

    ``keys`` are API keys by the name of the API. ``types`` are types of definitions by their word in the text.
    ``nullable`` are paths such as ``FetchRequest.topics``, and ``defaults`` are defaults by path. ``arrays`` says
    by path whether a tagged field is an array, where the text does not.
    """

    keys: Mapping[str, int] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    nullable: frozenset[str] = frozenset()
    defaults: Mapping[str, str] = field(default_factory=dict)
    arrays: Mapping[str, bool] = field(default_factory=dict)


@dataclass(slots=True)
class GuideNode:
    """A field of a message-version.

    A struct has ``fields``; any other type is ``type``, and ``sized`` its length field. ``length`` is the form of
    an array's count, if it is the same in all versions. ``compact`` is None for types that have a single form.
    ``classic`` is whether the text says that the field is not flexible, ``null_elements`` whether the elements of an
    array can be null, and ``presence_bool`` whether a bool precedes a struct that can be null. ``plain`` is whether the
    text says that a first field ``version`` does not select the version of its struct. ``marked`` is whether
    TAG_BUFFER ends a struct. ``maybe_array`` is whether the text leaves open if the field is an array.
    """

    name: str
    position: Position
    brackets: int = 0
    length: str = ""
    nullable: bool = False
    tag: int | None = None
    type: str = ""
    compact: bool | None = None
    records: bool = False
    fields: list[GuideNode] | None = None
    marked: bool = False
    maybe_array: bool = False
    classic: bool = False
    null_elements: bool = False
    presence_bool: bool = False
    plain: bool = False

    def walk(self) -> Iterator[GuideNode]:
        """Yield the node and all nodes below it."""
        yield self
        for child in self.fields or []:
            yield from child.walk()

    def walk_flexible(self) -> Iterator[GuideNode]:
        """The same, without nodes that the text says are not flexible, and those below them."""
        if not self.classic:
            yield self
            for child in self.fields or []:
                yield from child.walk_flexible()

    def shape(self) -> tuple[object, ...]:
        """Return all facts, without positions."""
        inner = None if self.fields is None else tuple(child.shape() for child in self.fields)
        facts = (self.name, self.brackets, self.length, self.nullable, self.tag, self.maybe_array)
        more = (self.compact, self.marked, self.null_elements, self.presence_bool, self.plain)
        return (*facts, self.type, *more, inner)


@dataclass(slots=True)
class GuideMessage:
    """The versions of a message; the version of a struct without versions is None.

    ``reads_newer`` and ``open_ended`` are what the title of the last version says about those after it.
    """

    name: str
    versions: dict[int | None, GuideNode] = field(default_factory=dict)
    # Versions that the text calls flexible by their header.
    header_flexible: dict[int | None, bool] = field(default_factory=dict)
    reads_newer: bool = False
    open_ended: bool = False

    @property
    def position(self) -> Position:
        """Where the text describes the message first."""
        return next(iter(self.versions.values())).position

    @property
    def title(self) -> str:
        """The name of the API, without Request or Response."""
        return re.sub(r"(Request|Response)$", "", self.name)


def shown(name: str, version: int | None) -> str:
    """Return a message-version for diagnostics: ``PingRequest v1``."""
    return name if version is None else f"{name} v{version}"


def camel(word: str) -> str:
    """Convert ``topic_id`` to ``TopicId``, so that the attribute of the field is ``topic_id`` again."""
    parts = word.strip("_").split("_")
    name = "".join(part[:1].upper() + part[1:] for part in parts)
    if snake_case(name) == snake_case(word.strip("_")):
        return name
    return "_".join(part[:1].upper() + part[1:] for part in parts)
