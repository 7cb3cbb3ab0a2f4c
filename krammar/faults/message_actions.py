"""Actions on the fields and records of messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from krammar.faults.action import Action, Occasion
from krammar.faults.answers import structs
from krammar.faults.errors import FaultError, unknown
from krammar.faults.paths import Path, PathStep
from krammar.faults.targets import Target, Targets, range_of
from krammar.wire.batches.crc import sealed
from krammar.wire.batches.header import BODY_AT, CODEC, CRC_AT, HEADER_SIZE, read_headers
from krammar.wire.errors import DecodeError
from krammar.wire.kafka import API_VERSIONS, has_api_versions

# Record batches that are corrupt in one chosen way.


def corrupt(records: bytes, kind: str) -> bytes:
    """Return record batches whose last one is corrupt. Bytes without a batch of format v2 are unchanged.

    Args:
        kind: ``crc`` for a wrong checksum; ``count`` for a header that counts one record more than the
            batch has; ``codec`` for a compression that does not exist. With ``count`` and ``codec``, the checksum is
            correct.
    """
    try:
        header = [h for h in read_headers(records) if h.magic == 2][-1]
    except (DecodeError, IndexError):
        return records
    begin, end = header.position, header.position + header.size_in_bytes
    batch = bytearray(records[begin:end])
    if kind == "crc":
        batch[CRC_AT[2]] ^= 0xFF
        return records[:begin] + bytes(batch) + records[end:]
    if kind == "count":
        header.records_count += 1
    else:
        header.attributes |= CODEC
    body = sealed(header, bytes(batch[HEADER_SIZE:]))  # it sets the header's checksum
    return records[:begin] + header.pack()[:BODY_AT] + body + records[end:]


# The actions.

_THROTTLE = Path("throttle_time_ms", "response", (PathStep("throttle_time_ms", None),))


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
        target.value_at(_THROTTLE, self.ms)

    def act(self, target: Target, occasion: Occasion) -> None:
        occasion.change("response").throttle_time_ms = self.ms


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
    example: ClassVar[str] = 'change = { "request.acks" = 1 }'

    def settle(self, targets: Targets) -> None:
        self._path = targets.find_path(self.path)

    def acts_on_request(self, target: Target) -> bool:
        return self._path.side == "request"

    def check(self, target: Target) -> None:
        target.type_at(self._path)
        if not callable(self.value):
            target.value_at(self._path, self.value)

    def fits(self, target: Target, occasion: Occasion, message: Any) -> bool:
        return bool(self._path.owners(message))

    def act(self, target: Target, occasion: Occasion) -> None:
        value = self.value(occasion.received) if callable(self.value) else self.value
        self._path.assign(occasion.change(self._path.side), target.value_at(self._path, value))

    def describe(self, occasion: Occasion) -> str:
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

    def settle(self, targets: Targets) -> None:
        known = targets.schema.names()
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
        if target.api_key != API_VERSIONS or not has_api_versions(target.schema.package):
            raise FaultError(
                f"{target.api} does not offer versions",
                hint='write api = "ApiVersions"',
                code="F401",
            )

    def act(self, target: Target, occasion: Occasion) -> None:
        kept = []
        for entry in occasion.response.api_keys:
            wanted = self._offered.get(entry.api_key, (entry.min_version, entry.max_version))
            if wanted is not None:
                entry.min_version, entry.max_version = wanted
                kept.append(entry)
        occasion.change("response").api_keys = kept


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

    def fits(self, target: Target, occasion: Occasion, message: Any) -> bool:
        return any(True for _ in self._batches(target, occasion, message))

    def act(self, target: Target, occasion: Occasion) -> None:
        message = occasion.change(self._side(target))
        for struct, name in self._batches(target, occasion, message):
            setattr(struct, name, corrupt(bytes(getattr(struct, name)), self.kind))

    def _side(self, target: Target) -> str:
        return "request" if target.request.has_records else "response"

    def _batches(
        self, target: Target, occasion: Occasion, message: Any
    ) -> Iterator[tuple[Any, str]]:
        """Yield the structs and attributes that hold the batches to which the rule applies."""
        for struct, own, subject in structs(message, target.shape(self._side(target))):
            for name in own.records:
                if getattr(struct, name) and target.selection.matches(subject, occasion.names):
                    yield struct, name
