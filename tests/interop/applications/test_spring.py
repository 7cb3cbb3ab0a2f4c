"""Spring Kafka: a listener in transactions, with records that fail once and records that always fail."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from krammar.testing import KafkaBroker
from tests.interop.apache import java
from tests.interop.conftest import java_program

_COUNT = 100


@pytest.mark.parametrize("process", [False, True])
def test_each_record_is_copied_once_or_a_dead_letter(process: bool) -> None:
    program = java_program("spring", Path(__file__).parent / "Spring.java")
    with KafkaBroker.start(process=process) as broker:
        arguments = (broker.bootstrap_servers, str(_COUNT))
        command = java("spring", "Spring", *arguments, level="error", classes=program)
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        # Fragile records fail once, and dead letters three times.
        assert done.stdout.strip() == str(_COUNT // 10 * 4), done.stderr[-3000:]
        copied = sorted(record.value or b"" for record in broker.records("out"))
        letters = sorted(record.value or b"" for record in broker.records("in-dlt"))
        assert copied == sorted(
            record.value for record in broker.records("in") if record.value not in letters
        )
        assert len(copied) == _COUNT - _COUNT // 10
        assert all(value.startswith(b"poison") for value in letters)
        assert len(letters) == _COUNT // 10
        # Transactions were aborted.
        every = broker.records("out", isolation_level="read_uncommitted")
        assert len(every) > len(copied)
        # Of the records, nothing is left: the last offset is the marker of their transaction.
        assert broker.groups["spring"].lag == {("in", 0): 1, ("in", 1): 1}
