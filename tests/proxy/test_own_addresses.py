"""Addresses in the responses of other protocols: the definitions mark them, and the proxy replaces them."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from krammar.proxy import Proxy
from krammar.wire.connection import (
    ClientConnection,
    RequestReceived,
    ResponseReceived,
    ServerConnection,
)
from tests.proxy.support import upstream
from tests.support.waiting import PATIENCE
from tests.tap.test_own_protocols import generated

# The addresses are in an array of arrays from version 1 on, under names of their own. Api key 3 is Kafka's Metadata.
SHARDS = """LocateRequest => key 3, max version 1
  Name: string

LocateResponse =>
  Label: string
  Shards: [[=>]] // v1+
    Shard: uint16 // entity brokerId
    Address: string // entity brokerHost
    Number: uint16 // entity brokerPort
"""
METADATA = """MetadataRequest => key 3, max version 0
  Topics: [string]

MetadataResponse =>
  Brokers: [=>]
    NodeId: int32
    Host: string
    Port: int32
"""


def test_marked_addresses_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    protocol = generated(tmp_path, "own_shards", SHARDS, monkeypatch)
    shard = protocol.LocateResponse.Shard

    def serving(label: str, others: list[int]) -> Callable[[socket.socket], None]:
        def serve(connection: socket.socket) -> None:
            server = ServerConnection(protocol)
            while data := connection.recv(65536):
                server.receive_data(data)
                for event in server.events():
                    assert isinstance(event, RequestReceived)
                    known = [[shard(shard=7, address="127.0.0.1", number=port)] for port in others]
                    response = protocol.LocateResponse(label=label)
                    if event.version:
                        response.shards = [*known, [], [shard(shard=8, address="", number=0)]]
                    connection.sendall(server.send_response(event, response))

        return serve

    with (
        upstream(serving("second", [])) as second,
        upstream(serving("first", [second.address.port])) as first,
        Proxy.start(f"127.0.0.1:{first.address.port}", protocol=protocol) as proxy,
    ):
        port = int(proxy.bootstrap_servers.rpartition(":")[2])
        assert locate(protocol, port, 0).label == "first"
        [[found], [], [lost]] = locate(protocol, port, 1).shards
        assert (found.shard, found.address) == (7, "127.0.0.1")
        assert found.number not in (port, second.address.port)
        assert (lost.address, lost.number) == ("", 0)
        assert locate(protocol, found.number, 0).label == "second"


def locate(protocol: ModuleType, port: int, version: int) -> Any:
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as sock:
        client = ClientConnection(protocol)
        sock.sendall(client.send_request(protocol.LocateRequest(name="n"), version))
        while (event := client.next_event()) is None:
            client.receive_data(sock.recv(65536))
        assert isinstance(event, ResponseReceived)
        return event.response


def test_unmarked_definitions_of_kafka_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    protocol = generated(tmp_path, "unmarked_metadata", METADATA, monkeypatch)
    expected = "the definitions of unmarked_metadata do not mark the addresses of brokers: add"
    with pytest.raises(ValueError, match=expected):
        Proxy("localhost:1", protocol=protocol)
