"""Apache Kafka's generated message classes beside ours; the comparison is in tests/generated."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.generated.test_apache_kafka import compare_messages, fetch_jars


@pytest.mark.skipif(
    not (shutil.which("javac") and shutil.which("mvn")), reason="needs a JDK and Maven"
)
def test_apache_kafka_reads_and_writes_the_same() -> None:
    try:
        fetch_jars()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"Maven has no jars of Apache Kafka: {error.stdout.decode().strip()[:300]}")
    compare_messages()
