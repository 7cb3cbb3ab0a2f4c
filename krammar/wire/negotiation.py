"""Agreement on versions (KIP-35, KIP-511): what a server offers in ApiVersions, and what a client chooses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

from krammar.wire.errors import DecodeError, UnsupportedVersionError, WireError
from krammar.wire.kafka import API_VERSIONS, has_api_versions
from krammar.wire.message import Request
from krammar.wire.package import Package, package_of
from krammar.wire.representation import kinds_of, named

# The error of a response to ApiVersions in an unknown version. Clients send the request before they know the versions
# of the broker, so it must be answered (KIP-511).
UNSUPPORTED_VERSION = 35

Offered = Mapping[int, tuple[int, int]]


class NoCommonVersion(WireError):
    """Both sides have a request in different versions only, or the server does not have it.

    ``name`` is the class of the request, ``ours`` its first and last version here, and ``theirs`` those of the server,
    or None.
    """

    def __init__(self, name: str, ours: tuple[int, int], theirs: tuple[int, int] | None) -> None:
        here = f"this client has {_range(ours)}"
        if theirs is None:
            text = f"the server does not know {name}, of which {here}: update the server"
        else:
            old, new = ("server", "client") if theirs[1] < ours[0] else ("client", "server")
            text = (
                f"{name}: {here}, and the server {_range(theirs)}: update the {old}, or let the {new} "
                "support older versions"
            )
        super().__init__(text)
        self.name = name
        self.ours = ours
        self.theirs = theirs

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.name, self.ours, self.theirs)


def api_versions_response(
    protocol: ModuleType, serves: Offered | Iterable[int] | None = None, *, error_code: int = 0
) -> Any:
    """Return the response to ApiVersions: the requests of a protocol and their versions.

    The protocol defines ApiVersions as Kafka does: a request with api key 18, whose response has an error code and
    ``ApiKeys``, an array of structs with ``ApiKey``, ``MinVersion`` and ``MaxVersion``.

    Args:
        protocol: the generated package.
        serves: the supported keys, or a mapping of keys to the first and the last version. None: all
            versions of ``protocol``.

    Raises:
        UnknownApiKeyError: the protocol has no request with api key 18.
        TypeError: it defines ApiVersions otherwise.
    """
    package = package_of(protocol)
    response = package.response_class(API_VERSIONS)
    if not has_api_versions(package):
        raise TypeError(f"{package.name} does not define ApiVersions, api key 18, as Kafka does")
    entry = named(response, kinds_of(response)["api_keys"])
    limits = serves if isinstance(serves, Mapping) else None
    keys = package.requests if serves is None else set(serves)
    entries = []
    for key, (low, high) in package.versions().items():
        if key not in keys:
            continue
        if limits is not None:
            low, high = max(low, limits[key][0]), min(high, limits[key][1])
        if low <= high:
            entries.append(entry(api_key=key, min_version=low, max_version=high))
    return response(error_code=error_code, api_keys=entries)


def unsupported_version_response(
    protocol: ModuleType, serves: Mapping[int, tuple[int, int]] | Iterable[int] | None = None
) -> Any:
    """Build the response, in version 0, to ApiVersions in an unknown version (KIP-511).

    It contains the error UNSUPPORTED_VERSION and the supported versions.

    Args:
        protocol: the generated package.
        serves: the supported keys, or a mapping of keys to the first and the last version. None: all
            versions of ``protocol``.

    Raises:
        UnknownApiKeyError, TypeError: as for ``api_versions_response``.
    """
    return api_versions_response(protocol, serves, error_code=UNSUPPORTED_VERSION)


class ReadResponse(NamedTuple):
    """A parsed response frame, with the version of its body."""

    header: Any
    response: Any
    version: int


def read_response(
    package: Package, frame: bytes | bytearray | memoryview, api_key: int, version: int
) -> ReadResponse:
    """Parse a response frame, without its length prefix, to a request with this key and version.

    Raises:
        UnknownApiKeyError: no request has this key.
        UnsupportedVersionError: the request does not have this version.
        DecodeError: the frame is invalid.
    """
    try:
        return ReadResponse(*package.parse_response(frame, api_key, version), version)
    except (DecodeError, UnsupportedVersionError):
        if version == 0 or not fell_back(package, frame, api_key):
            raise
        try:
            return ReadResponse(*package.parse_response(frame, api_key, 0), 0)
        except (DecodeError, UnsupportedVersionError):
            pass
        raise


def fell_back(
    package: Package, frame: bytes | bytearray | memoryview, api_key: int, begin: int = 0
) -> bool:
    """Return whether a response to ApiVersions has version 0 instead of the requested one.

    A broker that does not know the requested version answers so (KIP-511). Only the error code
    shows it.

    Args:
        begin: the offset of the header in the frame.
    """
    if api_key != API_VERSIONS or not has_api_versions(package):
        return False
    body = begin + len(package.get("ResponseHeader")(correlation_id=0).encode(0))
    return int.from_bytes(frame[body : body + 2], "big", signed=True) == UNSUPPORTED_VERSION


def offered_versions(response: Any) -> dict[int, tuple[int, int]]:
    """Return the first and the last version by api key that a response to ApiVersions contains."""
    return {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}


def common_version(request: type[Request], offered: Offered) -> int:
    """Return the newest version of a request that both sides have.

    Args:
        request: the class of the request.
        offered: the versions of the server, as ``offered_versions`` returns them.

    Raises:
        NoCommonVersion: there is none.
    """
    ours, theirs = (request.min_version, request.max_version), offered.get(request.api_key)
    if theirs is None or max(ours[0], theirs[0]) > min(ours[1], theirs[1]):
        raise NoCommonVersion(request.__name__, ours, theirs)
    return min(ours[1], theirs[1])


def _range(versions: tuple[int, int]) -> str:
    low, high = versions
    return f"v{low}" if low == high else f"v{low} to v{high}"
