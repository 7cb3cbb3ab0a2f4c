"""Fixtures for what runs against Apache Kafka and against our broker.

``KRAMMAR_INTEROP=apache`` puts Apache Kafka where our broker is: the tests of clients and tools then
prove themselves.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.broker.support import RawClient
from tests.interop import content
from tests.interop.apache import CACHE, ApacheKafka, class_path, compiled
from tests.interop.group_cases import make_topic, ready
from tests.interop.processes import Krammar, Server, Unavailable

AGAINST_APACHE = os.environ.get("KRAMMAR_INTEROP") == "apache"


@pytest.fixture(scope="session")
def kafka_jars() -> str:
    """Skips without Java, Maven, or the jars they get."""
    try:
        class_path("broker")
        return class_path("tools")
    except Unavailable as missing:
        pytest.skip(str(missing))


def java_program(jars: str, *sources: Path) -> Path:
    """Return the folder with the classes of programs in Java. Skips if something is missing."""
    try:
        return compiled(jars, *sources)
    except Unavailable as missing:
        pytest.skip(str(missing))


def our_broker(folder: Path, **properties: str) -> Server:
    """The broker under test on a folder; properties with underscores for dots."""
    settings = {name.replace("_", "."): value for name, value in properties.items()}
    return _under_test(folder, settings)


def _under_test(folder: Path, settings: Mapping[str, str]) -> Server:
    kind = ApacheKafka if AGAINST_APACHE else Krammar
    return kind(folder, properties=dict(settings))


@contextmanager
def ours_and_theirs(folder: Path, settings: Mapping[str, str]) -> Iterator[list[Server]]:
    """Start the broker under test and Apache Kafka with the same settings, and wait for their coordinators."""
    ours = _under_test(folder / "ours", settings)
    theirs = ApacheKafka(folder / "theirs", properties=dict(settings))
    with ours, theirs:
        for server in (ours, theirs):
            ready(server.port)
        yield [ours, theirs]


@pytest.fixture(scope="module")
def broker(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A running broker for the tests of a module. Ours needs no jars."""
    if AGAINST_APACHE:
        request.getfixturevalue("kafka_jars")
    # So that members of consumer groups hear of a new assignment soon.
    often = {
        "group_consumer_heartbeat_interval_ms": "200",
        "group_consumer_min_heartbeat_interval_ms": "1",
    }
    with our_broker(tmp_path_factory.mktemp("broker") / "data", **often) as running:
        yield running


@pytest.fixture(scope="session")
def node() -> str:
    found = shutil.which("node")
    if found is None or shutil.which("npm") is None:
        pytest.skip("needs node and npm")
    return found


@pytest.fixture(scope="session")
def kafkajs_modules(node: str) -> Path:
    """The folder in which npm has put kafkajs."""
    package = Path(__file__).parent / "kafkajs" / "package.json"
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
    """A topic of two partitions, named after its test."""
    name = re.sub(r"\W", "-", request.node.name)
    content.create(content.admin(broker.bootstrap), name, 2)
    return name


@pytest.fixture(scope="module")
def brokers(kafka_jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    """Ours and Apache Kafka, each with the topic ``t`` of two partitions."""
    folder = tmp_path_factory.mktemp("alike")
    with ours_and_theirs(folder, {}) as servers:
        for server in servers:
            with RawClient(server.port) as client:
                make_topic(client, "t", 2)
        yield servers
