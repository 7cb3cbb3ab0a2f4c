"""Sarama and franz-go set, read and remove quotas, and franz-go guesses Kafka's version from the APIs."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from krammar.testing import KafkaBroker
from tests.interop.go import go_program
from tests.interop.processes import Unavailable
from tests.support.waiting import PATIENCE

_FOLDER = Path(__file__).parent / "quotas"
# The steps of Sarama's functional test of quotas, and those of kadm.
_EXPECTED = """\
sarama:
sarama:
sarama: user=<default> map[producer_byte_rate:1.024e+06]; user=sarama,client-id=app map[consumer_byte_rate:2.048e+06]
sarama: user=<default> map[producer_byte_rate:1.024e+06]
sarama: user=sarama,client-id=app map[consumer_byte_rate:2.048e+06]
sarama:
sarama refused: Invalid configuration key speed
kadm: {user=franz, client-id=<default>} [producer_byte_rate=1000 request_percentage=12.5]
kadm refused: Quota producer_byte_rate must be greater than 0
kadm:
"""


def test_clients_in_go(kafka_broker: KafkaBroker) -> None:
    try:
        program = go_program(_FOLDER)
    except Unavailable as missing:
        pytest.skip(str(missing))
    done = subprocess.run(
        [str(program), kafka_broker.bootstrap_servers],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    assert lines[:-1] == _EXPECTED.splitlines()
    # Later versions differ in APIs of controllers, which the broker does not serve.
    assert lines[-1] == "version: at least v3.9"
