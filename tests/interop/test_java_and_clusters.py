"""Apache Kafka's clients for Java with a cluster that a test controls, from Java and from Python."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from krammar.broker import Cluster
from tests.broker.support import BrokerProcess
from tests.broker.test_reading_from_followers import RACK_AWARE, Fetches
from tests.interop.apache import java
from tests.interop.conftest import java_program
from tests.support.waiting import PATIENCE

SOURCES = [Path(__file__).parent / name for name in ("HttpControl.java", "Follower.java")]


@pytest.fixture(scope="module")
def program(kafka_jars: str) -> Path:
    """The folder with the compiled programs."""
    return java_program("broker", *SOURCES)


def run(program: Path, *arguments: str) -> str:
    command = java("broker", *arguments, level="error", classes=program)
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_control_from_java(program: Path, tmp_path: Path) -> None:
    with BrokerProcess(
        ["--data-dir", tmp_path, "--port", "0", "--nodes", "3", "--control", "0"]
    ) as process:
        found = re.search(r"control on (\S+) with the token (\S+)", "\n".join(process.lines))
        assert found
        server = f"127.0.0.1:{process.port}"
        seen = json.loads(run(program, "HttpControl", server, found[1], found[2]))
    assert seen["rules"] == [
        {"name": "moved", "matched": 12, "fired": 2}
    ]  # ten records, two retries
    assert seen["history"] == 2
    assert seen["refused"].startswith("400: ")
    assert 'did you mean \\"Produce\\"' in seen["refused"]
    assert seen["end"] == {"end_offset": 7}
    assert seen["divergent"] == 7
    # With a policy, the consumer continues at the first lost offset.
    assert (seen["read after the truncation"], seen["position"]) == (1, 8)
    assert (seen["killed"], seen["started"]) == (False, True)
    assert seen["hours ahead"] == 1


@pytest.fixture
def fetches() -> Fetches:
    return Fetches()


@pytest.fixture
def cluster(fetches: Fetches) -> Iterator[Cluster]:
    properties = {"krammar.racks": "a,b,c", "replica.selector.class": RACK_AWARE}
    with Cluster.start(nodes=3, properties=properties, filters=[fetches]) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic("orders", 1, 3)])["orders"].result()
        cluster.move_leader("orders", 0, to=1)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for number in range(10):
            producer.produce("orders", b"%d" % number)
        assert producer.flush(PATIENCE) == 0
        yield cluster


@pytest.mark.parametrize(
    ("rack", "node", "preferred"), [("a", 1, "-1"), ("b", 2, "2"), ("c", 3, "3")]
)
def test_a_java_consumer_reads_from_its_rack(
    program: Path, cluster: Cluster, fetches: Fetches, rack: str, node: int, preferred: str
) -> None:
    said = run(program, "Follower", cluster.bootstrap_servers, rack, "10")
    assert said.strip() == f"0 left, preferred [{preferred}]"
    assert [key for key, size in fetches.bytes.items() if size] == [("reader", node)]
