"""rskafka's own tests, which its package has, with several nodes of our broker.

Those with Java and a SOCKS proxy skip themselves.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from krammar.testing import KafkaBroker, KafkaCluster
from tests.interop.apache import CACHE

_PROJECT = Path(__file__).parent / "rskafka" / "Cargo.toml"
_TESTS = ("client", "consumer", "producer", "produce_consume")
# The password that a test has.
_USERS = {"admin": "admin-secret"}


def _cargo(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["cargo", *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=3000,
    )


@pytest.fixture(scope="module")
def crate() -> Path:
    """A copy of the package, with compiled tests."""
    if shutil.which("cargo") is None:
        pytest.skip("needs cargo")
    target = ("--target-dir", str(CACHE / "cargo"))
    found = _cargo("metadata", "--format-version", "1", "--manifest-path", str(_PROJECT))
    if found.returncode:
        pytest.skip(f"cargo cannot get rskafka: {found.stderr.strip()[-300:]}")
    (package,) = (
        each for each in json.loads(found.stdout)["packages"] if each["name"] == "rskafka"
    )
    folder = CACHE / f"rskafka-{package['version']}"
    if not folder.exists():
        shutil.copytree(Path(package["manifest_path"]).parent, folder)
        # It would fetch another compiler.
        (folder / "rust-toolchain.toml").unlink(missing_ok=True)
        # Newer compilers refuse the version that its lock file names.
        _cargo("update", "--manifest-path", str(folder / "Cargo.toml"), "rsasl")
    built = _cargo("test", "--no-run", *target, *_arguments(folder))
    assert built.returncode == 0, built.stderr[-3000:]
    return folder


def _arguments(folder: Path) -> list[str]:
    tests = [part for name in _TESTS for part in ("--test", name)]
    return ["--manifest-path", str(folder / "Cargo.toml"), *tests]


def test_the_suite(crate: Path) -> None:
    with (
        KafkaCluster.start(nodes=3, auto_create_topics_enable=False, process=True) as cluster,
        KafkaBroker.start(sasl="plain", users=_USERS) as secured,
    ):
        done = _cargo(
            *("test", "--no-fail-fast", "--target-dir", str(CACHE / "cargo"), *_arguments(crate)),
            TEST_INTEGRATION="1",
            TEST_BROKER_IMPL="kafka",
            KAFKA_CONNECT=cluster.bootstrap_servers,
            KAFKA_SASL_CONNECT=secured.bootstrap_servers,
        )
    said = done.stdout + done.stderr
    found = re.findall(r"test result: \w+\. (\d+) passed; (\d+) failed", said)
    assert done.returncode == 0, said[-6000:]
    assert sum(int(failed) for _, failed in found) == 0
    assert sum(int(passed) for passed, _ in found) >= 45
