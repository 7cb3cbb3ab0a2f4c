"""kafkajs, the client in JavaScript, with our broker behind it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.interop import content
from tests.interop.apache import CACHE
from tests.interop.processes import Server

SOURCE = Path(__file__).parent / "kafkajs"


@pytest.fixture(scope="session")
def modules(node: str) -> Path:
    """The folder in which npm has put kafkajs."""
    package = SOURCE / "package.json"
    folder = CACHE / f"kafkajs-{hashlib.sha256(package.read_bytes()).hexdigest()[:16]}"
    if not (folder / "node_modules" / "kafkajs").exists():
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(package, folder)
        install = ["npm", "install", "--no-audit", "--no-fund", "--silent"]
        done = subprocess.run(install, cwd=folder, capture_output=True, text=True, timeout=300)
        if done.returncode:
            pytest.skip(f"npm has no kafkajs: {done.stderr.strip()[:300]}")
    return folder


@pytest.fixture
def topic(request: pytest.FixtureRequest, broker: Server) -> str:
    name = re.sub(r"\W", "-", request.node.name)
    content.create(content.admin(broker.bootstrap), name, 2)
    return name


def run(scenario: str, broker: Server, topic: str, modules: Path) -> Any:
    done = subprocess.run(
        ["node", str(SOURCE / "clients.mjs"), scenario, broker.bootstrap, topic],
        env={**os.environ, "KRAMMAR_NODE_MODULES": str(modules)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("scenario", ["plain", "gzip", "idempotent"])
def test_what_is_produced_is_consumed(
    broker: Server, topic: str, modules: Path, scenario: str
) -> None:
    seen = run(scenario, broker, topic, modules)
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


def test_transactions(broker: Server, topic: str, modules: Path) -> None:
    seen = run("transactions", broker, topic, modules)
    assert {record["value"].split()[0] for record in seen["read"]} == {"commit"}
    assert [one["offset"] for one in seen["stored"] if one["partition"] == 0] == ["7"]
    everything = content.read(broker.bootstrap, [(topic, 0), (topic, 1)])
    assert sum(map(len, everything.values())) == 60


def test_a_group_of_two(broker: Server, topic: str, modules: Path) -> None:
    seen = run("group", broker, topic, modules)
    assert sorted(seen.pop("owned")) == [[0], [1]]
    assert seen == {
        "seen": 100,
        "state": "Stable",
        "members": 2,
        "after": "Empty",
        "stored": [[0, "50"], [1, "50"]],
        "left": False,
    }


def test_admin(broker: Server, topic: str, modules: Path) -> None:
    seen = run("admin", broker, topic, modules)
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
