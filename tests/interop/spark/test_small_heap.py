"""A slow broker, and a driver with a small heap that reads many micro-batches itself."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

from confluent_kafka import Producer

from krammar.spark.undocumented import PYSPARK
from krammar.testing import KafkaBroker
from tests.interop.spark.small_heap_driver import BATCH, BATCHES, VALUE_BYTES

ROOT = Path(__file__).parents[3]
_SLOW_MS = 2000


@pytest.mark.skipif(PYSPARK < (4, 2), reason="PySpark 4.1 has no limits of micro-batches")
def test_batches_of_a_slow_broker_fill_no_small_heap(
    kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    """Spark stores the rows of each batch as blocks, and has to forget them."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Java is not installed")
    kafka_broker.create_topic("in", 2)
    producer = Producer(kafka_broker.clients.confluent_kafka)
    for number in range(BATCH * BATCHES):
        producer.produce("in", os.urandom(VALUE_BYTES), partition=number % 2)
        producer.poll(0)
    assert producer.flush(60) == 0
    slow = kafka_broker.faults.on("Fetch").every(50).delay(_SLOW_MS)

    command = [sys.executable, "-m", "tests.interop.spark.small_heap_driver"]
    done = subprocess.run(
        [*command, str(kafka_broker.bootstrap_servers), str(tmp_path / "checkpoint")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path[:1]])},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-5000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["rows"] == [BATCH] * BATCHES
    assert slow.fired > 1
    # The driver has one connection; tasks of two partitions would have two.
    assert len({event.connection for event in kafka_broker.faults.history}) == 1, found
    assert found["longest ms"] >= _SLOW_MS
    # All batches together would fill it.
    assert found["most"] < BATCH * BATCHES * VALUE_BYTES
    assert found["used"] < found["most"] / 4
