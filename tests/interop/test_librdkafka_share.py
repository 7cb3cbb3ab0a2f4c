"""librdkafka's own tests of its share consumer that need a broker.

Without 0179: it expects that the first response has the records of one partition only. In Kafka, this depends on
which partition's state is loaded first.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.conftest import our_broker
from tests.interop.librdkafka import librdkafka_tests
from tests.interop.processes import Server, Unavailable


@pytest.fixture(scope="module")
def program() -> Path:
    try:
        return librdkafka_tests()
    except Unavailable as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A broker whose members hear of assignments soon, and whose locks can be short."""
    settings = {
        "group_share_assignment_interval_ms": "0",
        "group_share_heartbeat_interval_ms": "500",
        "group_share_min_heartbeat_interval_ms": "500",
        "group_share_min_record_lock_duration_ms": "1000",
        "num_partitions": "4",
        "share_coordinator_state_topic_replication_factor": "1",
        "share_coordinator_state_topic_min_isr": "1",
    }
    with our_broker(tmp_path_factory.mktemp("librdkafka") / "data", **settings) as running:
        yield running


@pytest.mark.parametrize(
    "number",
    [
        "0170_share_consumer_subscription",
        "0171_share_consumer_consume",
        "0172_share_consumer_acknowledge",
        "0173_share_consumer_commit_async",
        "0174_share_consumer_concurrency",
        "0175_share_consumer_groups",
        "0176_share_consumer_commit_sync",
        "0177_share_consumer_transactions",
        "0178_share_consumer_close",
        "0180_share_consumer_config",
        "0181_share_consumer_topic_delete",
        "0184_share_consumer_topic_recreate",
        "0185_share_consumer_max_poll_interval",
    ],
)
def test_librdkafka(program: Path, broker: Server, tmp_path: Path, number: str) -> None:
    config = tmp_path / "test.conf"
    config.write_text(f"bootstrap.servers={broker.bootstrap}\ntest.timeout.multiplier=5\n")
    done = subprocess.run(
        # One test at a time, without those that need no broker.
        [str(program), "-p1", "-L", "-E"],
        cwd=program.parent,
        env={
            **os.environ,
            "LD_LIBRARY_PATH": ":".join(
                str(program.parents[1] / name) for name in ("src", "src-cpp")
            ),
            "RDKAFKA_TEST_CONF": str(config),
            "TESTS": number[:4],
            "TEST_KAFKA_VERSION": "4.2.0",
            "TEST_LEVEL": "1",
        },
        capture_output=True,
        text=True,
        timeout=1200,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-6000:]
    assert "PASSED" in said, said[-3000:]
