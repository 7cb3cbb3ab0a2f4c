"""What a rule does. An action works on the request (``on_request``), on the response (``on_response``) or on both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from math import inf
from random import Random
from typing import Any, ClassVar

from krammar.faults.answers import (
    Selection,
    build,
    elements_at,
    merge,
    place_for,
    refuse,
    subjects,
    without,
)
from krammar.faults.batches import corrupt
from krammar.faults.errors import FaultError
from krammar.faults.paths import Path, TopicNames, value_of
from krammar.faults.shape import Place, Schema, Shape
from krammar.faults.steps import Delivery, Exchange, Fate, Verdict
from krammar.wire.framing import PREFIX

# APIs whose responses carry more than the outcome of each element. They are handled, and then refused.
_READS = frozenset({"Metadata", "ApiVersions", "DescribeCluster", "DescribeTopicPartitions"})

_API_VERSIONS = "ApiVersions"
_THROTTLE = "throttle_time_ms"


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


class Action:
    """Base of all actions. ``key`` is its name in a faults file.

    ``on_request`` and ``on_response`` say where it acts; a rule with an action on requests decides when the
    request comes. ``needs`` names what only the broker has.
    """

    key: ClassVar[str] = ""
    on_request: ClassVar[bool] = False
    on_response: ClassVar[bool] = False
    needs: ClassVar[str] = ""

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

    def describe(self) -> str:
        """Return what the action does, in a few words, for the history."""
        return self.key


@dataclass(frozen=True)
class Answer(Action):
    """Answers an error code instead of handling the request, or after it was handled."""

    code: int
    name: str
    after: bool = False
    at: str | None = None
    key: ClassVar[str] = "answer"
    on_response: ClassVar[bool] = True

    def acts_on_request(self, target: Target) -> bool:
        return not self.after and target.api not in _READS

    def check(self, target: Target) -> None:
        self._place(target)

    def fits(self, target: Target, message: Any, names: TopicNames) -> bool:
        return self.acts_on_request(target) or bool(self._elements(target, message, names))

    def _place(self, target: Target) -> Place:
        title = target.title("response")
        return place_for(target.response, self.name, target.selection, self.at, title)

    def _elements(
        self, target: Target, response: Any, names: TopicNames
    ) -> list[tuple[Any, Shape]]:
        selection = target.selection
        place = self._place(target)
        return elements_at(
            response, place, lambda subject: selection.matches(subject, names), target.response
        )

    def request(
        self, target: Target, exchange: Exchange, verdict: Verdict, names: TopicNames
    ) -> None:
        shape, request, selection = target.request, verdict.request, target.selection
        response, place = target.response, self._place(target)
        about = [s for s in subjects(request, shape) if selection.matches(s, names)]
        cls = target.schema.package.response_class(target.api_key)
        answer = build(cls, response, about, place, self.code)
        if not _reaches(answer, place.branches):
            return  # the request does not name its elements: it is handled, and then refused
        rest = None
        if selection and place.branches:
            rest = without(request, shape, selection, names)
        if rest is None or rest is request:
            verdict.fate, verdict.answer = Fate.ANSWER, answer
            exchange.refused.append((self, None))
        else:
            verdict.request, verdict.changed = rest, True
            exchange.refused.append((self, answer))

    def response(
        self, target: Target, exchange: Exchange, delivery: Delivery, names: TopicNames
    ) -> None:
        shape = target.response
        built = [answer for action, answer in exchange.refused if action is self]
        for answer in built:
            if answer is not None:
                merge(delivery.message, answer, shape)
        if not built:
            for struct, inner in self._elements(target, delivery.message, names):
                refuse(struct, inner, self._place(target), self.code)
        delivery.changed = True

    def describe(self) -> str:
        return f"{'handled, then ' if self.after else ''}answered {self.name}"


def _reaches(struct: Any, branches: Iterable[Any]) -> bool:
    """Whether a response has an element in the last of the branches."""
    holders = [struct]
    for branch in branches:
        holders = [
            element
            for holder in holders
            for element in (getattr(holder, branch.name) or ([] if branch.is_array else [None]))
            if element is not None
        ]
    return bool(holders)


@dataclass(frozen=True)
class Drop(Action):
    """Closes the connection: before the request is handled, after it, or in the middle of the response."""

    when: str
    at: float = 0.5
    key: ClassVar[str] = "drop"
    MOMENTS: ClassVar[tuple[str, ...]] = ("before", "after", "middle")

    def __post_init__(self) -> None:
        if self.when not in self.MOMENTS:
            raise FaultError(
                f'"{self.when}" is not a moment to drop a connection',
                hint='write "before" or "after" (the request is handled), or "middle" (of the response)',
                word=str(self.when),
            )
        _check(0 < self.at < inf, "at must be a number of bytes, or a share below 1", str(self.at))

    def acts_on_request(self, target: Target) -> bool:
        return self.when == "before"

    def check(self, target: Target) -> None:
        if self.when != "before":
            _ = target.response

    def request(
        self, target: Target, exchange: Exchange, verdict: Verdict, names: TopicNames
    ) -> None:
        if self.when == "before":
            verdict.fate = Fate.DROP

    def response(
        self, target: Target, exchange: Exchange, delivery: Delivery, names: TopicNames
    ) -> None:
        if self.when == "after":
            delivery.drop = True
        elif self.when == "middle":
            delivery.cut_at = self.at

    def describe(self) -> str:
        return {
            "before": "dropped the connection before the request was handled",
            "after": "dropped the connection instead of answering",
            "middle": "dropped the connection in the middle of the response",
        }[self.when]


@dataclass(frozen=True)
class Delay(Action):
    """Waits before the request is handled, or before its response is sent."""

    ms: float
    of: str = "response"
    key: ClassVar[str] = "delay_ms"

    def __post_init__(self) -> None:
        _check(self.ms >= 0, "a delay cannot be negative", str(self.ms))
        if self.of not in ("request", "response"):
            raise FaultError(
                f'"{self.of}" cannot be delayed',
                hint="write request or response",
                word=str(self.of),
            )

    def acts_on_request(self, target: Target) -> bool:
        return self.of == "request"

    def request(
        self, target: Target, exchange: Exchange, verdict: Verdict, names: TopicNames
    ) -> None:
        if self.of == "request":
            verdict.delay_ms += self.ms

    def response(
        self, target: Target, exchange: Exchange, delivery: Delivery, names: TopicNames
    ) -> None:
        if self.of == "response":
            delivery.delay_ms += self.ms

    def describe(self) -> str:
        return f"delayed the {self.of} by {self.ms:g} ms"


@dataclass(frozen=True)
class Throttle(Action):
    """Sets the response's throttle time."""

    ms: int
    key: ClassVar[str] = "throttle_ms"

    def check(self, target: Target) -> None:
        shape = target.response
        kind = next((f.type for f in shape.layout.fields if f.name == _THROTTLE), None)
        if kind is None:
            raise FaultError(f"{target.title('response')} has no {_THROTTLE}", code="F401")
        value_of(self.ms, kind, target.schema.package, what=_THROTTLE)

    def response(
        self, target: Target, exchange: Exchange, delivery: Delivery, names: TopicNames
    ) -> None:
        delivery.message.throttle_time_ms = self.ms
        delivery.changed = True

    def describe(self) -> str:
        return f"set a throttle time of {self.ms} ms"


@dataclass(frozen=True)
class Trickle(Action):
    """Sends the response in small pieces."""

    bytes: int
    every_ms: float
    key: ClassVar[str] = "trickle"

    def __post_init__(self) -> None:
        _check(self.bytes >= 1, "bytes must be at least 1", str(self.bytes))
        _check(
            self.every_ms >= 0, "the pause between pieces cannot be negative", str(self.every_ms)
        )

    def response(
        self, target: Target, exchange: Exchange, delivery: Delivery, names: TopicNames
    ) -> None:
        delivery.trickle = (self.bytes, self.every_ms)

    def describe(self) -> str:
        return f"sent {self.bytes} bytes every {self.every_ms:g} ms"


@dataclass(frozen=True)
class BlackHole(Action):
    """Neither handles nor answers the request and what follows it on the connection."""

    key: ClassVar[str] = "black_hole"
    on_request: ClassVar[bool] = True

    def request(
        self, target: Target, exchange: Exchange, verdict: Verdict, names: TopicNames
    ) -> None:
        verdict.fate = Fate.SWALLOW

    def describe(self) -> str:
        return "swallowed the connection's requests from here on"


@dataclass(frozen=True)
class Change(Action):
    """Sets a field of the request or the response, wherever the path leads."""

    path: Path
    value: Any
    key: ClassVar[str] = "change"

    def acts_on_request(self, target: Target) -> bool:
        return self.path.side == "request"

    def check(self, target: Target) -> None:
        shape = target.request if self.path.side == "request" else target.response
        kind = self.path.type_in(shape.layout)
        if kind is None:
            raise FaultError(
                f"{target.title(self.path.side)} has no {self.path.text}",
                code="F401",
                word=self.path.text,
            )
        value_of(self.value, kind, target.schema.package, what=self.path.text)

    def fits(self, target: Target, message: Any, names: TopicNames) -> bool:
        return any(True for _ in self.path.owners(message))

    def _set(self, target: Target, message: Any) -> None:
        shape = target.request if self.path.side == "request" else target.response
        kind = self.path.type_in(shape.layout)
        assert kind is not None
        self.path.assign(
            message, value_of(self.value, kind, target.schema.package, what=self.path.text)
        )

    def request(
        self, target: Target, exchange: Exchange, verdict: Verdict, names: TopicNames
    ) -> None:
        if self.path.side == "request":
            if not verdict.changed:
                verdict.request = deepcopy(_without_views(verdict.request, target.request))
            self._set(target, verdict.request)
            verdict.changed = True

    def response(
        self, target: Target, exchange: Exchange, delivery: Delivery, names: TopicNames
    ) -> None:
        if self.path.side == "response":
            self._set(target, delivery.message)
            delivery.changed = True

    def describe(self) -> str:
        return f"set {self.path.text} to {self.value!r}"


@dataclass(frozen=True)
class Truncate(Action):
    """Cuts bytes off the end of the response; the frame's length says the same."""

    bytes: int
    key: ClassVar[str] = "truncate"

    def __post_init__(self) -> None:
        _check(self.bytes >= 1, "truncate must be at least 1 byte", str(self.bytes))

    def response(
        self, target: Target, exchange: Exchange, delivery: Delivery, names: TopicNames
    ) -> None:
        def cut(frame: bytes) -> bytes:
            body = frame[PREFIX : max(PREFIX, len(frame) - self.bytes)]
            return len(body).to_bytes(PREFIX, "big") + body

        delivery.transforms.append(cut)

    def describe(self) -> str:
        return f"cut {self.bytes} bytes off the response"


@dataclass(frozen=True)
class FlipBits(Action):
    """Flips bits of the response's body, after length and correlation id."""

    count: int
    random: Random
    key: ClassVar[str] = "flip_bits"

    def __post_init__(self) -> None:
        _check(self.count >= 1, "flip_bits must be at least 1", str(self.count))

    def response(
        self, target: Target, exchange: Exchange, delivery: Delivery, names: TopicNames
    ) -> None:
        def flip(frame: bytes) -> bytes:
            data, begin = bytearray(frame), 2 * PREFIX
            bits = (len(data) - begin) * 8
            for bit in self.random.sample(range(bits), min(self.count, bits)) if bits > 0 else ():
                data[begin + bit // 8] ^= 1 << bit % 8
            return bytes(data)

        delivery.transforms.append(flip)

    def describe(self) -> str:
        return f"flipped {self.count} bits of the response"


@dataclass(frozen=True)
class CorrelationId(Action):
    """Sends a response with another correlation id."""

    by: int
    key: ClassVar[str] = "correlation_id"

    def __post_init__(self) -> None:
        _check(
            self.by != 0,
            "correlation_id must not be 0: the response would have the right one",
            str(self.by),
        )

    def response(
        self, target: Target, exchange: Exchange, delivery: Delivery, names: TopicNames
    ) -> None:
        def shift(frame: bytes) -> bytes:
            number = int.from_bytes(frame[PREFIX : 2 * PREFIX], "big") + self.by
            return frame[:PREFIX] + (number & 0x7FFFFFFF).to_bytes(4, "big") + frame[2 * PREFIX :]

        delivery.transforms.append(shift)

    def describe(self) -> str:
        return f"set a correlation id that is wrong by {self.by}"


@dataclass(frozen=True)
class Offer(Action):
    """Changes which versions ApiVersions offers. None hides an API."""

    versions: dict[int, tuple[int, int] | None]
    key: ClassVar[str] = "offer"

    def check(self, target: Target) -> None:
        if target.api != _API_VERSIONS:
            raise FaultError(
                f"{target.api} does not offer versions",
                hint='write api = "ApiVersions"',
                code="F401",
            )

    def response(
        self, target: Target, exchange: Exchange, delivery: Delivery, names: TopicNames
    ) -> None:
        kept = []
        for entry in delivery.message.api_keys:
            wanted = self.versions.get(entry.api_key, (entry.min_version, entry.max_version))
            if wanted is not None:
                entry.min_version, entry.max_version = wanted
                kept.append(entry)
        delivery.message.api_keys = kept
        delivery.changed = True

    def describe(self) -> str:
        return "changed the versions that are offered"


@dataclass(frozen=True)
class Corrupt(Action):
    """Corrupts the last record batch of each partition: of Produce requests, or of Fetch responses."""

    kind: str
    key: ClassVar[str] = "corrupt"
    KINDS: ClassVar[tuple[str, ...]] = ("crc", "count", "codec")

    def __post_init__(self) -> None:
        if self.kind not in self.KINDS:
            raise FaultError(
                f'"{self.kind}" is not a way to corrupt a batch',
                hint="write crc, count or codec",
                word=str(self.kind),
            )

    def acts_on_request(self, target: Target) -> bool:
        return target.request.has_records

    def check(self, target: Target) -> None:
        response = target.schema.response(target.api_key, target.version)
        if not target.request.has_records and not (response and response.has_records):
            raise FaultError(f"{target.api} v{target.version} has no record batches", code="F401")

    def request(
        self, target: Target, exchange: Exchange, verdict: Verdict, names: TopicNames
    ) -> None:
        if target.request.has_records:
            if not verdict.changed:
                verdict.request = deepcopy(_without_views(verdict.request, target.request))
            self._corrupt(verdict.request, target.request, target, names)
            verdict.changed = True

    def response(
        self, target: Target, exchange: Exchange, delivery: Delivery, names: TopicNames
    ) -> None:
        if target.response.has_records:
            self._corrupt(delivery.message, target.response, target, names)
            delivery.changed = True

    def fits(self, target: Target, message: Any, names: TopicNames) -> bool:
        shape = target.request if self.acts_on_request(target) else target.response
        return any(True for _ in self._batches(message, shape, target.selection, names, {}))

    def _corrupt(self, message: Any, shape: Shape, target: Target, names: TopicNames) -> None:
        for struct, name in self._batches(message, shape, target.selection, names, {}):
            setattr(struct, name, corrupt(bytes(getattr(struct, name)), self.kind))

    def _batches(
        self,
        struct: Any,
        shape: Shape,
        selection: Selection,
        names: TopicNames,
        outer: dict[str, Any],
    ) -> Iterator[tuple[Any, str]]:
        """Yield the structs and attributes that hold batches of what the rule is about."""
        subject = outer | {role: getattr(struct, name) for name, role in shape.plain}
        for name in shape.records:
            if getattr(struct, name) and selection.matches(subject, names):
                yield struct, name
        for branch in shape.branches:
            if branch.shape is not None and branch.shape.has_records:
                for element in getattr(struct, branch.name) or []:
                    yield from self._batches(element, branch.shape, selection, names, subject)

    def describe(self) -> str:
        return f"corrupted a record batch ({self.kind})"


@dataclass(frozen=True)
class Reorder(Action):
    """Sends the response after the next one of the connection, or after a while without one."""

    ms: float = 1000
    key: ClassVar[str] = "reorder"

    def __post_init__(self) -> None:
        _check(
            self.ms >= 0, "the time to wait for the next response cannot be negative", str(self.ms)
        )

    def response(
        self, target: Target, exchange: Exchange, delivery: Delivery, names: TopicNames
    ) -> None:
        delivery.hold_ms = self.ms

    def describe(self) -> str:
        return "sent the response after the next one"


@dataclass(frozen=True)
class AdvanceClock(Action):
    """Sets the broker's clock ahead, before the request is handled."""

    ms: int
    key: ClassVar[str] = "advance_clock_ms"
    on_request: ClassVar[bool] = True
    needs: ClassVar[str] = "clock"

    def __post_init__(self) -> None:
        _check(self.ms >= 0, "the clock cannot be set back", str(self.ms))

    def request(
        self, target: Target, exchange: Exchange, verdict: Verdict, names: TopicNames
    ) -> None:
        verdict.advance_ms += self.ms

    def describe(self) -> str:
        return f"set the broker's clock ahead by {self.ms} ms"


def _check(good: bool, message: str, word: str) -> None:
    if not good:
        raise FaultError(message, word=word)


def _without_views(message: Any, shape: Shape) -> Any:
    """Return a message whose records are bytes: memoryviews of the frame cannot be copied."""
    for name in shape.records:
        value = getattr(message, name)
        if isinstance(value, memoryview):
            setattr(message, name, bytes(value))
    for branch in shape.branches:
        if branch.shape is not None and branch.shape.has_records:
            for element in getattr(message, branch.name) or []:
                _without_views(element, branch.shape)
    return message
