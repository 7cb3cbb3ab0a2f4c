"""Backends: the JSON Schema of every message, options, and backends of other packages."""

from __future__ import annotations

import importlib
import json
import uuid
from pathlib import Path
from typing import Any

import jsonschema
import kafka_wire
import pytest

from krammar.wire.message import Struct
from krammar.wire.representation import kinds_of, named
from tests.compiler.conftest import write_files
from tests.compiler.support import gen

DEFINITIONS = Path(__file__).parents[2] / "definitions"
PING = """\
// How it is doing.
Health int8 (
  0: OK
  1: DEGRADED
)

PingRequest => key 0, max version 1, flexible v1+
  // Who asks.
  Name: nullable-string(null) // v1+
  Id: uuid
  Data: bytes
  Health: enum-Health
  Points: [=>]
    X: float64
    Y: varlong
  Next: nullable=> // tag 0
    Late: bool(true)

PingResponse =>
  Text: string
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_files(tmp_path / "definitions", {"ping/a.krm": PING})


@pytest.fixture(scope="module")
def schemas(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("schemas")
    result = gen(DEFINITIONS, out, "--backend", "json-schema")
    assert result.exit_code == 0, result.output
    return out / "kafka_wire"


# -- JSON Schema -----------------------------------------------------------------------------------


def filled(cls: type[Struct], depth: int = 0) -> Any:
    """A message with two elements in each array and a value in each field."""
    return cls.from_dict(_values(cls, depth))


def _values(cls: type[Struct], depth: int) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in cls().to_dict().items():
        kind = kinds_of(cls).get(name, "")
        inner = named(cls, kind) if kind and not kind.startswith(":") else None
        if value is None:
            values[name] = None
        elif isinstance(inner, type) and issubclass(inner, Struct) and depth < 3:
            one = _values(inner, depth + 1)
            values[name] = [one, one] if isinstance(value, list) else one
        elif isinstance(value, bool) or value in ([], {}):
            values[name] = value
        elif isinstance(value, int):
            values[name] = value + 1 if value < 100 else value - 1
        elif kind == ":uuid":
            values[name] = str(uuid.UUID(int=1))
    return values


def validator(folder: Path, name: str) -> jsonschema.Draft202012Validator:
    schema = json.loads((folder / f"{name}.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(
        schema, format_checker=jsonschema.Draft202012Validator.FORMAT_CHECKER
    )


def test_every_message_of_kafka_is_valid_by_its_schema(schemas: Path) -> None:
    names = [path.name.removesuffix(".schema.json") for path in schemas.glob("*.schema.json")]
    assert len(names) > 200
    assert {"FetchRequest", "OffsetCommitValue", "RequestHeader"} <= set(names)
    for name in names:
        cls = getattr(kafka_wire, name)
        check = validator(schemas, name)
        check.validate(cls().to_dict())
        check.validate(filled(cls).to_dict())
        message = cls()
        message._unknown_tags = {99: b"\x00"}
        check.validate(message.to_dict())
        assert not check.is_valid({"no_such_field": 1})


def test_real_messages(schemas: Path) -> None:
    request = kafka_wire.MetadataRequest(topics=[kafka_wire.MetadataRequest.Topic(name="orders")])
    again = kafka_wire.MetadataRequest.decode(request.encode(12), 12)
    check = validator(schemas, "MetadataRequest")

    check.validate(again.to_dict())
    for broken in (
        {"topics": [{"name": 5}]},
        {"topics": [{"name": "orders", "nam": "x"}]},
        {"topics": "orders"},
        {"topics": [{"topic_id": "not a uuid"}]},
        {"allow_auto_topic_creation": "yes"},
    ):
        assert not check.is_valid(broken), broken


def test_types_limits_and_documentation(source: Path, tmp_path: Path) -> None:
    gen(source, tmp_path / "out", "--backend", "json-schema", "--option", "base=https://x.org/")
    schema = json.loads((tmp_path / "out/ping/PingRequest.schema.json").read_text())
    fields = schema["properties"]

    assert schema["$id"] == "https://x.org/PingRequest.schema.json"
    assert fields["name"] == {"type": ["string", "null"], "description": "Who asks. Versions: v1+."}
    assert fields["data"] == {"type": "string", "contentEncoding": "base64"}
    assert fields["health"]["maximum"] == 127
    assert fields["health"]["$comment"] == "0: OK, 1: DEGRADED"
    assert fields["next"]["anyOf"][1] == {"type": "null"}
    point = schema["$defs"]["PingRequest.Point"]["properties"]
    assert point["x"] == {"type": "number"}
    assert point["y"] == {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}


def test_schemas_are_incremental_and_stale_ones_are_removed(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run = (source, out, "--backend", "json-schema")
    assert "4 written, 0 unchanged" in gen(*run).output
    assert "0 written" in gen(*run).output
    assert gen(*run, "--check").exit_code == 0

    (source / "ping/a.krm").write_text(PING.replace("Ping", "Pong"))
    assert gen(*run).exit_code == 0

    names = sorted(path.name for path in (out / "ping").iterdir())
    assert "PongRequest.schema.json" in names
    assert "PingRequest.schema.json" not in names


def test_two_backends_share_a_folder(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for backend in ("python", "json-schema", "docs", "python"):
        result = gen(source, out, "--backend", backend)
        assert result.exit_code == 0, result.output
        assert ", 0 removed" in result.output

    for backend in ("python", "json-schema", "docs"):
        checked = gen(source, out / "other", "--backend", backend, "--check")
        assert checked.exit_code == 1
    assert {"__init__.py", "PingRequest.schema.json", "index.html"} <= {
        path.name for path in (out / "ping").iterdir()
    }


# -- Finding backends ------------------------------------------------------------------------------

OWN = """\
from pathlib import Path

from krammar.compiler.backends.interface import Backend, File


class Listing(Backend):
    OPTIONS = {"prefix": "Stands before each name."}

    def render(self, source):
        header = source.header()
        names = [self.options.get("prefix", "") + name for name in source.layouts]
        lines = ["# " + header["generated"], "# " + header["stamp"], *names]
        yield File(Path("messages.txt"), "\\n".join(lines) + "\\n")


class Broken:
    pass
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An installed package with backends: a module, and the metadata of its entry points."""
    folder = tmp_path / "site"
    name = f"listing_{tmp_path.name.replace('-', '_')}"
    write_files(
        folder,
        {
            f"{name}.py": OWN,
            f"{name}-1.0.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
            f"{name}-1.0.dist-info/entry_points.txt": (
                f"[krammar.backends]\nlisting = {name}:Listing\nbroken = {name}:Broken\n"
                f"missing = {name}:Missing\n"
            ),
        },
    )
    monkeypatch.syspath_prepend(folder)
    importlib.invalidate_caches()
    return name


def test_a_backend_of_another_package(package: str, source: Path, tmp_path: Path) -> None:
    run = (source, tmp_path / "out", "--backend", "listing")

    assert gen(*run).exit_code == 0
    lines = (tmp_path / "out/ping/messages.txt").read_text().split("\n")
    assert {"PingRequest", "PingResponse"} <= set(lines[2:])
    assert "0 written" in gen(*run).output
    assert "1 written" in gen(*run, "--option", "prefix=ping.").output
    assert "ping.PingRequest\n" in (tmp_path / "out/ping/messages.txt").read_text()


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--backend", "lsting"), "backend 'lsting' is not installed (did you mean \"listing\"?)"),
        (("--backend", "rust"), "installed: broken, docs, json-schema, listing, missing"),
        (("--backend", "broken"), "is not a subclass of Backend"),
        (("--backend", "missing"), "backend 'missing'"),
        (("--backend", "listing", "--option", "x=1"), "has no option 'x' (options: prefix)"),
        (("--backend", "listing", "--option", "prefix"), "--option prefix: needs NAME=VALUE"),
        (("--backend", "listing", "--templates", "."), "has no option 'templates'"),
    ],
)
def test_misuse(
    package: str, source: Path, tmp_path: Path, more: tuple[str, ...], message: str
) -> None:
    result = gen(source, tmp_path / "out", *more)

    assert result.exit_code == 2, result.output
    assert message in result.output
    assert not (tmp_path / "out").exists()


def test_the_example_in_the_docs_is_the_json_schema_backend() -> None:
    root = Path(__file__).parents[2]
    shown = (root / "docs/backends.md").read_text().split("```python\n")[1].split("```\n")[0]

    assert shown == (root / "krammar/compiler/backends/json_schema.py").read_text()
