"""The versions of requests of older releases, compared with Kafka's own classes."""

from __future__ import annotations

import csv
import shutil
import subprocess
from pathlib import Path

import pytest

from krammar.broker import releases
from tests.generated.test_apache_kafka import JARS, fetch_jars

_PROGRAM = Path(__file__).parent / "Versions.java"


@pytest.fixture(scope="module")
def jars() -> Path:
    """The folder with the jars of the releases."""
    if not shutil.which("java") or not shutil.which("mvn"):
        pytest.skip("needs Java and Maven")
    try:
        fetch_jars()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"Maven has no jars of Apache Kafka: {error.stdout.decode().strip()[:300]}")
    return JARS


@pytest.mark.parametrize(("release", "jar"), [("3.9", "3.9.2"), ("4.0", "4.0.1")])
def test_the_table_is_the_release(jars: Path, release: str, jar: str) -> None:
    path = ":".join(map(str, [jars / f"kafka-clients-{jar}.jar", *jars.glob("slf4j-api-*")]))
    command = ["java", "-cp", path, str(_PROGRAM)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    table = Path(releases.__file__).with_name("releases.csv").read_text("utf-8").splitlines()
    ours = [row for row in csv.DictReader(table) if row["release"] == release]
    assert [f"{row['api_key']},{row['low']},{row['high']}" for row in ours] == lines
