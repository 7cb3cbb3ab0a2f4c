"""A bug of Sarama."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from krammar.testing import KafkaBroker
from tests.interop.go import go_program
from tests.interop.processes import Unavailable
from tests.support.waiting import PATIENCE


@pytest.fixture(scope="module")
def program() -> Path:
    """The compiled program. Skips without Go, or without Sarama from its proxy."""
    try:
        return go_program(Path(__file__).parent / "sarama")
    except Unavailable as missing:
        pytest.skip(str(missing))


def test_a_producer_closes_without_an_answer(kafka_broker: KafkaBroker, program: Path) -> None:
    """Sarama 2121: a broker that accepts requests and never answers kept Close from returning."""
    kafka_broker.create_topic("orders", 1)
    silent = kafka_broker.faults.on("Produce").black_hole()
    done = subprocess.run(
        [str(program), kafka_broker.bootstrap_servers, "orders"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    silent.expect()
    assert done.stdout.splitlines()[-1] == "closed"
    assert "timeout" in done.stdout
    assert kafka_broker.records("orders") == []
