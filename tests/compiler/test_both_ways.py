"""Every form of docs/definitions.md, exported and imported again: as Kafka's JSON, and in the notation of guides.

The bytes of all versions are the same, or the export names the form that the other notation does not have.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

from krammar.cli import main
from krammar.compiler import ir, layout
from krammar.compiler.compatibility import compare
from krammar.compiler.front.source import compile_texts
from krammar.compiler.generate import Generator
from krammar.compiler.guide import Answers, import_guides
from krammar.compiler.header_versions import by_version, header_versions
from krammar.compiler.importer import import_schemas
from krammar.compiler.kafka_json import Exported, export
from krammar.inspect.notation import show
from krammar.util.diagnostics import Diagnostics
from tests.compiler.conftest import write_files

TYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint16", "uint32", "float64", "uuid"),
    *("varint", "varlong", "string", "bytes", "nullable-string", "nullable-bytes"),
    *("nullable-string-v2+", "nullable-bytes-v1+", "varint-string", "varint-bytes"),
    *("enum-Kind", "Shared", "Plain", "Versioned", "=>", "nullable=>", "nullable=>()"),
    *("[int8]", "[string]", "[bytes]", "[uuid]", "[varint]", "[varint-string]", "[enum-Kind]"),
    *("[nullable-string]", "[nullable-string-v2+]", "[nullable-bytes]", "nullable[string]"),
    *("nullable[nullable-string]", "nullable-v2+[int16]", "varint[int8]", "[[int8]]"),
    *("nullable[[string]]", "[Shared]", "[Plain]", "[Versioned]", "[=>]", "nullable[=>]"),
    *("nullable-v2+[=>]", "varint[=>]", "[[=>]]"),
]
ANNOTATIONS = [
    *("", "v1+", "v0-v1", "tag 0", "v2+, tag 0", "v1-v2, tag 0", "v1-v1, tag 0"),
    *("not flexible", "v1+, not flexible", "ignorable", "entity topicName"),
]
DEFAULTS = {
    "bool": ["true", "false"],
    "int8": ["-128", "0x7f"],
    "int64": ["9223372036854775807"],
    "uint32": ["4294967295"],
    "float64": ["-0.0", "0.0", "1.5", "1e300", "-1e-3"],
    "uuid": ["8ac2bf8f-a1e5-4f0a-8139-944f377b0919", "00000000-0000-0000-0000-000000000001"],
    "string": ["abc", "true", "false", "0", "it's", "a b", "é", "none"],
    "nullable-string": ["null", "false"],
    "nullable-bytes": ["null"],
    "nullable-string-v2+": ["null"],
    "nullable[string]": ["null", ""],
    "nullable-v2+[int16]": ["null"],
    "enum-Kind": ["2", "77"],
}
PARTS = """
Shared => not top level, no encoding
  A: string
  B: nullable-string // v2+

Plain => not top level, max version 2, flexible v2+
  A: string
  B: int8 // v1+

Versioned => not top level, with version field, max version 1
  Version: int16
  A: int8 // v1+

Kind int8 (
  0: ZERO
  2: TWO
)
"""


@cache
def fields() -> list[tuple[str, str, str]]:
    """All valid forms of a field: its type, its annotations and its text."""
    found = []
    for spelled in TYPES:
        for annotation in ANNOTATIONS:
            text = f"  A: {spelled}{f' // {annotation}' if annotation else ''}\n"
            if "=>" in spelled:
                text += "    X: string\n    Y: int16(4) // v1+\n"
            diagnostics = Diagnostics()
            compiled(f"S => {HEADER}{text}{PARTS}", diagnostics)
            if not diagnostics.has_errors:
                found.append((spelled, annotation, text))
    return found


HEADER = "not top level, max version 2, flexible v1+\n"


def compiled(files: str | Mapping[str, str], diagnostics: Diagnostics | None = None) -> ir.Protocol:
    texts = {"p.krm": files} if isinstance(files, str) else files
    found = diagnostics or Diagnostics()
    protocol = compile_texts("", {Path(name): text.encode() for name, text in texts.items()}, found)
    assert diagnostics is not None or not found.has_errors, (files, found.sorted())
    return protocol


def test_the_forms_are_many() -> None:
    assert len(fields()) > 350
    assert {spelled for spelled, _, _ in fields()} == {*TYPES}


# -- Kafka's JSON --------------------------------------------------------------------------------------


# Headers with unsigned keys, which pushes and response keys need.
UNSIGNED = """\
RequestHeader => not top level, max version 2
  Key: uint16
  Version: int16
  CorrelationId: int32

ResponseHeader => not top level, max version 1
  Key: uint16
  Version: int16
  CorrelationId: int32

"""


def pair(text: str) -> str:
    return f"PutRequest => key 0, max version 2, flexible v1+\n{text}  Z: int8\n\nPutResponse =>\n  Ok: bool\n{PARTS}"


def imported(exported: Exported, folder: Path) -> ir.Protocol:
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*"):
        old.unlink()
    for name, content in exported.files.items():
        (folder / name).write_text(content)
    return compiled(import_schemas([folder]).files)


def changes(old: ir.Protocol, new: ir.Protocol) -> list[str]:
    """What differs: bytes and defaults. Structs that messages share get names inside of each message."""
    diagnostics = Diagnostics()
    compare([old], [new], diagnostics)
    return [
        each.message
        for each in diagnostics.found
        if each.message.startswith("PutRe") or each.code in ("B105", "B203")
        if each.code != "B202"
    ]


def cannot_be_json(spelled: str, annotation: str) -> str:
    """Why Kafka's schemas do not have a form. Empty if they have it."""
    if "varint[" in spelled:
        return "the count of A is a varint"
    if re.search(r"\[nullable-(string|bytes)", spelled):
        return "the elements of A can be null"
    if "[[" in spelled:
        return "A is an array of arrays"
    if "Versioned" in spelled:
        return "A has a version of its own"
    if "varint-" in spelled and "[" in spelled:
        return "the elements of A can be null"
    if varying := re.search(r"var\w+(-\w+)?", spelled):
        return f"the type of A is {varying[0]}"
    if "tag" in annotation and "v1-v1" in annotation:
        return "the tag of A ends with version 1"
    if "tag" in annotation and "-v2+" in spelled and annotation != "v2+, tag 0":
        return "A has a tag and is nullable in some versions only"
    if "not flexible" in annotation and "[" in spelled:
        return "A is an array that is `not flexible`"
    if "not flexible" in annotation and re.search("=>|Shared|Plain", spelled):
        return "A is a struct that is `not flexible`"
    return ""


@pytest.mark.parametrize("spelled", TYPES)
def test_json(tmp_path: Path, spelled: str) -> None:
    tried = 0
    for annotation, text in ((a, text) for s, a, text in fields() if s == spelled):
        protocol = compiled(pair(text))
        exported = export(protocol)
        reason = cannot_be_json(spelled, annotation)
        assert exported.refused.get("PutRequest", "") == reason, text
        # A pair is exported as a whole.
        assert ("PutRequest.json" in exported.files) == ("PutResponse.json" in exported.files)
        if not reason:
            assert changes(protocol, imported(exported, tmp_path / "json")) == [], text
        tried += 1
    assert tried > 2


@pytest.mark.parametrize(("spelled", "default"), [(t, d) for t, v in DEFAULTS.items() for d in v])
def test_defaults_in_json(tmp_path: Path, spelled: str, default: str) -> None:
    for annotation in ("", f" // v{2 if '-v2+' in spelled else 1}+, tag 0"):
        protocol = compiled(pair(f"  A: {spelled}({default}){annotation}\n"))
        again = imported(export(protocol), tmp_path / "json")
        assert changes(protocol, again) == []
        values = [each.requests[0].struct.fields[0].default for each in (protocol, again)]
        assert repr(values[0]) == repr(values[1])  # -0.0 equals 0.0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "S => not top level, max version 1\n  Version: int16\n  A: int8\n",
            "S: a schema cannot say that its Version does not select its version",
        ),
        (
            "AKey => not top level, max version 1\n  A: int8\n\nAValue => not top level, max version 1\n  A: int8\n",
            "AKey: the names AKey and AValue stand for records of a coordinator, which begin with a version",
        ),
        (
            "EndTxnMarker => not top level, max version 1\n  A: int8\n",
            "EndTxnMarker: Kafka writes a version before EndTxnMarker",
        ),
        (
            "EndTxnMarker => not top level, with version field, max version 0\n  Version: int16\n  A: int8\n",
            "EndTxnMarker: it has a first or last version, and Kafka's accepts every version",
        ),
        (
            "EndTxnMarker => not top level, with version field, max version 1\n  Version: int16(1)\n  A: int8\n",
            "EndTxnMarker: its Version is not in the schema, and so is its default",
        ),
        (
            "S => not top level, with version field, max version 1, newer versions read as the newest\n"
            "  Version: int16\n  A: int8\n",
            "S: a schema cannot say that newer versions are read as the newest",
        ),
        (
            "ConsumerProtocolAssignment => not top level, with version field, max version 1\n"
            "  Version: int16\n  A: int8\n",
            "ConsumerProtocolAssignment: Kafka reads newer versions of ConsumerProtocolAssignment as the newest",
        ),
        (
            "AKey => not top level, with version field, max version 1\n  Version: int16\n  A: int8\n\n"
            "AValue => not top level, with version field, max version 1\n  Version: int16(1)\n  A: int8\n",
            "AKey: it has a first or last version, and Kafka's accepts every version",
        ),
        (
            "AKey => not top level, with version field\n  Version: int16(-1)\n  A: int8\n\n"
            "AValue => not top level, with version field, max version 1\n  Version: int16\n  A: int8\n",
            "AKey: its key is -1, and those of Kafka are from 0 to 32767",
        ),
        (
            "PutRequest => key 0, max version 0, one way, header 0\n  A: int8\n",
            "PutRequest: it is `one way`, and each of Kafka's requests has a response",
        ),
        (
            UNSIGNED
            + "PutRequest => key 0x8000, max version 0\n  A: int8\n\nPutResponse =>\n  A: int8\n",
            "PutRequest: its key is 32768, and those of Kafka are from 0 to 32767",
        ),
        (
            UNSIGNED + "Push => key 1, max version 0, push\n  A: int8\n",
            "Push: it is a push, and Kafka's servers send only responses",
        ),
        (
            UNSIGNED
            + "PutRequest => key 0, max version 0, response key 1\n  A: int8\n\nPutResponse =>\n  A: int8\n",
            "PutResponse: it has a response key, and Kafka's responses have none",
        ),
    ],
)
def test_structs_that_an_import_would_read_differently(text: str, reason: str) -> None:
    exported = export(compiled(text))
    name = reason.partition(":")[0]
    assert f"{name}.json" not in exported.files
    assert reason in [f"{name}: {why}" for name, why in exported.refused.items()]


def test_the_own_version_of_a_struct_keeps_its_default(tmp_path: Path) -> None:
    text = "S => not top level, with version field, max version 3\n  Version: int16(2)\n  A: int8 // v1+\n"
    struct = imported(export(compiled(text)), tmp_path / "json").files[0].structs[0]
    assert (struct.version_field, struct.fields[0].default) == ("version", 2)


def test_the_own_version_of_a_struct_keeps_a_default_below_its_versions(tmp_path: Path) -> None:
    text = "S => not top level, with version field, max version 3, min version 1\n  Version: int16\n  A: int8\n"
    struct = imported(export(compiled(text)), tmp_path / "json").files[0].structs[0]
    assert (struct.min_version, struct.fields[0].default) == (1, 0)


def headers(protocol: ir.Protocol) -> list[dict[int, int]]:
    """The versions of the headers of the first request and its response, by version."""
    found = header_versions(protocol.requests[0], 2, 1)
    return [by_version(pairs, 0, 3) for pairs in (found.request, found.response)]


@pytest.mark.parametrize(
    ("modifiers", "request_headers", "response_headers"),
    [
        ("", None, None),
        # These are the usual ones.
        (", header 1, header 2 v2+, response header 0, response header 1 v2+", None, None),
        (", header 2", {"0+": "2"}, None),
        (", header 0, header 1 v1+, header 2 v3+", {"0": "0", "1-2": "1", "3+": "2"}, None),
        (", response header 0", None, {"0+": "0"}),
        (", response header 1 v1+", None, {"0": "0", "1+": "1"}),
        (", header 0 v3+, response header 1", {"0-1": "1", "2": "2", "3+": "0"}, {"0+": "1"}),
    ],
)
def test_headers_of_messages(
    tmp_path: Path, modifiers: str, request_headers: object, response_headers: object
) -> None:
    """KIP-1313. The second export is the same as the first."""
    protocol = compiled(
        f"PutRequest => key 0, max version 3, flexible v2+{modifiers}\n  A: int8\n\n"
        "PutResponse =>\n  B: int8\n"
    )
    exported = export(protocol)
    found = {name: json.loads(text) for name, text in exported.files.items()}
    assert found["PutRequest.json"].get("headerVersions") == request_headers
    assert found["PutResponse.json"].get("headerVersions") == response_headers
    again = imported(exported, tmp_path / "json")
    assert headers(again) == headers(protocol)
    assert export(again).files == exported.files


def test_headers_that_end_earlier_than_kafkas(tmp_path: Path) -> None:
    """Kafka's generator gives flexible versions the headers 2 and 1, unless the schema has others."""
    own = (
        "RequestHeader => not top level, max version 1\n  RequestApiKey: int16\n  RequestApiVersion: int16\n"
        "  CorrelationId: int32\n\nResponseHeader => not top level, max version 0\n  CorrelationId: int32\n\n"
    )
    text = (
        "PutRequest => key 0, max version 1, flexible v0+\n  A: int8\n\nPutResponse =>\n  B: int8\n"
    )
    exported = export(compiled(own + text))
    assert '"headerVersions": { "0+": "1" }' in exported.files["PutRequest.json"]
    assert '"headerVersions": { "0+": "0" }' in exported.files["PutResponse.json"]
    assert export(imported(exported, tmp_path / "json")).files == exported.files


def test_the_version_of_a_throttle_is_reported() -> None:
    text = "PutRequest => key 0, max version 2\n  A: int8\n\nPutResponse =>\n  ThrottleMillis(2)\n"
    expected = ["PutResponse: the schema does not say from which version on the broker throttles"]
    assert export(compiled(text)).warnings == expected


def test_fields_without_a_version_are_not_in_schemas(tmp_path: Path) -> None:
    text = "S => not top level, max version 2, min version 1\n  Old: int32 // v0-v0\n  A: int8\n"
    struct = imported(export(compiled(text)), tmp_path / "json").files[0].structs[0]
    assert [item.name for item in struct.fields] == ["A"]


def test_names_that_begin_with_the_name_of_the_message(tmp_path: Path) -> None:
    text = "S => not top level, max version 0\n  A: =>SInner\n    B: int8\n"
    struct = imported(export(compiled(text)), tmp_path / "json").files[0].structs[0]
    assert [inner.name for inner in ir.walk(struct)] == ["S", "S.SInner"]


def test_routing_that_the_import_does_not_know_is_reported() -> None:
    text = "PutRequest => key 0, max version 0, admin\n  A: int8\n\nPutResponse =>\n  B: int8\n"
    expected = ["PutRequest: the schema does not say where to send the request: admin"]
    assert export(compiled(text)).warnings == expected


@pytest.mark.parametrize(
    ("request_", "warning"),
    [
        ("PutRequest => key 0, max version 0, cluster action", "a cluster action"),
        ("VoteRequest => key 52, max version 0", "no cluster action"),
        ("VoteRequest => key 52, max version 0, cluster action", None),
    ],
)
def test_cluster_actions_that_the_import_does_not_know_are_reported(
    tmp_path: Path, request_: str, warning: str | None
) -> None:
    name = request_.partition(" ")[0]
    text = f"{request_}\n  A: int8\n\n{name.removesuffix('Request')}Response =>\n  B: int8\n"
    exported = export(compiled(text))
    said = f"{name}: the schema does not say that the request is {warning}"
    assert exported.warnings == ([] if warning is None else [said])
    known = imported(exported, tmp_path / "json").requests[0].cluster_action
    assert known == (name == "VoteRequest")


def test_export_fails_unless_the_form_is_skipped(tmp_path: Path) -> None:
    source = write_files(tmp_path / "definitions", {"p/a.krm": pair("  A: [nullable-string]\n")})
    arguments = ["export", "--kafka-json", str(source), "-o", str(tmp_path / "out")]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 1
    assert "error: PutRequest: the elements of A can be null\n" in result.output
    assert "error: PutResponse: PutRequest cannot be expressed\n" in result.output
    assert "nothing was written (change the definitions, or export the others" in result.output
    assert not (tmp_path / "out").exists()

    result = CliRunner().invoke(main, [*arguments, "--skip"])
    assert result.exit_code == 0
    assert "warning: PutResponse: skipped, because PutRequest cannot be expressed" in result.output
    written = sorted(path.name for path in (tmp_path / "out" / "p").iterdir())
    assert written == ["Plain.json", "Versioned.json"]


# -- the notation of protocol guides -------------------------------------------------------------------


def bytes_of(struct: ir.Struct, version: int) -> str:
    """What the layout says about bytes, without the names of nested structs."""
    return re.sub(r"[\w.]+(?=\()", "", layout.build_layout(struct, version).key)


def structs(protocol: ir.Protocol) -> dict[str, ir.Struct]:
    return {struct.name: struct for file in protocol.files for struct in file.structs}


def test_the_notation_of_guides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The fields of shared parts exist in a version of each message.
    forms = [
        each
        for each in fields()
        if "v0-v1" not in each[1] and "v1-v1" not in each[1] and "ignorable" not in each[1]
        if not ("Plain" in each[0] and "tag" in each[1])
    ]
    source = tmp_path / "both_ways"
    texts = [f"F{n} => {HEADER}{text}  Z: int8\n" for n, (_, _, text) in enumerate(forms)]
    texts.append(f"Sized => {HEADER}  L: int32\n  A: length-field-minus => L - 4\n")
    write_files(source, "\n".join(texts) + PARTS)
    real = compiled((source / "a.krm").read_text())
    for path, content in Generator(source, tmp_path, "python").package(real).items():
        target = tmp_path / "generated" / "both_ways" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
    monkeypatch.syspath_prepend(tmp_path / "generated")
    importlib.invalidate_caches()
    guide = tmp_path / "guide.txt"
    guide.write_text("\n\n".join(show("both_ways")))

    diagnostics = Diagnostics()
    result = import_guides([guide], Answers(), diagnostics)

    assert result is not None, diagnostics.sorted()
    made, wanted = structs(compiled(result.files)), structs(real)
    for number, (spelled, annotation, _) in enumerate(forms):
        name = f"F{number}"
        for version in range(3):
            expected = bytes_of(wanted[name], version)
            assert bytes_of(made[name], version) == expected, (spelled, annotation, version)
    assert bytes_of(made["Sized"], 1) == bytes_of(wanted["Sized"], 1)


# Each form of the first line of a definition, and of structs that other notations show without a name.
MESSAGES = UNSIGNED + """\
PlainRequest => key 0x8000, max version 3, flexible v2+, header 1, response header 1, response key 7
  A: string

PlainResponse =>
  B: uint8

VoteRequest => key 1, max version 3, min version 1, flexible v2+, share coordinator, cluster action
  A: string

VoteResponse =>
  B: int8

CreditRequest => key 9, max version 1, one way, header 0, header 2 v1+
  A: int8

Deliver => key 8, max version 2, push, header 1 v2+
  A: int8

DeliverRequest => key 10, max version 1
  A: int8

DeliverResponse =>
  A: int8

Plan => not top level, with version field, max version 3, newer versions read as the newest
  Version: int16
  A: int8 // v1+

Lone => not top level, with version field
  Version: int16
  A: int8

NotItsVersion => not top level, max version 2
  Version: int16
  A: int8 // v1+

Open => not top level, flexible v1+
  A: string

Later => not top level, min version 2
  A: string

Nothing => not top level

NothingInVersions => not top level, max version 2

NothingFlexible => not top level, max version 1, flexible v1+

Part => not top level, no encoding
  A: int8 // v2+
  B: string // v3+

Arrays => not top level, max version 3, flexible v3+
  A: [nullable-Part]
  A1: [nullable-bool-Part] // v1+
  B: nullable[nullable-Part]
  C: int16[nullable-Part] // v1-v2
  D: [[nullable-Part]]
  E: [nullable-Own]
  F: [nullable-Part] // tag 0
  G: [nullable-bool-Part] // v3+, tag 1
  H: Part
  I: [Part]
  J: [=>]
    A: [nullable-Part]
    A1: [=>]
      X: int8

Own => not top level, with version field, max version 1
  Version: int16
  A: int8 // v1+
"""


def test_show_loses_nothing_of_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_files(tmp_path / "messages_both_ways", MESSAGES)
    real = compiled(MESSAGES)
    for path, content in Generator(source, tmp_path, "python").package(real).items():
        target = tmp_path / "generated" / "messages_both_ways" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
    monkeypatch.syspath_prepend(tmp_path / "generated")
    importlib.invalidate_caches()
    guide = tmp_path / "guide.txt"
    guide.write_text("\n\n".join(show("messages_both_ways")))
    diagnostics = Diagnostics()
    result = import_guides([guide], Answers(), diagnostics)
    assert result is not None, diagnostics.sorted()
    again = compiled(result.files)

    def facts(message: ir.Request) -> tuple[object, ...]:
        low, high = message.struct.min_version, message.struct.max_version or 0
        found = header_versions(message, 2, 1)
        headers_ = [by_version(p, low, high) if p else {} for p in (found.request, found.response)]
        response = message.response and message.response.name
        has_response = message.response is not None
        words = (message.routing, message.cluster_action, message.push, message.response_key)
        return (message.struct.name, message.key, response, *words, headers_[: 1 + has_response])

    for kind in ("requests", "pushes"):
        expected = [facts(each) for each in getattr(real, kind)]
        assert expected
        assert [facts(each) for each in getattr(again, kind)] == expected
    made = structs(again)
    for name, struct in structs(real).items():
        if not struct.encoding:
            continue
        last = struct.max_version
        assert made[name].max_version == last, name
        for fact in ("min_version", "version_field", "reads_newer", "flexible_from"):
            assert getattr(made[name], fact) == getattr(struct, fact), name
        for version in range(struct.min_version, (4 if last is None else last) + 1):
            assert bytes_of(made[name], version) == bytes_of(struct, version), (name, version)
