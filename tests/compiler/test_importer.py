"""Importing Kafka's JSON schemas: small schemas in, definitions out.

Schemas are written here as Python dictionaries, except where the JSON text itself is the subject.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from krammar.compiler.front.source import compile_folder, folders
from krammar.compiler.importer import import_schemas
from krammar.compiler.kafka_facts import KAFKA_ENUMS
from krammar.compiler.schemas import ImportResult, ImportSchemaError
from krammar.util.diagnostics import Diagnostics


def field(name: str, type: str = "int32", versions: str = "0+", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": type, "versions": versions, **more}


def schema(
    name: str,
    fields: Sequence[dict[str, Any]],
    valid: str = "0",
    flexible: str = "none",
    **more: Any,
) -> dict[str, Any]:
    kind = "response" if name.endswith("Response") else "request"
    return {
        "type": kind,
        "name": name,
        "validVersions": valid,
        "flexibleVersions": flexible,
        "fields": list(fields),
        **({"apiKey": 7} if kind in {"request", "response"} and "type" not in more else {}),
        **more,
    }


def save(folder: Path, *schemas: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for item in schemas:
        (folder / f"{item['name']}.json").write_text(json.dumps(item, indent=1))
    return folder


def lines(result: ImportResult, file: str) -> list[str]:
    return result.files[file].split("\n")


def request(tmp_path: Path, *fields: dict[str, Any], **more: Any) -> list[str]:
    """The lines of a request with ``fields``, without its header."""
    result = import_schemas([save(tmp_path / "one", schema("FooRequest", fields, **more))])
    return lines(result, "foo.krm")[1:-1]


def refused(tmp_path: Path, *schemas: dict[str, Any]) -> str:
    with pytest.raises(ImportSchemaError) as caught:
        import_schemas([save(tmp_path / "one", *schemas)])
    return str(caught.value)


# One schema


def test_a_pair_becomes_a_file(tmp_path: Path) -> None:
    folder = save(
        tmp_path,
        schema("JoinGroupRequest", [field("GroupId", "string")], "0-9", "6+"),
        schema("JoinGroupResponse", [field("ErrorCode", "int16")], "0-9", "6+"),
    )
    assert import_schemas([folder]).files == {
        "join_group.krm": (
            "JoinGroupRequest => key 7, max version 9, flexible v6+, group coordinator\n"
            "  GroupId: string\n"
            "\n"
            "JoinGroupResponse =>\n"
            "  ErrorCode: int16\n"
        )
    }


def test_comments_are_no_json_but_slashes_in_strings_are(tmp_path: Path) -> None:
    (tmp_path / "Foo.json").write_text(
        "// A licence.\n"
        '{ "type": "request", "apiKey": 1, "name": "FooRequest", // behind a value\n'
        '  "validVersions": "0", "flexibleVersions": "none", "fields": [\n'
        '  { "name": "Url", "type": "string", "versions": "0+", "default": "http://a" }\n'
        "]}\n// The end.\n"
    )
    result = import_schemas([tmp_path])
    assert lines(result, "foo.krm")[1] == "  Url: string(http://a)"


def test_versions_become_annotations(tmp_path: Path) -> None:
    assert request(
        tmp_path,
        field("Always"),
        field("Since", versions="2+"),
        field("Closed", versions="2-4"),
        field("Until", versions="0-3"),
        field("Once", versions="3"),
        field("Later", versions="5+"),
        valid="0-4",
    ) == [
        "  Always: int32",
        "  Since: int32 // v2+",
        "  Closed: int32 // v2+",
        "  Until: int32 // v0-v3",
        "  Once: int32 // v3-v3",
    ]


def test_nested_fields_are_bounded_by_their_holder(tmp_path: Path) -> None:
    inner = [field("A", versions="0+"), field("B", versions="3+"), field("C", versions="4+")]
    assert request(tmp_path, field("Things", "[]Thing", "2-3", fields=inner), valid="0-4") == [
        "  Things: [=>] // v2-v3",
        "    A: int32",
        "    B: int32 // v3-v3",
    ]


def test_a_message_that_begins_later_has_a_min_version(tmp_path: Path) -> None:
    folder = save(tmp_path, schema("FooRequest", [field("A", versions="0+")], "2-5", "0+"))
    header = "FooRequest => key 7, max version 5, min version 2, flexible v2+"
    assert lines(import_schemas([folder]), "foo.krm")[0] == header


@pytest.mark.parametrize(
    ("type", "versions", "nullable", "expected"),
    [
        ("string", "0+", "0+", "nullable-string"),
        ("string", "0+", "2+", "nullable-string-v2+"),
        ("string", "2+", "0+", "nullable-string // v2+"),
        ("string", "0-3", "2-3", "nullable-string-v2+ // v0-v3"),
        ("string", "0+", "9+", "string"),
        ("bytes", "0+", "0+", "nullable-bytes"),
        ("bytes", "0+", "2+", "nullable-bytes-v2+"),
        ("bytes", "0+", "0-1", "nullable-bytes-v0-v1"),
        ("string", "1+", "2-3", "nullable-string-v2-v3 // v1+"),
        ("string", "1-3", "0-2", "nullable-string-v1-v2 // v1-v3"),
        ("[]string", "0+", "1", "nullable-v1-v1[string]"),
        ("[]int32", "0+", "0+", "nullable[int32]"),
        ("[]string", "0+", "2+", "nullable-v2+[string]"),
    ],
)
def test_nullable_versions(
    tmp_path: Path, type: str, versions: str, nullable: str, expected: str
) -> None:
    spec = field("A", type, versions, nullableVersions=nullable)
    assert request(tmp_path, spec, valid="0-4") == [f"  A: {expected}"]


def test_structs(tmp_path: Path) -> None:
    inner = [field("B")]
    assert request(
        tmp_path,
        field("One", "Single", fields=inner),
        field("Maybe", "Single", nullableVersions="0+", default="null", fields=inner),
        field("Many", "[]Single", fields=inner),
        field("None", "[]Single", nullableVersions="0+", default="null", fields=inner),
    ) == [
        "  One: =>Single",
        "    B: int32",
        "  Maybe: nullable=>Single2",
        "    B: int32",
        "  Many: [=>]Single3",
        "    B: int32",
        "  None: nullable[=>]Single4(null)",
        "    B: int32",
    ]


def test_tagged_fields(tmp_path: Path) -> None:
    assert request(
        tmp_path,
        field("Plain", versions="0+"),
        field("Old", versions="1+", taggedVersions="1+", tag=0),
        {"name": "NoVersions", "type": "int32", "taggedVersions": "2+", "tag": "1"},
        valid="0-3",
        flexible="1+",
    ) == ["  Plain: int32", "  Old: int32 // v1+, tag 0", "  NoVersions: int32 // v2+, tag 1"]


def test_a_tag_in_every_version_needs_no_range(tmp_path: Path) -> None:
    spec = field("A", "string", taggedVersions="0+", tag=0)
    assert request(tmp_path, spec, valid="0-2", flexible="0+") == ["  A: string // tag 0"]


@pytest.mark.parametrize(
    ("type", "default", "expected"),
    [
        ("int32", "-1", "int32(-1)"),
        ("int32", -1, "int32(-1)"),
        ("int32", "0x7fffffff", "int32(0x7fffffff)"),
        ("int32", "0", "int32"),
        ("int64", "9223372036854775807", "int64(9223372036854775807)"),
        ("uint32", "0xffffffff", "uint32(0xffffffff)"),
        ("bool", "true", "bool(true)"),
        ("bool", "false", "bool"),
        ("bool", True, "bool(true)"),
        ("float64", "1.5", "float64(1.5)"),
        ("string", "abc", "string(abc)"),
        ("string", "", "string"),
        ("string", "null", "nullable-string(null)"),
        ("bytes", "null", "nullable-bytes(null)"),
        ("[]int32", "null", "nullable[int32](null)"),
        # A JSON null is no default for Kafka's generator, so that the array is empty.
        ("[]int32", None, "nullable[int32]"),
        # Records have no empty form in Kafka.
        ("records", None, "nullable-bytes(null)"),
    ],
)
def test_defaults(tmp_path: Path, type: str, default: object, expected: str) -> None:
    spec = field("A", type, default=default)
    if expected.startswith("nullable"):
        spec["nullableVersions"] = "0+"
    assert request(tmp_path, spec) == [f"  A: {expected}"]


@pytest.mark.parametrize("type", ["uuid", "uint16", "uint32", "float64", "int8", "int16", "int64"])
def test_plain_types_keep_their_names(tmp_path: Path, type: str) -> None:
    assert request(tmp_path, field("A", type), field("B", f"[]{type}")) == [
        f"  A: {type}",
        f"  B: [{type}]",
    ]


def test_records_that_are_never_null_are_bytes(tmp_path: Path) -> None:
    assert request(tmp_path, field("A", "records")) == ["  A: bytes"]


def test_common_structs_get_names_of_their_own(tmp_path: Path) -> None:
    folder = save(
        tmp_path,
        schema(
            "FooRequest",
            [field("Left", "[]FooTopic"), field("Right", "[]Other", "1+", nullableVersions="2+")],
            "0-3",
            commonStructs=[
                {"name": "FooTopic", "versions": "0+", "fields": [field("Other", "Other", "2+")]},
                {"name": "Other", "versions": "0+", "fields": [field("A", versions="1+")]},
                {"name": "Unused", "versions": "0+", "fields": [field("A")]},
            ],
        ),
        schema("FooResponse", [field("A")], "0-3"),
    )
    assert lines(import_schemas([folder]), "foo.krm") == [
        "FooRequest => key 7, max version 3",
        "  Left: [FooRequest.FooTopic]",
        "  Right: nullable-v2+[FooRequest.Other] // v1+",
        "",
        "FooResponse =>",
        "  A: int32",
        "",
        "FooRequest.FooTopic => not top level, no encoding",
        "  Other: FooRequest.Other // v2+",
        "",
        "FooRequest.Other => not top level, no encoding",
        "  A: int32",
        "",
    ]


def test_a_nullable_common_struct_is_written_in_place(tmp_path: Path) -> None:
    common = [{"name": "End", "versions": "0+", "fields": [field("Host", "string")]}]
    spec = field("Peer", "End", nullableVersions="0+", default="null")
    assert request(tmp_path, spec, commonStructs=common) == [
        "  Peer: nullable=>End",
        "    Host: string",
    ]


def test_class_names_that_collide_get_a_hint(tmp_path: Path) -> None:
    folder = save(
        tmp_path,
        schema(
            "FooRequest",
            [
                field("Items", "[]Entry", fields=[field("Parts", "[]Part", fields=[field("A")])]),
                field("ItemParts", "[]PartOfItem", fields=[field("A")]),
            ],
        ),
    )
    assert lines(import_schemas([folder]), "foo.krm")[1:-1] == [
        "  Items: [=>]Entry",
        "    Parts: [=>]",
        "      A: int32",
        "  ItemParts: [=>]PartOfItem",
        "    A: int32",
    ]


# Headers and records


def test_headers(tmp_path: Path) -> None:
    client = field("ClientId", "string", "1+", nullableVersions="1+", flexibleVersions="none")
    folder = save(
        tmp_path,
        schema("RequestHeader", [field("CorrelationId"), client], "0-2", "2+", type="header"),
        schema("ResponseHeader", [field("CorrelationId")], "0-1", "1+", type="header"),
    )
    assert lines(import_schemas([folder]), "headers.krm") == [
        "RequestHeader => not top level, max version 2, flexible v2+",
        "  CorrelationId: int32",
        "  ClientId: nullable-string // v1+, not flexible",
        "",
        "ResponseHeader => not top level, max version 1, flexible v1+",
        "  CorrelationId: int32",
        "",
    ]


def test_coordinator_records_begin_with_their_version(tmp_path: Path) -> None:
    folder = save(
        tmp_path / "group-coordinator" / "common" / "message",
        schema("FooKey", [field("group", "string", "0")], type="coordinator-key", apiKey=3),
        schema("FooValue", [field("a")], "0-4", "4+", type="coordinator-value", apiKey=3),
        schema("BarKey", [field("b")], type="coordinator-key", apiKey=0),
        schema("BarValue", [field("b")], type="coordinator-value", apiKey=0),
    )
    # A key's version is the number of the record type, and any is accepted.
    assert lines(import_schemas([folder]), "consumer_offsets.krm") == [
        "BarKey => not top level, with version field",
        "  Version: int16",
        "  B: int32",
        "",
        "BarValue => not top level, with version field, max version 0",
        "  Version: int16",
        "  B: int32",
        "",
        "FooKey => not top level, with version field",
        "  Version: int16(3)",
        "  Group: string",
        "",
        "FooValue => not top level, with version field, max version 4, flexible v4+",
        "  Version: int16",
        "  A: int32",
        "",
    ]


def test_records_of_older_releases_read_as_those_of_newer_ones(tmp_path: Path) -> None:
    old = save(
        tmp_path / "share-coordinator",
        schema("FooKey", [field("A", versions="0-3")], "2-3", type="data"),
        schema("FooValue", [field("A")], "0-1", "1+", type="data"),
        schema("LoneKey", [field("A", versions="0-3")], "2-3", type="data"),
    )
    result = import_schemas([old])
    assert lines(result, "share_group_state.krm")[:3] == [
        "FooKey => not top level, with version field",
        "  Version: int16(3)",
        "  A: int32",
    ]
    assert (
        lines(result, "lone_key.krm")[0] == "LoneKey => not top level, max version 3, min version 2"
    )


def test_a_value_may_have_a_version_of_its_own(tmp_path: Path) -> None:
    folder = save(
        tmp_path / "a",
        schema("FooValue", [field("Version", "int64")], type="coordinator-value", apiKey=1),
    )
    result = import_schemas([folder])
    assert lines(result, "a.krm")[1:3] == ["  Version: int16", "  BodyVersion: int64"]
    assert result.warnings == ("FooValue.Version is renamed to BodyVersion",)


def test_data_behind_a_version(tmp_path: Path) -> None:
    folder = save(
        tmp_path,
        schema("ConsumerProtocolAssignment", [field("A", versions="2+")], "0-3", type="data"),
        schema("EndTxnMarker", [field("A")], type="data"),
        schema("VotersRecord", [field("Version", "int16"), field("A")], "0-1", "0+", type="data"),
    )
    result = import_schemas([folder])
    assert lines(result, "consumer_protocol.krm")[:2] == [
        "ConsumerProtocolAssignment => not top level, with version field, max version 3, newer versions read as the newest",
        "  Version: int16",
    ]
    assert lines(result, "control_records.krm") == [
        "EndTxnMarker => not top level, with version field",
        "  Version: int16",
        "  A: int32",
        "",
        "VotersRecord => not top level, with version field, max version 1, flexible v0+",
        "  Version: int16",
        "  A: int32",
        "",
    ]


def test_metadata_records_are_plain_and_in_order_of_their_keys(tmp_path: Path) -> None:
    folder = save(
        tmp_path / "kafka-metadata-4.4.0",
        schema("ARecord", [field("A")], "0-2", "0+", type="metadata", apiKey=5),
        schema("BRecord", [field("A")], "0", "0+", type="metadata", apiKey=2),
    )
    assert [
        line for line in lines(import_schemas([folder]), "cluster_metadata.krm") if "=>" in line
    ] == [
        "BRecord => not top level, max version 0, flexible v0+",
        "ARecord => not top level, max version 2, flexible v0+",
    ]


# Prose, enums, releases


def test_prose_comes_along_only_when_asked_for(tmp_path: Path) -> None:
    about = "Words that go on " * 8 + "until the end."
    inner = [field("B", about="Short.")]
    folder = save(tmp_path, schema("FooRequest", [field("A", "[]X", about=about, fields=inner)]))
    assert "//" not in import_schemas([folder]).files["foo.krm"]
    text = import_schemas([folder], docs=True).files["foo.krm"]
    comments = [line.strip() for line in text.split("\n") if line.strip().startswith("//")]
    assert len(comments) == 3
    assert " ".join(comment.removeprefix("// ") for comment in comments[:2]) == about
    assert "    // Short.\n    B: int32\n" in text
    assert max(map(len, text.split("\n"))) <= 100


def test_enums_take_the_place_of_their_integers(tmp_path: Path) -> None:
    folder = save(
        tmp_path,
        schema(
            "FooRequest",
            [
                field("ErrorCode", "int16"),
                field("Inner", "[]X", fields=[field("Kind", "int8", default="2")]),
                field("Kinds", "[]int8"),
                field("Mechanism", "string"),
            ],
        ),
    )
    enums = {
        "*ErrorCode": "ErrorCode int16",
        "FooRequest.*Kind*": "Kind int8",
        "*.Mechanism": "M int8",
    }
    assert lines(import_schemas([folder], enums=enums), "foo.krm")[1:-1] == [
        "  ErrorCode: enum-ErrorCode",
        "  Inner: [=>]X",
        "    Kind: enum-Kind(2)",
        "  Kinds: [enum-Kind]",
        "  Mechanism: string",
    ]


def test_an_enum_never_changes_the_layout(tmp_path: Path) -> None:
    folder = save(tmp_path, schema("FooRequest", [field("ErrorCode", "int32")]))
    with pytest.raises(
        ImportSchemaError, match="ErrorCode has type int32, but ErrorCode has type int16"
    ):
        import_schemas([folder], enums=KAFKA_ENUMS)


def test_the_head_of_a_file_says_what_it_follows(tmp_path: Path) -> None:
    new = save(tmp_path / "new", schema("FooRequest", [field("A")], "3-4"))
    old = save(
        tmp_path / "old",
        schema("FooRequest", [field("A")], "0-4"),
        schema("BarRequest", [field("A")], apiKey=8),
    )
    result = import_schemas([new, old], releases=["4.4.0", "3.9.2"])
    head = "// Follows Apache Kafka 4.4.0; Foo v0-v2 as in 3.9.2."
    assert lines(result, "foo.krm")[:3] == [head, "", "FooRequest => key 7, max version 4"]
    assert lines(result, "bar.krm")[0] == "// Follows Apache Kafka 3.9.2."


def test_releases_and_folders_belong_together(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="give one release for each folder"):
        import_schemas([save(tmp_path, schema("FooRequest", []))], releases=["1", "2"])


# Merging


def merged(tmp_path: Path, new: dict[str, Any], old: dict[str, Any]) -> list[str]:
    """The request that both schemas give, whichever comes first."""
    folders = [save(tmp_path / "new", new), save(tmp_path / "old", old)]
    results = [import_schemas(order) for order in (folders, folders[::-1])]
    assert results[0] == results[1]
    return lines(results[0], "foo.krm")[:-1]


def test_older_schemas_supply_the_versions_that_newer_ones_dropped(tmp_path: Path) -> None:
    new = schema(
        "FooRequest",
        [
            field("Kept"),
            field("Nested", "[]X", fields=[field("Id", "uuid", "5+"), field("Index")]),
            field("Late", versions="6+"),
        ],
        "4-6",
        "4+",
    )
    old = schema(
        "FooRequest",
        [
            field("Gone", versions="0-1"),
            field("Kept", versions="1+"),
            field("Nested", "[]X", "0+", fields=[field("Name", "string", "0-3"), field("Index")]),
            field("AlsoGone", versions="2-3"),
        ],
        "0-5",
        "4+",
    )
    assert merged(tmp_path, new, old) == [
        "FooRequest => key 7, max version 6, flexible v4+",
        "  Gone: int32 // v0-v1",
        "  Kept: int32 // v1+",
        "  Nested: [=>]X",
        "    Name: string // v0-v3",
        "    Id: uuid // v5+",
        "    Index: int32",
        "  AlsoGone: int32 // v2-v3",
        "  Late: int32 // v6+",
    ]


def test_what_an_older_schema_says_of_newer_versions_does_not_count(tmp_path: Path) -> None:
    new = schema("FooRequest", [field("A", "string")], "2-3")
    old = schema("FooRequest", [field("A", "string"), field("Dropped", versions="2+")], "0-2")
    assert merged(tmp_path, new, old) == ["FooRequest => key 7, max version 3", "  A: string"]


def test_nullable_and_flexible_ranges_merge(tmp_path: Path) -> None:
    new = schema("FooRequest", [field("A", "string", nullableVersions="0+")], "4-5", "0+")
    old = schema("FooRequest", [field("A", "string", nullableVersions="2+")], "0-4", "3+")
    assert merged(tmp_path, new, old) == [
        "FooRequest => key 7, max version 5, flexible v3+",
        "  A: nullable-string-v2+",
    ]


def test_tags_merge(tmp_path: Path) -> None:
    tagged = field("A", versions="1+", taggedVersions="1+", tag=0)
    new = schema("FooRequest", [tagged], "3-4", "0+")
    old = schema("FooRequest", [{**tagged, "tag": "0"}], "0-3", "1+")
    assert merged(tmp_path, new, old) == [
        "FooRequest => key 7, max version 4, flexible v1+",
        "  A: int32 // v1+, tag 0",
    ]


def test_a_common_struct_and_one_in_place_merge(tmp_path: Path) -> None:
    common = [{"name": "X", "versions": "0+", "fields": [field("A"), field("B", versions="3+")]}]
    new = schema("FooRequest", [field("One", "X"), field("Two", "X")], "2-3", commonStructs=common)
    inner = [field("Old", versions="0"), field("A")]
    old = schema(
        "FooRequest", [field("One", "Y", fields=inner), field("Two", "Y", fields=inner)], "0-2"
    )
    assert merged(tmp_path, new, old)[-4:] == [
        "FooRequest.X => not top level, no encoding",
        "  Old: int32 // v0-v0",
        "  A: int32",
        "  B: int32 // v3+",
    ]


def test_of_equal_versions_the_earlier_folder_wins(tmp_path: Path) -> None:
    one = save(tmp_path / "one", schema("FooRequest", [field("A", default="1")]))
    two = save(tmp_path / "two", schema("FooRequest", [field("A", default="2")]))
    assert "A: int32(1)" in import_schemas([one, two]).files["foo.krm"]
    assert "A: int32(2)" in import_schemas([two, one]).files["foo.krm"]


def test_a_message_that_lost_all_versions_has_those_of_the_older_schema(tmp_path: Path) -> None:
    new = schema("FooRequest", [], "none")
    old = schema("FooRequest", [field("A")], "0-2")
    assert merged(tmp_path, new, old)[0] == "FooRequest => key 7, max version 2"


def test_a_message_without_any_version_is_left_out(tmp_path: Path) -> None:
    result = import_schemas([save(tmp_path, schema("FooRequest", [], "none"))])
    assert result.files == {}
    assert result.warnings == ("FooRequest: skipped, because no schema contains a version of it",)


def test_a_renamed_message_is_one_message(tmp_path: Path) -> None:
    new = save(tmp_path / "new", schema("NewFooRequest", [field("A")], "1-2"))
    old = save(tmp_path / "old", schema("OldFooRequest", [field("A")], "0-1"))
    result = import_schemas([old, new])
    assert lines(result, "new_foo.krm")[0] == "NewFooRequest => key 7, max version 2"
    assert result.warnings == ("NewFooRequest has the name OldFooRequest in other schemas",)


def test_an_unstable_latest_version_is_included_with_a_warning(tmp_path: Path) -> None:
    folder = save(tmp_path, schema("FooRequest", [], "0-2", latestVersionUnstable=True))
    result = import_schemas([folder])
    assert lines(result, "foo.krm")[0] == "FooRequest => key 7, max version 2"
    assert result.warnings == ("FooRequest: the last version, 2, is unstable",)


def test_warnings_of_renamed_fields_and_new_defaults(tmp_path: Path) -> None:
    new = save(tmp_path / "n", schema("FooRequest", [field("B"), field("C", default="1")], "1-2"))
    old = save(tmp_path / "o", schema("FooRequest", [field("A"), field("C")], "0-1"))
    warnings = import_schemas([new, old]).warnings
    assert "FooRequest.C: the default is 1, not none as in the older schema" in warnings
    assert any(
        text.startswith("FooRequest.B: the schema contains it below version 1") for text in warnings
    )


@pytest.mark.parametrize(
    ("new", "old", "message"),
    [
        (
            [field("A"), field("B")],
            [field("B"), field("A")],
            "FooRequest: the order of the fields B, A differs",
        ),
        ([field("A", "int64")], [field("A")], "FooRequest.A has another type"),
        ([field("A", "[]int32")], [field("A")], "FooRequest.A has another type"),
        (
            [field("A", taggedVersions="0+", tag=1)],
            [field("A", taggedVersions="0+", tag=0)],
            "FooRequest.A has tag 1 here and tag 0 there",
        ),
        (
            [field("A")],
            [field("A", versions="0-1")],
            "FooRequest.A is missing between versions 1 and 4",
        ),
        (
            [field("A", "string", nullableVersions="0+")],
            [field("A", "string", nullableVersions="0-1")],
            "FooRequest.A is nullable up to version 1 and again from 4",
        ),
    ],
)
def test_contradictions_between_releases(
    tmp_path: Path, new: list[dict[str, Any]], old: list[dict[str, Any]], message: str
) -> None:
    newer = save(tmp_path / "new", schema("FooRequest", new, "4-5", "0+"))
    older = save(tmp_path / "old", schema("FooRequest", old, "0-4", "0+"))
    with pytest.raises(ImportSchemaError) as caught:
        import_schemas([newer, older])
    assert caught.value.message.startswith(message)
    assert "old/FooRequest.json" in caught.value.message


def test_a_message_that_changes_its_kind_between_releases(tmp_path: Path) -> None:
    newer = save(tmp_path / "new", schema("FooData", [], "1", type="data"))
    older = save(tmp_path / "old", schema("FooData", [], "0", type="header"))
    with pytest.raises(ImportSchemaError, match="FooData has type data here and type header there"):
        import_schemas([newer, older])


def test_a_message_that_is_no_longer_flexible(tmp_path: Path) -> None:
    newer = save(tmp_path / "new", schema("FooRequest", [], "2-3", "3+"))
    older = save(tmp_path / "old", schema("FooRequest", [], "0-2", "1+"))
    with pytest.raises(
        ImportSchemaError, match="FooRequest is no longer flexible from version 2 on"
    ):
        import_schemas([newer, older])


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    save(tmp_path, schema("FooRequest", []))
    (tmp_path / "Other.json").write_bytes(b"\xff")
    with pytest.raises(ImportSchemaError, match=r"Other\.json: cannot be read: 'utf-8' codec"):
        import_schemas([tmp_path])


def test_a_gap_between_releases(tmp_path: Path) -> None:
    newer = save(tmp_path / "new", schema("FooRequest", [], "4-5"))
    older = save(tmp_path / "old", schema("FooRequest", [], "0-1"))
    with pytest.raises(ImportSchemaError, match="no schema of FooRequest has version 3"):
        import_schemas([newer, older])


# Bad input


def test_all_problems_are_reported_with_their_place(tmp_path: Path) -> None:
    save(
        tmp_path / "in",
        schema("FooRequest", [field("A", "strin"), field("B", versions="3-1")]),
    )
    (tmp_path / "in" / "Broken.json").write_text('{\n "type": "request",\n "name": }\n')
    with pytest.raises(ImportSchemaError) as caught:
        import_schemas([tmp_path / "in", tmp_path / "absent"])
    text = str(caught.value).replace(str(tmp_path), "")
    assert text.split("\n") == [
        "/in/Broken.json:3: invalid JSON: Expecting value",
        '/in/FooRequest.json:8: field "A": unknown type "strin"',
        '/in/FooRequest.json:13: "3-1" is not a range of versions: 1 is lower than 3',
        "/absent: is not a folder",
    ]


def test_a_folder_without_schemas(tmp_path: Path) -> None:
    with pytest.raises(ImportSchemaError, match=r"no \*\.json files"):
        import_schemas([tmp_path])


def test_a_response_without_its_request(tmp_path: Path) -> None:
    assert refused(tmp_path, schema("FooResponse", [])).endswith("FooResponse has no request")


def test_a_response_with_versions_of_its_own(tmp_path: Path) -> None:
    request, response = schema("FooRequest", [], "0-1"), schema("FooResponse", [], "0-2")
    assert "FooResponse and its request have different versions" in refused(
        tmp_path, request, response
    )
    request, response = schema("FooRequest", [], "0", "0+"), schema("FooResponse", [])
    assert "have different flexible versions" in refused(tmp_path, request, response)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (field("A", default="2147483648"), '"A": the default 2147483648 is not a value of int32'),
        (field("A", "int8", default="x"), '"A": the default x is not a value of int8'),
        (field("A", "float64", default="x"), '"A": the default x is not a value of float64'),
        (field("A", "bool", default="maybe"), 'no such default: "maybe"'),
        (field("A", "[]int32", default="1"), 'no such default: "1"'),
        (field("A", "string", default="a)b"), 'the default "a)b" contains parentheses'),
        (field("A", "string", default="null"), "has the default null, but is never nullable"),
        (field("A", nullableVersions="0+"), "FooRequest.A: the type int32 cannot be nullable"),
        (field("A", versions="x"), '"x" is not a range of versions'),
        ({"name": "A", "type": "int32"}, '"versions" is missing'),
        (field("A", taggedVersions="0+"), 'needs both "tag" and "taggedVersions"'),
        (field("A", taggedVersions="1+", tag=0), "has a tag in some of its versions only"),
        (field("A", tag="one", taggedVersions="0+"), '"tag" is not a number'),
        (field("A", "X", nullableVersions="1+", fields=[field("B")]), "cannot be nullable in some"),
        (field("A", flexibleVersions="1+"), '"flexibleVersions" can only be "none"'),
        (field("A", "X", fields="none"), '"fields" is not a list of objects'),
        (field("A", "[][]int32"), 'unknown type "[][]int32"'),
    ],
)
def test_fields_that_cannot_be(tmp_path: Path, spec: dict[str, Any], message: str) -> None:
    assert message in refused(tmp_path, schema("FooRequest", [spec], "0-2", "0+"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"type": "reply"}, 'unknown schema type "reply"'),
        ({"apiKey": None}, 'a request needs "apiKey"'),
        ({"apiKey": "seven"}, '"apiKey" is not a number'),
        ({"validVersions": "1-0"}, '"1-0" is not a range of versions'),
        ({"validVersions": 3}, '"validVersions" is not a string: 3'),
        ({"fields": [field("A"), field("A")]}, 'two fields have the name "A"'),
        ({"commonStructs": [1]}, '"commonStructs" is not a list of objects'),
        (
            {
                "fields": [field("A", "X")],
                "commonStructs": [{"name": "X", "versions": "0+", "fields": [field("B", "[]X")]}],
            },
            'struct "X" contains itself',
        ),
    ],
)
def test_schemas_that_cannot_be(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    assert message in refused(tmp_path, {**schema("FooRequest", []), **change})


def test_json_that_is_not_an_object(tmp_path: Path) -> None:
    (tmp_path / "List.json").write_text("[]")
    with pytest.raises(ImportSchemaError, match="the schema is not a JSON object"):
        import_schemas([tmp_path])


# The compiler accepts the importer's output


def test_what_is_imported_compiles(tmp_path: Path) -> None:
    inner = [field("Name", "string", "0-3", nullableVersions="2+"), field("Id", "uuid", "2+")]
    common = [{"name": "End", "versions": "1+", "fields": [field("Host", "string", "1+")]}]
    folder = save(
        tmp_path / "json" / "transaction-coordinator",
        schema(
            "FooRequest",
            [
                field("Topics", "[]Topic", nullableVersions="1+", fields=inner),
                field("Peers", "[]End", "1+"),
                field("Peer", "End", "1+", nullableVersions="1+", default="null"),
                field("Extra", "int16", "2+", taggedVersions="2+", tag=0, default="-1"),
            ],
            "0-4",
            "2+",
            commonStructs=common,
        ),
        schema("FooResponse", [field("ErrorCode", "int16")], "0-4", "2+"),
        schema("BarKey", [field("A")], type="coordinator-key", apiKey=4),
        schema("BarValue", [field("A")], "0-2", "1+", type="coordinator-value", apiKey=4),
        schema("EndTxnMarker", [field("A")], type="data"),
    )
    result = import_schemas([folder], docs=True, releases=["1.0"])
    out = tmp_path / "definitions"
    out.mkdir()
    for name, text in result.files.items():
        (out / name).write_text(text)
    diagnostics = Diagnostics()
    (only,) = folders(out)
    protocol = compile_folder(only, diagnostics)
    assert diagnostics.found == []
    structs = {struct.name: struct for file in protocol.files for struct in file.structs}
    headers = {"RequestHeader", "ResponseHeader"}  # the compiler adds them
    assert set(structs) == {*result.messages, "FooRequest.End", *headers}
    assert structs["FooRequest"].max_version == 4
    assert structs["BarKey"].version_field == "version"
    assert structs["BarKey"].max_version is None
    assert structs["BarValue"].max_version == 2
