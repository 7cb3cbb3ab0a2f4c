"""Names of definitions against the names that generated modules use themselves."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from krammar.wire.message import Codec
from krammar.wire.reflection import fields
from krammar.wire.tables import table_of
from tests.compiler.conftest import Build, Report, write_files
from tests.compiler.support import gen

GENERATED = Path(__file__).parents[2] / "generated"
# A struct with every form whose code uses the runtime.
EVERY_FORM = """\
  Id: uuid
  Ids: [uuid]
  Number: varint
  Long: varlong
  Text: nullable-string(null)
  Data: varint-bytes
  Flags: [bool] // v1+
  Codes: [int32]
  More: [int64]
  Kind: enum-Kind
  When: uuid(00000000-0000-0000-0000-000000000007) // v1+
  Tagged: nullable-bytes(null) // v2+, tag 0
  Choice: nullable=>({default}) // v2+, tag 1
    A{number}: bool
"""


def used_names() -> set[str]:
    """The names that generated modules import, without underscores, and some that they define."""
    found: set[str] = set()
    for path in [
        *GENERATED.glob("journal_wire/**/*.py"),
        *GENERATED.glob("kafka_wire/[fm]*.py"),
        *GENERATED.glob("kafka_wire/_codecs/[fm]*.py"),
    ]:
        found |= set(re.findall(r"import \w+ as _([A-Za-z]\w*)", path.read_text("utf-8")))
    # Some that the definitions of Kafka do not lead to, and some that modules define.
    found |= {
        "varint",
        "encode_varlong",
        "decode_inside",
        "read_uuid",
        "builtins",
        "uuid",
        "f",
        "t",
    }
    return found | {"new", "top", "meanings", "pack_int8", "r_h", "PACK", "BOOL"}


def class_names() -> list[str]:
    """Names of definitions that become such a name, as they are, in snake case, or behind a prefix."""
    found = set()
    for word in used_names():
        camel = "".join(part[:1].upper() + part[1:] for part in word.split("_"))
        found |= {word, re.sub(r"^(Decode|Encode|Read|Write)", "", camel)}
    allowed = {
        name for name in found if name[:1].isupper() and name not in ("None", "True", "False")
    }
    return sorted(allowed - {"ApiKey", "Kind", "RequestHeader", "ResponseHeader"})


def protocol(chosen: list[str]) -> dict[str, str]:
    """Definitions with these names: of structs, inner structs, requests, fields, enums, members and files."""
    kind = "Kind int8 (\n  0: NONE\n  1: property // bool, retriable\n  2: str\n  3: real\n)\n"
    files = {"kinds.krm": f"// An enum.\n{kind}".replace("  1:", "  // Some.\n  1:")}
    for number, name in enumerate(chosen):
        form = EVERY_FORM.format(number=number, default=("", "null")[number % 2])
        other = chosen[(number + 1) % len(chosen)]
        if number % 5:  # to keep the test fast
            files[f"{name.lower()}_{number}.krm"] = f"{name} => not top level, flexible v2+\n{form}"
            continue
        files[f"{name.lower()}_{number}.krm"] = (
            f"{name} => not top level, flexible v2+\n{form}\n"
            f"{name}{number}Request => key {number}, max version 2, flexible v2+\n"
            # An inner class with the name of the struct, one with the name of another, and both types in use.
            f"  {name}: [=>]{name}\n    Inner: {name}\n    Other: [{other}]\n"
            f"  Outer: {name}\n  {other}s: [=>]{other}\n    X: {other}\n  Last: {other}\n"
            f"  Type: int8\n  Tuple: int8\n  Isinstance: int8\n  List: [int8]\n"
            f"\n{name}{number}Response =>\n  Type: int8\n  Inner: nullable[{name}](null)\n"
        )
    return files


def cases(package: Any) -> Iterator[type[Codec]]:
    for name in package.__all__:
        cls = getattr(package, name)
        if isinstance(cls, type) and issubclass(cls, Codec):
            yield cls


@pytest.fixture(scope="module")
def chosen() -> list[str]:
    found = class_names()
    assert {"Uuid", "Varint", "UUID", "Any", "Struct", "BOOL", "Message", "Tags"} <= set(found)
    return found


def test_no_name_of_a_definition_replaces_one_of_the_module(
    build: Build, chosen: list[str]
) -> None:
    package = build(protocol(chosen))
    number = 0
    for cls in cases(package):
        value = cls()
        for item in fields(cls):
            if item.name == "id":
                value.id, value.ids, value.number = value.when, [value.when], -5
                value.codes, value.more, value.tagged = [1], [2], None
        assert table_of(cls).name == cls.__qualname__
        for version in range(cls.min_version, cls.max_version + 1):
            if "when" in cls._fields and version < 1:
                value.codes = []
            data = value.encode(version)
            assert cls.decode(data, version) == value
            assert cls._layout(version).write(value) == data
            number += 1
        assert cls.from_dict(value.to_dict()) == value
        assert repr(value).startswith(f"{cls.__qualname__}(")
    assert number > 4 * len(chosen)
    assert package.Kind.property.retriable
    assert not package.Kind.str.bool
    assert package.Kind.property.meaning == "Some."


def test_files_with_the_names_of_helpers(build: Build) -> None:
    words = sorted(word for word in used_names() if word.islower())
    files = {
        f"{word}.krm": f"S{at} => not top level\n  Id: uuid\n" for at, word in enumerate(words)
    }
    fields_ = "\n".join(f"  F{at}: [S{at}]" for at in range(len(words)))
    files["main_file.krm"] = f"Main => not top level\n  Number: varint\n  Id: uuid\n{fields_}\n"
    package = build(files)
    value = package.Main(number=3, f0=[package.S0()])
    assert package.Main.decode(value.encode(0), 0) == value
    assert package.Main.from_dict(value.to_dict()) == value


@pytest.mark.search
def test_type_checkers_and_linters_accept_all_names(tmp_path: Path, chosen: list[str]) -> None:
    source = write_files(tmp_path / "definitions", {})
    write_files(source / "p", protocol([*chosen[::4], "NotImplementedError"]))
    assert gen(source, tmp_path / "out").exit_code == 0
    # Documentation is in lines as long as in the definitions.
    ruff = ["ruff", "check", "--select", "B,E,F,I", "--ignore", "E501", "p"]
    for command in (["mypy", "--strict", "p"], ruff):
        run = subprocess.run(
            [sys.executable, "-m", *command], cwd=tmp_path / "out", capture_output=True, text=True
        )
        assert run.returncode == 0, run.stdout


# -- names that cannot be used -----------------------------------------------------------------------


def test_reserved_words_as_the_class_of_a_field(report: Report) -> None:
    text = report("S => not top level\n  Nones: [=>]\n    A: int8\n  B: =>true\n    A: int8\n")
    assert 'the struct of "Nones" would be the class "None", which Python reserves' in text
    assert 'the struct of "B" would be the class "True"' in text or "E208" in text


def test_requests_with_one_constant(report: Report) -> None:
    pair = "{0}Request => key {1}, max version 0\n  A: int8\n\n{0}Response =>\n  A: int8\n"
    text = report(pair.format("HTTPGet", 0) + "\n" + pair.format("HttpGet", 1))
    assert '"HttpGetRequest" and "HTTPGetRequest" (line 1) would both be ApiKey.HTTP_GET' in text
