"""A bug of kafkajs."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from confluent_kafka import Producer
from kafka_wire import ErrorCode

from krammar.testing import KafkaBroker
from tests.support.waiting import PATIENCE

_SCRIPT = Path(__file__).parent / "kafkajs" / "coordinator.mjs"


def test_a_moved_coordinator_causes_a_rebalance(
    kafka_broker: KafkaBroker, kafkajs_modules: Path
) -> None:
    """kafkajs 1069, open: NOT_COORDINATOR for a commit makes the member join again and read a record twice."""
    kafka_broker.create_topic("orders", 1)
    producer = Producer(kafka_broker.clients.confluent_kafka)
    for value in (b"one", b"two", b"three"):
        producer.produce("orders", value)
    assert producer.flush(PATIENCE) == 0
    moved = kafka_broker.faults.on("OffsetCommit").answer(ErrorCode.NOT_COORDINATOR).once()
    joined = kafka_broker.faults.on("JoinGroup").after(moved).delay(0)
    done = subprocess.run(
        ["node", str(_SCRIPT), kafka_broker.bootstrap_servers, "orders", "three"],
        env={**os.environ, "KRAMMAR_NODE_MODULES": str(kafkajs_modules)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    moved.expect()
    seen = json.loads(done.stdout)
    # Open: kafkajs 2.2.4. A correct member asks for the coordinator, and commits again.
    assert joined.fired > 0
    assert seen == ["one", "one", "two", "three"]
