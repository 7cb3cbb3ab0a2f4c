"""``--faults`` of ``krammar tap`` and ``krammar broker``."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from kafka_wire import HeartbeatRequest

from krammar.broker import Broker
from krammar.client.wafka import WafkaClient, WafkaError
from tests.broker.support import BrokerProcess, RawClient
from tests.cli.test_tap import started
from tests.support.waiting import PATIENCE
from tests.tap.support import Address

RULES = """
[[fault]]
name = "beat"
api = "Heartbeat"
answer = "REBALANCE_IN_PROGRESS"
times = 1
expect = 2
"""


def test_the_broker_applies_a_file_and_reports_on_it(tmp_path: Path) -> None:
    (tmp_path / "faults.toml").write_text(RULES)
    arguments = [
        "--data-dir",
        tmp_path / "data",
        "--port",
        "0",
        "--faults",
        tmp_path / "faults.toml",
    ]
    with BrokerProcess(arguments) as process, RawClient(process.port) as client:
        assert client.call(HeartbeatRequest(group_id="g"), 4).error_code == 27
        assert client.call(HeartbeatRequest(group_id="g"), 4).error_code == 25
        code, output = process.stop()
    assert code == 1
    assert 'fault "beat": matched 2, fired 1' in output
    assert 'error: fault "beat" fired 1 of the 2 times that the file expects' in output


def test_the_tap_applies_a_file_and_reports_on_it(tmp_path: Path) -> None:
    rules = tmp_path / "faults.toml"
    rules.write_text(RULES.replace("expect = 2", "expect = 1"))
    with (
        Broker.start() as broker,
        started([Address("127.0.0.1", broker.port)], "--faults", str(rules)) as tap,
    ):
        with RawClient(tap.address.port) as client:
            assert client.call(HeartbeatRequest(group_id="g"), 4).error_code == 27
        code, out, err = tap.end(signal.SIGTERM)
    assert code == 0, err
    assert 'fault "beat": matched 1, fired 1' in err
    assert "beat: answered REBALANCE_IN_PROGRESS" in out


@pytest.mark.parametrize(
    "verb", [["broker", "--data-dir", "d"], ["tap", "--upstream", "localhost:1"]]
)
def test_diagnostics_end_the_command(verb: list[str], tmp_path: Path) -> None:
    (tmp_path / "faults.toml").write_text(RULES.replace("Heartbeat", "Hartbeat"))
    command = [sys.executable, "-m", "krammar.cli", *verb, "--faults", "faults.toml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 1
    assert done.stderr.startswith('faults.toml:4:8: error F201: the API "Hartbeat" does not exist')
    assert 'hint: did you mean "Heartbeat"?' in done.stderr


def test_the_tap_knows_protocols_of_ones_own(tmp_path: Path) -> None:
    rules = tmp_path / "faults.toml"
    rules.write_text('[[fault]]\napi = "Produce"\nanswer = "KAFKA_STORAGE_ERROR"\nnth = 2\n')
    arguments = ["--data-dir", tmp_path / "data", "--protocol", "wafka", "--port", "0"]
    with (
        BrokerProcess([*arguments, "--kafka-port", "0"]) as process,
        started(
            [Address("127.0.0.1", process.port)], "--package", "wafka_wire", "--faults", str(rules)
        ) as tap,
    ):
        with WafkaClient("127.0.0.1", tap.address.port) as client:
            assert client.produce("orders", ["a"], partition=0) == 0
            with pytest.raises(WafkaError, match="KAFKA_STORAGE_ERROR"):
                client.produce("orders", ["b"], partition=0)
            assert client.produce("orders", ["c"], partition=0) == 1
        code, _, err = tap.end(signal.SIGTERM)
    assert code == 0, err


def test_a_package_that_is_none(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "krammar.cli", "tap", "--upstream", "localhost:1", "--package"]
    done = subprocess.run([*command, "json"], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert "--package: " in done.stderr and "is not a package that krammar generated" in done.stderr
    done = subprocess.run([*command, "no_wire"], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2 and "'no_wire' cannot be imported" in done.stderr
