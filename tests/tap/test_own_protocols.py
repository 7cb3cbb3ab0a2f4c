"""The tap on protocols of users, whose api keys and names are those of Kafka by chance, or on purpose."""

from __future__ import annotations

import importlib
import random
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

import kafka_wire
import pytest
from click.testing import CliRunner

from krammar.cli import main
from krammar.faults import Faults
from krammar.proxy.rewrite import ends_with_endpoints
from krammar.tap.capture import Capture, CaptureError, CaptureWriter
from krammar.tap.describe import Describer
from krammar.tap.exchanges import Exchanges
from krammar.tap.feed import Feed
from krammar.tap.frame import Status
from krammar.tap.listing import ExchangeListing, JsonListing, Listing
from krammar.wire.connection import (
    ClientConnection,
    InvalidRequest,
    RequestReceived,
    ResponseReceived,
    ServerConnection,
)
from krammar.wire.kafka import has_acks, has_api_versions, has_fetch_sessions, has_tokens
from krammar.wire.negotiation import unsupported_version_response
from krammar.wire.package import Package, package_of
from krammar.wire.reflection import fields
from tests.support.waiting import PATIENCE
from tests.tap.support import TapThread, upstream

# The keys of Kafka's APIs with special cases, and their names.
KAFKA = {
    0: "Produce",
    1: "Fetch",
    3: "Metadata",
    10: "FindCoordinator",
    17: "SaslHandshake",
    18: "ApiVersions",
    36: "SaslAuthenticate",
    52: "Vote",
    58: "Envelope",
    60: "DescribeCluster",
    82: "UpdateRaftVoter",
}
# The fields that special cases use, and that descriptions show.
NAMES = [
    "Acks",
    "TransactionalId",
    "ErrorCode",
    "ApiKeys",
    "Brokers",
    "NodeEndpoints",
    "Coordinators",
    "CurrentLeader",
    "Host",
    "Port",
    "NodeId",
    "Topics",
    "TopicId",
    "Partitions",
    "PartitionIndexes",
    "Records",
    "Members",
    "Groups",
    "Key",
    "GroupId",
    "SessionId",
    "AuthBytes",
    "RequestData",
    "ThrottleTimeMs",
    "Mechanism",
]
TYPES = [
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint16",
    "float64",
    "uuid",
    "string",
    "bytes",
    "varint",
]


class Source:
    """Writes the definitions of a random protocol."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.structs: set[str] = set()  # of the current message; each needs a name of its own
        self.keys = chance.sample(sorted(KAFKA), 5)
        self.text = "".join(self._api(key) for key in self.keys)

    def _api(self, key: int) -> str:
        name = KAFKA[key] if self.chance.random() < 0.6 else f"Own{key}"
        last = self.chance.choice([0, 0, 3, 12])
        flexible = f", flexible v{last}+" if self.chance.random() < 0.5 else ""
        head = f"{name}Request => key {key}, max version {last}{flexible}\n"
        return f"{head}{self._fields(1)}\n{name}Response =>\n{self._fields(1)}\n"

    def _fields(self, depth: int) -> str:
        lines = []
        if depth == 1:
            self.structs.clear()
        for name in self.chance.sample(NAMES, self.chance.randrange(1, 6)):
            array = self.chance.choice(["", "", "[", "[["])
            close = "]" * len(array)
            if depth < 3 and name not in self.structs and self.chance.random() < 0.4:
                self.structs.add(name)
                nested = "=>" if not array or len(array) > 1 else "[=>]"
                lines.append(f"{name}: {nested}\n{self._fields(depth + 1)}")
            else:
                lines.append(f"{name}: {array}{self.chance.choice(TYPES)}{close}\n")
        return "".join(f"{'  ' * depth}{line}" for line in lines)


def value(cls: Any, chance: random.Random) -> Any:
    """A message with a value in each field. No number is 0, which could mean that no response follows."""
    return cls(**{field.name: _value(field.type, field.struct, chance) for field in fields(cls)})


def _value(kind: str, struct: Any, chance: random.Random) -> Any:
    if kind.startswith("["):
        return [_value(kind[1:-1], struct, chance) for _ in range(chance.randrange(3))]
    if struct is not None:
        return value(struct, chance)
    values: dict[str, Callable[[], Any]] = {
        "bool": lambda: True,
        "uint16": lambda: 35,
        "float64": lambda: 0.5,
        "uuid": lambda: UUID(int=7),
        "string": lambda: chance.choice(["", "text", "127.0.0.1"]),
        "bytes": lambda: chance.choice([b"", b"\0#", b"bytes"]),
    }
    return values.get(kind, lambda: -7)()


def generated(folder: Path, name: str, text: str, patch: pytest.MonkeyPatch) -> ModuleType:
    """Generate a package and import it."""
    (folder / "definitions").mkdir()
    (folder / "definitions" / f"{name}.krm").write_text(text)
    result = CliRunner().invoke(
        main, ["gen", str(folder / "definitions"), "-o", str(folder / name)]
    )
    assert result.exit_code == 0, (result.output, text)
    patch.syspath_prepend(folder)
    importlib.invalidate_caches()
    return importlib.import_module(name)


def converse(folder: Path, protocol: ModuleType, chance: random.Random) -> Path:
    """Send each request of a protocol through a tap, with all observers. Returns the capture."""
    package = package_of(protocol)
    answers: list[Any] = []

    def serve(connection: socket.socket) -> None:
        server = ServerConnection(protocol)
        while data := connection.recv(65536):
            server.receive_data(data)
            for event in server.events():
                assert isinstance(event, RequestReceived)
                answers.append(value(type(event.request).response_class, chance))
                connection.sendall(server.send_response(event, answers[-1]))

    lines: list[str] = []
    describe = Describer(package)
    feed = Feed(package, secrets=False)
    path = folder / "own.tap"
    observers = [
        CaptureWriter(path, package.name),
        ExchangeListing(describe, lines.append),
        Listing(describe, lines.append),
        JsonListing(lines.append),
        feed,
        Exchanges(describe, feed.ended, feed.begun),
    ]
    faults = Faults(protocol)
    faults.on(name="slow").delay(0)
    with (
        upstream(serve) as server,
        TapThread(server.address, protocol=protocol, observers=observers, faults=faults) as tap,
        socket.create_connection(tap.address, PATIENCE) as sock,
    ):
        client = ClientConnection(protocol)
        requests = [
            (package.request_class(key), version)
            for key, (low, high) in package.versions().items()
            for version in range(low, high + 1)
        ]
        for number, (cls, version) in enumerate(requests, 1):
            sock.sendall(client.send_request(value(cls, chance), version))
            while (event := client.next_event()) is None:
                received = sock.recv(65536)
                assert received, (number, tap.recorder.notices, tap.recorder.ended)
                client.receive_data(received)
            assert isinstance(event, ResponseReceived)
            assert event.response == answers[-1]
            assert event.version == version
        tap.recorder.wait(lambda recorder: len(recorder.frames) == 2 * len(requests))
        assert {frame.status for frame in tap.recorder.frames} == {Status.OK}
        notes = {frame.note for frame in tap.recorder.frames}
        assert notes <= {"", "slow: delayed the response by 0 ms"}
    for observer in observers:
        observer.close()
    assert lines
    return path


def unknown_versions(protocol: ModuleType) -> None:
    """A server refuses a request in an unknown version."""
    package = package_of(protocol)
    for key in package.requests:
        server = ServerConnection(protocol)
        frame = key.to_bytes(2, "big") + b"\0\x63" + bytes(10)
        server.receive_data(len(frame).to_bytes(4, "big") + frame)
        event = server.next_event()
        assert isinstance(event, InvalidRequest)
        if event.wants_api_versions:
            unsupported_version_response(protocol)


def search(folder: Path, patch: pytest.MonkeyPatch, seed: int) -> None:
    chance = random.Random(seed)
    name = f"own_protocol_{seed}"
    source = Source(chance)
    protocol = generated(folder, name, source.text, patch)
    path = converse(folder, protocol, chance)
    unknown_versions(protocol)
    # A reader finds the package by itself.
    count = sum(1 for record in Capture(path) if record.kind < 2)
    for options in (
        [],
        ["--frames"],
        ["--json"],
        ["--errors"],
        ["--html", str(folder / "own.html")],
    ):
        result = CliRunner().invoke(main, ["tap", str(path), *options])
        assert result.exit_code == 0, (options, result.output, source.text)
    result = CliRunner().invoke(main, ["tap", str(path)])
    assert f"{count} frames: every frame decoded" in result.stderr
    result = CliRunner().invoke(main, ["tap", str(path), "--pcap", str(folder / "own.pcapng")])
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize("seed", range(6))
def test_a_few_protocols(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    search(tmp_path, monkeypatch, seed)


@pytest.mark.search
@pytest.mark.parametrize("seed", range(6, 150))
def test_many_protocols(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    search(tmp_path, monkeypatch, seed)


def cases(package: Package) -> list[bool]:
    return [
        has_acks(package),
        has_tokens(package),
        has_api_versions(package),
        has_fetch_sessions(package),
        *(ends_with_endpoints(package, key) for key in (0, 1)),
    ]


def test_kafkas_definitions_under_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What krammar assumes of its own package is what it finds in the fields of a copy."""
    copy = generated_copy(tmp_path, monkeypatch)
    assert cases(package_of(kafka_wire)) == cases(package_of(copy))
    assert all(cases(package_of(copy)))


def generated_copy(folder: Path, patch: pytest.MonkeyPatch) -> ModuleType:
    source = Path(kafka_wire.__file__).parent
    target = folder / "copied_wire"
    target.symlink_to(source)
    patch.syspath_prepend(folder)
    importlib.invalidate_caches()
    return importlib.import_module("copied_wire")


def test_a_capture_of_an_unknown_package(tmp_path: Path) -> None:
    path = tmp_path / "a.tap"
    writer = CaptureWriter(path, "somewhere_else")
    writer.opened(5, 1, "a", "b")
    writer.close()
    assert Capture(path).package == "somewhere_else"
    result = CliRunner().invoke(main, ["tap", str(path)])
    assert result.exit_code == 2
    assert "contains frames of the package 'somewhere_else'" in result.stderr
    assert "--package" in result.stderr
    # Another package can be named.
    assert CliRunner().invoke(main, ["tap", str(path), "--package", "kafka_wire"]).exit_code == 0


@pytest.mark.parametrize(
    "name", ["antigravity", "os.path", "evil", "../evil", "", "\x1b[2J", "a" * 5000]
)
def test_a_capture_runs_no_code(tmp_path: Path, name: str) -> None:
    """A stranger's capture names a module; only generated ones are imported."""
    (tmp_path / "evil.py").write_text("raise SystemExit('ran')")
    path = tmp_path / "a.tap"
    writer = CaptureWriter(path, name)
    writer.opened(5, 1, "a", "b")
    writer.close()
    with pytest.raises(CaptureError, match="contains frames of the package"):
        Capture(path).protocol()
    run = subprocess.run(
        [sys.executable, "-m", "krammar", "tap", str(path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert run.returncode == 2
    assert "ran" not in run.stderr.split()
    assert "Traceback" not in run.stderr
    assert run.stderr.replace("\n", "").isprintable()
