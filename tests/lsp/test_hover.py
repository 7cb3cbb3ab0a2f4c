from __future__ import annotations

from lsprotocol import types as lsp

from krammar.lsp.showing import hover
from tests.lsp.sheets import PING, Sheet, ping


def shown(sheet: Sheet, chosen: dict[str, int] | None = None) -> str:
    found = hover(sheet.analysis, sheet.file, sheet.cursor, chosen)
    assert found is not None
    assert isinstance(found.contents, lsp.MarkupContent)
    return found.contents.value


def test_field() -> None:
    assert shown(ping("  Te", "xt:")) == (
        "```krammar\nText: nullable-string-v1+(null)\n```\n\n"
        "Any text.\n\n"
        "| Versions | Bytes | Default |\n|---|---|---|\n"
        "| v0 | int16 length, then UTF-8 | ff ff |\n"
        "| v1 | int16 length (-1 is null), then UTF-8 | ff ff |\n"
        "| v2-v4 | unsigned varint of length + 1 (0 is null), then UTF-8 | 00 |"
    )


def test_the_version_of_ones_choice_comes_first() -> None:
    assert "| **v1**, v1 |" in shown(ping("  Te", "xt:"), {"PingRequest": 1})


def test_inherited_versions() -> None:
    text = shown(ping("    Si", "ze: int32"))
    assert "In v2-v3 of `PingRequest`." in text
    assert "| v2-v3 | int32, 4 bytes | 00 00 00 04 |" in text


def test_the_default_of_an_enum_has_a_name() -> None:
    assert "The default is `FAST`." in shown(ping("  Ki", "nd: enum-PingKind(1)"))


def test_tagged_field() -> None:
    text = shown(ping("  Ex", "tra"))
    assert "In v2+ of `PingRequest`." in text
    assert "| v2-v4 | the fields | not written |" in text


def test_definitions() -> None:
    assert "API key 7, versions 0 to 4, flexible from version 2, 4 fields" in shown(
        ping("Ping", "Request")
    )
    assert shown(ping("enum-Ping", "Kind(1)")) == (
        "```krammar\nPingKind int8 (\n```\n\nHow urgent.\n\n- `0` SLOW\n- `1` FAST"
    )
    assert "Number of" not in shown(ping("Extra: Sha", "red"))
    assert "No hurry." in shown(ping("0: SL", "OW"))


def test_words_of_the_language() -> None:
    assert "zig-zag" in shown(Sheet(a="A => not top level\n  B: var‸int\n"))
    assert "from version 7" in shown(Sheet(a="A => not top level\n  B: nullable-st‸ring-v7+\n"))
    assert "first version; 0" in shown(
        Sheet(a="ARequest => key 0, max version 3, min vers‸ion 1\n")
    )
    assert "removed fields" in shown(Sheet(a="A => not top level\n  reserved t‸ag 0\n"))
    assert "first flexible version" in shown(
        Sheet(a="A => not top level, flex‸ible v0+\n  B: int8\n")
    )
    assert "Without effect" in shown(Sheet(a="ARequest => key 0, max version 0, freq‸uent\n"))
    assert "last version" in shown(Sheet(a="ARequest => key 0, max ver‸sion 0\n"))
    assert "classic" in shown(Sheet(a="A => not top level\n  B: string // not fle‸xible\n"))
    assert "drop its value" in shown(Sheet(a="A => not top level\n  B: int8 // ignor‸able\n"))
    assert "The name of a topic" in shown(
        Sheet(a="A => not top level\n  B: string // entity topic‸Name\n")
    )
    assert "15000" in shown(Sheet(a="A => not top level\n  Timeout‸Millis(3)\n"))


def test_nothing_to_say() -> None:
    sheet = Sheet(a="// some wo‸rds about bool\nA => not top level\n  B: Unknown\n")
    assert hover(sheet.analysis, sheet.file, sheet.cursor) is None
    unknown = Sheet(a="A => not top level\n  B: Unkn‸own\n")
    assert hover(unknown.analysis, unknown.file, unknown.cursor) is None


def test_a_field_that_does_not_compile() -> None:
    sheet = Sheet(a=PING.replace("  Te", "  T‸e").replace("max version 4", "max version x"))
    assert hover(sheet.analysis, sheet.file, sheet.cursor) is None
    broken = Sheet(a="A => not top level\n  // Say.\n  B‸b: Unknown\n")
    assert "Say." in shown(broken)
