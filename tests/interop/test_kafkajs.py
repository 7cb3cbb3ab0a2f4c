"""kafkajs, the client in JavaScript, with our broker behind it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.interop import content
from tests.interop.processes import Server
from tests.support.waiting import PATIENCE

SOURCE = Path(__file__).parent / "kafkajs"


def run(scenario: str, broker: Server, topic: str, kafkajs_modules: Path) -> Any:
    done = subprocess.run(
        ["node", str(SOURCE / "clients.mjs"), scenario, broker.bootstrap, topic],
        env={**os.environ, "KRAMMAR_NODE_MODULES": str(kafkajs_modules)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("scenario", ["plain", "gzip", "idempotent"])
def test_what_is_produced_is_consumed(
    broker: Server, topic: str, kafkajs_modules: Path, scenario: str
) -> None:
    seen = run(scenario, broker, topic, kafkajs_modules)
    assert len(seen) == 200
    for partition in (0, 1):
        mine = [record for record in seen if record["partition"] == partition]
        assert [int(record["offset"]) for record in mine] == list(range(100))
        for record in mine:
            index = int(record["headers"]["index"])
            assert index % 2 == partition
            assert record["key"] == (f"key {index}" if index % 5 else None)
            assert f" {index} " in record["value"]
    # The same through another client.
    found = content.read(broker.bootstrap, [(topic, 0), (topic, 1)])
    theirs = {
        (record["partition"], int(record["offset"])): record["value"].encode() for record in seen
    }
    assert theirs == {
        (partition, record[0]): record[4]
        for (_, partition), records in found.items()
        for record in records
    }


def test_transactions(broker: Server, topic: str, kafkajs_modules: Path) -> None:
    seen = run("transactions", broker, topic, kafkajs_modules)
    assert {record["value"].split()[0] for record in seen["read"]} == {"commit"}
    assert [one["offset"] for one in seen["stored"] if one["partition"] == 0] == ["7"]
    everything = content.read(broker.bootstrap, [(topic, 0), (topic, 1)])
    assert sum(map(len, everything.values())) == 60


def test_a_group_of_two(broker: Server, topic: str, kafkajs_modules: Path) -> None:
    seen = run("group", broker, topic, kafkajs_modules)
    assert sorted(seen.pop("owned")) == [[0], [1]]
    assert seen == {
        "seen": 100,
        "state": "Stable",
        "members": 2,
        "after": "Empty",
        "stored": [[0, "50"], [1, "50"]],
        "left": False,
    }


def test_admin(broker: Server, topic: str, kafkajs_modules: Path) -> None:
    seen = run("admin", broker, topic, kafkajs_modules)
    assert seen == {
        "made": True,
        "twice": False,
        "partitions": 3,
        "offsets": [[0, "4", "10"], [1, "0", "10"], [2, "0", "0"]],
        "cleanup": "compact",
        "retention": seen["retention"],
        "set": "5",
        "left": False,
        "brokers": 1,
        "controller": 1,
    }
    # AlterConfigs replaces all that was set before.
    assert seen["retention"] == "604800000"
