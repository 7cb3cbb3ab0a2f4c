"""Exporting definitions as Kafka's JSON schemas, and importing them again."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from krammar.cli import main
from krammar.compiler import ir
from krammar.compiler.front.source import compile_source
from krammar.compiler.importer import import_schemas
from krammar.compiler.kafka_facts import KAFKA_ENUMS
from krammar.compiler.kafka_json import export
from krammar.util.diagnostics import Diagnostics
from tests.compiler.conftest import write_files

DEFINITIONS = Path(__file__).parents[2] / "definitions" / "kafka_wire"

PAIR = """\
// Says something.
PingRequest => key 7, max version 3, min version 1, flexible v2+
  // The words.
  Text: nullable-string-v2+(null)
  Count: int16(-1) // v1-v2
  Old: string // not flexible
  Notes: [=>] // v2+
    Author: Person
  Hops: int32(5) // v3+, tag 0
  Maybe: nullable=>()
    A: bool(true)

PingResponse =>
  Kind: enum-Kind
  People: nullable[Person](null)
  Records: nullable-bytes(null)

Person => not top level, no encoding
  Name: string(me)
  Id: uuid // v2+

Kind int8 (
  0: GOOD
)
"""


def protocol(folder: Path) -> ir.Protocol:
    diagnostics = Diagnostics()
    (found,) = compile_source(folder, diagnostics)
    assert not diagnostics.has_errors, diagnostics.sorted()
    return found


def exported(files: str, folder: Path) -> tuple[dict[str, str], list[str]]:
    """The files, and everything that the export reports."""
    found = export(protocol(write_files(folder, files)))
    reasons = [f"{name}: {reason}" for name, reason in found.refused.items()]
    return found.files, [*reasons, *found.warnings]


def read(text: str) -> Any:
    return json.loads("\n".join(line for line in text.splitlines() if not line.startswith("//")))


def test_a_pair(tmp_path: Path) -> None:
    files, warnings = exported(PAIR, tmp_path)
    assert (sorted(files), warnings) == (["PingRequest.json", "PingResponse.json"], [])
    assert files["PingRequest.json"].startswith("// Says something.\n{\n")
    person = {
        "name": "Person",
        "versions": "1+",
        "fields": [
            {"name": "Name", "type": "string", "versions": "1+", "default": "me"},
            {"name": "Id", "type": "uuid", "versions": "2+"},
        ],
    }
    assert read(files["PingRequest.json"]) == {
        "apiKey": 7,
        "type": "request",
        "name": "PingRequest",
        "validVersions": "1-3",
        "flexibleVersions": "2+",
        "fields": [
            {
                "name": "Text",
                "type": "string",
                "versions": "1+",
                "nullableVersions": "2+",
                "default": "null",
                "about": "The words.",
            },
            {"name": "Count", "type": "int16", "versions": "1-2", "default": "-1"},
            {"name": "Old", "type": "string", "versions": "1+", "flexibleVersions": "none"},
            {
                "name": "Notes",
                "type": "[]Note",
                "versions": "2+",
                "fields": [{"name": "Author", "type": "Person", "versions": "1+"}],
            },
            {
                "name": "Hops",
                "type": "int32",
                "versions": "3+",
                "tag": 0,
                "taggedVersions": "3+",
                "default": "5",
            },
            {
                "name": "Maybe",
                "type": "Maybe",
                "versions": "1+",
                "nullableVersions": "1+",
                "fields": [
                    {"name": "A", "type": "bool", "versions": "1+", "default": "true"},
                ],
            },
        ],
        "commonStructs": [person],
    }
    assert read(files["PingResponse.json"])["fields"] == [
        {"name": "Kind", "type": "int8", "versions": "1+"},
        {
            "name": "People",
            "type": "[]Person",
            "versions": "1+",
            "nullableVersions": "1+",
            "default": "null",
        },
        {
            "name": "Records",
            "type": "records",
            "versions": "1+",
            "nullableVersions": "1+",
            "default": "null",
        },
    ]


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ("A: varint", "the type of A is varint"),
        ("A: varint-string", "the type of A is varint-string"),
        ("A: varint[int8]", "the count of A is a varint"),
        ("A: [[int8]]", "A is an array of arrays"),
        ("L: int32\n  A: length-field-minus => L - 4", "A is counted by another field"),
        ("A: V", "A has a version of its own"),
    ],
)
def test_what_json_cannot_express(tmp_path: Path, field: str, reason: str) -> None:
    text = f"S => not top level, max version 0\n  {field}\n\n"
    text += "V => not top level, with version field, max version 0\n  Version: int16\n"
    files, warnings = exported(text, tmp_path)
    assert sorted(files) == ["V.json"]
    assert warnings == [f"S: {reason}"]


TAGGED = """\
PingRequest => key 0, max version 3, flexible v2+
  A: int8 // tag 0
  B: int8 // v1+, tag 1
  C: int8 // v3+, tag 2
  D: nullable-string // v2-v3, tag 3
  E: => // v1+
    F: int8 // tag 0
  G: Shared

PingResponse =>

EchoRequest => key 1, max version 0
  G: Shared

EchoResponse =>

Shared => not top level, no encoding
  H: int8
  I: int8 // tag 0
"""


def test_versions_of_tagged_fields(tmp_path: Path) -> None:
    """Kafka's tagged fields exist in flexible versions only, and have no end."""
    files, warnings = exported(TAGGED, tmp_path)

    def versions(fields: Any) -> dict[str, tuple[str, str | None]]:
        return {each["name"]: (each["versions"], each.get("taggedVersions")) for each in fields}

    ping, echo = read(files["PingRequest.json"]), read(files["EchoRequest.json"])
    assert warnings == []
    assert versions(ping["fields"]) == {
        "A": ("2+", "2+"),
        "B": ("2+", "2+"),
        "C": ("3+", "3+"),
        "D": ("2+", "2+"),
        "E": ("1+", None),
        "G": ("0+", None),
    }
    assert ping["fields"][3]["nullableVersions"] == "2+"
    assert versions(ping["fields"][4]["fields"]) == {"F": ("2+", "2+")}
    assert versions(ping["commonStructs"][0]["fields"]) == {"H": ("0+", None), "I": ("2+", "2+")}
    # No version of Echo is flexible, so none has the tagged field.
    assert versions(echo["commonStructs"][0]["fields"]) == {"H": ("0+", None)}


@pytest.mark.parametrize(
    ("field", "reason"),
    [
        ("A: int8 // v0-v1, tag 0", "the tag of A ends with version 1"),
        ("A: nullable-string-v1+ // tag 0", "A has a tag and is nullable in some versions only"),
        ("A: int8 // tag 1\n  reserved tag 0", "tag 0 of S is reserved, and schemas have no gaps"),
    ],
)
def test_tagged_fields_that_kafka_does_not_have(tmp_path: Path, field: str, reason: str) -> None:
    text = f"S => not top level, max version 2, flexible v0+\n  {field}\n"

    assert exported(text, tmp_path) == ({}, [f"S: {reason}"])


def test_only_entities_of_kafka_are_in_schemas(tmp_path: Path) -> None:
    text = "S => not top level, max version 0\n  A: string // entity topicName\n  B: uuid // entity topicId\n"
    files, warnings = exported(text, tmp_path)
    found = [field.get("entityType") for field in read(files["S.json"])["fields"]]
    assert (found, warnings) == (["topicName", None], [])


def test_reserved_tags_are_not_in_schemas(tmp_path: Path) -> None:
    text = (
        "S => not top level, max version 0, flexible v0+\n  A: int8 // tag 0\n  reserved tag 1, 2\n"
    )
    files, warnings = exported(text, tmp_path)

    assert (list(files), warnings) == (["S.json"], ["S: the schema does not reserve tags: 1, 2"])


def test_a_struct_without_a_last_version(tmp_path: Path) -> None:
    files, warnings = exported("S => not top level\n  A: int8 // v2+\n", tmp_path)
    assert read(files["S.json"])["validVersions"] == "0-2"
    assert warnings == ["S: the definition has no last version; the schema ends with version 2"]


# -- import of export is the identity --------------------------------------------------------------

OPEN_ENDED = {"MessageV0", "MessageV1", "OffsetIndexEntry", "TimeIndexEntry"}
SKIPPED = {"Header", "Record", "RecordBatch"}


def meaning(struct: ir.Struct, bound: ir.VersionRange = ir.ALL_VERSIONS) -> tuple[object, ...]:
    """All facts of a struct, without its position and without versions that no message has."""
    high = 0 if struct.name in OPEN_ENDED else struct.max_version
    span = ir.VersionRange(struct.min_version, high).intersect(bound) or bound
    return (
        struct.name,
        span,
        struct.flexible_from,
        struct.version_field,
        struct.anonymous,
        struct.encoding,
        *(_field(item, span) for item in struct.fields if item.versions.intersect(span)),
    )


def _field(item: ir.Field, span: ir.VersionRange) -> tuple[object, ...]:
    versions = item.versions.intersect(span)
    doc = " ".join(item.doc.split())
    # The version field and common structs have no documentation in JSON.
    facts = (
        item.name,
        item.python_name,
        versions,
        item.tag,
        item.flexible,
        item.default,
        item.entity,
    )
    return (*facts, "" if item.name == "Version" else doc, _type(item.type, versions))


def _type(type_: ir.Type, versions: ir.VersionRange | None) -> object:
    if isinstance(type_, ir.Array):
        null = versions and type_.nullable and type_.nullable.intersect(versions)
        return ("array", _type(type_.element, versions), null)
    if isinstance(type_, ir.StructType):
        assert versions is not None
        return (meaning(type_.struct, versions), type_.nullable)
    if isinstance(type_, ir.EnumType):
        return type_.enum.name
    if isinstance(type_, ir.Text):
        return (type_.kind, versions and type_.nullable and type_.nullable.intersect(versions))
    return type_


def test_import_of_export_is_the_identity(tmp_path: Path) -> None:
    real = protocol(DEFINITIONS)
    found = export(real)
    (tmp_path / "json").mkdir()
    for name, text in found.files.items():
        (tmp_path / "json" / name).write_text(text)
    result = import_schemas([tmp_path / "json"], docs=True, enums=KAFKA_ENUMS)
    made = write_files(tmp_path / "made", result.files)
    shutil.copy(DEFINITIONS / "enums.krm", made)
    again = protocol(made)

    assert {line.split(":")[0] for line in found.warnings} == OPEN_ENDED
    assert found.refused.keys() == SKIPPED
    structs, others = (
        {each.name: each for file in each.files for each in file.structs} for each in (real, again)
    )
    assert structs.keys() - others.keys() == SKIPPED
    assert not others.keys() - structs.keys()
    # A message that contains a struct without encoding compares it, in the versions in which it is used.
    for name in (name for name, struct in others.items() if struct.encoding):
        assert meaning(others[name]) == meaning(structs[name]), name
    requests, made_requests = (
        {
            (r.struct.name, r.key, r.routing, r.response.name if r.response else None)
            for r in each.requests
        }
        for each in (real, again)
    )
    assert made_requests == requests


# -- the command -----------------------------------------------------------------------------------


def test_the_command(tmp_path: Path) -> None:
    source = write_files(tmp_path / "definitions", {"ping/a.krm": PAIR})
    arguments = ["export", "--kafka-json", str(source), "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(main, arguments)
    assert (result.exit_code, result.output) == (0, f"{tmp_path / 'out'}: 2 files written\n")
    own = tmp_path / "out" / "ping" / "PingRequest.json"
    own.write_text("{}")
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert f"{own} would be replaced (give another folder, or --force)" in result.output
    assert own.read_text() == "{}"
    assert CliRunner().invoke(main, [*arguments, "--force"]).exit_code == 0
    assert own.read_text() != "{}"


def test_definitions_with_errors_are_not_exported(tmp_path: Path) -> None:
    source = write_files(tmp_path / "definitions", "S => not top level\n  A: in8\n")
    arguments = ["export", "--kafka-json", str(source), "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1
    assert "error E204" in result.output and "nothing was written" in result.output
    assert not (tmp_path / "out").exists()


def test_import_replaces_files_only_by_force(tmp_path: Path) -> None:
    files, _ = exported(PAIR, tmp_path / "definitions")
    (tmp_path / "json").mkdir()
    for name, text in files.items():
        (tmp_path / "json" / name).write_text(text)
    own = tmp_path / "out" / "ping.krm"
    own.parent.mkdir()
    own.write_text("// Mine.\n")
    arguments = ["import", str(tmp_path / "json"), "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert f"{own} would be replaced (give another folder, or --force)" in result.output
    assert own.read_text() == "// Mine.\n"
    assert CliRunner().invoke(main, [*arguments, "--force"]).exit_code == 0
    assert own.read_text().startswith("PingRequest =>")
