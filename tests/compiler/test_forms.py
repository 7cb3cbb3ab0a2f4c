"""Each form of a field that Kafka's own definitions do not use, with bytes that are written manually.

A form is a type of the definitions. It is the field ``F`` of a struct with a field before it and one after it, in a
classic version and in a flexible one. Each form passes through all tools: codec, layouts, dictionaries, pickles, JSON
Schema, the notation of protocol guides, Kafka's JSON, the HTML reference, editors, Spark and Wireshark.
"""

from __future__ import annotations

import copy
import json
import math
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import kafka_wire
import pytest
from click.testing import CliRunner
from lsprotocol import types as lsp

from krammar.cli import main
from krammar.compiler.guide import Answers, import_guides
from krammar.highlighting.scanner import LexemeKind, scan
from krammar.inspect.notation import show
from krammar.lsp.showing import hover
from krammar.util.diagnostics import Diagnostics
from krammar.wire.engine_loading import ENGINE, status
from krammar.wire.errors import DecodeError, EncodeError, UnsupportedVersionError
from krammar.wire.representation import named
from tests.compiler.conftest import Build, write_files
from tests.compiler.support import gen
from tests.compiler.tshark import Conversation, compare, frames, needs_tshark, write_pcap
from tests.lsp.sheets import CURSOR, Sheet

BEFORE, AFTER = b"\x11", b"\x22"


@dataclass(frozen=True, eq=False)
class Form:
    """A type, and values with their bytes.

    ``values`` are pairs of a value, or of a function of the struct's class, and the bytes in version 0.
    ``flexible`` are the bytes in version 1 where they differ. ``wrong`` are bytes that no version accepts, and
    ``refused`` values that no version encodes. ``notation`` is the form in protocol guides; empty for the field's own
    lines. ``kafka`` is whether Kafka's JSON has the type.
    """

    type: str
    values: tuple[tuple[Any, str], ...]
    wrong: tuple[str, ...] = ()
    refused: tuple[Any, ...] = ()
    flexible: tuple[str, ...] = ()
    notation: str = ""
    kafka: str = ""
    below: str = ""
    spark: str = ""
    parts: str = ""
    shown: str = ""
    json: str = ""

    def __str__(self) -> str:
        return self.type

    def definitions(self, annotation: str = "") -> str:
        """Definitions of the struct ``S``. ``annotation`` follows the type."""
        return self.message(annotation) + (f"\n{self.parts}" if self.parts else "")

    def message(self, annotation: str = "") -> str:
        return (
            "S => not top level, flexible v1+\n"
            f"  Before: int8\n  F: {self.type}{annotation}\n{self.below}  After: int8\n"
        )


PART = "Part => not top level, no encoding\n  X: int8\n"
OWN = "Own => not top level, with version field\n  Version: int16\n  X: int8 // v1+\n"


def part(cls: Any, x: int = 7) -> Any:
    return named(cls, "Part")(x=x)


def own(cls: Any) -> Any:
    return named(cls, "Own")(version=1, x=7)


FORMS = [
    Form(
        "uint8",
        ((0, "00"), (127, "7f"), (128, "80"), (255, "ff")),
        refused=(-1, 256, 1.0, None),
        notation="UINT8",
        spark="smallint",
    ),
    Form(
        "uint64",
        ((0, "0000000000000000"), (2**63, "8000000000000000"), (2**64 - 1, "ffffffffffffffff")),
        refused=(-1, 2**64, 1.0, None),
        notation="UINT64",
        spark="decimal(20,0)",
    ),
    Form(
        "float32",
        ((0.0, "00000000"), (1.5, "3fc00000"), (-2.0, "c0000000"), (math.inf, "7f800000")),
        refused=(1e39, "1", None),
        notation="FLOAT32",
        spark="float",
    ),
    Form(
        "uvarint",
        ((0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**32 - 1, "ffffffff0f")),
        wrong=("ffffffff1f", "ffffffffff01", "8080808080"),
        refused=(-1, 2**32, 1.0, None),
        notation="UVARINT",
        spark="bigint",
    ),
    Form(
        "uvarlong",
        ((0, "00"), (128, "8001"), (2**63, "80808080808080808001"), (2**64 - 1, "ff" * 9 + "01")),
        wrong=("ff" * 9 + "02", "ff" * 10 + "01"),
        refused=(-1, 2**64, 1.0, None),
        notation="UVARLONG",
        spark="decimal(20,0)",
    ),
    Form(
        "int16-string",
        (("", "0000"), ("é", "0002 c3a9"), ("y" * 200, "00c8" + "79" * 200)),
        wrong=("ffff", "8000", "0001 ff"),
        refused=(None, b"x", "y" * 32768, "\ud800"),
        notation="STRING",
        spark="string",
    ),
    Form(
        "int32-string",
        (("", "00000000"), ("é", "00000002 c3a9"), ("y" * 40000, "00009c40" + "79" * 40000)),
        wrong=("ffffffff", "80000000", "7fffffff", "00000001 ff"),
        refused=(None, b"x"),
        notation="INT32_STRING",
        spark="string",
    ),
    Form(
        "uvarint-string",
        (
            ("", "00"),
            ("é", "02 c3a9"),
            ("y" * 127, "7f" + "79" * 127),
            ("y" * 128, "8001" + "79" * 128),
        ),
        wrong=("ffffffff0f", "ffffffff1f", "01 ff"),
        refused=(None, b"x"),
        notation="UVARINT_STRING",
        spark="string",
    ),
    Form(
        "int16-bytes",
        ((b"", "0000"), (b"\xff\0", "0002 ff00")),
        wrong=("ffff", "8000"),
        refused=(None, "x", bytes(32768)),
        notation="INT16_BYTES",
        spark="binary",
    ),
    Form(
        "int32-bytes",
        ((b"", "00000000"), (b"\xff", "00000001 ff")),
        wrong=("ffffffff", "80000000", "7fffffff"),
        refused=(None, "x"),
        notation="BYTES",
        spark="binary",
    ),
    Form(
        "uvarint-bytes",
        ((b"", "00"), (b"\xff", "01 ff"), (bytes(300), "ac02" + "00" * 300)),
        wrong=("ffffffff0f", "ffffffff1f"),
        refused=(None, "x"),
        notation="UVARINT_BYTES",
        spark="binary",
    ),
    Form(
        "nullable-int16-string",
        ((None, "ffff"), ("", "0000"), ("a", "0001 61")),
        refused=(b"x",),
        notation="NULLABLE_STRING",
        spark="string",
        json="int16-string",
    ),
    Form(
        "nullable-int16-bytes(null)",
        ((None, "ffff"), (b"a", "0001 61")),
        refused=("x",),
        notation="INT16_NULLABLE_BYTES",
        spark="binary",
        json="int16-bytes",
    ),
    Form(
        "nullable-int32-string-v1+",
        (("", "00000000"), ("a", "00000001 61")),
        notation="INT32_NULLABLE_STRING",
        spark="string",
        json="int32-string",
    ),
    Form(
        "int16[int8]",
        (([], "0000"), ([1, -1], "0002 01ff"), ([0] * 300, "012c" + "00" * 300)),
        wrong=("ffff", "8000"),
        refused=(None, 1, [None], [0] * 32768),
        spark="array<tinyint>",
        json="int16",
    ),
    Form(
        "int32[string]",
        (([], "00000000"), (["a"], "00000001 0001 61")),
        flexible=("00000000", "00000001 02 61"),
        wrong=("ffffffff", "80000000"),
        refused=(None, [None]),
        spark="array<string>",
        json="int32",
    ),
    Form(
        "uvarint[int16]",
        (([], "00"), ([1, -1], "02 0001 ffff"), ([0] * 128, "8001" + "0000" * 128)),
        wrong=("ffffffff0f", "ffffffff1f"),
        refused=(None, [None]),
        spark="array<smallint>",
        json="uvarint",
    ),
    Form(
        "uvarint[=>]Part",
        (([], "00"), (lambda s: [s.Part(x=7), s.Part()], "02 07 00")),
        flexible=("00", "02 0700 0000"),
        wrong=("ffffffff0f", "ffffffff1f"),
        refused=(None, [None]),
        below="    X: uint8\n",
        shown="uvarint[struct]",
        json="uvarint",
    ),
    Form(
        "nullable-int16[uvarint]",
        ((None, "ffff"), ([], "0000"), ([300], "0001 ac02")),
        wrong=("0001 ffffffff1f",),
        refused=([None], 1),
        spark="array<bigint>",
        json="int16",
    ),
    Form(
        "nullable-varint[int8]",
        ((None, "01"), ([], "00"), ([5], "02 05")),
        refused=([None], 1),
        spark="array<tinyint>",
        json="varint",
    ),
    Form(
        "nullable-string-v0-v0",
        (("", "0000"), ("a", "0001 61")),
        flexible=("01", "02 61"),
        refused=(b"x",),
        kafka='"nullableVersions": "0"',
        spark="string",
    ),
    Form(
        "nullable-v1-v1[int8]",
        (([], "00000000"), ([5], "00000001 05")),
        flexible=("01", "02 05"),
        kafka='"nullableVersions": "1"',
        spark="array<tinyint>",
    ),
    Form(
        "nullable-Part",
        ((None, "ff"), (part, "01 07"), (lambda s: part(s, 0), "01 00")),
        flexible=("ff", "01 07 00", "01 00 00"),
        wrong=("00", "02 07"),
        refused=(1,),
        parts=PART,
        kafka='"nullableVersions": "0+"',
    ),
    Form(
        "nullable-bool-Part",
        ((None, "00"), (part, "01 07")),
        flexible=("00", "01 07 00"),
        wrong=("ff", "02 07"),
        refused=(1,),
        parts=PART,
        json="nullable-bool",
    ),
    Form(
        "nullable-bool=>Inner",
        ((None, "00"), (lambda s: s.Inner(x=7), "01 07")),
        flexible=("00", "01 07 00"),
        wrong=("ff", "02 07"),
        below="    X: int8\n",
        json="nullable-bool",
        shown="nullable-bool struct",
    ),
    Form(
        "nullable-bool=>Inner()",
        ((None, "00"), (lambda s: s.Inner(x=7), "01 07")),
        flexible=("00", "01 07 00"),
        wrong=("ff", "02 07"),
        below="    X: int8\n",
        json="nullable-bool",
        shown="nullable-bool struct",
    ),
    Form(
        "nullable-Own",
        ((None, "ff"), (own, "01 0001 07")),
        wrong=("00", "02 0001 07", "01 0002 07"),
        refused=(1,),
        parts=OWN,
        json="has a version of its own",
    ),
    Form(
        "nullable-bool-Own()",
        ((None, "00"), (own, "01 0001 07")),
        wrong=("ff", "01 0002 07"),
        parts=OWN,
        json="has a version of its own",
    ),
]


def value_of(given: Any, cls: Any) -> Any:
    return given(cls) if callable(given) else given


@dataclass(frozen=True)
class Case:
    """A value of a form in a version, with its bytes."""

    form: Form
    cls: Any
    version: int
    given: Any
    data: bytes

    @property
    def message(self) -> Any:
        return self.cls(before=0x11, f=value_of(self.given, self.cls), after=0x22)


def cases(form: Form, package: Any) -> list[Case]:
    found = []
    for version, end in ((0, b""), (1, b"\0")):
        for index, (given, text) in enumerate(form.values):
            inner = form.flexible[index] if version and form.flexible else text
            data = BEFORE + bytes.fromhex(inner) + AFTER + end
            found.append(Case(form, package.S, version, given, data))
    return found


@pytest.fixture(scope="module")
def packages(build: Build) -> Callable[[Form], Any]:
    """Builds the package of each form once."""
    built: dict[Form, Any] = {}

    def package(form: Form) -> Any:
        if form not in built:
            built[form] = build(form.definitions())
        return built[form]

    return package


Packages = Callable[[Form], Any]
each_form = pytest.mark.parametrize("form", FORMS, ids=str)


# -- bytes ---------------------------------------------------------------------------------------


@each_form
def test_the_codec_and_the_layout_write_and_read_these_bytes(
    form: Form, packages: Packages
) -> None:
    found = cases(form, packages(form))
    assert len(found) == 2 * len(form.values)
    for case in found:
        layout = packages(form).layout(case.cls, case.version)
        assert case.message.encode(case.version).hex(" ") == case.data.hex(" ")
        assert case.cls.decode(case.data, case.version) == case.message
        assert layout.write(layout.read(case.data)).hex(" ") == case.data.hex(" ")
        assert layout.size_of(case.message) == len(case.data)
        assert (
            case.cls.decode(case.data, case.version, copy=False).encode(case.version) == case.data
        )


@each_form
def test_wrong_bytes_are_refused_with_the_path(form: Form, packages: Packages) -> None:
    cls = packages(form).S
    assert cls.max_version >= 1
    for version in (0, 1):
        for text in form.wrong:
            data = BEFORE + bytes.fromhex(text) + AFTER + b"\0" * version
            with pytest.raises(DecodeError) as caught:
                cls.decode(data, version)
            assert caught.value.path.startswith("f"), text


@each_form
def test_wrong_values_are_refused_with_the_path(form: Form, packages: Packages) -> None:
    package = packages(form)
    assert package.S.max_version >= 1
    for version in (0, 1):
        for given in form.refused:
            message = package.S(before=1, after=2)
            message.f = value_of(given, package.S)
            with pytest.raises(EncodeError) as caught:
                message.encode(version)
            assert caught.value.path.startswith("f"), given
            with pytest.raises(EncodeError):
                package.layout(package.S, version).validate(message)


@each_form
def test_bytes_that_are_cut_off_or_changed_are_the_same_to_codec_and_layout(
    form: Form, packages: Packages
) -> None:
    package, compared = packages(form), 0
    for case in cases(form, package):
        layout = package.layout(case.cls, case.version)
        # The rest of a long value is content.
        reached = min(len(case.data), 24)
        hostile = [case.data[:end] for end in (*range(reached), len(case.data) - 1)]
        for at in range(reached):
            for byte in (0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF, case.data[at] ^ 1):
                hostile.append(case.data[:at] + bytes([byte]) + case.data[at + 1 :])
        for data in hostile:
            try:
                expected = layout.read(data)
            except DecodeError:
                with pytest.raises(DecodeError):
                    case.cls.decode(data, case.version)
            else:
                found = case.cls.decode(data, case.version)
                # NaN is not equal to itself.
                assert repr(plain(found)) == repr(expected)
            compared += 1
    assert compared > 20


def plain(value: Any) -> Any:
    """A message as layouts read it."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if hasattr(value, "_fields"):
        found = {name: plain(getattr(value, name)) for name in value._fields}
        return found | ({"unknown_tags": value.unknown_tags} if value._unknown_tags else {})
    return value


@each_form
def test_in_a_tagged_field_the_same_bytes_follow_tag_and_size(form: Form, build: Build) -> None:
    package = build(form.definitions(" // tag 0"))
    compared = 0
    for given, text in form.values:
        message = package.S(before=0x11, after=0x22, f=value_of(given, package.S))
        if message == package.S(before=0x11, after=0x22):
            assert message.encode(1) == BEFORE + AFTER + b"\0"
            continue
        index = [text for _, text in form.values].index(text)
        inner = bytes.fromhex(form.flexible[index] if form.flexible else text)
        if form.type.startswith("nullable-") and inner[:1] == b"\xff" and form.parts:
            inner = b"\0" + inner[1:]  # null of structs in tagged fields
        if len(inner) > 127:
            continue
        data = BEFORE + AFTER + bytes([1, 0, len(inner)]) + inner
        assert message.encode(1).hex(" ") == data.hex(" ")
        assert package.S.decode(data, 1) == message
        with pytest.raises(DecodeError):
            package.S.decode(BEFORE + AFTER + bytes([1, 0, len(inner) + 1]) + inner + b"\0", 1)
        compared += 1
    assert compared


@each_form
def test_elements_of_arrays_have_the_same_bytes(form: Form, build: Build) -> None:
    if form.below or "[" in form.type or "(" in form.type:
        pytest.skip("arrays of it have another notation")
    package = build(form.definitions().replace(form.type, f"[{form.type}]"))
    values = [value_of(given, package.S) for given, _ in form.values]
    for version, prefix in ((0, len(values).to_bytes(4, "big")), (1, bytes([len(values) + 1]))):
        texts = form.flexible if version and form.flexible else [text for _, text in form.values]
        data = BEFORE + prefix + bytes.fromhex("".join(texts)) + AFTER + b"\0" * version
        message = package.S(before=0x11, f=values, after=0x22)
        layout = package.layout(package.S, version)
        assert message.encode(version).hex(" ") == data.hex(" ")
        assert package.S.decode(data, version) == message
        assert layout.write(layout.read(data)) == data
        with pytest.raises(DecodeError):
            package.S.decode(data[: len(BEFORE + prefix) + 1], version)


# -- Python --------------------------------------------------------------------------------------


@each_form
def test_dictionaries_pickles_copies_and_representations_come_back(
    form: Form, packages: Packages
) -> None:
    package = packages(form)
    assert form.values
    for case in cases(form, package):
        message = case.message
        text = json.dumps(message.to_dict())
        assert case.cls.from_dict(json.loads(text)) == message
        assert pickle.loads(pickle.dumps(message)) == copy.deepcopy(message) == message
        assert eval(repr(message), {**vars(package), "S": case.cls, "inf": math.inf}) == message


@each_form
def test_json_schema_accepts_what_to_dict_returns(
    form: Form, packages: Packages, tmp_path: Path
) -> None:
    write_files(tmp_path / "defs", form.definitions())
    result = gen(tmp_path / "defs", tmp_path / "out", "--backend", "json-schema")
    assert result.exit_code == 0, result.output
    schema = json.loads((tmp_path / "out" / "S.schema.json").read_text())
    for case in cases(form, packages(form)):
        if isinstance(case.given, float) and not math.isfinite(case.given):
            continue  # JSON has no infinity
        jsonschema.validate(case.message.to_dict(), schema)
    for given in form.refused:
        if isinstance(given, int) and not isinstance(given, bool):
            with pytest.raises(jsonschema.ValidationError):
                jsonschema.validate({"before": 1, "f": given, "after": 2}, schema)


@each_form
def test_the_engine_has_the_form(form: Form, packages: Packages) -> None:
    """Otherwise it would decline all values, and the other tests would only test pure Python."""
    if ENGINE is None:
        pytest.skip(status())
    cls = packages(form).S
    assert [cls._load_program(version) is not None for version in (0, 1)] == [True, True]


# -- tools ---------------------------------------------------------------------------------------


@each_form
def test_show_can_be_imported_with_the_same_bytes(
    form: Form, packages: Packages, build: Build, tmp_path: Path
) -> None:
    package = packages(form)
    text = "\n\n".join(show(package.__name__))
    assert not form.notation or f"f => {form.notation}\n" in f"{text}\n"
    guide = tmp_path / "guide.txt"
    guide.write_text(text)
    diagnostics = Diagnostics()
    result = import_guides([guide], Answers(), diagnostics)
    assert result is not None, (text, diagnostics.sorted())
    again = build(dict(result.files))
    for case in cases(form, package):
        assert again.S.decode(case.data, case.version).encode(case.version) == case.data, text


@each_form
def test_export_names_the_form_that_kafkas_json_lacks(form: Form, tmp_path: Path) -> None:
    write_files(tmp_path / "defs", form.definitions())
    result = CliRunner().invoke(
        main, ["export", "--kafka-json", str(tmp_path / "defs"), "-o", str(tmp_path / "out")]
    )
    if form.kafka:
        assert (tmp_path / "out" / "S.json").exists(), result.output
        assert form.kafka in (tmp_path / "out" / "S.json").read_text()
    else:
        assert not (tmp_path / "out" / "S.json").exists()
        lacked = form.json or form.type
        assert "F" in result.output and lacked in result.output


@each_form
def test_the_reference_shows_the_type_of_the_definition(form: Form, tmp_path: Path) -> None:
    write_files(tmp_path / "defs", form.definitions())
    result = CliRunner().invoke(main, ["docs", str(tmp_path / "defs"), "-o", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    page = (tmp_path / "out" / "a.html").read_text()
    assert shown_type(form) in page


def shown_type(form: Form) -> str:
    return form.shown or form.type.partition("(")[0]


@each_form
def test_the_formatter_keeps_the_form(form: Form, tmp_path: Path) -> None:
    write_files(tmp_path, form.definitions())
    result = CliRunner().invoke(main, ["fmt", "--check", str(tmp_path)])
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(main, ["check", "--strict", str(tmp_path)])
    assert result.exit_code == 0, result.output


@each_form
def test_editors_describe_and_colour_the_form(form: Form) -> None:
    text = form.definitions()
    at = text.index("F: ") + 3
    kinds = {each.kind for each in scan(text) if at <= each.start < at + len(form.type)}
    assert kinds <= {
        LexemeKind.TYPE,
        LexemeKind.STRUCT,
        LexemeKind.DEFAULT,
        LexemeKind.PUNCTUATION,
        LexemeKind.OPERATOR,
    }
    assert LexemeKind.TYPE in kinds
    assert VSCODE_TYPE.match(form.type)
    sheet = Sheet(a=text[: at - 3] + CURSOR + text[at - 3 :])
    found = hover(sheet.analysis, sheet.file, sheet.cursor)
    assert found is not None
    assert isinstance(found.contents, lsp.MarkupContent)
    assert re.search(r"\| v0(-v1|\+)? \| \S.* \| [0-9a-f ]+ \|", found.contents.value)
    sheet = Sheet(a=text[:at] + CURSOR + text[at:])
    described = hover(sheet.analysis, sheet.file, sheet.cursor)
    assert described is not None, "the word of the language"


VSCODE = Path(__file__).parents[2] / "editors" / "vscode" / "syntaxes" / "krammar.tmLanguage.json"
VSCODE_TYPE = next(
    re.compile(each["match"])
    for each in json.loads(VSCODE.read_text())["repository"]["type"]["patterns"]
    if each["name"] == "support.type.krammar"
)


@each_form
def test_diff_reports_another_form(form: Form, tmp_path: Path) -> None:
    write_files(tmp_path / "old", form.definitions())
    other = form.definitions().replace(f"F: {form.type}\n{form.below}", "F: uuid\n")
    write_files(tmp_path / "new", other)
    result = CliRunner().invoke(main, ["diff", str(tmp_path / "old"), str(tmp_path / "new")])
    assert result.exit_code == 1
    assert "B104" in result.output and "S.F is uuid, it was " in result.output


@each_form
def test_spark_has_a_type_for_it(form: Form, packages: Packages) -> None:
    if not form.spark:
        pytest.skip("the types of its parts are tested")
    pytest.importorskip("pyspark", reason="PySpark is not installed")
    from krammar.spark.typed.types import mapped_class

    cls = packages(form).S
    mapped = mapped_class(cls)
    assert mapped.type["f"].dataType.simpleString() == form.spark  # type: ignore[index]
    for case in cases(form, packages(form)):
        assert mapped.to_spark is not None and mapped.from_spark is not None
        assert mapped.from_spark(mapped.to_spark(case.message)) == case.message


# -- newer versions ------------------------------------------------------------------------------

NEWER = """\
Plan => not top level, with version field, max version 1, newer versions read as the newest
  Version: int16
  A: int8
  B: int8 // v1+

Strict => not top level, with version field, max version 1
  Version: int16
"""


@pytest.mark.parametrize("version", [2, 3, 32767])
def test_newer_versions_are_read_as_the_newest(build: Build, version: int) -> None:
    package = build(NEWER)
    data = version.to_bytes(2, "big") + b"\7\x09later"
    newest = package.Plan(version=1, a=7, b=9)

    assert package.Plan.decode(data) == package.Plan.decode(data, version) == newest
    assert package.Plan.decode_from(b"--" + data, 2) == (newest, 2 + len(data))
    assert package.Plan.decode(data).encode() == b"\0\1\7\x09"
    assert "Newer versions are decoded as v1" in package.Plan.__doc__
    with pytest.raises(DecodeError) as caught:
        package.Plan.decode(data[:3])
    assert caught.value.path == "b"
    with pytest.raises(UnsupportedVersionError):
        package.Plan(version=version).encode()
    with pytest.raises(UnsupportedVersionError):
        package.Strict.decode(data)


def test_known_and_negative_versions_are_read_as_they_are(build: Build) -> None:
    package = build(NEWER)

    assert package.Plan.decode(b"\0\0\7") == package.Plan(a=7)
    with pytest.raises(DecodeError, match="left over"):
        package.Plan.decode(b"\0\1\7\x09later")
    with pytest.raises(UnsupportedVersionError):
        package.Plan.decode(b"\xff\xff\7")
    with pytest.raises(DecodeError, match="the version field says 5, not 1"):
        package.Plan.decode(b"\0\5\7\x09", 1)


def test_consumers_read_subscriptions_of_newer_members() -> None:
    data = kafka_wire.ConsumerProtocolSubscription(version=3, topics=["t"], rack_id="r").encode()

    newer = kafka_wire.ConsumerProtocolSubscription.decode(b"\0\x09" + data[2:] + b"more")

    assert newer == kafka_wire.ConsumerProtocolSubscription.decode(data)


# -- Wireshark -----------------------------------------------------------------------------------


@needs_tshark
def test_wireshark_shows_the_same_values(build: Build, tmp_path: Path) -> None:
    """Each form is a request of its own, and each value a frame."""
    text = "".join(
        form.message().replace("S => not top level", f"F{key}Request => key {key}, max version 1")
        + f"\nF{key}Response =>\n  A: int8\n\n"
        for key, form in enumerate(FORMS)
    )
    text += "".join(f"{part}\n" for part in sorted({form.parts for form in FORMS}))
    package = build({"forms.krm": text.rstrip("\n") + "\n"})
    source = write_files(tmp_path / "defs", {"forms.krm": text.rstrip("\n") + "\n"})
    result = gen(source, tmp_path / "out", "--backend", "wireshark", "--option", "name=forms")
    assert result.exit_code == 0, result.output
    talk = Conversation()
    expected = []
    for key, form in enumerate(FORMS):
        cls = package.request_class(key)
        for version in (0, 1):
            headers = package.header_versions(key, version)
            sent = package.RequestHeader(
                request_api_key=key, request_api_version=version, correlation_id=len(expected)
            )
            for given, _ in form.values:
                message = cls(before=0x11, f=value_of(given, cls), after=0x22)
                talk.frame(sent.encode(headers.request) + message.encode(version), by_client=True)
                expected.append((form.type, cls._layout(version), message.encode(version)))
    found = frames(tmp_path / "out" / "forms.lua", write_pcap(tmp_path / "a.pcap", [talk]), "forms")
    for (name, layout, data), shown in zip(expected, found, strict=True):
        (item,) = (
            each for each in shown.children if each.label == f"{layout.name} v{layout.version}"
        )
        compare(layout, layout.read(data), item.children, name)
