"""The client for Wafka and servers that fail."""

from __future__ import annotations

import socket
import struct

import pytest
from wafka_wire import (
    ErrorCode,
)

from krammar.client.errors import DeadlineError, ProtocolError, TransportError
from krammar.client.wafka import WafkaClient, WafkaError


def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(TransportError, match=f"127.0.0.1:{port}: .*refused"):
            WafkaClient("127.0.0.1", port)


_WITHOUT_A_COUNT = bytes.fromhex(
    "00000027 00000000 0000 ffff 00000001 0001 74 ffffffff 00000001 00000000 0000 ffffffffffffffff ffff"
)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", TransportError),
        (b"\0\0\0\x05\0\0\0\0x", ProtocolError),
        (b"\xff\xff\xff\xff", ProtocolError),
        (b"\0\0\0\x0c" + b"\0" * 4 + b"\0\0\xff\xff\0\0\0\0", ProtocolError),
        (_WITHOUT_A_COUNT, ProtocolError),
    ],
)
def test_servers_that_break_the_rules(answer: bytes, error: type[Exception]) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        WafkaClient(*server.getsockname()) as client,
    ):
        connection, _ = server.accept()
        with connection:
            connection.sendall(answer)
            connection.shutdown(socket.SHUT_WR)
            with pytest.raises(error):
                client.produce("t", ["a"])


def test_a_server_that_resets_the_connection() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        WafkaClient(*server.getsockname()) as client,
    ):
        connection, _ = server.accept()
        # Closing without a wait for what was sent resets the connection.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
        with pytest.raises(TransportError, match=r"127\.0\.0\.1"):
            client.produce("t", ["a"])


def test_a_server_that_does_not_answer() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        WafkaClient(*server.getsockname(), timeout_ms=50) as client,
        pytest.raises(DeadlineError, match="not done within 50 ms"),
    ):
        client.produce("t", ["a"])


def test_a_code_of_a_newer_server() -> None:
    error = WafkaError(999, "news")
    assert str(error) == "error 999: news"
    assert error.code is ErrorCode.UNKNOWN_SERVER_ERROR
