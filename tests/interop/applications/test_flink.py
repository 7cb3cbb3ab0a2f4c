"""Flink: a job that fails once, and copies each record exactly once."""

from __future__ import annotations

import subprocess
from pathlib import Path

from krammar.testing import KafkaBroker
from tests.interop.apache import SMALL_JVM, java
from tests.interop.conftest import java_program

_COUNT = 2000
# Flink's serializers look into classes of the JDK.
_OPENS = tuple(
    f"--add-opens=java.base/{package}=ALL-UNNAMED"
    for package in ("java.lang", "java.util", "java.util.concurrent.atomic", "java.time")
)


def test_each_record_is_copied_once(kafka_broker: KafkaBroker) -> None:
    program = java_program("flink", Path(__file__).parent / "ExactlyOnce.java")
    kafka_broker.create_topic("out", 2)
    kafka_broker.create_topic("in", 2)
    kafka_broker.produce("in", [f"record {number}" for number in range(_COUNT)])
    arguments = (kafka_broker.bootstrap_servers, str(_COUNT))
    jvm = (*SMALL_JVM, *_OPENS)
    command = java("flink", "ExactlyOnce", *arguments, jvm=jvm, level="error", classes=program)
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "1", done.stderr[-3000:]
    copied = sorted(record.value or b"" for record in kafka_broker.records("out"))
    assert copied == sorted(b"RECORD %d" % number for number in range(_COUNT))
    # What the job wrote between its last checkpoint and the failure was aborted.
    every = kafka_broker.records("out", isolation_level="read_uncommitted")
    assert len(every) > _COUNT
