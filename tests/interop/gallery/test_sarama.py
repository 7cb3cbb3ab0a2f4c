"""A bug of Sarama."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from pathlib import Path

import pytest

from krammar.testing import KafkaBroker
from tests.interop.apache import CACHE

_SOURCE = Path(__file__).parent / "sarama"


@pytest.fixture(scope="module")
def program() -> Path:
    """The compiled program. Skips without Go, or without Sarama from its proxy."""
    if shutil.which("go") is None:
        pytest.skip("needs go")
    stamp = hashlib.sha256(b"".join((_SOURCE / n).read_bytes() for n in ("main.go", "go.sum")))
    binary = CACHE / f"sarama-{stamp.hexdigest()[:16]}"
    if not binary.exists():
        command = ["go", "build", "-o", str(binary), "."]
        done = subprocess.run(command, cwd=_SOURCE, capture_output=True, text=True, timeout=600)
        if done.returncode:
            pytest.skip(f"Go has no Sarama: {done.stderr.strip()[:300]}")
    return binary


def test_a_producer_closes_without_an_answer(kafka_broker: KafkaBroker, program: Path) -> None:
    """Sarama 2121: a broker that accepts requests and never answers kept Close from returning."""
    kafka_broker.create_topic("orders", 1)
    silent = kafka_broker.faults.on("Produce").black_hole()
    done = subprocess.run(
        [str(program), kafka_broker.bootstrap_servers, "orders"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    silent.expect()
    assert done.stdout.splitlines()[-1] == "closed"
    assert "timeout" in done.stdout
    assert kafka_broker.records("orders") == []
