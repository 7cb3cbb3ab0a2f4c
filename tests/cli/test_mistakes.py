"""Mistakes in arguments and files: every verb ends with a message, without a traceback."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from krammar.cli import main

LONG = "9" * 5000
# Values of options and arguments, and of fields in files.
ODD = [
    "",
    " ",
    "-",
    "-1",
    "0",
    "32768",
    "1e9",
    "0x10",
    "\u0661",  # a digit in Arabic
    "\u00b2",
    LONG,
    f"-{LONG}",
    "nan",
    "\x00",
    "\u202e",
    "\udcff",  # a byte that is not UTF-8
    "a=b=c",
    "=",
    "/",
    "..",
    "x" * 5000,
    "[" * 200,
    "null",
    "v3+",
    "%",
    "\\x",
]
GUIDE = """\
Fetch Request (Version: 0) => a
  a => INT32

Fetch Response (Version: 0) => b
  b => INT32
"""
SCHEMA: dict[str, Any] = {
    "apiKey": 1,
    "type": "request",
    "name": "FetchRequest",
    "validVersions": "0-3",
    "flexibleVersions": "2+",
    "fields": [
        {"name": "Topic", "type": "string", "versions": "0+", "about": "A topic.", "default": "x"},
        {"name": "Epoch", "type": "int32", "versions": "1+", "tag": 0, "taggedVersions": "2+"},
        {
            "name": "Rows",
            "type": "[]Row",
            "versions": "0+",
            "fields": [{"name": "Id", "type": "int64", "versions": "0+", "default": 3}],
        },
    ],
}
# Verbs that end by themselves and need no server: arguments with one odd value each.
VERBS = [
    ["import", "{guide}", "--key", "Fetch={odd}"],
    ["import", "{guide}", "--key", "{odd}"],
    ["import", "{guide}", "--type", "a={odd}"],
    ["import", "{guide}", "--array", "a={odd}"],
    ["import", "{guide}", "--default", "a={odd}"],
    ["import", "{guide}", "--nullable", "{odd}"],
    ["import", "{schemas}", "--release", "{odd}"],
    ["import", "{odd}"],
    ["check", "{odd}"],
    ["fmt", "{odd}", "--check"],
    ["gen", "{definitions}", "-o", "{out}", "--backend", "{odd}"],
    ["gen", "{definitions}", "-o", "{out}", "--option", "{odd}"],
    ["gen", "{definitions}", "-o", "{out}", "--option", "typed={odd}"],
    ["diff", "{definitions}", "{odd}"],
    ["inspect", "kafka_wire", "FetchRequest", "{odd}"],
    ["inspect", "kafka_wire", "{odd}", "0"],
    ["inspect", "{odd}", "FetchRequest", "0"],
    ["inspect", "kafka_wire", "FetchRequest", "0", "--hex", "{odd}"],
    ["show", "kafka_wire", "FetchRequest", "{odd}"],
    ["show", "kafka_wire", "{odd}"],
    ["tap", "{odd}"],
    ["tap", "--upstream", "{odd}", "--listen", "x"],
    ["tap", "--upstream", "127.0.0.1:1", "--listen", "x", "--max-frame", "{odd}"],
    ["tap", "--package", "{odd}", "--upstream", "127.0.0.1:1", "--listen", "x"],
    ["proxy", "{odd}"],
    ["consume", "orders", "-o", "{odd}", "--bootstrap", "x"],
    ["consume", "orders", "-f", "{odd}", "--bootstrap", "x"],
    ["consume", "orders", "-X", "{odd}", "--bootstrap", "x"],
    ["broker", "--port", "{odd}", "--data-dir", "{file}"],
    ["docs", "{odd}", "-o", "{out}"],
    ["export", "{odd}", "--kafka-json", "-o", "{out}"],
    ["compile", "{odd}"],
    ["{odd}"],
]
# Verbs that search a folder for files. In "/" they would read all files of the machine.
SEARCHING = ("check", "compile", "diff", "docs", "export", "fmt", "import")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "guide.txt").write_text(GUIDE)
    for name in ("definitions", "schemas"):
        (folder / name).mkdir()
    (folder / "definitions" / "a.krm").write_text("S => not top level\n  A: int8\n")
    (folder / "schemas" / "FetchRequest.json").write_text(json.dumps(SCHEMA))
    names = {"guide": "guide.txt", "file": "guide.txt"}
    known = {
        name: str(folder / names.get(name, name)) for name in ("definitions", "schemas", "out")
    }
    return {**known, **{name: str(folder / file) for name, file in names.items()}}


def run(*arguments: str) -> int:
    """Run a verb, which may refuse what it gets. Returns its exit code."""
    result = CliRunner().invoke(main, arguments, catch_exceptions=True)
    ended = result.exception is None or isinstance(result.exception, SystemExit)
    assert ended, (arguments, repr(result.exception)[:500])
    assert "Traceback" not in result.output, arguments
    return result.exit_code


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: " ".join(verb))
def test_arguments(
    places: dict[str, str], verb: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "current").mkdir()
    monkeypatch.chdir(tmp_path / "current")  # so that ".." is this test's own folder
    for odd in ODD:
        if "\0" in odd:
            continue  # no system passes such an argument
        if odd == "/" and verb[0] in SEARCHING:
            continue
        run(*(part.format(odd=odd, **places) if "{" in part else part for part in verb))


def spoiled(value: Any, chance: random.Random) -> Any:
    """A copy of JSON with one odd value somewhere."""
    if isinstance(value, (dict, list)) and value and chance.random() < 0.85:
        at: Any = chance.choice([*value] if isinstance(value, dict) else range(len(value)))
        copied = value.copy()
        copied[at] = spoiled(value[at], chance)
        return copied
    others: list[Any] = [None, True, [], {}, 1.5, -1, 10**300, int("9" * 4000), [[]], {"a": []}]
    return chance.choice([*others, *ODD])


@pytest.mark.parametrize("seed", range(4))
def test_json_schemas(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    for number in range(25):
        text = json.dumps(spoiled(SCHEMA, chance))
        if chance.random() < 0.2:
            text = text.replace("1", LONG, 1)
        if chance.random() < 0.2:
            cut = chance.randrange(len(text))
            text = text[:cut] + chance.choice(["", "\x00", "{", '"', LONG]) + text[cut + 1 :]
        folder = tmp_path / f"{number}"
        folder.mkdir()
        (folder / "FetchRequest.json").write_bytes(text.encode("utf-8", "surrogatepass"))
        run("import", str(folder))


@pytest.mark.parametrize("seed", range(4))
def test_texts(tmp_path: Path, seed: int) -> None:
    """Definitions and guides in which a part is odd."""
    chance = random.Random(seed)
    definitions = Path("definitions/kafka_wire/fetch.krm").read_text()[:4000]
    codes = set()
    for number in range(10):
        for text, verbs in ((GUIDE, ["import"]), (definitions, ["check", "fmt"])):
            begin = chance.randrange(len(text))
            odd = chance.choice(ODD)
            changed = text[:begin] + odd + text[begin + chance.randrange(4) :]
            digits = chance.choice(["0", "1", "3"])
            if chance.random() < 0.3:
                changed = changed.replace(digits, LONG, 1)
            path = tmp_path / f"{number}.krm"
            path.write_bytes(changed.encode("utf-8", "surrogatepass"))
            codes |= {run(verb, str(path)) for verb in verbs}
    assert codes <= {0, 1, 2} and 1 in codes


FORMS = {
    "struct": "{name} => not top level, max version 0\n  A: int16\n",
    "request": "{name}Request => key 0, max version 3, flexible v2+\n  A: int16\n\n{name}Response =>\n  B: int8\n",
    "field": "S => not top level, max version 3\n  {name}: int16\n  {name}B: nullable-string // v1+\n  {name}C: [int32]\n",
    "anonymous": "S => not top level, max version 3\n  {name}: [=>]\n    A: int8\n    B: string // v2+\n  {name}X: nullable=>\n    A: int8\n",
    "enum": "{name} int16 (\n  1: ONE\n  2: TWO\n)\n\nS => not top level\n  A: enum-{name}\n  B: [enum-{name}]\n",
    "member": "Kind int16 (\n  1: {upper}\n  2: TWO\n)\n\nS => not top level\n  A: enum-Kind\n",
    "shared": "{name}Request => key 0, max version 3, flexible v2+\n  A: [=>]{name}Row\n    B: string // v1+\n\n{name}Response =>\n  B: int8\n",
}


@pytest.mark.parametrize("form", [*FORMS, "file"])
@pytest.mark.parametrize("length", [20, 38, 56, 59, 60, 75, 88, 100, 240])
def test_long_names(tmp_path: Path, form: str, length: int) -> None:
    """They are generated, or refused with a diagnostic."""
    name = "O" + "r" * (length - 1)
    (tmp_path / "definitions").mkdir()
    file = name.lower() if form == "file" else "a"
    text = FORMS.get(form, FORMS["struct"]).format(
        name="Short" if form == "file" else name, upper=name.upper()
    )
    (tmp_path / "definitions" / f"{file}.krm").write_text(text)
    out = tmp_path / "out"
    for backend in ("python", "docs", "json-schema", "wireshark"):
        result = CliRunner().invoke(
            main,
            ["gen", str(tmp_path / "definitions"), "-o", str(out / backend), "--backend", backend],
        )
        assert result.exception is None or isinstance(result.exception, SystemExit), (
            backend,
            repr(result.exception)[:400],
        )
        assert (
            result.exit_code == 0
            or "error" in result.output
            or "File name too long" in result.output
        ), result.output
    for path in (out / "python").glob("*.py"):
        compile(path.read_text(), path, "exec")


@pytest.mark.parametrize("mark", ["\u202e", "\\u202E", "\u2066"], ids=ascii)
def test_imports_refuse_marks_of_direction(tmp_path: Path, mark: str) -> None:
    text = json.dumps(SCHEMA).replace("A topic.", f"A {mark}topic.")
    (tmp_path / "FetchRequest.json").write_text(text, encoding="utf-8")
    result = CliRunner().invoke(main, ["import", str(tmp_path)])
    assert result.exit_code == 1
    assert "FetchRequest.json:1: U+20" in result.stderr
    assert "changes the direction of the text after it" in result.stderr


def test_guides_with_marks_of_direction(tmp_path: Path) -> None:
    path = tmp_path / "guide.txt"
    path.write_text(GUIDE.replace("  a => INT32", "  a\u202e => INT32"), encoding="utf-8")
    result = CliRunner().invoke(main, ["import", str(path), "--key", "Fetch=1"])
    assert result.exit_code == 1
    assert "\u202e" not in result.output
    assert "nothing was written" in result.stderr
