"""Filters that name other messages while the proxy runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kafka_wire import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    HeartbeatRequest,
    SaslAuthenticateRequest,
    SaslHandshakeRequest,
)

from krammar.proxy import Connection, Exchange, Filter, Proxy, on
from krammar.proxy.interface import Method, Named, methods_of
from krammar.testing import KafkaBroker
from tests.proxy.support import Client, address, answering
from tests.tap.support import upstream

# What `answering` offers of Heartbeat, which krammar does not know.
_NEWER = 99


class Later(Filter):
    """Names a message after ``name`` was called; counts the messages that it gets."""

    def __init__(self) -> None:
        self._named: list[tuple[Named, Method]] = []
        self._refresh: Callable[[], None] = lambda: None
        self.seen: list[Any] = []
        self.connections: list[Connection] = []

    def attached(self, refresh: Callable[[], None]) -> None:
        self._refresh = refresh

    def methods(self) -> list[tuple[Named, Method]]:
        return self._named

    def name(self, message: type[Any] | None) -> None:
        """Name a message instead of the one before, or none."""

        class Names(Filter):
            if message is not None:

                @on(message)
                def see(_, message: Any, exchange: Exchange) -> None:
                    self.seen.append(message)

        self._named = methods_of(Names())
        self._refresh()


def newest(response: ApiVersionsResponse, key: int) -> int:
    return next(each.max_version for each in response.api_keys if each.api_key == key)


@pytest.mark.parametrize("again", [False, True], ids=["same connection", "another connection"])
def test_versions_that_are_offered_follow_the_filters(again: bool) -> None:
    """A response that was rewritten before is not repeated, so a client never uses a version that is refused."""
    later = Later()
    with upstream(answering()) as server, Proxy.start(str(server.address), [later]) as proxy:
        client = Client(address(proxy))
        for message, expected in (
            (None, _NEWER),
            (HeartbeatRequest, HeartbeatRequest.max_version),
            (None, _NEWER),
        ):
            later.name(message)
            for _ in range(2):  # the second one is a response that is remembered
                if again:
                    client.socket.close()
                    client = Client(address(proxy))
                found = client.ask(ApiVersionsRequest(), 3).response
                assert newest(found, HeartbeatRequest.api_key) == expected
        client.socket.close()


def test_a_filter_sees_what_comes_before_a_login() -> None:
    later, users = Later(), {"carol": "secret"}
    with (
        KafkaBroker.start() as broker,
        Proxy.start(
            broker.bootstrap_servers,
            [later],
            clients={"security.protocol": "SASL_PLAINTEXT"},
            users=users,
        ) as proxy,
        Client(address(proxy)) as client,
    ):
        client.ask(ApiVersionsRequest(), 3)
        assert not later.seen
        later.name(ApiVersionsRequest)
        client.ask(ApiVersionsRequest(), 3)
        assert len(later.seen) == 1
        later.name(HeartbeatRequest)
        client.ask(ApiVersionsRequest(), 3)
        client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        client.ask(SaslAuthenticateRequest(auth_bytes=b"\0carol\0secret"), 2)
        client.ask(HeartbeatRequest(group_id="g", member_id="m"), 4)
        assert [type(each) for each in later.seen] == [ApiVersionsRequest, HeartbeatRequest]
