"""The command line: exit codes, help, and users' mistakes. Never a traceback."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from krammar import __version__
from krammar.cli import main
from tests.support.waiting import PATIENCE

VERBS = ("gen", "check", "fmt", "import", "inspect", "tap")

GOOD = "ARequest => key 0, max version 1\n  A: int8\n\nAResponse =>\n  A: int8\n"
UGLY = GOOD + "\n\n"
BAD = "ARequest => key 0, max version 1\n  A: int9\n"


_FOO = """{"type": "request", "name": "FooRequest", "apiKey": 3, "validVersions": "0",
"flexibleVersions": "none", "fields": [{"name": "N", "type": "string", "versions": "0+"}]}"""


def run(*arguments: str | Path, stdin: bytes | None = None) -> Result:
    """Run a command. What it raises is an error of the test, except its exit code."""
    result = CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def krammar(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "krammar", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "definitions" / "pkg"
    folder.mkdir(parents=True)
    (folder / "a.krm").write_text(GOOD)
    return folder.parent


# -- help ----------------------------------------------------------------------------------------


def test_help_lists_the_verbs_with_examples() -> None:
    result = run("--help")

    assert result.exit_code == 0
    for verb in VERBS:
        assert f"\n  {verb} " in result.output
    assert "Examples:\n    krammar gen definitions/ -o generated/\n" in result.output


@pytest.mark.parametrize("group", [(), ("topics",), ("broker-user",)])
def test_help_cuts_no_description_of_a_command(group: tuple[str, ...]) -> None:
    usage, *lines = run(*group, "--help").output.splitlines()

    assert usage.endswith("[ARGS]...")
    assert [line for line in lines if line.endswith("...")] == []


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_of_a_verb_has_examples(verb: str, flag: str) -> None:
    result = run(verb, flag)

    assert result.exit_code == 0
    assert f"Examples:\n    krammar {verb} " in result.output


def test_version() -> None:
    assert run("--version").output == f"krammar, version {__version__}\n"


# -- misuse: exit code 2 -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gne"], "No such command 'gne'"),
        (["gen"], "Missing argument 'SOURCE'"),
        (["gen", "."], "Missing option '-o' / '--out'"),
        (["gen", "nowhere", "-o", "out"], "'nowhere' does not exist"),
        (["gen", "empty", "-o", "out"], "empty contains no definition files"),
        (["gen", "definitions", "-o", "file"], "'file' is a file"),
        (["gen", "definitions", "-o", "file/out"], "Not a directory"),
        (["gen", "definitions", "-o", "out", "--templates", "no"], "'no' does not exist"),
        (
            ["gen", "definitions", "-o", "out", "--templates", "empty"],
            "contains no templates (*.j2)",
        ),
        (["gen", "definitions", "-o", "out", "--format", "xml"], "'xml' is not one of"),
        (["check"], "Missing argument 'SOURCE...'"),
        (["check", "nowhere"], "'nowhere' does not exist"),
        (["check", "empty"], "empty contains no definition files"),
        (["check", "definitions", "--strictly"], "--strictly"),
        (["fmt"], "Missing argument 'PATH...'"),
        (["fmt", "nowhere"], "'nowhere' does not exist"),
        (["fmt", "empty"], "empty contains no definition files"),
        (["import"], "Missing argument 'TEXT|KAFKA_JSON_DIR...'"),
        (["import", "empty", "file"], "give files or folders, not both"),
        (["import", "nowhere", "-o", "out"], "'nowhere' does not exist"),
        (["import", "empty", "-o", "out", "--release", "1", "--release", "2"], "--release once"),
        (["inspect"], "Missing argument 'PACKAGE|PATH'"),
        (["inspect", "kafka_wire"], "give PACKAGE and NAME"),
        (["inspect", "no_such_package", "A"], "'no_such_package' cannot be imported"),
        (["inspect", "", "A"], "cannot be imported"),
        (["inspect", "../up", "A"], "cannot be imported"),
        (["inspect", "broken_package", "A"], "'broken_package' cannot be imported"),
        (["inspect", "kafka_wire", "Nothing"], "kafka_wire has no message 'Nothing'"),
        (["inspect", "kafka_wire", "FetchRequst"], 'did you mean "FetchRequest"?'),
        (["gn"], "No such command 'gn'. Did you mean 'gen'?"),
        (["xyzzy"], "No such command 'xyzzy'.\n"),
        (["inspect", "kafka_wire", "ErrorCode", "0"], "has no message 'ErrorCode'"),
        (
            ["inspect", "kafka_wire", "FetchRequest.FetchTopic", "0"],
            "that can be decoded by itself",
        ),
        (["inspect", "kafka_wire", "FetchRequest", "999"], "has no version 999"),
        (["inspect", "kafka_wire", "FetchRequest", "-1"], "-1"),
        (["inspect", "kafka_wire", "FetchRequest", "x", "y"], "VERSION must be a number, not 'x'"),
        (["inspect", "kafka_wire", "FetchRequest", "1", "nowhere"], "No such file"),
        (["inspect", "kafka_wire", "FetchRequest", "1", "--hex", "0g"], "--hex: "),
        (["inspect", "kafka_wire", "FetchRequest", "1", "file", "--hex", "00"], "not both"),
        (["inspect", "os", "path"], "os has no message 'path'"),
        (["inspect", "json", "request", "file"], "json has no requests"),
        (["inspect", "journal_wire", "request", "file"], "journal_wire has no requests"),
        (["inspect", "kafka_wire", "request"], "request needs bytes (give FILE or --hex)"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_misuse(
    source: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: Sequence[str],
    message: str,
) -> None:
    folder = source.parent
    (folder / "empty").mkdir()
    (folder / "empty" / "README.md").write_text("# no definitions")
    (folder / "file").write_text("a file")
    (folder / "broken_package.py").write_text("1 / 0\n")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))

    result = run(*arguments)

    assert result.exit_code == 2, result.output
    assert message in result.stderr
    assert not (folder / "out").exists()


def test_a_verb_is_needed() -> None:
    assert run().exit_code == 2


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere"
)
def test_a_folder_that_cannot_be_written(source: Path, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)

    result = run("gen", source, "-o", tmp_path / "locked" / "out")

    assert result.exit_code == 2
    assert "Permission denied" in result.stderr


# -- fine and diagnostics: exit codes 0 and 1 -------------------------------------------------------


def test_check(source: Path) -> None:
    fine = run("check", source)
    assert (fine.exit_code, fine.output) == (0, "1 file, 2 definitions: no errors\n")

    (source / "pkg" / "a.krm").write_text(UGLY)
    ugly = run("check", source)
    assert ugly.exit_code == 0
    assert "warning W903" in ugly.stdout
    assert ugly.stderr == "\n1 warning\n"

    strict = run("check", source, "--strict")
    assert strict.exit_code == 1
    assert "error W903" in strict.stdout
    assert strict.stderr == "\n1 error\n"

    (source / "pkg" / "b.krm").write_text(BAD.replace("ARequest", "BRequest"))
    bad = run("check", source)
    assert bad.exit_code == 1
    assert bad.stdout.count(": error ") == 2  # the key and the type
    assert bad.stderr == "\n2 errors and 1 warning\n"


def test_check_of_several_sources(source: Path, tmp_path: Path) -> None:
    (tmp_path / "one.krm").write_text("S =>\n  A: int8\n")

    result = run("check", source / "pkg" / "a.krm", tmp_path / "one.krm")

    assert result.exit_code == 0
    assert "2 files, 3 definitions" in result.output


def test_check_as_json(source: Path) -> None:
    assert json.loads(run("check", source, "--format", "json").stdout) == []

    (source / "pkg" / "a.krm").write_text(BAD)
    result = run("check", source, "--format", "json")

    assert result.exit_code == 1
    (diagnostic,) = json.loads(result.stdout)
    assert diagnostic == {
        "code": "E204",
        "severity": "error",
        "path": str(source / "pkg" / "a.krm"),
        "line": 2,
        "column": 6,
        "length": 4,
        "message": 'unknown type "int9"',
        "source": "  A: int9",
        "hint": 'did you mean "int8"?',
    }


def test_check_for_github(source: Path) -> None:
    (source / "pkg" / "a.krm").write_text(BAD)

    result = run("check", source, "--format", "github")

    assert result.exit_code == 1
    assert result.stdout == (
        f"::error file={source}/pkg/a.krm,line=2,col=6,endColumn=9,title=krammar E204"
        '::unknown type "int9" (did you mean "int8"?)\n'
    )


def test_gen(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"

    result = run("gen", source, "-o", out)
    assert (result.exit_code, result.output) == (
        0,
        f"{out}: 11 written, 0 unchanged, 0 removed\n",
    )
    result = run("gen", source, "-o", out, "--check")
    assert (result.exit_code, result.output) == (
        0,
        f"{out}: 11 files, all current\n",
    )
    (source / "pkg" / "a.krm").write_text(GOOD.replace("int8", "int16"))
    assert run("gen", source, "-o", out, "--check").exit_code == 1
    (source / "pkg" / "a.krm").write_text(BAD)
    result = run("gen", source, "-o", out)
    assert result.exit_code == 1
    assert "E204" in result.stdout
    assert result.stderr == "\n1 error\nnothing was written\n"


def test_gen_formats_diagnostics(source: Path, tmp_path: Path) -> None:
    (source / "pkg" / "a.krm").write_text(BAD)

    result = run("gen", source, "-o", tmp_path / "out", "--format", "json")

    assert result.exit_code == 1
    assert [diagnostic["code"] for diagnostic in json.loads(result.stdout)] == ["E204"]


def test_fmt(source: Path) -> None:
    assert run("fmt", source).exit_code == 0
    (source / "pkg" / "a.krm").write_text(UGLY)
    assert run("fmt", "--check", source).exit_code == 1
    assert run("fmt", source / "pkg" / "a.krm").exit_code == 0
    assert (source / "pkg" / "a.krm").read_text() == GOOD
    (source / "pkg" / "a.krm").write_text("A B\n")
    assert run("fmt", source).exit_code == 1
    diagnostics = json.loads(run("fmt", source, "--format", "json").stdout)
    assert [diagnostic["code"] for diagnostic in diagnostics] == ["E106"]


def test_import(tmp_path: Path) -> None:
    schemas = tmp_path / "json"
    schemas.mkdir()
    (schemas / "FooRequest.json").write_text(
        json.dumps(
            {
                "type": "request",
                "name": "FooRequest",
                "apiKey": 3,
                "validVersions": "0-1",
                "flexibleVersions": "none",
                "fields": [{"name": "Name", "type": "string", "versions": "0+"}],
            }
        )
    )

    result = run("import", schemas, "-o", tmp_path / "out")

    assert result.exit_code == 0
    assert f"{tmp_path / 'out'}: 1 file written\n" in result.output
    assert run("check", tmp_path / "out").exit_code == 0
    (schemas / "FooRequest.json").write_text("{")
    broken = run("import", schemas, "-o", tmp_path / "other")
    assert broken.exit_code == 1
    assert "FooRequest.json" in broken.stderr
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"fields":' + "[" * 100_000, "nested too deeply"),
        ('{"fields": [' * 300 + "]}" * 300, "nested too deeply"),
        (
            _FOO.replace("FooRequest", r"Foo =>\n  X: int8\n\nBar"),
            "contains characters other than letters",
        ),
        (
            _FOO.replace('"N"', r'"N: int8\n  M"'),
            r'the name "N: int8\n  M" contains characters other than',
        ),
        (_FOO.replace('"string"', r'"[]T\n  M: int8", "fields": []'), "is not a type"),
    ],
    ids=["brackets", "fields", "fields in fields", "a message", "a field", "a struct"],
)
def test_import_of_hostile_schemas(tmp_path: Path, text: str, message: str) -> None:
    schemas = tmp_path / "json"
    schemas.mkdir()
    (schemas / "FooRequest.json").write_text(text)

    result = krammar("import", "json", "-o", "out", cwd=tmp_path)

    assert result.returncode == 1
    assert result.stderr.startswith("json/FooRequest.json:")
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "out").exists()


# -- inspect -------------------------------------------------------------------------------------


FRAME = bytes.fromhex("0003 0000 00000007 ffff 00000001 0001 61")


def test_inspect_a_message() -> None:
    result = run("inspect", "kafka_wire", "MetadataRequest", "0", "--hex", "00000001 0001 61")

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "MetadataRequest v0: 7 of 7 bytes\n"
        "     0  00 00 00 01 00 01 61        topics  [MetadataRequest.Topic]\n"
        "     4  00 01 61                      [0]  MetadataRequest.Topic\n"
        "     4  00 01 61                        name = 'a'  STRING\n"
    )


def test_inspect_a_frame_from_a_file(tmp_path: Path) -> None:
    (tmp_path / "frame.bin").write_bytes(FRAME)

    result = run("inspect", "kafka_wire", "request", tmp_path / "frame.bin")

    assert result.exit_code == 0
    assert "RequestHeader v1: 10 of 10 bytes\n" in result.stdout
    assert "MetadataRequest v0: 7 of 7 bytes\n" in result.stdout
    assert "    14  00 01 61                        name = 'a'  STRING\n" in result.stdout


def test_inspect_standard_input() -> None:
    result = run("inspect", "kafka_wire", "request", "-", stdin=FRAME)

    assert result.exit_code == 0
    assert "name = 'a'" in result.stdout


def test_inspect_a_struct_that_holds_its_version(tmp_path: Path) -> None:
    (tmp_path / "key.bin").write_bytes(bytes.fromhex("0001 0001 67 0001 74 00000003"))

    result = run("inspect", "kafka_wire", "OffsetCommitKey", tmp_path / "key.bin")

    assert result.exit_code == 0
    assert "OffsetCommitKey v1: 12 of 12 bytes" in result.stdout


@pytest.mark.parametrize("data", ["00000001 0002 61", "00000001 0001 61 00", "7fffffff"])
def test_inspect_prints_the_fields_before_an_error(data: str) -> None:
    result = run("inspect", "kafka_wire", "MetadataRequest", "0", "--hex", data)

    assert result.exit_code == 1
    assert result.stdout.startswith("MetadataRequest v0: ")
    assert result.stderr.startswith("error: MetadataRequest v0: ")


@pytest.mark.parametrize("data", ["", "00", "0003", "0003 0000", "0063 0000", "0003 7fff 00000007"])
def test_inspect_a_broken_frame(data: str) -> None:
    result = run("inspect", "kafka_wire", "request", "--hex", data)

    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")


def test_inspect_a_layout() -> None:
    result = run("inspect", "kafka_wire", "MetadataRequest", "1")

    assert result.exit_code == 0
    assert result.stdout.startswith("MetadataRequest v1\n  topics: ")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("version", [[], ["4"]], ids=["long", "short"])
def test_output_that_cannot_be_written(version: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        found = subprocess.run(
            [sys.executable, "-m", "krammar", "show", "kafka_wire", "FetchRequest", *version],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    assert (found.returncode, found.stderr) == (1, "Error: No space left on device\n")


@pytest.mark.parametrize(
    "arguments",
    [
        "inspect kafka_wire FetchRequest 4 -",
        "broker-user add alice --data-dir none --password-stdin",
        "produce t -b 127.0.0.1:1",
        "lsp",
    ],
)
def test_a_closed_standard_input(tmp_path: Path, arguments: str) -> None:
    if arguments == "lsp":
        pytest.importorskip("pygls")
    found = subprocess.run(
        ["sh", "-c", f"exec '{sys.executable}' -m krammar {arguments} <&-"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert found.returncode == 2
    assert "standard input is closed" in found.stderr and "Traceback" not in found.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_log_file_that_cannot_be_written(tmp_path: Path) -> None:
    pytest.importorskip("pygls")
    result = run("lsp", "--log-file", tmp_path / "none" / "x.log")

    assert result.exit_code == 1
    assert result.stderr == f"Error: {tmp_path / 'none' / 'x.log'}: No such file or directory\n"


def test_docs_replaces_no_file_of_others(source: Path, tmp_path: Path) -> None:
    page = tmp_path / "site" / "index.html"
    page.parent.mkdir()
    page.write_text("<p>by hand</p>")

    result = run("docs", source, "-o", page.parent)

    assert result.exit_code == 2
    assert f"krammar did not write {page}" in result.stderr
    assert [each.name for each in page.parent.iterdir()] == ["index.html"]
    assert page.read_text() == "<p>by hand</p>"
    assert run("docs", source, "-o", page.parent, "--force").exit_code == 0
    assert page.read_text() != "<p>by hand</p>"
    assert run("docs", source, "-o", page.parent).exit_code == 0


# -- as a program --------------------------------------------------------------------------------


def test_as_a_module(source: Path, tmp_path: Path) -> None:
    fine = krammar("check", source, cwd=tmp_path)
    assert (fine.returncode, fine.stderr) == (0, "")

    (source / "pkg" / "a.krm").write_text(BAD)
    bad = krammar("check", "definitions", cwd=tmp_path)
    assert bad.returncode == 1
    assert bad.stdout == (
        'definitions/pkg/a.krm:2:6: error E204: unknown type "int9"\n'
        "  |\n"
        "2 |   A: int9\n"
        "  |      ^^^^\n"
        '  = hint: did you mean "int8"?\n'
    )

    misuse = krammar("gen", "nowhere", "-o", "out", cwd=tmp_path)
    assert misuse.returncode == 2
    assert "krammar gen" in misuse.stderr
    assert "Traceback" not in misuse.stderr


def test_the_command_lines_module_has_all_verbs(tmp_path: Path) -> None:
    said = [
        subprocess.run(
            [sys.executable, "-m", module, "--help"], cwd=tmp_path, capture_output=True, text=True
        ).stdout
        for module in ("krammar", "krammar.cli")
    ]
    assert said[0] == said[1]
    assert all(f"\n  {verb} " in said[1] for verb in main.list_commands(click.Context(main)))


def test_a_package_in_this_folder_can_be_inspected(source: Path, tmp_path: Path) -> None:
    assert krammar("gen", "definitions", "-o", ".", cwd=tmp_path).returncode == 0

    script = Path(sys.executable).with_name("krammar")
    result = subprocess.run(
        [script, "inspect", "pkg", "ARequest", "0", "--hex", "05"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )

    assert (result.returncode, result.stderr) == (0, "")
    assert "a = 5  INT8" in result.stdout


def test_help_is_quick_because_nothing_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys; from krammar.cli import main; main(['--help'], standalone_mode=False); "
        "print(sorted(m for m in sys.modules if m in ('lark', 'jinja2', 'black', 'krammar.wire')))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True
    )

    assert result.stdout.endswith("[]\n")


# -- Ctrl-C --------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs a terminal")
@pytest.mark.parametrize("terminal", [True, False], ids=["all processes", "one process"])
def test_ctrl_c_ends_gen_at_once(tmp_path: Path, terminal: bool) -> None:
    definitions = Path(__file__).parents[2] / "definitions"
    controller, screen = os.openpty()
    command = [sys.executable, "-m", "krammar", "gen", definitions, "-o", tmp_path / "out"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=screen, start_new_session=True
    ) as process:
        os.close(screen)
        said = b""
        while b"generating" not in said:  # the progress bar: files are being formatted
            said += os.read(controller, 1024)
        if terminal:
            os.killpg(process.pid, signal.SIGINT)
        else:
            process.send_signal(signal.SIGINT)
        with contextlib.suppress(OSError):  # how a terminal ends
            while more := os.read(controller, 1024):
                said += more
        assert process.wait(PATIENCE) == 130
    os.close(controller)
    assert b"Traceback" not in said
    assert said.rstrip().endswith(b"interrupted")
    assert not (tmp_path / "out").exists()
    with pytest.raises(ProcessLookupError):  # no worker is left
        os.killpg(process.pid, 0)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs a pipe with a name")
@pytest.mark.parametrize(
    "arguments",
    [["import", "schemas", "-o", "out"], ["inspect", "kafka_wire", "request", "schemas/a.json"]],
    ids=lambda arguments: arguments[0],
)
def test_ctrl_c_is_exit_code_130(tmp_path: Path, arguments: list[str]) -> None:
    (tmp_path / "schemas").mkdir()
    os.mkfifo(tmp_path / "schemas" / "a.json")
    command = [sys.executable, "-m", "krammar", *arguments]
    with (
        subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE) as process,
        (tmp_path / "schemas" / "a.json").open("wb"),  # waits until it is read
    ):
        process.send_signal(signal.SIGINT)
        error = process.communicate(timeout=PATIENCE)[1]

    assert (process.returncode, error) == (130, b"interrupted\n")


def test_packages_that_come_with_krammar_are_sources(tmp_path: Path) -> None:
    done = krammar("gen", "journal_wire", "-o", "out", "--backend", "wireshark", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "journal_wire.lua").exists()
    (tmp_path / "journal_wire").mkdir()  # a folder of that name takes precedence
    assert krammar("check", "journal_wire", cwd=tmp_path).returncode != 0
