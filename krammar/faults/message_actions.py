"""Actions on the fields and records of messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from krammar.faults.action import Action, Names, Occasion, Target, copied
from krammar.faults.batches import corrupt
from krammar.faults.errors import FaultError, unknown
from krammar.faults.paths import value_of
from krammar.faults.shape import Shape
from krammar.faults.steps import Delivery, Exchange, Verdict
from krammar.faults.versions import range_of

_API_VERSIONS = "ApiVersions"
_THROTTLE = "throttle_time_ms"


@dataclass(eq=False)
class Throttle(Action):
    """Set the response's throttle time (KIP-219).

    Args:
        ms: milliseconds.
    """

    ms: int
    key: ClassVar[str] = "throttle_ms"
    told: ClassVar[str] = "set a throttle time of {ms} ms"

    def check(self, target: Target) -> None:
        shape = target.response
        kind = next((f.type for f in shape.layout.fields if f.name == _THROTTLE), None)
        if kind is None:
            raise FaultError(f"{target.title('response')} has no {_THROTTLE}", code="F401")
        value_of(self.ms, kind, target.schema.package, what=_THROTTLE)

    def response(self, occasion: Occasion, delivery: Delivery) -> None:
        delivery.message.throttle_time_ms = self.ms
        delivery.changed = True


@dataclass(eq=False)
class Change(Action):
    """Set a field of the request or the response.

    Args:
        path: such as ``request.acks`` or ``response.topics[*].partitions[0].leader_id``. Without
            a prefix it begins in the request if the request has such a field, else in the response.
        value: enum members can be given by name, bytes as text. A function computes it from the request.
    """

    path: str
    value: Any
    key: ClassVar[str] = "change"
    written: ClassVar[tuple[type, ...]] = (dict,)
    example: ClassVar[str] = 'change = { "request.acks" = 1 }'

    def settle(self, names: Names) -> None:
        self._path = names.find_path(self.path)

    def acts_on_request(self, target: Target) -> bool:
        return self._path.side == "request"

    def check(self, target: Target) -> None:
        kind = self._path.type_in(target.shape(self._path.side).layout)
        if kind is None:
            raise FaultError(
                f"{target.title(self._path.side)} has no {self.path}",
                code="F401",
                word=self.path,
            )
        if not callable(self.value):
            value_of(self.value, kind, target.schema.package, what=self.path)

    def fits(self, occasion: Occasion, message: Any) -> bool:
        return any(True for _ in self._path.owners(message))

    def _set(self, occasion: Occasion, message: Any) -> None:
        target = occasion.target
        kind = self._path.type_in(target.shape(self._path.side).layout)
        assert kind is not None
        value = self.value(occasion.exchange.request) if callable(self.value) else self.value
        self._path.assign(message, value_of(value, kind, target.schema.package, what=self.path))

    def request(self, occasion: Occasion, verdict: Verdict) -> None:
        if self._path.side == "request":
            if not verdict.changed:
                verdict.request = copied(verdict.request, occasion.target.request)
            self._set(occasion, verdict.request)
            verdict.changed = True

    def response(self, occasion: Occasion, delivery: Delivery) -> None:
        if self._path.side == "response":
            self._set(occasion, delivery.message)
            delivery.changed = True

    def describe(self, exchange: Exchange) -> str:
        to = "what a function returned" if callable(self.value) else repr(self.value)
        return f"set {self.path} to {to}"


@dataclass(eq=False)
class Offer(Action):
    """Change the versions that ApiVersions offers.

    Args:
        versions: such as ``{"Produce": "3-7", "DescribeCluster": None}``. None, in files false, hides an API.
    """

    versions: Mapping[str, str | bool | None]
    key: ClassVar[str] = "offer"
    told: ClassVar[str] = "changed the versions that are offered"
    example: ClassVar[str] = 'offer = { Produce = "3-7" }'

    def settle(self, names: Names) -> None:
        known = names.schema.names()
        self._offered: dict[int, tuple[int, int] | None] = {}
        for name, text in self.versions.items():
            if name not in known:
                raise unknown("the API", name, known)
            if text is True:
                raise FaultError(
                    f"offer: {name} needs a range of versions, or false",
                    hint='write "3-7", or false',
                    key=name,
                )
            self._offered[known[name]] = range_of(text) if text else None

    def check(self, target: Target) -> None:
        if target.api != _API_VERSIONS:
            raise FaultError(
                f"{target.api} does not offer versions",
                hint='write api = "ApiVersions"',
                code="F401",
            )

    def response(self, occasion: Occasion, delivery: Delivery) -> None:
        kept = []
        for entry in delivery.message.api_keys:
            wanted = self._offered.get(entry.api_key, (entry.min_version, entry.max_version))
            if wanted is not None:
                entry.min_version, entry.max_version = wanted
                kept.append(entry)
        delivery.message.api_keys = kept
        delivery.changed = True


@dataclass(eq=False)
class Corrupt(Action):
    """Corrupt the last record batch of each partition: of Produce requests, or of Fetch responses.

    Args:
        kind: the kind of damage, ``crc``, ``count`` or ``codec``.
    """

    kind: Literal["crc", "count", "codec"] = "crc"
    key: ClassVar[str] = "corrupt"
    told: ClassVar[str] = "corrupted a record batch ({kind})"

    def acts_on_request(self, target: Target) -> bool:
        return target.request.has_records

    def check(self, target: Target) -> None:
        response = target.schema.response(target.api_key, target.version)
        if not target.request.has_records and not (response and response.has_records):
            raise FaultError(f"{target.api} v{target.version} has no record batches", code="F401")

    def request(self, occasion: Occasion, verdict: Verdict) -> None:
        shape = occasion.target.request
        if shape.has_records:
            if not verdict.changed:
                verdict.request = copied(verdict.request, shape)
            self._corrupt(occasion, verdict.request, shape)
            verdict.changed = True

    def response(self, occasion: Occasion, delivery: Delivery) -> None:
        if occasion.target.response.has_records:
            self._corrupt(occasion, delivery.message, occasion.target.response)
            delivery.changed = True

    def fits(self, occasion: Occasion, message: Any) -> bool:
        side = "request" if self.acts_on_request(occasion.target) else "response"
        return any(True for _ in _batches(occasion, message, occasion.target.shape(side), {}))

    def _corrupt(self, occasion: Occasion, message: Any, shape: Shape) -> None:
        for struct, name in _batches(occasion, message, shape, {}):
            setattr(struct, name, corrupt(bytes(getattr(struct, name)), self.kind))


def _batches(
    occasion: Occasion, struct: Any, shape: Shape, outer: dict[str, Any]
) -> Iterator[tuple[Any, str]]:
    """Yield the structs and attributes that hold the batches to which the rule applies."""
    subject = outer | {role: getattr(struct, name) for name, role in shape.plain}
    for name in shape.records:
        if getattr(struct, name) and occasion.target.selection.matches(subject, occasion.names):
            yield struct, name
    for branch in shape.branches:
        if branch.shape is not None and branch.shape.has_records:
            for element in getattr(struct, branch.name) or []:
                yield from _batches(occasion, element, branch.shape, subject)
