from __future__ import annotations

import pytest

from krammar.lsp.completion import complete
from tests.lsp.sheets import PING, SHARED, Sheet


def offered(sheet: Sheet) -> list[str]:
    """The texts that are offered, in order."""
    items = complete(sheet.analysis, sheet.file, sheet.cursor)
    ordered = sorted(items, key=lambda item: item.sort_text or "")
    return [item.text_edit.new_text for item in ordered if item.text_edit]  # type: ignore[union-attr]


def typed(line: str, text: str = PING, after: str = "  // Any text.\n") -> Sheet:
    """A line with the cursor in it, in the definitions of Ping."""
    assert after in text
    return Sheet(ping=text.replace(after, after + line + "\n", 1), shared=SHARED)


def test_types() -> None:
    found = offered(typed("  New: ‸"))
    assert found[:2] == ["bool", "int8"]
    assert {"enum-PingKind", "Shared", "=>", "[=>]", "length-field-minus"} <= set(found)
    assert not {"PingRequest", "PingResponse", "PingKind"} & set(found)
    inside = offered(typed("  New: nullable[‸"))
    assert "=>]" in inside and "[=>]" not in inside and "Shared" in inside


def test_a_type_replaces_what_is_typed() -> None:
    sheet = typed("  New: enum-Pi‸")
    [item] = [
        each
        for each in complete(sheet.analysis, sheet.file, sheet.cursor)
        if each.label == "enum-PingKind"
    ]
    edit = item.text_edit
    assert edit is not None and edit.range.end.character - edit.range.start.character == 7  # type: ignore[union-attr]
    assert item.documentation == "How urgent."


def test_names_of_fields() -> None:
    found = offered(typed("  ‸"))
    assert "Number: int16" in found and "Size: int32" in found and "ThrottleMillis" in found
    # Fields that the struct has already are not offered again.
    assert not any(each.startswith(("Text:", "Parts:")) for each in found)
    assert "Kind: enum-PingKind" not in found
    assert "Kind: enum-PingKind" in offered(typed("    ‸", after="    Size: int32\n"))


def test_versions_that_the_field_can_have() -> None:
    assert offered(typed("  New: int8 // ‸")) == [
        *("v4+", "v3+", "v2+", "v1+", "v0-v3", "v0-v2", "v0-v1", "v0-v0"),
        *("tag 1", "not flexible", "ignorable", "entity "),
    ]
    # Within a field of v2-v3.
    inner = offered(typed("    New: int8 // ‸", after="    Size: int32\n"))
    assert inner == [
        *("v3-v3", "v2-v3", "v2-v2", "tag 0", "not flexible", "ignorable", "entity "),
    ]


def test_what_follows_an_annotation() -> None:
    assert offered(typed("  New: int8 // v3+, ‸")) == [
        *("tag 1", "not flexible", "ignorable", "entity "),
    ]
    assert offered(typed("  New: int8 // v3+, ignorable, entity topicName, tag 1, ‸")) == [
        "not flexible",
    ]
    assert offered(typed("  New: string // entity ‸"))[:2] == ["topicName", "groupId"]
    assert "v4+" in offered(typed("  New: int8 // tag 1, ‸"))


def test_reserved_tags() -> None:
    assert offered(typed("  ‸"))[-1] == "reserved tag 1"
    assert offered(typed("  reser‸"))[-1] == "reserved tag 1"
    assert offered(typed("  reserved t‸")) == ["reserved tag 1"]
    assert offered(typed("  reserved tag ‸")) == ["1"]
    assert offered(typed("  reserved tag 4, ‸")) == ["1"]
    text = "A => not top level, flexible v0+\n  B: int8 // ‸\n  reserved tag 0, 1\n  C: int8 // tag 2\n"
    assert "tag 3" in offered(Sheet(a=text))
    # No version is flexible.
    assert not any("tag" in each for each in offered(Sheet(a="A => not top level\n  ‸\n")))


def test_entities() -> None:
    found = offered(typed("  New: string // v3+, entity top‸"))
    assert found == ["topicName", "groupId", "transactionalId", "brokerId", "producerId"]
    assert "entity " not in offered(typed("  New: string // entity topicName, ‸"))
    own = PING.replace("Text: nullable-string-v1+(null)", "Text: string // entity lightName")
    assert "lightName" in offered(typed("  New: string // entity ‸", own, "  // Any text.\n"))


def test_structs_of_a_message() -> None:
    part = "\nPingRequest.Part => not top level, no encoding\n  A: int8\n"
    assert "PingRequest.Part" in offered(typed("  New: ‸", PING + part))
    assert "PingRequest.Part" in offered(typed("  New: [PingRequest.‸", PING + part))
    assert "PingRequest.Part" not in offered(
        typed("  New: ‸", PING + part, after="  ThrottleMillis\n")
    )
    assert offered(Sheet(ping=PING + "\nPingRequest.Part => ‸"))[0] == "not top level, no encoding"
    assert offered(Sheet(ping=PING + "\nPingRequest.Part => not top level, no encoding, ‸")) == []


def test_cluster_actions() -> None:
    assert "cluster action" in offered(Sheet(a="ARequest => key 0, max version 3, ‸\n"))
    assert "cluster action" in offered(Sheet(a="ARequest => key 0, max version 3, admin, ‸\n"))
    assert "cluster action" not in offered(Sheet(a="A => key 0, max version 3, push, ‸\n"))
    assert "cluster action" not in offered(Sheet(a="A => not top level, ‸\n"))


def test_versions_of_a_response_are_those_of_its_request() -> None:
    found = offered(typed("  New: int8 // ‸", after="  ThrottleMillis\n"))
    assert found[0] == "v4+"


def test_versions_of_a_struct_without_versions() -> None:
    text = "A => not top level\n  B: int8 // v6+\n  C: int8 // ‸\n"
    assert offered(Sheet(a=text))[:2] == ["v6+", "v5+"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("  New: enum-PingKind(‸)", ["0", "1"]),
        ("  New: bool(‸", ["true", "false"]),
        ("  New: nullable-string-v3+(‸", ["null"]),
        ("  New: nullable[int8](‸", ["null"]),
        ("  New: uint16(‸", ["0"]),
        ("  New: int32(‸", ["-1", "0"]),
        ("  New: enum-Unknown(‸", []),
        ("  New: string(‸", []),
    ],
)
def test_defaults(line: str, expected: list[str]) -> None:
    assert offered(typed(line)) == expected


def test_members_are_offered_by_name() -> None:
    sheet = typed("  New: enum-PingKind(‸)")
    items = complete(sheet.analysis, sheet.file, sheet.cursor)
    assert [item.label for item in items] == ["SLOW = 0", "FAST = 1"]


def test_length_fields() -> None:
    line = "    More: length-field-minus => ‸"
    assert offered(typed(line, after="    Size: int32\n")) == ["Size"]


def test_headers() -> None:
    assert offered(Sheet(ping=PING + "\nNewRequest => ‸"))[0] == "key 8, max version 0"
    assert offered(Sheet(ping=PING + "\nNew => ‸"))[0] == "not top level"
    found = offered(Sheet(a="ARequest => key 0, max version 3, ‸\n"))
    assert found[:2] == ["flexible v3+", "min version "] and "group coordinator" in found
    assert offered(Sheet(a="ARequest => key ‸\n")) == ["0"]
    assert offered(Sheet(a="ARequest => key 0, max version 2, flexible ‸\n")) == [
        *("v2+", "v1+", "v0+"),
    ]
    assert "with version field" in offered(Sheet(a="A => not top level, ‸\n"))


def test_the_response_of_the_request_above() -> None:
    assert offered(Sheet(a="ARequest => key 0, max version 3\n  B: int8\n\nA‸")) == ["AResponse =>"]
    assert offered(Sheet(ping=PING + "\n‸")) == []


def test_enums() -> None:
    assert "int8 (" in offered(Sheet(a="A ‸"))
    assert offered(Sheet(a="A int8 (\n  0: NO\n  ‸\n)\n")) == ["1: "]
    assert offered(Sheet(a="A int8 (\n  0: NO // ‸\n)\n")) == ["retriable"]


@pytest.mark.parametrize(
    "text", ["// a comment ‸", "  // a comment ‸", "  B: int8‸", "A =>‸", ")‸"]
)
def test_nothing_to_offer(text: str) -> None:
    assert offered(Sheet(a=text)) == []
