"""Filters and servers for the tests of the proxy."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import kafka_wire
from kafka_wire import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    CreateTopicsRequest,
    CreateTopicsResponse,
    HeartbeatResponse,
    MetadataRequest,
    MetadataResponse,
)

from krammar.proxy import Exchange, Filter, Proxy, on
from krammar.proxy.addresses import Address
from krammar.proxy.listeners import Port
from krammar.proxy.relay import Side
from krammar.testing import KafkaBroker
from krammar.wire.connection import RequestReceived, ResponseReceived, ServerConnection
from tests.ports import free_port
from tests.support.frames import framed, read_frame
from tests.tap.support import Client, Upstream, upstream

__all__ = ["Client", "Upstream", "address", "answering", "echo", "link"]


def address(proxy: Proxy) -> Address:
    """Return the address on which a proxy listens."""
    return Address.parse(proxy.bootstrap_servers)


def link(proxy: Proxy) -> Side:
    """Return the client's side of a link without sockets."""
    return proxy._link(proxy.listeners[""], Port(None, Address("127.0.0.1", 1))).client


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
            # A filter that stays silent leaves requests without a response.
            Proxy.start(str(server.address), filters, drain_timeout=0.2) as proxy,
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


Nodes = dict[int, str]


class Brokers:
    """A server on all addresses 127.x.y.z of one port. It names ``nodes``, and who it is: the address that was reached."""

    def __init__(self) -> None:
        self.nodes: Nodes = {}
        self._socket = socket.create_server(("0.0.0.0", 0), backlog=1024)
        self.port = self._socket.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        server = ServerConnection(kafka_wire)
        with connection:
            try:
                host = connection.getsockname()[0]
                while data := connection.recv(65536):
                    server.receive_data(data)
                    for event in server.events():
                        assert isinstance(event, RequestReceived)
                        connection.sendall(server.send_response(event, self._answer(event, host)))
            except OSError:
                pass

    def _answer(self, event: RequestReceived, host: str) -> Any:
        if isinstance(event.request, MetadataRequest):
            entry = MetadataResponse.Broker
            return MetadataResponse(
                cluster_id=host,
                brokers=[
                    entry(node_id=node, host=each, port=self.port)
                    for node, each in self.nodes.items()
                ],
            )
        return HeartbeatResponse(throttle_time_ms=int(host.rpartition(".")[2]))

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for each in self._open:
            each.close()


def ask(place: Address) -> MetadataResponse:
    """Return the response to Metadata."""
    with Client(place) as client:
        response: MetadataResponse = client.ask(MetadataRequest(topics=[]), 12).response
        return response


def ports(place: Address) -> dict[int, int]:
    """Return the ports by node id that a client gets."""
    return {each.node_id: each.port for each in ask(place).brokers}


def reached(port: int) -> str:
    """Return the address to which a port leads."""
    return str(ask(Address("127.0.0.1", port)).cluster_id)


def is_open(port: int) -> bool:
    """Return whether something listens on a port. For the proxy, this is a connection."""
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def free_range(size: int) -> Iterator[int]:
    """Find so many free ports in a row, and return the first."""
    for _ in range(100):
        first = free_port()
        if all(not is_open(port) for port in range(first, first + size)):
            yield first
            return
    raise AssertionError("no free ports")
