"""Text from outside for terminals."""

from __future__ import annotations

from krammar.util.printable import escape


def test_what_is_escaped() -> None:
    assert escape("plain é 漢") == "plain é 漢"
    assert escape("a\n\t\x1b[0m\u202eb\x9b\ud800") == r"a\n\t\x1b[0m\u202eb\x9b\ud800"
    assert escape("a\nb\tc", keep="\n") == "a\nb\\tc"
    assert escape("a\0b", spell=lambda c: f"<{ord(c)}>") == "a<0>b"


def test_each_character_is_spelt_once() -> None:
    """A large text is not a call per character."""
    spelt: list[str] = []

    def spell(character: str) -> str:
        spelt.append(character)
        return "?"

    assert escape("\x01\x02\x03" * 1000, spell=spell) == "???" * 1000
    assert spelt == ["\x01", "\x02", "\x03"]
