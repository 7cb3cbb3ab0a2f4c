"""What the stages of reading a guide pass on: messages as trees of nodes, modifiers, and the user's answers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from krammar.compiler.ir import ROUTINGS
from krammar.compiler.names import snake_case
from krammar.util.diagnostics import Position, did_you_mean

_HEADER = re.compile(
    r"(?P<response>response )?header (?P<header>\d{1,5})(?: v(?P<first>\d{1,5})\+)?"
)
_RESPONSE_KEY = re.compile(r"response key (?P<key>\d{1,5})")
_WORDS = (*ROUTINGS, "cluster action", "one way", "push", "header", "response header")


@dataclass(slots=True)
class Modifiers:
    """What a text says about a request or a push, besides its key and its fields.

    They come after the key: ``Credit API (Key: 9, one way, header 0)``. They are those of definitions. Kafka's guides
    have none, and ``krammar show`` writes them.

    ``headers`` and ``response_headers`` are the header versions from a version of the message on.
    """

    routing: str = ""
    cluster_action: bool = False
    one_way: bool = False
    push: bool = False
    response_key: int | None = None
    headers: dict[int, int] = field(default_factory=dict)
    response_headers: dict[int, int] = field(default_factory=dict)

    def add(self, word: str) -> str | None:
        """Add a modifier. Return a hint if no such modifier exists."""
        if word in ROUTINGS:
            self.routing = word
        elif word in ("cluster action", "one way", "push"):
            setattr(self, word.replace(" ", "_"), True)
        elif key := _RESPONSE_KEY.fullmatch(word):
            self.response_key = int(key["key"])
        elif match := _HEADER.fullmatch(word):
            headers = self.response_headers if match["response"] else self.headers
            headers[int(match["first"] or 0)] = int(match["header"])
        else:
            return did_you_mean(word, _WORDS) or "the modifiers are those of definitions"
        return None


def given_headers(headers: dict[int, int], low: int, high: int) -> dict[int, int]:
    """Return the header version of each version of a message that the text gives."""
    found = {}
    for version in range(low, high + 1):
        firsts = [first for first in headers if first <= version]
        if firsts:
            found[version] = headers[max(firsts)]
    return found


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
