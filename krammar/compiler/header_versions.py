"""The versions of the headers of requests and responses."""

from __future__ import annotations

from dataclasses import dataclass

from krammar.compiler import ir


@dataclass(frozen=True, slots=True)
class HeaderVersions:
    """Pairs of a first version and the header version from it on, for a request and its response."""

    request: tuple[tuple[int, int], ...]
    response: tuple[tuple[int, int], ...]


def header_versions(
    request: ir.Request, request_header_max: int, response_header_max: int
) -> HeaderVersions:
    """Return the header versions of a request and its response.

    Flexible versions have request header 2 and response header 1, other versions 1 and 0 (KIP-482). There
    are two exceptions. The response to ApiVersions always has header 0, because the client does not yet
    know the versions of the broker (KIP-511). Version 0 of the ControlledShutdown request has header 0,
    without a client id. What the definition says with `header` and `response header` comes first.

    Args:
        request_header_max: the last version of the protocol's request header, which is never exceeded.
        response_header_max: the same for the response header.
    """
    struct = request.struct
    requests = [(struct.min_version, min(1, request_header_max))]
    responses = [(struct.min_version, 0)]
    if struct.name == "ControlledShutdownRequest" and struct.min_version == 0:
        requests = [(0, 0), (1, min(1, request_header_max))]
    if struct.flexible_from is not None:
        start = max(struct.min_version, struct.flexible_from)
        requests.append((start, min(2, request_header_max)))
        if struct.name != "ApiVersionsRequest":
            responses.append((start, min(1, response_header_max)))
    if request.push:
        return HeaderVersions((), _given(responses, request.headers, struct.min_version))
    return HeaderVersions(
        _given(requests, request.headers, struct.min_version),
        _given(responses, request.response_headers, struct.min_version),
    )


def _given(
    usual: list[tuple[int, int]], given: tuple[tuple[int, int], ...], low: int
) -> tuple[tuple[int, int], ...]:
    """Replace the usual versions of headers by those of the definition, from their first versions on."""
    found = usual
    for first, header in sorted(given):
        start = max(first, low)
        found = [pair for pair in found if pair[0] < start] + [(start, header)]
    return tuple(found)
