"""A broker that a test never closes leaves no folder when its process has ended."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE

_PROGRAM = """
from confluent_kafka import Producer
from krammar.broker import Broker

broker = Broker.start({options})
producer = Producer({{"bootstrap.servers": broker.bootstrap_servers}})
producer.produce("orders", b"one")
producer.flush()
print(broker.config.log_dirs[0])
{end}
"""


@pytest.mark.parametrize("options", ["", "process=True"])
@pytest.mark.parametrize("end", ["", "raise SystemExit(3)", "1 / 0"])
def test_no_folder_remains(tmp_path: Path, options: str, end: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM.format(options=options, end=end)],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    assert done.returncode == {"": 0, "raise SystemExit(3)": 3, "1 / 0": 1}[end], done.stderr
    folder = Path(done.stdout.strip())
    assert folder.parent == tmp_path
    assert list(tmp_path.iterdir()) == []
