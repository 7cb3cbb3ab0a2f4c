"""The command line: exit codes, help, and what a user gets wrong. Never a traceback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from krammar import __version__
from krammar.cli import main

VERBS = ("gen", "check", "fmt", "import", "inspect", "tap")

GOOD = "ARequest => key 0, max version 1\n  A: int8\n\nAResponse =>\n  A: int8\n"
UGLY = GOOD + "\n\n"
BAD = "ARequest => key 0, max version 1\n  A: int9\n"


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
        timeout=60,
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
        (["gen", "empty", "-o", "out"], "empty: no definition files in it"),
        (["gen", "definitions", "-o", "file"], "'file' is a file"),
        (["gen", "definitions", "-o", "file/out"], "Not a directory"),
        (["gen", "definitions", "-o", "out", "--templates", "no"], "'no' does not exist"),
        (["gen", "definitions", "-o", "out", "--templates", "empty"], "no templates (*.j2) in it"),
        (["gen", "definitions", "-o", "out", "--format", "xml"], "'xml' is not one of"),
        (["check"], "Missing argument 'SOURCE...'"),
        (["check", "nowhere"], "'nowhere' does not exist"),
        (["check", "empty"], "empty: no definition files in it"),
        (["check", "definitions", "--strictly"], "--strictly"),
        (["fmt"], "Missing argument 'PATH...'"),
        (["fmt", "nowhere"], "'nowhere' does not exist"),
        (["fmt", "empty"], "empty: no definition files in it"),
        (["import"], "Missing argument 'KAFKA_JSON_DIR...'"),
        (["import", "empty"], "Missing option '-o' / '--out'"),
        (["import", "nowhere", "-o", "out"], "'nowhere' does not exist"),
        (["import", "empty", "-o", "out", "--release", "1", "--release", "2"], "--release once"),
        (["inspect"], "Missing argument 'PACKAGE'"),
        (["inspect", "kafka_wire"], "Missing argument 'NAME'"),
        (["inspect", "no_such_package", "A"], "'no_such_package' cannot be imported"),
        (["inspect", "", "A"], "cannot be imported"),
        (["inspect", "../up", "A"], "cannot be imported"),
        (["inspect", "broken_package", "A"], "'broken_package' cannot be imported"),
        (["inspect", "kafka_wire", "Nothing"], "kafka_wire has no message 'Nothing'"),
        (["inspect", "kafka_wire", "ErrorCode", "0"], "has no message 'ErrorCode'"),
        (["inspect", "kafka_wire", "FetchRequestTopic", "0"], "that can be read by itself"),
        (["inspect", "kafka_wire", "FetchRequest", "999"], "has no version 999"),
        (["inspect", "kafka_wire", "FetchRequest", "-1"], "-1"),
        (["inspect", "kafka_wire", "FetchRequest", "x", "y"], "VERSION is a number, not 'x'"),
        (["inspect", "kafka_wire", "FetchRequest", "1", "nowhere"], "No such file"),
        (["inspect", "kafka_wire", "FetchRequest", "1", "--hex", "0g"], "--hex: "),
        (["inspect", "kafka_wire", "FetchRequest", "1", "file", "--hex", "00"], "not both"),
        (["inspect", "os", "path"], "os has no message 'path'"),
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


# -- fine and findings: exit codes 0 and 1 -------------------------------------------------------


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
    (finding,) = json.loads(result.stdout)
    assert finding == {
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
        f"{out}: 8 written, 0 unchanged, 0 removed\n",
    )
    result = run("gen", source, "-o", out, "--check")
    assert (result.exit_code, result.output) == (
        0,
        f"{out}: 8 files, all as they would be generated\n",
    )
    (source / "pkg" / "a.krm").write_text(GOOD.replace("int8", "int16"))
    assert run("gen", source, "-o", out, "--check").exit_code == 1
    (source / "pkg" / "a.krm").write_text(BAD)
    result = run("gen", source, "-o", out)
    assert result.exit_code == 1
    assert "E204" in result.stdout
    assert result.stderr == "\n1 error\nnothing was written\n"


def test_gen_formats_findings(source: Path, tmp_path: Path) -> None:
    (source / "pkg" / "a.krm").write_text(BAD)

    result = run("gen", source, "-o", tmp_path / "out", "--format", "json")

    assert result.exit_code == 1
    assert [finding["code"] for finding in json.loads(result.stdout)] == ["E204"]


def test_fmt(source: Path) -> None:
    assert run("fmt", source).exit_code == 0
    (source / "pkg" / "a.krm").write_text(UGLY)
    assert run("fmt", "--check", source).exit_code == 1
    assert run("fmt", source / "pkg" / "a.krm").exit_code == 0
    assert (source / "pkg" / "a.krm").read_text() == GOOD
    (source / "pkg" / "a.krm").write_text("A B\n")
    assert run("fmt", source).exit_code == 1
    findings = json.loads(run("fmt", source, "--format", "json").stdout)
    assert [finding["code"] for finding in findings] == ["E106"]


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


# -- inspect -------------------------------------------------------------------------------------


FRAME = bytes.fromhex("0003 0000 00000007 ffff 00000001 0001 61")


def test_inspect_a_message() -> None:
    result = run("inspect", "kafka_wire", "MetadataRequest", "0", "--hex", "00000001 0001 61")

    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == (
        "MetadataRequest v0: 7 of 7 bytes\n"
        "     0  00 00 00 01 00 01 61        topics  [MetadataRequestTopic]\n"
        "     4  00 01 61                      [0]  MetadataRequestTopic\n"
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
def test_inspect_shows_how_far_it_came(data: str) -> None:
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


def test_a_package_in_this_folder_can_be_inspected(source: Path, tmp_path: Path) -> None:
    assert krammar("gen", "definitions", "-o", ".", cwd=tmp_path).returncode == 0

    script = Path(sys.executable).with_name("krammar")
    result = subprocess.run(
        [script, "inspect", "pkg", "ARequest", "0", "--hex", "05"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
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
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )

    assert result.stdout.endswith("[]\n")
