"""A Spark Connect server on loopback, as a process: ``python -m tests.spark.connect_server``.

It prints its port and runs until its standard input is closed. A process has classic sessions or those
of Spark Connect, not both; and users' clients have no JVM beside them either.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.spark.sessions import classic
from tests.support.waiting import PATIENCE

_SETTINGS = {
    "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
    "spark.connect.grpc.binding.address": "127.0.0.1",
    "spark.connect.grpc.binding.port": "0",
}


def main() -> None:
    session = classic(_SETTINGS)
    jvm: Any = session.sparkContext._jvm
    service = getattr(jvm, "org.apache.spark.sql.connect.service.SparkConnectService$")
    print(getattr(service, "MODULE$").localPort(), flush=True)
    sys.stdin.read()
    session.stop()


@contextmanager
def connect_server() -> Iterator[str]:
    """The address of a server, for ``SparkSession.builder.remote``."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.spark.connect_server"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={name: value for name, value in os.environ.items() if "CONNECT" not in name},
    ) as server:
        assert server.stdin is not None and server.stdout is not None
        try:
            port = server.stdout.readline().strip()
            assert port.isdecimal(), f"the server has not started: {port}"
            yield f"sc://127.0.0.1:{port}"
        finally:
            server.stdin.close()
            try:
                server.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                server.kill()


if __name__ == "__main__":
    main()
