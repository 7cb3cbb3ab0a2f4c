"""The formatter: style is mended, meaning and documentation stay."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from krammar.cli import main
from krammar.compiler import ir
from krammar.compiler.formatter import format_source
from krammar.compiler.front.source import Folder, compile_folder
from krammar.compiler.ir import walk
from krammar.compiler.layout_table import layout_table
from krammar.util.diagnostics import Diagnostics

# Pairs that a text file cannot show well; the others are in fixtures/formatter.txt.
INVISIBLE = {
    "empty": ("", ""),
    "blank": ("\n\n", ""),
    "a comment alone": ("// Alone.", "// Alone.\n"),
    "blank at the ends": ("\n\nA =>\n  B: int8\n\n\n", "A =>\n  B: int8\n"),
    "trailing spaces": ("A =>  \n  B: int8 \t\n", "A =>\n  B: int8\n"),
    "no final newline": ("A =>\n  B: int8", "A =>\n  B: int8\n"),
    "from Windows": ("\ufeffA =>\r\n  B: int8\r\n", "A =>\n  B: int8\n"),
    "the text of comments stays": ("/////  \n//x\n", "/////\n//x\n"),
}


def pairs() -> dict[str, tuple[str, str]]:
    """Read the texts of fixtures/formatter.txt, and the formatted texts, by their names."""
    text = (Path(__file__).parent / "fixtures" / "formatter.txt").read_text("utf-8")
    found = {}
    for case in text.split("\n--- ")[1:]:
        name, _, texts = case.partition("\n")
        before, _, after = texts.partition("+++\n")
        found[name] = (before, after.rstrip("\n") + "\n")
    return found


PAIRS = pairs()
CANONICAL = PAIRS["canonical"][1]


@pytest.mark.parametrize(
    ("text", "expected"), [*INVISIBLE.values(), *PAIRS.values()], ids=[*INVISIBLE, *PAIRS]
)
def test_golden(text: str, expected: str) -> None:
    assert format_source(text) == expected
    assert format_source(expected) == expected


# -- properties ----------------------------------------------------------------------------------


def compiled(folder: Path, text: str) -> tuple[ir.Protocol, Diagnostics]:
    path = folder / "a.krm"
    path.write_bytes(text.encode("utf-8"))
    diagnostics = Diagnostics()
    return compile_folder(Folder("", (path,)), diagnostics), diagnostics


def meaning(protocol: ir.Protocol) -> list[object]:
    """All layouts and all documentation."""
    found: list[object] = []
    for file in protocol.files:
        for enum in file.enums:
            members = [(m.name, m.value, m.remarks, m.doc) for m in enum.members]
            found.append((enum.name, enum.doc, enum.type, members))
        for named in file.structs:
            table = layout_table(named)
            found.append([(group.versions, group.layout.key) for group in table.layouts])
            for struct in walk(named):
                found.append((struct.name, struct.doc, [(f.name, f.doc) for f in struct.fields]))
    return found


def is_comment(line: str) -> bool:
    return line.lstrip().startswith("//")


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """CANONICAL with its style broken, with every comment still at its definition."""
    lines = CANONICAL.split("\n")[:-1]
    result = ["" for _ in range(draw(st.integers(0, 2)))]
    for index, line in enumerate(lines):
        after = lines[index + 1] if index + 1 < len(lines) else ""
        apart = index > 0 and is_comment(lines[index - 1])
        if not line:
            # An empty line between two definitions may be missing or repeated. One next to a separate comment stays.
            result += [""] * draw(st.integers(1 if apart else 0, 3))
            continue
        if is_comment(line) and after and draw(st.booleans()):
            line = " " * draw(st.integers(0, 7)) + line.lstrip()
        line += draw(st.sampled_from(["", "", " ", "   "]))
        result.append(line)
        if not is_comment(line) and after:
            result += [""] * draw(st.sampled_from([0, 0, 0, 1, 2]))
    result += ["" for _ in range(draw(st.integers(0, 3)))]
    text = "\n".join(result) + draw(st.sampled_from(["", "\n"]))
    if draw(st.booleans()):
        text = text.replace("\n", "\r\n")
    return draw(st.sampled_from(["", "\ufeff"])) + text


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("formatter")


@given(text=damaged())
@settings(max_examples=150)
def test_any_damage_to_style_is_mended(folder: Path, text: str) -> None:
    before, diagnostics = compiled(folder, text)
    assert not diagnostics.has_errors

    mended = format_source(text)

    assert mended == CANONICAL
    after, diagnostics = compiled(folder, mended)
    assert diagnostics.found == []
    assert meaning(before) == meaning(after)


@given(
    st.lists(st.sampled_from(["", " ", "  ", "//", "A =>", "B: int8", ")", "\t", "x", "\r", "\n"]))
)
@settings(max_examples=300)
def test_idempotent_on_any_text(pieces: list[str]) -> None:
    once = format_source("".join(pieces))

    assert format_source(once) == once


# -- the command ---------------------------------------------------------------------------------

UGLY = "A =>\n  B: int8  \n\n\nC =>\n// D.\n  D: int8"
PRETTY = "A =>\n  B: int8\n\nC =>\n  // D.\n  D: int8\n"
BROKEN = "A => \n  B int8\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "inner").mkdir()
    (tmp_path / "ugly.krm").write_text(UGLY)
    (tmp_path / "inner" / "pretty.krm").write_text(PRETTY)
    (tmp_path / "inner" / "README.md").write_text("Not  \n\n\na definition")
    return tmp_path


def test_fmt_rewrites_what_is_not_canonical(files: Path) -> None:
    pretty = files / "inner" / "pretty.krm"
    before = pretty.stat()

    result = CliRunner().invoke(main, ["fmt", str(files)])

    assert result.exit_code == 0
    assert result.output == f"formatted {files}/ugly.krm\n2 files, 1 changed\n"
    assert (files / "ugly.krm").read_text() == PRETTY
    assert (pretty.stat().st_mtime_ns, pretty.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
    assert (files / "inner" / "README.md").read_text() == "Not  \n\n\na definition"
    assert "2 files, 0 changed" in CliRunner().invoke(main, ["fmt", str(files)]).output


def test_fmt_check_changes_nothing(files: Path) -> None:
    result = CliRunner().invoke(main, ["fmt", "--check", str(files)])

    assert result.exit_code == 1
    assert result.output == f"would format {files}/ugly.krm\n2 files, 1 would change\n"
    assert (files / "ugly.krm").read_text() == UGLY
    assert CliRunner().invoke(main, ["fmt", "--check", str(files / "inner")]).exit_code == 0


def test_fmt_diff_shows_what_would_change(files: Path) -> None:
    result = CliRunner().invoke(main, ["fmt", "--diff", str(files)])

    assert result.exit_code == 0
    assert result.stdout.split("\n") == [
        f"--- {files}/ugly.krm",
        f"+++ {files}/ugly.krm",
        "@@ -1,7 +1,6 @@",
        " A =>",
        "-  B: int8  ",
        "-",
        "+  B: int8",
        " ",
        " C =>",
        "-// D.",
        "-  D: int8",
        "\\ No newline at end of file",
        "+  // D.",
        "+  D: int8",
        "",
    ]
    assert (files / "ugly.krm").read_text() == UGLY
    assert CliRunner().invoke(main, ["fmt", "--diff", "--check", str(files)]).exit_code == 1


def test_files_with_errors_are_left_alone(files: Path) -> None:
    (files / "broken.krm").write_text(BROKEN)
    (files / "binary.krm").write_bytes(b"A =>  \n\xff\n")

    result = CliRunner().invoke(main, ["fmt", str(files)])

    assert result.exit_code == 1
    assert "broken.krm:2:4: error E106" in result.output
    assert "binary.krm:2:1: error E101" in result.output
    assert "W9" not in result.output
    assert (files / "broken.krm").read_text() == BROKEN
    assert (files / "binary.krm").read_bytes() == b"A =>  \n\xff\n"
    assert (files / "ugly.krm").read_text() == PRETTY
