"""The fixture kafka_broker and its marker, in a test run of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.broker.support import PATIENCE

pytest_plugins = ["pytester"]

_TEST = """
import pytest

@pytest.mark.kafka_broker({arguments})
def test_it(kafka_broker):
    assert kafka_broker.config.num_partitions == 3
    assert kafka_broker.config.auto_create_topics_enable is False
"""


def outcome(pytester: pytest.Pytester, arguments: str) -> pytest.RunResult:
    pytester.makepyfile(_TEST.format(arguments=arguments))
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:xdist")


@pytest.mark.parametrize(
    "arguments",
    [
        "num_partitions=3, auto_create_topics_enable=False",
        '{"num.partitions": "3", "auto.create.topics.enable": "false"}',
        '{"num.partitions": 2}, num_partitions=3, auto_create_topics_enable="false"',
    ],
)
def test_settings(pytester: pytest.Pytester, arguments: str) -> None:
    outcome(pytester, arguments).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (
            "num_partition=3",
            "num_partition: unknown setting; did you mean num.partitions?",
        ),
        ('{"num.partitons": 3}', "num.partitons: unknown setting; did you mean num.part"),
        ("properties={}", "properties: unknown setting"),
        ("unheard_of=None", "unheard_of: unknown setting"),
        ("num_partitions='x'", "num.partitions"),
        ("3", "accepts one mapping of settings"),
        ("{}, {}", "accepts one mapping of settings"),
    ],
)
def test_errors(pytester: pytest.Pytester, arguments: str, error: str) -> None:
    result = outcome(pytester, arguments)
    result.assert_outcomes(errors=1)
    (line,) = [line for line in result.outlines if line.startswith("@pytest.mark.kafka_broker")]
    assert error in line


def test_the_fixture_comes_with_the_package(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("""
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

def test_plain(kafka_broker):
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap_servers})
    sent = []
    producer.produce("orders", b"one", on_delivery=lambda error, message: sent.append(error))
    producer.flush(30)
    assert sent == [None]

@pytest.mark.kafka_broker({"num.partitions": "3"})
def test_marked(kafka_broker):
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap_servers})
    metadata = admin.list_topics("auto", timeout=30)
    assert len(admin.list_topics("auto", timeout=30).topics["auto"].partitions) == 3
""")
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "--strict-markers", "-q", "test_it.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert result.returncode == 0, result.stdout
    assert "2 passed" in result.stdout


def test_the_plugin_loads_nothing_until_it_is_used(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("""
import sys

def test_nothing():
    assert not any(name.startswith(("krammar.broker", "kafka_wire")) for name in sys.modules)
""")
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "test_it.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert result.returncode == 0, result.stdout
