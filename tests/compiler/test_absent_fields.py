"""Fields that no version of their message has, and structs of another file or package: every use of them works."""

from __future__ import annotations

import copy
import importlib
import itertools
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner

from krammar.cli import main
from krammar.wire.connection import ClientConnection, RequestReceived, ServerConnection
from krammar.wire.errors import DecodeError, EncodeError
from krammar.wire.message import Codec
from krammar.wire.reflection import entity_paths, fields, walker
from tests.compiler.conftest import Build, write_files
from tests.compiler.support import gen

# Every type of a field, each with a value that is not the default.
TYPES: dict[str, Any] = {
    "bool": True,
    "int16": 7,
    "float64": 0.5,
    "varint": 7,
    "varlong": -7,
    "uuid": UUID(int=5),
    "string": "text",
    "bytes": b"data",
    "nullable-string(null)": "text",
    "varint-bytes": b"data",
    "enum-Kind": 1,
    "[int32]": [1],
    "nullable[uuid](null)": [UUID(int=5)],
    "[[string]]": [["text"]],
    "Shape": "Shape",
    "[Shape]": ["Shape"],
    "Own": "Own",
    "=>": "=>",
    "nullable=>(null)": "=>",
    "[=>]": ["=>"],
}

COMMON = """\
Kind int8 (
  0: NONE
  1: SOME
)

Shape => not top level, no encoding
  Sides: int8
  Colours: [string] // v4+

Own => not top level, with version field
  Version: int16
  Text: string
  Late: string // v1+
"""


def ended(number: int, annotation: str) -> Iterator[str]:
    """Fields of all types with an annotation, by which no version has them."""
    for at, type_ in enumerate(TYPES):
        yield f"  Ended{at}: {type_} // {annotation.replace('#', str(at))}"
        if "=>" in type_:
            yield f"    Inner{number}x{at}: string"
            yield f"    Id{number}x{at}: uuid"


def messages() -> dict[str, str]:
    """Requests, by how their fields came to be in no version."""
    lines = {
        # The first version was raised.
        "Raised": ["max version 3, min version 2", *ended(0, "v0-v1")],
        # Tagged fields that ended before the first version, and the struct is flexible.
        "Tagged": ["max version 3, min version 2, flexible v0+", *ended(1, "v0-v1, tag #")],
        # Anonymous structs whose fields ended.
        "Inside": [
            "max version 3, min version 2",
            "  Part: [=>]",
            *(f"  {line}" for line in ended(3, "v0-v1")),
            "    Kept: int8",
        ],
        # The newest fields of a shared struct, in a message that ends before it.
        "Shared": ["max version 1", "  Part: Newer", "  Parts: nullable[Newer](null)"],
        # A struct with tags, in a message without flexible versions.
        "Never": ["max version 1", "  Part: Tags"],
        # A struct with tags in a field that is not flexible.
        "Classic": ["max version 1, flexible v0+", "  Part: Tags // not flexible"],
        # What the others need, so that a version has them.
        "Later": ["max version 9, flexible v1+", "  Part: Newer", "  Other: Tags"],
    }
    found = {}
    for key, (name, (header, *body)) in enumerate(lines.items()):
        found[name] = "\n".join(
            [
                f"{name}Request => key {key}, {header}",
                *body,
                "  Name: string // entity topicName",
                "",
                f"{name}Response =>",
                "  Ok: bool",
                "",
            ]
        )
    return found


SHARED = "\n".join(
    [
        "Newer => not top level, no encoding",
        "  Old: int8",
        *ended(4, "v5+"),
        "",
        "Tags => not top level, no encoding",
        "  Plain: int8",
        *ended(5, "tag #"),
        "",
        # Two that no message contains.
        "Unused => not top level, no encoding",
        *ended(6, "v2+"),
        "",
        "RaisedRequest.Unused => not top level, no encoding",
        "  Id: uuid",
        "  Shape: Shape",
        "",
    ]
)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = messages()
    files = {
        "p/common.krm": COMMON,
        "p/a.krm": "\n".join([*found.values(), SHARED]),
        # The same with definitions of another package and of another file.
        "q/b.krm": f"use p: Kind, Shape, Own, Newer\n\n{found['Shared']}",
    }
    return write_files(tmp_path_factory.mktemp("absent"), files)


@pytest.fixture(scope="module")
def package(build: Build, source: Path) -> Any:
    folder = source / "p"
    return build({path.name: path.read_text() for path in folder.iterdir()})


def cases(package: Any) -> Iterator[tuple[type[Codec], int]]:
    for name in package.__all__:
        cls = getattr(package, name)
        if isinstance(cls, type) and issubclass(cls, Codec):
            for version in range(cls.min_version, cls.max_version + 1):
                yield cls, version


def classes(package: Any) -> Iterator[Any]:
    """All classes of structs, with those inside of messages."""
    for name in package.__all__:
        todo = [getattr(package, name)]
        while todo:
            cls = todo.pop()
            if hasattr(cls, "__match_args__"):
                yield cls
                inside = f"{cls.__qualname__}."
                todo += [
                    inner
                    for inner in vars(cls).values()
                    if isinstance(inner, type) and inner.__qualname__.startswith(inside)
                ]


def value_of(type_: str, cls: Any, name: str) -> Any:
    """A value of a type that is not the default."""
    value = TYPES[type_]
    struct = next(item.struct for item in fields(cls) if item.name == name)
    if struct is None:
        return value
    made = struct()
    inner = fields(struct)[-1]
    setattr(made, inner.name, UUID(int=9) if inner.type == "uuid" else ["text"])
    if struct.__name__ == "Own":
        made = struct(version=1, late="text")
    return [made] if isinstance(value, list) else made


# -- every use -----------------------------------------------------------------------------------------


def test_messages_with_such_fields_can_be_used(package: Any) -> None:
    seen = set()
    for cls, version in cases(package):
        seen.add(cls.__name__)
        value = cls(version=version) if cls.__name__ == "Own" else cls()
        data = value.encode(version)
        again = cls.decode(data, version)
        assert again == value
        assert package.layout(cls, version).write(package.layout(cls, version).read(data)) == data
        assert cls.from_dict(value.to_dict()) == value == copy.deepcopy(value)
        assert pickle.loads(pickle.dumps(value)) == value
        scope = {name: getattr(package, name) for name in package.__all__} | {"UUID": UUID}
        assert eval(repr(value), scope) == value
        assert str(package.layout(cls, version)).startswith(f"{cls.__name__} (Version: {version})")
        assert cls._layout(version).trace(data).end == len(data)
        visited: list[Any] = []
        walker(cls, version, "topicName")(value, visited.append)
        assert len(visited) == len(entity_paths(cls, version, "topicName"))
        for end in {0, len(data) // 2, len(data) - 1} - {len(data)}:
            with pytest.raises(DecodeError, match=cls.__name__):
                cls.decode(data[:end], version)
        for item in fields(cls):
            if item.ignorable and version not in item.versions:
                continue
            wrong = copy.copy(value)
            setattr(wrong, item.name, object())
            with pytest.raises(EncodeError, match=item.name):
                wrong.encode(version)
    assert {f"{name}Request" for name in messages()} <= seen


def test_no_version_carries_such_a_field(package: Any) -> None:
    tried = 0
    for cls in (package.RaisedRequest, package.TaggedRequest):
        for item, type_ in zip(fields(cls), TYPES, strict=False):
            assert (item.versions, item.nullable_versions) == (range(0), range(0)), item
            value = cls()
            setattr(value, item.name, value_of(type_, cls, item.name))
            for version in range(cls.min_version, cls.max_version + 1):
                with pytest.raises(EncodeError, match=f"{item.name}.*no version of {cls.__name__}"):
                    value.encode(version)
                tried += 1
    assert tried == 2 * 2 * len(TYPES)


def test_fields_of_structs_name_the_versions_of_their_definition(package: Any) -> None:
    newer = {item.name: item for item in fields(package.Newer)}
    assert newer["old"].versions.start == 0
    assert {item.versions.start for name, item in newer.items() if name != "old"} == {5}
    assert {item.tag for item in fields(package.Tags)[1:]} == set(range(len(TYPES)))


def test_a_representation_of_every_class_builds_it_again(package: Any) -> None:
    names = set()
    scope = {name: getattr(package, name) for name in package.__all__} | {"UUID": UUID}
    for cls in classes(package):
        value = cls()
        assert eval(repr(value), scope) == value
        assert cls.from_dict(value.to_dict()) == value
        assert [item.name for item in fields(cls)] == list(cls._fields)
        names.add(cls.__qualname__)
    assert {"Unused", "RaisedRequest.Unused", "Shape", "InsideRequest.Part"} <= names
    assert any(name.startswith("Newer.") for name in names)


def test_malformed_frames_are_events(package: Any) -> None:
    client = ClientConnection(package)
    refused = 0
    for cls, version in cases(package):
        if not hasattr(cls, "api_key") or not cls.__name__.endswith("Request"):
            continue
        frame = client.send_request(cls(), version, expect_response=False)
        server = ServerConnection(package)
        server.receive_data(frame)
        (event,) = server.events()
        assert isinstance(event, RequestReceived)
        for cut in (1, len(frame) // 4):
            server = ServerConnection(package)
            server.receive_data((len(frame) - 4 - cut).to_bytes(4, "big") + frame[4:-cut])
            (event,) = server.events()
            assert not isinstance(event, RequestReceived), (cls, version, cut)
            refused += 1
    assert refused > 20


# -- structs of other files and packages ---------------------------------------------------------------


def test_structs_of_another_package(source: Path, tmp_path: Path, monkeypatch: Any) -> None:
    assert gen(source, tmp_path / "absent_out").exit_code == 0
    (tmp_path / "absent_out" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    package = importlib.import_module("absent_out.q")
    for name in ("Newer", "Shape", "Own", "SharedRequest"):
        cls = getattr(package, name)
        assert cls.from_dict(cls().to_dict()) == cls()
        assert fields(cls)
        assert repr(cls()).startswith(f"{name}(")
    request = package.SharedRequest(parts=[package.Newer(old=3)])
    assert package.SharedRequest.from_dict(request.to_dict()) == request


# -- other tools ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["docs", "json-schema", "wireshark"])
def test_every_backend_accepts_them(source: Path, tmp_path: Path, backend: str) -> None:
    found = gen(source, tmp_path / "out", "--backend", backend)
    assert found.exit_code == 0, found.output


def test_documentation_leaves_them_out(source: Path, tmp_path: Path) -> None:
    gen(source, tmp_path / "out", "--backend", "docs")
    text = (tmp_path / "out" / "p" / "a.html").read_text("utf-8")
    assert 'id="RaisedRequest.name"' in text
    assert 'id="RaisedRequest.ended0"' not in text


def test_exported_schemas_have_the_same_bytes(tmp_path: Path, build: Build) -> None:
    simple = dict(itertools.islice(TYPES.items(), 3))
    lines = "\n".join(f"  Ended{at}: {type_} // v0-v1" for at, type_ in enumerate(simple))
    text = f"""\
NoteRequest => key 0, max version 4, min version 2
{lines}
  Part: [=>]
    Gone: string // v1-v1
    Kept: string // v3+
  Text: string // v0-v3

NoteResponse =>
  Id: int64
"""
    folder = write_files(tmp_path / "note" / "p", text)
    exported, again = tmp_path / "exported", tmp_path / "again"
    for arguments in (
        ["export", "--kafka-json", str(folder), "-o", str(exported)],
        ["import", str(exported), "-o", str(again)],
    ):
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0, result.output
    assert "Ended" not in "".join(path.read_text() for path in exported.rglob("*.json"))
    ours, theirs = build(text), build({path.name: path.read_text() for path in again.iterdir()})
    for version in range(2, 5):
        text = "" if version == 4 else "hi"
        values = {"part": [{"kept": "a" if version > 2 else ""}], "text": text}
        bytes_ = [p.NoteRequest.from_dict(values).encode(version) for p in (ours, theirs)]
        assert bytes_[0] == bytes_[1]
