"""Finds the bytes of each field of a frame, and the bytes that are secret."""

from __future__ import annotations

from dataclasses import dataclass, field

from krammar.tap.frame import Frame, Status
from krammar.wire.layout import Node
from krammar.wire.package import Package
from krammar.wire.tracing import trace_frame

# By Kafka's API: the fields that hold secrets. SASL messages contain passwords and proofs; the others what a later login
# needs. The HMAC of a delegation token is its password. Messages of other protocols are masked too if API and field have
# these names.
SECRETS: dict[str, frozenset[str]] = {
    "SaslAuthenticate": frozenset({"auth_bytes"}),
    "AlterUserScramCredentials": frozenset({"salt", "salted_password"}),
    "CreateDelegationToken": frozenset({"hmac"}),
    "DescribeDelegationToken": frozenset({"hmac"}),
    # Contains another request or response, which may be any of these.
    "Envelope": frozenset({"request_data", "response_data"}),
    "ExpireDelegationToken": frozenset({"hmac"}),
    "RenewDelegationToken": frozenset({"hmac"}),
}
_MASK = b"*"
_PREFIX = 4


@dataclass(slots=True)
class Fields:
    """The fields of a frame, with offsets in the frame's bytes.

    ``parts``  the trees of header and body, as far as they could be read
    ``end``    the offset after the last byte that was read
    ``error``  why reading ended before the end of the frame; empty if it did not
    """

    parts: list[Node] = field(default_factory=list)
    end: int = 0
    error: str = ""


def fields_of(package: Package, frame: Frame) -> Fields:
    """Read a frame again with its layouts. Fields that follow an error are absent."""
    found = Fields()
    if frame.raw or frame.status is Status.TOKEN or frame.api_key is None or frame.version is None:
        return found
    version = frame.version if frame.body_version < 0 else frame.body_version
    trace = trace_frame(package, frame.data, frame.api_key, version, is_request=frame.is_request)
    found.parts = [part.node for part in trace.parts]
    found.end = trace.end
    found.error = "" if trace.error is None else str(trace.error)
    return found


def masked(package: Package, frame: Frame) -> bytes:
    """Return the bytes of a frame, with ``*`` for each byte that is secret."""
    if frame.status is Status.TOKEN:
        return _MASK * len(frame.data)
    if frame.raw:
        return _mask_raw(package, frame)
    names = SECRETS.get(frame.api)
    if names is None:
        return frame.data
    found = fields_of(package, frame)
    if len(found.parts) < 2 or found.error or frame.status is not Status.OK:
        # Unparsed bytes may contain secrets.
        return _mask(frame.data, 8 if frame.is_request else 4, len(frame.data))
    data = frame.data
    for part in found.parts:
        for _, node in part.walk():
            if node.name in names and isinstance(node.value, bytes):
                data = _mask(data, node.end - len(node.value), node.end)
    return data


def _mask_raw(package: Package, frame: Frame) -> bytes:
    """Mask an incomplete frame, with its length prefix, unless its api is known to have no secrets."""
    if frame.is_request:
        key = int.from_bytes(frame.data[_PREFIX : _PREFIX + 2], "big", signed=True)
        known = package.requests.get(key)
        if known is None or known.api_name not in SECRETS:
            return frame.data
    return _mask(frame.data, _PREFIX + (8 if frame.is_request else 4), len(frame.data))


def _mask(data: bytes, begin: int, end: int) -> bytes:
    return data[:begin] + _MASK * max(0, end - begin) + data[end:]
