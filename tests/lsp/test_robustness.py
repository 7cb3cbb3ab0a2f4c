"""Whatever is typed, every feature answers: on truncated, mutated and invented texts."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from krammar.lsp.completion import complete
from krammar.lsp.editing import (
    RenameError,
    as_lsp,
    formatting,
    quick_fixes,
    rename_edit,
    renameable,
)
from krammar.lsp.layouts import message_page
from krammar.lsp.project import Project
from krammar.lsp.showing import foldings, hints, hover, lenses, outline, semantic_tokens
from tests.lsp.sheets import FOLDER, PING, SHARED

KAFKA = Path(__file__).parents[2] / "definitions" / "kafka_wire"
SOURCES = [
    PING,
    SHARED,
    *(
        (KAFKA / f"{name}.krm").read_text()
        for name in ("metadata", "consumer_offsets", "api_versions")
    ),
]
# Texts that people type and paste, and texts that break parsers.
PIECES = [
    *(
        "\n",
        "\r\n",
        "\r",
        "\t",
        " ",
        "  ",
        "    ",
        "//",
        " // ",
        "=>",
        " =>",
        "[",
        "]",
        "(",
        ")",
        ":",
        ": ",
    ),
    *("v3+", "v9999999999999999999+", "tag 0", "tag 99999999999", "key 0", "max version 40000"),
    *(
        "A => not top level\n",
        "A int8 (\n",
        "enum-",
        "nullable",
        "length-field-minus => ",
        "0x",
        "-1",
    ),
    *("\ufeff", "\u2028", "\x00", "é", "😋", "\ud800", "not flexible", "[[[[[[[[[[[[[[[[[[[", ", "),
]


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A definition file with a part removed, doubled or replaced, several times."""
    text = draw(st.sampled_from(SOURCES))
    for _ in range(draw(st.integers(1, 5))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.sampled_from([0, 0, 1, 2, 10, 80, 400])))
        piece = draw(st.sampled_from([*PIECES, text[start:end] * 2]))
        text = text[:start] + piece + text[end:]
    return text[: draw(st.integers(0, len(text)))] if draw(st.booleans()) else text


invented = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)


def use_everything(text: str, places: list[int], encoding: str) -> None:
    project = Project(encoding)
    path = FOLDER / "typed.krm"
    project.open(path, text)
    project.open(FOLDER / "shared.krm", SHARED)
    analysis = project.analysis(path)
    file = analysis.files[path]
    found = analysis.diagnostics()[path]
    for diagnostic in found:
        area = as_lsp(file, diagnostic).range
        assert (area.start.line, area.start.character) <= (area.end.line, area.end.character)
    list(quick_fixes(file, found, file.text.everything))
    formatting(file)
    outline(file)
    foldings(file.text)
    lenses(analysis, file)
    hints(analysis, file, 0, 10**6)
    assert len(semantic_tokens(file.text).data) % 5 == 0
    for place in places:
        offset = place % (len(text) + 1)
        complete(analysis, file, offset)
        hover(analysis, file, offset, {"PingRequest": 3})
        if renameable(file, offset) is not None:
            with suppress(RenameError):
                rename_edit(project, file, offset, "Other")
    for struct in analysis.structs.values():
        if struct.encoding and not analysis.diagnostics()[path]:
            message_page(struct, struct.max_version or 0)


@settings(max_examples=120)
@given(
    st.one_of(mutated(), mutated(), invented),
    st.lists(st.integers(0, 10**5), min_size=1, max_size=3),
    st.sampled_from(["utf-8", "utf-16", "utf-32"]),
)
def test_every_feature_answers(text: str, places: list[int], encoding: str) -> None:
    use_everything(text, places, encoding)


def test_a_file_while_it_is_typed() -> None:
    """Every prefix of a line of each kind, with the cursor at its end."""
    text = PING + "\n" + SHARED
    assert len(text) > 300
    for end in range(0, len(text), 7):
        use_everything(text[:end], [end], "utf-16")
