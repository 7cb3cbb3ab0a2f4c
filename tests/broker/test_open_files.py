"""Brokers that may open few files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("resource", reason="not a Unix")

from krammar.client import Client
from krammar.client.errors import ClientError
from tests.interop.processes import Krammar

# A broker in a process that may open 200 files. Enter ends it.
_PROGRAM = """
import logging, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (200, 200))
logging.basicConfig(format="%(message)s")
from krammar.broker import Broker
with Broker.start(properties={"num.partitions": "200"}) as broker:
    print(broker.bootstrap_servers, flush=True)
    sys.stdin.readline()
"""


def _fill(servers: str) -> None:
    """Send a record to each of 170 partitions."""
    settings = {"delivery_timeout_ms": 4000, "request_timeout_ms": 500, "linger_ms": 0}
    with Client(servers, **settings) as client, client.producer() as producer:
        for partition in range(170):
            producer.send("orders", b"value", partition=partition)


class _Few(Krammar):
    """A broker whose soft limit is low, as in most shells."""

    def command(self) -> list[str]:
        return ["sh", "-c", 'ulimit -S -n 100; exec "$@"', "sh", *super().command()]


def test_the_command_raises_a_low_limit(tmp_path: Path) -> None:
    with _Few(tmp_path / "data") as broker:
        assert broker.process is not None
        limits = Path(f"/proc/{broker.process.pid}/limits").read_text("utf-8")
    (line,) = (line for line in limits.splitlines() if line.startswith("Max open files"))
    soft, hard = line.split()[3:5]
    assert soft == hard


def test_too_many_open_files_are_no_fault_of_the_disk() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        servers = process.stdout.readline().strip()
        with pytest.raises(ClientError):
            _fill(servers)
        # Logs leave files for connections: other clients are served.
        with Client(servers) as client, client.producer() as producer:
            assert producer.send("orders", b"value", partition=0).result().offset == 1
        _, log = process.communicate("\n")
    assert "records are refused until they can be written: [Errno 24]" in log
    assert "(raise the limit: ulimit -n)" in log
    assert "disk failed" not in log
