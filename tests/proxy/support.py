"""Filters and servers for the tests of the proxy."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import kafka_wire
from kafka_wire import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    MetadataRequest,
    MetadataResponse,
)

from krammar.proxy import Exchange, Filter, Proxy, on
from krammar.proxy.addresses import Address
from krammar.proxy.listeners import Port
from krammar.proxy.requests import Requests
from krammar.testing import KafkaBroker
from krammar.wire.connection import RequestReceived, ResponseReceived, ServerConnection
from tests.support.frames import framed, read_frame
from tests.tap.support import Client, Upstream, upstream

__all__ = ["Client", "Upstream", "address", "answering", "echo", "link"]


def address(proxy: Proxy) -> Address:
    """Return the address on which a proxy listens."""
    return Address.parse(proxy.bootstrap_servers)


def link(proxy: Proxy) -> Requests:
    """Return the client's end of a connection without sockets."""
    return proxy._link(proxy.listeners[""], Port(None, Address("127.0.0.1", 1)))


def echo(connection: socket.socket) -> None:
    """Answers each request with its correlation id and all of its bytes."""
    while frame := read_frame(connection):
        connection.sendall(framed(frame[8:12] + frame[4:]))


def answering(
    asked: list[Any] | None = None, before: Callable[[Any], None] = lambda request: None
) -> Callable[[socket.socket], None]:
    """Return a broker that answers Metadata with the topics that were asked for, and others with defaults.

    Args:
        asked: collects the requests.
        before: called with each request before it is answered.
    """

    def serve(connection: socket.socket) -> None:
        server = ServerConnection(kafka_wire)
        while data := connection.recv(65536):
            server.receive_data(data)
            for event in server.events():
                if not isinstance(event, RequestReceived):
                    continue
                request = event.request
                if asked is not None:
                    asked.append(request)
                before(request)
                connection.sendall(server.send_response(event, answer(request)))

    return serve


def answer(request: Any) -> Any:
    if isinstance(request, MetadataRequest):
        return MetadataResponse(
            topics=[MetadataResponse.Topic(name=each.name) for each in request.topics or ()]
        )
    if isinstance(request, ApiVersionsRequest):
        entry = ApiVersionsResponse.ApiVersion
        return ApiVersionsResponse(
            api_keys=[
                entry(api_key=3, min_version=0, max_version=99),
                entry(api_key=12, min_version=0, max_version=99),
                entry(api_key=18, min_version=0, max_version=4),
                entry(api_key=19, min_version=0, max_version=99),
                entry(api_key=4000, min_version=0, max_version=1),
            ]
        )
    return type(request).response_class()


def refusing(request: Any, code: int) -> CreateTopicsResponse:
    """Build the response to CreateTopics that refuses all topics."""
    return CreateTopicsResponse(
        topics=[
            CreateTopicsResponse.CreatableTopicResult(name=each.name, error_code=code)
            for each in request.topics
        ]
    )


def asking(*topics: str) -> MetadataRequest:
    """Build a request for topics by name."""
    return MetadataRequest(topics=[MetadataRequest.Topic(name=each) for each in topics])


def names(event: ResponseReceived) -> list[str]:
    """Return the names of topics in a response to Metadata."""
    return [topic.name for topic in event.response.topics]


@contextmanager
def run(where: str, filters: list[Filter], asked: list[Any] | None = None) -> Iterator[Address]:
    """Run filters in a proxy or in a broker. ``asked`` collects the requests behind them."""
    if where == "proxy":
        with (
            upstream(answering(asked)) as server,
            Proxy.start(str(server.address), filters) as proxy,
        ):
            yield address(proxy)
        return

    class Collect(Filter):
        @on(MetadataRequest, CreateTopicsRequest)
        def collect(self, request: Any, exchange: Exchange) -> None:
            assert asked is not None
            asked.append(request)

    last = [] if asked is None else [Collect()]
    with KafkaBroker.start(filters=[*filters, *last]) as broker:
        yield Address(broker.host, broker.port)


class Nothing(Filter):
    """A filter without methods."""
