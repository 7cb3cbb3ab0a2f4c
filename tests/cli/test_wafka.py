"""``krammar wafka-produce`` and ``krammar broker --protocol wafka``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from krammar.broker import Broker
from krammar.cli import main
from krammar.client import At, Client
from krammar.client import TopicPartition as At0
from tests.broker.support import BrokerProcess

_LISTENERS = {"listeners": "WAFKA://127.0.0.1:0,PLAINTEXT://127.0.0.1:0"}
_MORE = {"auto.create.topics.enable": "true", "num.partitions": "2", "message.max.bytes": "100000"}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker.start(properties=_LISTENERS | _MORE) as broker:
        yield broker


def test_commands(tmp_path: Path) -> None:
    arguments = ["--protocol", "wafka", "--data-dir", tmp_path, "--port", "0", "--kafka-port", "0"]
    with BrokerProcess(arguments) as process:
        ports = {
            line.split()[0]: line.rpartition(":")[2] for line in process.lines if " on " in line
        }
        server = f"127.0.0.1:{ports['WAFKA']}"
        lines = "".join(f"line {number}\n" for number in range(1234))
        run = CliRunner().invoke(main, ["wafka-produce", "-b", server, "t"], input=lines)
        assert (run.exit_code, run.output) == (0, "1234 records written to t\n")
        with Client(f"127.0.0.1:{ports['PLAINTEXT']}") as kafka:
            assert kafka.list_offsets({At0("t", 0): At.LATEST})[At0("t", 0)].offset == 1234
        for given, says in [
            (b"a\n" + b"x" * 32768 + b"\n", "line 2 has 32768 bytes"),
            (b"a\n\xff\n", "line 2 is not UTF-8 (0 records were written)"),
        ]:
            run = CliRunner().invoke(main, ["wafka-produce", "-b", server, "t"], input=given)
            assert run.exit_code == 1
            assert says in run.output
        run = CliRunner().invoke(main, ["wafka-produce", "-b", server, "-p", "9", "t"], input="a")
        assert run.exit_code == 1
        assert "UNKNOWN_TOPIC_OR_PARTITION: t has partitions 0 to 0 (0 records" in run.output


def test_lines_go_to_all_partitions(broker: Broker) -> None:
    host, port = broker.addresses["WAFKA"]
    lines = "".join(f"{number}\n" for number in range(1200))
    run = CliRunner().invoke(main, ["wafka-produce", "-b", f"{host}:{port}", "lines"], input=lines)
    assert (run.exit_code, run.output) == (0, "1200 records written to lines\n")
    with Client(broker.bootstrap_servers) as kafka:
        ends = kafka.list_offsets({At0("lines", 0): At.LATEST, At0("lines", 1): At.LATEST})
    assert [ends[at].offset for at in sorted(ends)] == [700, 500]


def test_commands_that_are_wrong(tmp_path: Path) -> None:
    run = CliRunner().invoke(main, ["wafka-produce", "-b", "nowhere", "t"], input="a")
    assert run.exit_code == 2
    assert "'nowhere' is not HOST:PORT" in run.output
    run = CliRunner().invoke(main, ["wafka-produce", "-b", "a..b:1", "t"], input="a")
    assert run.exit_code == 1
    assert "a..b:1: the host name cannot be resolved" in run.output
    run = CliRunner().invoke(main, ["wafka-produce", "--timeout", "99999999999999", "t"])
    assert run.exit_code == 2
    arguments = ["broker", "--data-dir", str(tmp_path), "--kafka-port", "1"]
    run = CliRunner().invoke(main, arguments)
    assert run.exit_code == 2
    assert "--kafka-port needs --protocol wafka" in run.output
