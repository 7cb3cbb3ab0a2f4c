"""The versions of the headers of requests and responses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from krammar.compiler import ir

Pairs = tuple[tuple[int, int], ...]
"""Pairs of a first version of a message, and the version of its header from it on."""


@dataclass(frozen=True, slots=True)
class HeaderVersions:
    """The header versions of a request and its response."""

    request: Pairs
    response: Pairs


def header_versions(
    request: ir.Request, request_header_max: int, response_header_max: int
) -> HeaderVersions:
    """Return the header versions of a request and its response.

    They are the usual ones, unless the definition gives others with `header` and `response header`.

    Args:
        request_header_max: the last version of the protocol's request header, which is never exceeded.
        response_header_max: the same for the response header.
    """
    struct = request.struct
    usual = usual_headers(
        struct.name,
        struct.min_version,
        struct.flexible_from,
        request_header_max,
        response_header_max,
    )
    if request.push:
        return HeaderVersions((), _given(usual.response, request.headers, struct.min_version))
    return HeaderVersions(
        _given(usual.request, request.headers, struct.min_version),
        _given(usual.response, request.response_headers, struct.min_version),
    )


def usual_headers(
    request: str,
    low: int,
    flexible_from: int | None,
    request_header_max: int = 2,
    response_header_max: int = 1,
) -> HeaderVersions:
    """Return the header versions of a request and its response, if the definition gives no others.

    Flexible versions have request header 2 and response header 1, other versions 1 and 0 (KIP-482). There
    are two exceptions. The response to ApiVersions always has header 0, because the client does not yet
    know the versions of the broker (KIP-511). Version 0 of the ControlledShutdown request has header 0,
    without a client id.

    Args:
        request: the name of the request.
        low: its first version.
        flexible_from: its first flexible version, or None.
        request_header_max: the last version of the protocol's request header, which is never exceeded.
        response_header_max: the same for the response header.
    """
    requests = [(low, min(1, request_header_max))]
    responses = [(low, 0)]
    if request == "ControlledShutdownRequest" and low == 0:
        requests = [(0, 0), (1, min(1, request_header_max))]
    if flexible_from is not None:
        start = max(low, flexible_from)
        requests.append((start, min(2, request_header_max)))
        if request != "ApiVersionsRequest":
            responses.append((start, min(1, response_header_max)))
    return HeaderVersions(tuple(requests), tuple(responses))


def header_modifiers(
    headers: Mapping[int, int], usual: Pairs, low: int, high: int
) -> list[tuple[int | None, int]]:
    """Return the modifiers that give a message these versions of its header. Empty if they are the usual ones.

    Args:
        headers: the version of the header for versions of the message. Others have the usual header.
        usual: the usual versions of the header.
        low: the first version of the message.
        high: its last version.

    Returns:
        Pairs of the first version of a modifier, which is None for all versions of the message, and its header version.
    """
    expected = by_version(usual, low, high)
    found = {version: headers.get(version, header) for version, header in expected.items()}
    differ = next((version for version in found if found[version] != expected[version]), None)
    if differ is None:
        return []
    # What precedes the run with the first difference is usual.
    all_runs = runs(found)
    start = max(first for first, _ in all_runs if first <= differ)
    return [(None if first == low else first, each) for first, each in all_runs if first >= start]


def by_version(pairs: Pairs, low: int, high: int) -> dict[int, int]:
    """Return the header version of each version of a message."""
    return {
        version: next(header for first, header in reversed(pairs) if first <= version)
        for version in range(low, high + 1)
    }


def runs(headers: Mapping[int, int]) -> list[tuple[int, int]]:
    """Return pairs of a first version and the header version from it on, without repetitions."""
    found: list[tuple[int, int]] = []
    for version, header in headers.items():
        if not found or found[-1][1] != header:
            found.append((version, header))
    return found


def effective(pairs: Pairs) -> Pairs:
    """Return the pairs without those that no version has, because a later one begins at the same version or before."""
    return tuple(
        pair
        for number, pair in enumerate(pairs, 1)
        if all(after[0] > pair[0] for after in pairs[number:])
    )


def _given(usual: Pairs, given: Pairs, low: int) -> Pairs:
    """Replace the usual versions of headers by those of the definition, from their first versions on."""
    found = usual
    for first, header in sorted(given):
        start = max(first, low)
        found = (*(pair for pair in found if pair[0] < start), (start, header))
    return found
