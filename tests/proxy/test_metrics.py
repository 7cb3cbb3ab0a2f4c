"""The numbers on the proxy's page for Prometheus."""

from __future__ import annotations

import socket
from typing import Any
from urllib.request import urlopen

import pytest
from kafka_wire import HeartbeatRequest, HeartbeatResponse, LeaveGroupRequest

from krammar.proxy import Exchange, Filter, Proxy, on
from krammar.proxy.filters.tenants import Tenants
from krammar.proxy.metrics import ProxyMetrics, Total
from krammar.testing import KafkaBroker
from krammar.wire.package import package_of
from tests.proxy.support import address, echo
from tests.proxy.test_tls import confluent
from tests.support.frames import framed, read_frame
from tests.support.waiting import PATIENCE
from tests.tap.support import upstream as running


def value(proxy: Proxy, name: str, **labels: str) -> float:
    assert proxy.metrics is not None
    return proxy.metrics.registry.value(f"krammar_proxy_{name}", labels)


def test_requests_of_real_clients() -> None:
    with (
        KafkaBroker.start(topics=["orders"]) as broker,
        Proxy.start(broker.bootstrap_servers, metrics_port=0) as proxy,
    ):
        confluent({"bootstrap.servers": proxy.bootstrap_servers})
        for api in ("ApiVersions", "Metadata", "Produce", "Fetch", "JoinGroup", "LeaveGroup"):
            assert value(proxy, "requests_total", api=api) >= 1
            assert value(proxy, "request_bytes_total", api=api) >= 20
            assert value(proxy, "response_bytes_total", api=api) >= 10
        assert value(proxy, "connections_total") >= 2
        assert proxy.metrics_address is not None
        host, port = proxy.metrics_address
        with urlopen(f"http://{host}:{port}/metrics", timeout=PATIENCE) as page:
            text = page.read().decode()
    assert '\nkrammar_proxy_requests_total{api="Produce"} ' in text
    assert '\nkrammar_proxy_request_time_ms_count{api="Fetch"} ' in text


def test_requests_that_a_filter_changes_as_bytes() -> None:
    with (
        KafkaBroker.start(topics=["blue.orders"]) as broker,
        Proxy.start(broker.bootstrap_servers, [Tenants("blue")], metrics_port=0) as proxy,
    ):
        confluent({"bootstrap.servers": proxy.bootstrap_servers})
        produced = value(proxy, "requests_total", api="Produce")
        assert produced >= 1
        assert value(proxy, "request_time_ms_count", api="Produce") == produced
        assert value(proxy, "response_bytes_total", api="Fetch") > 50 * len("order 1")


def test_all_bytes_are_counted_and_pass_unchanged() -> None:
    requests = [
        framed(b"\x0f\xa0\0\7" + bytes([0, 0, 0, n]) + b"\xff\xff" + b"x" * n) for n in range(9)
    ]
    requests += [framed(b"\0\x0c\0\4" + b"\0\0\1\0" + b"\xff\xff\0abc")]
    with running(echo) as broker, Proxy.start(str(broker.address), metrics_port=0) as proxy:
        with socket.create_connection(address(proxy), timeout=PATIENCE) as client:
            for byte in b"".join(requests):
                client.sendall(bytes([byte]))
            found = [read_frame(client) for _ in requests]
        assert found == [framed(each[8:12] + each[4:]) for each in requests]
        assert value(proxy, "requests_total", api="unknown") == 9
        assert value(proxy, "request_bytes_total") == sum(map(len, requests))
        assert value(proxy, "response_bytes_total") == sum(map(len, found))
        assert value(proxy, "request_time_ms_count") == len(requests)


class Beats(Filter):
    """Answers some heartbeats, and fails at others."""

    @on(HeartbeatRequest)
    async def beat(self, request: HeartbeatRequest, exchange: Exchange) -> Any:
        if request.group_id == "bad":
            raise LookupError("no such group")
        return HeartbeatResponse()

    @on(LeaveGroupRequest)
    def leave(self, request: LeaveGroupRequest, exchange: Exchange) -> Any:
        raise LookupError("no such group")


def closing(connection: socket.socket) -> None:
    connection.recv(100)


def heartbeat(group: str) -> bytes:
    body = HeartbeatRequest(group_id=group, member_id="m").encode(0)
    return framed(b"\0\x0c\0\0" + b"\0\0\0\1" + b"\xff\xff" + body)


def test_errors() -> None:
    leave = LeaveGroupRequest(group_id="g", member_id="m").encode(0)
    with (
        running(closing) as broker,
        Proxy.start(
            str(broker.address), [Beats()], metrics_port="127.0.0.1:0", refuse_unknown=True
        ) as proxy,
    ):

        def send(data: bytes) -> bytes:
            with socket.create_connection(address(proxy), timeout=PATIENCE) as client:
                client.sendall(data)
                return read_frame(client)

        assert send(heartbeat("good"))
        assert value(proxy, "response_bytes_total", api="Heartbeat") == 4 + 4 + 2
        assert not send(heartbeat("bad"))
        assert value(proxy, "errors_total", api="Heartbeat", reason="filter") == 1
        assert value(proxy, "filter_errors_total", method="Beats.beat") == 1
        assert not send(framed(b"\0\x0d\0\0\0\0\0\1\xff\xff" + leave))
        assert value(proxy, "errors_total", api="LeaveGroup", reason="filter") == 1
        assert value(proxy, "filter_errors_total", method="Beats.leave") == 1
        assert not send(framed(b"\x0f\xa0\0\0\0\0\0\1\xff\xff"))
        assert value(proxy, "errors_total", api="unknown", reason="refused") == 1
        assert not send(framed(b"\0\x0e\0\0\0\0\0\1\xff\xff"))  # the broker closes
        assert value(proxy, "errors_total", api="SyncGroup", reason="lost") == 1


def test_sums_of_workers_do_not_fall_when_one_dies() -> None:
    import kafka_wire

    package = package_of(kafka_wire)
    one, other = ProxyMetrics(package, lambda: 2), ProxyMetrics(package, lambda: 3)
    for each in (one, other):
        each.request(0, 100)
        each.response(0, 50, 0.0)
    total = Total()
    total.lost(None)  # it has never sent its numbers
    total.lost(one.registry.numbers())
    found = total.of([other.registry.numbers()])
    assert found.value("krammar_proxy_requests_total", {"api": "Produce"}) == 2
    assert found.value("krammar_proxy_request_time_ms_count", {}) == 2
    assert found.value("krammar_proxy_connections", {}) == 3


def test_a_port_for_metrics_in_use() -> None:
    from krammar.proxy import ProxyError

    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ProxyError, match=f"cannot listen on 127.0.0.1:{port} for metrics"):
            Proxy.start("127.0.0.1:1", metrics_port=port)
    with pytest.raises(ValueError, match="is not host:port"):
        Proxy("127.0.0.1:1", metrics_port="here")
