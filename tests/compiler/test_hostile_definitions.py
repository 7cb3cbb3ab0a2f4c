"""Broken definition files end in diagnostics, never in an exception.

Mutants of valid definitions are made with a fixed seed: lines are lost, doubled, swapped and moved,
characters are lost, added and changed. What still compiles must make Python that compiles.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from krammar.compiler import ir
from krammar.compiler.formatter import format_source
from krammar.compiler.front.source import Folder, compile_folder
from krammar.compiler.generate import Generator
from krammar.util.diagnostics import FORMATS, Diagnostics

SEED = 20260721
MUTANTS = 3000
GENERATED = 40

TEXT = """\
// An enum.
ErrorCode int16 (
  -1: UNKNOWN
  // Nothing.
  0: NONE
  2: CORRUPT // retriable
)

State int8 camelcase (
  0: Empty
  1: PrepareCommit
)

// A struct.
Part => not top level, no encoding, flexible v2+
  // Its name.
  Name: string(abc)
  Code: enum-ErrorCode(2) // v1+
  State: enum-State
  Deep: [=>]
    A: int8(-1)
    B: nullable=>()
      C: varint-string(null) // v1-v2
  Rest: nullable-v2+[[int32]]

Value => not top level, with version field, flexible v3+
  Version: int16
  ID: uuid // v1+
  Length: int32
  Data: length-field-minus => Length - 4

FetchRequest => key 1, max version 3, flexible v2+, admin, min version 1
  TimeoutMillis(60000)
  Parts: [Part] // v1-v3
  Value: Value
  Client: nullable-string(null) // v1+, not flexible
  Ratio: float64(0.5)

FetchResponse =>
  ThrottleMillis(2) // v1+
  // With a tag.
  Parts: nullable[=>Hint] // v1+, tag 0
    A: bool(true)
  More: =>  // tag 1
    A: varlong
    B: bytes
""".replace("=>  //", "=> //")

# What characters are changed into: those that mean something, and some that never should be there.
ALPHABET = " \t\n/:=>()[]-+,0123456789vAaZz_\"'\\{}%\0\r\x0c\ufeff\u2028é\U0001f600"
WORDS = [
    "=>",
    "[=>]",
    "nullable=>",
    " // v1+",
    " // tag 0",
    "(null)",
    "()",
    "[[",
    "]]",
    "nullable-v99999+",
    "enum-",
    "length-field-minus => Length - 4",
    "not top level",
    ", flexible v0+",
    "99999999999999999999999999",
    "None",
    "Self",
    "import",
    "ThrottleMillis",
]


def mutate(rng: random.Random, text: str) -> str:
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        lines = text.split("\n")
        at = rng.randrange(len(lines))
        other = rng.randrange(len(lines))
        place = rng.randrange(len(text) + 1)
        match rng.randrange(10):
            case 0:
                del lines[at]
                text = "\n".join(lines)
            case 1:
                lines.insert(other, lines[at])
                text = "\n".join(lines)
            case 2:
                lines[at], lines[other] = lines[other], lines[at]
                text = "\n".join(lines)
            case 3:
                lines[at] = "  " + lines[at]
                text = "\n".join(lines)
            case 4:
                lines[at] = lines[at][2:]
                text = "\n".join(lines)
            case 5:
                text = text[:place] + text[place + rng.choice((1, 1, 2, 20)) :]
            case 6:
                text = text[:place] + rng.choice(ALPHABET) + text[place:]
            case 7:
                text = text[:place] + rng.choice(ALPHABET) + text[place + 1 :]
            case 8:
                text = text[:place] + rng.choice(WORDS) + text[place:]
            case _:
                words = text.split(" ")
                words[rng.randrange(len(words))] = rng.choice([*WORDS, *words])
                text = " ".join(words)
        if not text:
            return text
    return text


def compiled(path: Path, data: bytes) -> tuple[ir.Protocol, Diagnostics]:
    path.write_bytes(data)
    diagnostics = Diagnostics()
    protocol = compile_folder(Folder("made", (path,)), diagnostics)
    for form in FORMATS.values():
        form(diagnostics.sorted())
    return protocol, diagnostics


def assert_places_are_in_the_text(path: Path, text: str, diagnostics: Diagnostics) -> None:
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    for diagnostic in diagnostics.found:
        position = diagnostic.position
        if position.path == path:
            assert 1 <= position.line <= len(lines), diagnostic
            assert 1 <= position.column <= len(lines[position.line - 1]) + 1, diagnostic
            assert position.length >= 1, diagnostic


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(part, marks=pytest.mark.sweep) for part in range(1, 4))]
)
def test_mutants(tmp_path: Path, part: int) -> None:
    rng = random.Random(SEED + part)
    path = tmp_path / "a.krm"
    valid: list[ir.Protocol] = []
    for number in range(MUTANTS // 4):
        text = mutate(rng, TEXT)
        try:
            protocol, diagnostics = compiled(path, text.encode("utf-8"))
            assert_places_are_in_the_text(path, text, diagnostics)
            assert format_source(format_source(text)) == format_source(text)
        except Exception as error:
            pytest.fail(f"mutant {number}: {error!r}\n{text}")
        if not diagnostics.has_errors:
            valid.append(protocol)

    assert len(valid) > GENERATED // 4
    generator = Generator(tmp_path, tmp_path / "out")
    for protocol in rng.sample(valid, GENERATED // 4):
        for name, source in generator.package(protocol).items():
            if name.suffix == ".py":
                compile(source, str(name), "exec")


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    rng = random.Random(SEED)
    for _ in range(200):
        data = bytearray(TEXT.encode("utf-8"))
        for _ in range(rng.choice((1, 5, 50))):
            data[rng.randrange(len(data))] = rng.randrange(256)

        protocol, diagnostics = compiled(tmp_path / "a.krm", bytes(data))
        assert protocol.files or diagnostics.has_errors


@pytest.mark.parametrize(
    "text",
    [
        "\0",
        "\r",
        "//",
        "=>",
        " =>",
        "A",
        "A =>",
        "A =>\n" * 3,
        "A => not top level\n  B: " + "[" * 5000 + "int8" + "]" * 5000 + "\n",
        "".join("  " * depth + "A: =>\n" for depth in range(500)),
        "A => not top level\n" + "".join("  " * d + f"A{d}: [=>]\n" for d in range(1, 1200)),
        "A => not top level\n  B: int8(" + "9" * 10_000 + ")\n",
        "A => not top level\n  B: int8 // v" + "9" * 10_000 + "+\n",
        "A => not top level\n  B: nullable-string-v" + "9" * 10_000 + "+\n",
        "A => key " + "0" * 10_000 + "1, max version 0\n",
        "A int8 (\n  " + "9" * 10_000 + ": B\n)\n",
        "A => not top level\n  B: " + "X" * 100_000 + "\n",
        "".join(f"A{n} => not top level\n  B: A{n + 1}\n\n" for n in range(2000))
        + "A2000 => not top level\n  B: int8\n",
    ],
    ids=range(18),
)
def test_extremes(tmp_path: Path, text: str) -> None:
    protocol, diagnostics = compiled(tmp_path / "a.krm", text.encode("utf-8"))
    assert protocol.files or diagnostics.has_errors


def _seconds(path: Path, text: str) -> float:
    before = time.process_time()
    compiled(path, text.encode("utf-8"))
    return time.process_time() - before


@pytest.mark.parametrize(
    "definition",
    [
        "// Its documentation.\nName{0} => not top level\n  // A field.\n  A: int8\n  B: [=>]\n    C: string\n",
        "// Its documentation.\n\n// More.\nName{0} => not top level\n  A: int9\n",
        "Name{0} => not top levl\n  A: int8\n",
        "Name{0} => not top level\n  A: int8 // foo\n",
        "Name{0}Response =>\n  A: int8\n",
        "Name{0}Request => key {0}, max version 0\n  A: int8\n",
        "Name => not top level\n  A: int8\n",
    ],
    ids=["valid", "unknown types", "headers", "annotations", "responses", "requests", "names"],
)
def test_time_is_not_quadratic(tmp_path: Path, definition: str) -> None:
    few, many = (
        "\n".join(definition.format(number) for number in range(count)) for count in (250, 2000)
    )
    compiled(tmp_path / "a.krm", few.encode())  # the parser's tables, and hints up to their limit

    # 8 times the text took 64 times the time, and hours for some.
    assert _seconds(tmp_path / "a.krm", many) < 30 * _seconds(tmp_path / "a.krm", few) + 1
