"""quixstreams and FastStream, in an environment of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from krammar.testing import KafkaBroker
from tests.interop.apache import CACHE
from tests.support.waiting import PATIENCE

_HERE = Path(__file__).parent
_PACKAGES = ("quixstreams==3.28.1", "faststream[confluent]==0.7.8")


@pytest.fixture(scope="module")
def python() -> Path:
    """An interpreter with the packages. Skips if pip cannot get them."""
    folder = CACHE / "applications"
    interpreter = folder / "bin" / "python"
    done = folder / ("-".join(_PACKAGES).replace("/", "") + ".done")
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        install = [str(interpreter), "-m", "pip", "install", "--quiet", *_PACKAGES]
        got = subprocess.run(install, capture_output=True, text=True, timeout=600)
        if got.returncode:
            pytest.skip(f"pip has no quixstreams or FastStream: {got.stderr.strip()[-300:]}")
        done.touch()
    return interpreter


def _run(python: Path, script: str, *arguments: str) -> None:
    done = subprocess.run(
        [str(python), str(_HERE / script), *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]


def _send(broker: KafkaBroker, topic: str, *values: tuple[bytes | None, bytes]) -> None:
    producer = Producer(broker.clients.confluent_kafka)
    for key, value in values:
        producer.produce(topic, value, key=key)
    assert producer.flush(PATIENCE) == 0


def test_quixstreams_counts_exactly_once_over_a_restart(
    kafka_broker: KafkaBroker, python: Path, tmp_path: Path
) -> None:
    kafka_broker.create_topic("words", 1)
    words = [(b"a", b"a"), (b"b", b"b"), (b"a", b"a")]
    _send(kafka_broker, "words", *words)
    _run(python, "quix.py", kafka_broker.bootstrap_servers, str(tmp_path / "first"), "3")
    # The second run has no state on the disk: it reads its changelog topic.
    _send(kafka_broker, "words", *words)
    _run(python, "quix.py", kafka_broker.bootstrap_servers, str(tmp_path / "second"), "3")
    counts = kafka_broker.records("counts")
    assert [(r.key, json.loads(r.value or b"")) for r in counts] == [
        (b"a", 1),
        (b"b", 1),
        (b"a", 2),
        (b"a", 3),
        (b"b", 2),
        (b"a", 4),
    ]
    assert kafka_broker.groups["words"].offsets == {("words", 0): 6}


def test_faststream_answers(kafka_broker: KafkaBroker, python: Path) -> None:
    kafka_broker.create_topic("orders", 1)
    _send(kafka_broker, "orders", (None, b"one"), (None, b"two"))
    _run(python, "fast.py", kafka_broker.bootstrap_servers, "2")
    answers = [record.value for record in kafka_broker.records("answers")]
    assert sorted(value or b"" for value in answers) == [b"ONE", b"TWO"]
