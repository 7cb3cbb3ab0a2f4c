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
import pytest
from click.testing import CliRunner
from lsprotocol import types as lsp

from krammar.cli import main
from krammar.compiler.backends.interface import Source
from krammar.compiler.backends.native.modules import NativeBackend
from krammar.compiler.front.source import compile_source
from krammar.compiler.guide import Answers, import_guides
from krammar.highlighting.scanner import LexemeKind, scan
from krammar.inspect.notation import show
from krammar.lsp.hover import hover
from krammar.util.diagnostics import Diagnostics
from krammar.wire.errors import DecodeError, EncodeError
from tests.compiler.conftest import Build, write_files
from tests.compiler.support import gen
from tests.compiler.tshark import Conversation, compare, frames, needs_tshark, write_pcap
from tests.lsp.sheets import CURSOR, Sheet

BEFORE, AFTER = b"\x11", b"\x22"


@dataclass(frozen=True)
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
    pure: str = ""
    parts: str = ""

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
    for case in cases(form, packages(form)):
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
    for version in (0, 1):
        for text in form.wrong:
            data = BEFORE + bytes.fromhex(text) + AFTER + b"\0" * version
            with pytest.raises(DecodeError) as caught:
                cls.decode(data, version)
            assert caught.value.path.startswith("f"), text


@each_form
def test_wrong_values_are_refused_with_the_path(form: Form, packages: Packages) -> None:
    package = packages(form)
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
        hostile = [case.data[:end] for end in range(len(case.data))]
        for at in range(len(case.data)):
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
        data = BEFORE + AFTER + bytes([1, 0, len(inner)]) + inner
        if form.type.startswith("nullable-bool") or len(inner) > 127:
            continue
        assert message.encode(1).hex(" ") == data.hex(" ")
        assert package.S.decode(data, 1) == message
        with pytest.raises(DecodeError):
            package.S.decode(BEFORE + AFTER + bytes([1, 0, len(inner) + 1]) + inner + b"\0", 1)
        compared += 1
    assert compared


@each_form
def test_elements_of_arrays_have_the_same_bytes(form: Form, build: Build) -> None:
    if form.below or "[" in form.type:
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
def test_a_module_with_the_form_is_not_compiled(form: Form, tmp_path: Path) -> None:
    """The pure codec serves it, so that both builds behave in the same way."""
    write_files(tmp_path, form.definitions())
    (protocol,) = compile_source(tmp_path, Diagnostics())
    (reason,) = NativeBackend().reasons(Source(protocol, "a", "a")).values()
    assert reason == f"it contains {form.pure or form.type}"


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
        name = re.match(r"[\w-]+", form.type)
        assert name is not None
        assert name[0] in result.output and "F" in result.output


@each_form
def test_the_reference_shows_the_type_of_the_definition(form: Form, tmp_path: Path) -> None:
    write_files(tmp_path / "defs", form.definitions())
    result = CliRunner().invoke(main, ["docs", str(tmp_path / "defs"), "-o", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    page = (tmp_path / "out" / "a.html").read_text()
    assert shown_type(form) in page


def shown_type(form: Form) -> str:
    return form.type.replace("=>", "").partition("(")[0]


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
    assert kinds <= {LexemeKind.TYPE, LexemeKind.PUNCTUATION, LexemeKind.OPERATOR}
    word = re.match(r"[\w-]+", form.type)
    assert word is not None and VSCODE_TYPE.fullmatch(word[0])
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
