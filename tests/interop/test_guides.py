"""Importing the complete protocol guides, which the classes of Kafka print."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.compiler.test_guide_releases import NULL_UP_TO_0, differences, run
from tests.generated.test_apache_kafka import JARS, fetch_jars


@pytest.fixture(scope="module")
def jars() -> Path:
    """The folder with the jars of some releases."""
    if not shutil.which("java") or not shutil.which("mvn"):
        pytest.skip("needs Java and Maven")
    try:
        fetch_jars()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"Maven has no jars of Apache Kafka: {error.stdout.decode().strip()[:300]}")
    return JARS


def guide(jars: Path, release: str) -> str:
    path = ":".join(map(str, [jars / f"kafka-clients-{release}.jar", *jars.glob("slf4j-api-*")]))
    command = ["java", "-cp", path, "org.apache.kafka.common.protocol.Protocol"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_guide_of_kafka_4_4_describes_the_bytes_of_kafka_wire(
    jars: Path, tmp_path: Path
) -> None:
    result = run(guide(jars, "4.4.0"), tmp_path)
    assert result.exit_code == 0, result.output
    assert differences(tmp_path / "made") == (574, NULL_UP_TO_0)


@pytest.mark.parametrize("release", ["3.9.2", "4.0.1"])
def test_older_guides(jars: Path, tmp_path: Path, release: str) -> None:
    result = run(guide(jars, release), tmp_path)
    assert result.exit_code == 0, result.output
