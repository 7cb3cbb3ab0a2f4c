"""Agreement on versions between a client and a server."""

from __future__ import annotations

import pickle
from types import ModuleType

import kafka_wire
import pytest
import wafka_wire
from kafka_wire import ApiKey, ApiVersionsResponse, FetchRequest, ProduceRequest

from krammar.wire.errors import UnknownApiKeyError, WireError
from krammar.wire.negotiation import (
    NoCommonVersion,
    api_versions_response,
    common_version,
    offered_versions,
)


def offer(serves: dict[int, tuple[int, int]] | None = None) -> dict[int, tuple[int, int]]:
    """What a client reads from a server's response."""
    response = api_versions_response(kafka_wire, serves)
    assert response.error_code == 0
    return offered_versions(ApiVersionsResponse.decode(response.encode(3), 3))


def test_all_versions_of_a_protocol() -> None:
    offered = offer()
    assert len(offered) == len(kafka_wire.requests())
    assert offered[ApiKey.FETCH] == (FetchRequest.min_version, FetchRequest.max_version)
    assert common_version(FetchRequest, offered) == FetchRequest.max_version


@pytest.mark.parametrize(
    ("theirs", "version"), [((0, 4), 4), ((4, 99), 18), ((18, 40), 18), ((0, 0), 0), ((7, 7), 7)]
)
def test_the_newest_common_version(theirs: tuple[int, int], version: int) -> None:
    assert common_version(FetchRequest, {ApiKey.FETCH: theirs}) == version


def test_limits_of_a_server() -> None:
    assert offer({ApiKey.FETCH: (4, 12), ApiKey.PRODUCE: (99, 120)}) == {ApiKey.FETCH: (4, 12)}


@pytest.mark.parametrize(
    ("theirs", "text"),
    [
        (
            (19, 21),
            "FetchRequest: this client has v0 to v18, and the server v19 to v21: update the client, or let the "
            "server support older versions",
        ),
        ((19, 19), "and the server v19: update the client"),
        (
            None,
            "the server does not know FetchRequest, of which this client has v0 to v18: update the",
        ),
    ],
)
def test_nothing_in_common(theirs: tuple[int, int] | None, text: str) -> None:
    offered = {} if theirs is None else {int(ApiKey.FETCH): theirs}
    with pytest.raises(NoCommonVersion) as caught:
        common_version(FetchRequest, offered)
    error = caught.value
    assert text in str(error) and isinstance(error, WireError)
    assert (error.name, error.ours, error.theirs) == ("FetchRequest", (0, 18), theirs)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_an_old_server() -> None:
    class Newest(ProduceRequest):
        min_version = 12

    with pytest.raises(NoCommonVersion, match="update the server, or let the client support older"):
        common_version(Newest, {ApiKey.PRODUCE: (0, 9)})


def test_a_protocol_without_api_versions() -> None:
    protocol: ModuleType = wafka_wire
    with pytest.raises(UnknownApiKeyError):
        api_versions_response(protocol)
