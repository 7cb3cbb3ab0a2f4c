"""Metrics: what they count, the listener, and the dashboard."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer
from kafka_wire import ApiVersionsRequest, DeleteTopicsRequest, MetadataRequest

from krammar.broker import Broker, BrokerConfig
from krammar.broker.config import ConfigError
from krammar.broker.errors import BrokerError
from krammar.broker.handlers.metadata import MetadataHandlers
from krammar.broker.metrics import Metrics
from krammar.broker.several_nodes import Cluster
from tests.broker.requests import batch, create_topic, fetch, produce, produce_request
from tests.broker.share.support import ACCEPT, GROUP, OK, REJECT, RELEASE, Member, configure
from tests.broker.support import RawClient
from tests.support.waiting import PATIENCE, until

REQUESTS = "kafka_network_requestmetrics_requests_total"
ERRORS = "kafka_network_requestmetrics_errors_total"
TIMES = "kafka_network_requestmetrics_totaltimems"
RECORDS = "kafka_server_brokertopicmetrics_messagesin_total"
BYTES_IN = "kafka_server_brokertopicmetrics_bytesin_total"
BYTES_OUT = "kafka_server_brokertopicmetrics_bytesout_total"
FLUSHES = "kafka_log_logflushstats_logflushrateandtimems_count"
DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana" / "krammar-broker.json"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker.start(properties={"krammar.metrics": "0"}) as broker:
        yield broker


@pytest.fixture
def metrics(broker: Broker) -> Metrics:
    return broker.metrics


def scrape(broker: Broker, path: str = "/metrics") -> str:
    host, port = broker.metrics_address
    with urlopen(f"http://{host}:{port}{path}", timeout=PATIENCE) as response:
        assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        return str(response.read().decode())


def test_requests_errors_and_records_are_counted(metrics: Metrics, client: RawClient) -> None:
    create_topic(client, "t", 2)
    data = batch(b"one", b"two")
    produce(client, "t", data)
    produce(client, "missing", batch(b"x"))
    assert len(fetch(client, "t").records) == len(data)
    assert metrics.value(REQUESTS, request="Produce") == 2
    assert metrics.value(REQUESTS, request="Produce", version=1) == 0
    assert metrics.value(ERRORS, request="Produce", error="NONE") == 1
    assert metrics.value(ERRORS, request="Produce", error="UNKNOWN_TOPIC_OR_PARTITION") == 1
    assert metrics.value(f"{TIMES}_count", request="Fetch") == 1
    assert metrics.value(f"{TIMES}_bucket", request="Fetch", le="+Inf") == 1
    assert 0 < metrics.value(f"{TIMES}_sum", request="Fetch") < PATIENCE * 1000
    assert (metrics.value(RECORDS), metrics.value(RECORDS, topic="t")) == (2, 2)
    assert metrics.value(BYTES_IN, topic="t") == len(data)
    assert metrics.value(BYTES_OUT, topic="t") == len(data)
    assert metrics.value("kafka_log_log_size", topic="t") == len(data)
    assert metrics.value("kafka_log_log_logendoffset", topic="t", partition=0) == 2
    assert metrics.value("kafka_log_log_numlogsegments", topic="t") == 2
    assert metrics.value("kafka_server_replicamanager_partitioncount") == 2
    assert metrics.value("kafka_controller_kafkacontroller_globaltopiccount") == 1


def test_a_produce_without_acknowledgement_counts(metrics: Metrics, client: RawClient) -> None:
    create_topic(client, "t")
    client.send(produce_request("t", batch(b"x"), acks=0), 9, expect_response=False)
    client.call(MetadataRequest(topics=[]), 12)
    assert metrics.value(REQUESTS, request="Produce") == 1
    assert metrics.value(ERRORS, request="Produce") == 0
    assert metrics.value(RECORDS, topic="t") == 1


def test_deleted_topics_end(broker: Broker, client: RawClient) -> None:
    create_topic(client, "t")
    produce(client, "t", batch(b"x"))
    assert 'topic="t"' in scrape(broker)
    state = DeleteTopicsRequest.DeleteTopicState(name="t")
    client.call(DeleteTopicsRequest(topics=[state], timeout_ms=1000), 6)
    assert 'topic="t"' not in scrape(broker)


def test_connections_and_bytes(broker: Broker, metrics: Metrics, client: RawClient) -> None:
    name = "kafka_server_socket_server_metrics"
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    client.call(request, 3)
    assert metrics.value(f"{name}_connection_count", listener="PLAINTEXT") == 1
    assert metrics.value(f"{name}_connection_creation_total") == 1
    before = metrics.value(f"{name}_incoming_byte_total")
    sent = metrics.value(f"{name}_outgoing_byte_total")
    client.call(request, 3)
    # Both requests are equal, and so are both responses.
    assert metrics.value(f"{name}_incoming_byte_total") == 2 * before
    assert metrics.value(f"{name}_outgoing_byte_total") == 2 * sent


def test_groups(broker: Broker, metrics: Metrics, client: RawClient) -> None:
    create_topic(client, "t")
    produce(client, "t", batch(*[b"x"] * 10))
    settings = {
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "g",
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    try:
        consumer.subscribe(["t"])
        assert len(consumer.consume(4, PATIENCE)) == 4
        consumer.commit(asynchronous=False)
        where = {"consumergroup": "g", "topic": "t", "partition": 0}
        assert metrics.value("kafka_consumergroup_current_offset", **where) == 4
        assert metrics.value("kafka_consumergroup_lag", **where) == 6
        assert metrics.value("kafka_consumergroup_members", consumergroup="g") == 1
        assert metrics.value("krammar_consumergroup_state", state="Stable") == 1
    finally:
        consumer.close()
    assert metrics.value("krammar_consumergroup_state", state="Stable") == 0
    assert metrics.value("krammar_consumergroup_state", consumergroup="g", state="Empty") == 1


def test_share_groups(broker: Broker, metrics: Metrics, client: RawClient) -> None:
    where = {"group": GROUP, "topic": "t", "partition": 0}
    in_flight = "kafka_server_sharepartitionmetrics_inflightmessagecount"
    acknowledged = "kafka_server_sharegroupmetrics_recordacknowledgements_total"
    expired = "kafka_server_sharepartitionmetrics_acquisitionlocktimeout_total"
    configure(broker, auto_offset_reset="earliest")
    topic = create_topic(client, "t")
    produce(client, "t", batch(*[b"x"] * 10))
    with RawClient(broker.port) as connection:
        member = Member(connection, topic)
        assert member.acquire(max_records=6, share_acquire_mode=1) == [(0, 5, 1)]
        assert metrics.value(in_flight, **where) == 6
        assert metrics.value("kafka_server_sharesessioncache_sharesessionscount") == 1
        assert metrics.value("kafka_server_sharesessioncache_sharepartitionscount") == 1
        acks = [(0, 1, ACCEPT), (2, 4, ACCEPT, REJECT, RELEASE)]
        assert member.acknowledge(*acks) == OK
        found = {kind: metrics.value(acknowledged, acktype=kind) for kind in ("ACCEPT", "REJECT")}
        assert found == {"ACCEPT": 3, "REJECT": 1}
        assert metrics.value(acknowledged) == 5
        assert metrics.value(in_flight, **where) == 2
        own = {"consumergroup": GROUP, "topic": "t", "partition": 0}
        assert metrics.value("krammar_sharegroup_start_offset", **own) == 4
        assert metrics.value("krammar_sharegroup_lag", **own) == 6
        assert metrics.value(expired, **where) == 0
        broker.advance_clock(30_000)
        until(lambda: metrics.value(expired, **where) == 1)
    until(lambda: metrics.value("kafka_server_sharesessioncache_sharesessionscount") == 0)
    assert metrics.value("kafka_server_sharesessioncache_sharepartitionscount") == 0
    state = DeleteTopicsRequest.DeleteTopicState(name="t")
    client.call(DeleteTopicsRequest(topics=[state], timeout_ms=1000), 6)
    text = scrape(broker)
    assert 'group="g"' not in text
    assert 'acktype="RELEASE"' in text


def test_a_request_that_fails_is_counted(
    broker: Broker, metrics: Metrics, client: RawClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError("on purpose")

    handlers = broker.call(broker.handlers.of, MetadataHandlers)
    monkeypatch.setattr(handlers, "metadata", lambda *_: fail())
    with pytest.raises(ConnectionError):
        client.call(MetadataRequest(topics=[]), 12)
    assert metrics.value(ERRORS, request="Metadata", error="UNKNOWN_SERVER_ERROR") == 1


@pytest.mark.parametrize("fsync", ["always", "interval", "never", "off"])
def test_flushes_are_counted(fsync: str, tmp_path: Path) -> None:
    properties = {"krammar.fsync": fsync, "krammar.fsync.interval.ms": "86400000"}
    with (
        Broker.start(data_dir=tmp_path, properties=properties) as broker,
        RawClient(broker.port) as client,
    ):
        metrics = broker.metrics
        create_topic(client, "t")  # in the metadata log
        created = metrics.value(FLUSHES)
        assert (created > 0) == (fsync != "off")
        produce(client, "t", batch(b"x"))
        assert metrics.value(FLUSHES) == created + (1 if fsync == "always" else 0)
        broker.call(broker.logs.flush)
        flushed = metrics.value(FLUSHES)
        assert (flushed > created) == (fsync != "off")


def test_the_delay_of_the_event_loop(broker: Broker, metrics: Metrics) -> None:
    name = "krammar_event_loop_delay_ms_count"
    before = metrics.value(name)
    broker.call(broker.timers.advance, 1000)
    assert metrics.value(name) == before + 1


def test_the_page_has_the_same_numbers(broker: Broker, client: RawClient) -> None:
    create_topic(client, "t")
    produce(client, "t", batch(b"x"))
    text = scrape(broker)
    assert f'{RECORDS}{{topic="t"}} 1\n' in text
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(re.fullmatch(r"[a-z_]+(\{.+\})? [-+0-9.e]+", line) for line in samples)
    names = {re.split("[{ ]", line)[0] for line in samples}
    assert names <= set(broker.metrics.names)
    with pytest.raises(HTTPError, match="404"):
        scrape(broker, "/other")


def test_without_metrics_nothing_is_counted_or_imported() -> None:
    code = (
        "import sys; from krammar.broker import Broker\n"
        "with Broker.start() as broker: assert broker.handlers._observe is None\n"
        "names = ('krammar.broker.metrics', 'krammar.util.prometheus', 'krammar.util.http_server',"
        " 'krammar.faults', 'joserfc')\n"
        "assert not [name for name in names if name in sys.modules]\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)


def test_metrics_count_from_their_first_use_on() -> None:
    with Broker.start() as broker, RawClient(broker.port) as client:
        client.call(MetadataRequest(topics=[]), 12)
        metrics = broker.metrics
        client.call(MetadataRequest(topics=[]), 12)
        assert metrics.value(REQUESTS, request="Metadata") == 1


def test_metrics_of_several_nodes() -> None:
    with Cluster.start(nodes=2) as cluster:
        metrics = cluster.metrics
        ports = [
            node.addresses.advertised(node.config.listeners[0])[1]
            for node in cluster.nodes.values()
        ]
        for port in ports:
            with RawClient(port) as client:
                client.call(MetadataRequest(topics=[]), 12)
        assert metrics.value(REQUESTS, request="Metadata") == 2
        cluster.partition_from("nodes", 2)
        with RawClient(ports[1]) as client:
            client.call(MetadataRequest(topics=[]), 12)
        assert metrics.value(REQUESTS, request="Metadata") == 3
        name = "kafka_server_socket_server_metrics_connection_creation_total"
        assert metrics.value(name) == 3


def test_metrics_in_the_brokers_own_loop(tmp_path: Path) -> None:
    async def run() -> None:
        config = BrokerConfig.defaults(
            **{"log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"}
        )
        async with Broker(config) as broker:
            assert broker.metrics.value("kafka_server_replicamanager_partitioncount") == 0

    asyncio.run(run())


@pytest.mark.parametrize(
    ("name", "labels", "message"),
    [
        (
            "kafka_log_log_sizes",
            {},
            'no metric kafka_log_log_sizes; did you mean "kafka_log_log_size"?',
        ),
        ("zzz", {}, "no metric zzz"),
        (REQUESTS, {"api": "Fetch"}, f"{REQUESTS} has no label api; its labels: request, version"),
        (FLUSHES, {"topic": "t"}, f"{FLUSHES} has no label topic; its labels: none"),
    ],
)
def test_unknown_names_and_labels(
    metrics: Metrics, name: str, labels: dict[str, str], message: str
) -> None:
    with pytest.raises(LookupError) as error:
        metrics.value(name, **labels)
    assert str(error.value) == message


@pytest.mark.parametrize("text", ["", "x", "70000", "host:", "::1:80", "http://a:80"])
def test_addresses_that_are_none(text: str) -> None:
    with pytest.raises(
        ConfigError, match=r"krammar\.metrics.* must be a port, or a host and a port"
    ):
        BrokerConfig.defaults(**{"krammar.metrics": text})


def test_a_port_that_is_taken(broker: Broker) -> None:
    host, port = broker.metrics_address
    with pytest.raises(BrokerError, match=f"cannot listen on {host}:{port} for metrics: "):
        Broker.start(properties={"krammar.metrics": f"{host}:{port}"})


def test_the_dashboard_uses_metrics_that_exist(metrics: Metrics) -> None:
    board = json.loads(DASHBOARD.read_text("utf-8"))
    expressions = [each["expr"] for panel in board["panels"] for each in panel["targets"]]
    used = {name for each in expressions for name in re.findall(r"\b[a-z]+_[a-z_]+\b", each)}
    used -= {"histogram_quantile", "__rate_interval"}
    assert len(used) > 15
    assert used <= set(metrics.names)
    labels = {label for each in metrics.all for label in each.labels} | {"le"}
    for each in expressions:
        for group in re.findall(r"by \(([^)]*)\)", each):
            assert set(group.split(", ")) <= labels
