"""franz-go's own tests of its share consumer, from the module that Go's proxy has."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.conftest import our_broker
from tests.interop.go import go_tests
from tests.interop.processes import Server, Unavailable

_FOLDER = Path(__file__).parent / "franz_share"
# Its own default is 500,000.
_RECORDS = 20_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A broker with the settings that franz-go's own script gives to Kafka."""
    settings = {
        "share_coordinator_state_topic_replication_factor": "1",
        "share_coordinator_state_topic_min_isr": "1",
    }
    with our_broker(tmp_path_factory.mktemp("franz") / "data", **settings) as running:
        yield running


@pytest.mark.parametrize(
    "name",
    [
        "TestShareGroup",
        "TestShareGroupAckOnClose",
        "TestShareGroupETL",
        "TestShareGroupOffsetsAdmin",
        "TestConsumeRegexShareSkipsInternal",
    ],
)
def test_franz_go(broker: Server, name: str) -> None:
    try:
        program = go_tests(_FOLDER, "github.com/twmb/franz-go/pkg/kgo")
    except Unavailable as missing:
        pytest.skip(str(missing))
    done = subprocess.run(
        [str(program), "-test.v", "-test.timeout=5m", f"-test.run=^{name}$"],
        env={
            **os.environ,
            "KGO_SEEDS": broker.bootstrap,
            "KGO_TEST_RF": "1",
            "KGO_TEST_RECORDS": str(_RECORDS),
            "KGO_LOG_LEVEL": "none",
        },
        capture_output=True,
        text=True,
        timeout=330,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said[-6000:]
    # A test that skips itself ends without an error, too.
    assert f"--- PASS: {name} " in said, said[-6000:]
