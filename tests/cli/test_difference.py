"""``krammar diff`` with a git revision, and with a file of accepted changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from krammar.cli import main
from tests.cli.test_ci import GOOD, commit, git, pytestmark, repository

__all__ = ["pytestmark"]


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with definitions, as the current folder, on the branch work."""
    folder = tmp_path / "user"
    (folder / "definitions" / "ping").mkdir(parents=True)
    (folder / "definitions" / "ping" / "a.krm").write_text(GOOD)
    (folder / "definitions" / "ping" / "b.krm").write_text("Mark => not top level\n  A: int8\n")
    repository(folder)
    git(folder, "checkout", "-q", "-b", "work")
    monkeypatch.chdir(folder)
    return folder


def diff(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["diff", *arguments])


def change(user: Path) -> None:
    (user / "definitions" / "ping" / "a.krm").write_text(GOOD.replace("int8", "int16"))
    (user / "definitions" / "ping" / "b.krm").unlink()


def test_what_a_branch_would_break(user: Path) -> None:
    result = diff("--against", "main", "definitions")
    assert (result.exit_code, result.output) == (0, "no breaking changes\n")
    change(user)
    result = diff("--against", "main", "definitions")
    assert result.exit_code == 1
    # What is missing has its place in the revision.
    assert result.output == """\
definitions/ping/a.krm:2:3: error B104: PingRequest.A is int16, it was int8 in v0
  |
2 |   A: int16
  |   ^
  = rule: bytes-changed
  = hint: released versions must not change; add a new version

definitions/ping/a.krm:5:3: error B104: PingResponse.A is int16, it was int8 in v0
  |
5 |   A: int16
  |   ^
  = rule: bytes-changed
  = hint: released versions must not change; add a new version

main:definitions/ping/b.krm:1:1: error B101: Mark is missing
  |
1 | Mark => not top level
  | ^^^^
  = rule: definition-missing
  = hint: restore its definition

3 errors
"""
    # A subfolder and a file.
    assert diff("--against", "main", "definitions/ping").output == result.output
    one = diff("--against", "main", "definitions/ping/a.krm")
    assert one.output.count("error B104") == 2


def test_programs_get_paths_without_the_revision(user: Path) -> None:
    change(user)
    result = diff("--against", "main", "definitions", "--format", "json")
    found = json.loads(result.stdout)
    assert [(each["path"], each["rule"]) for each in found] == [
        ("definitions/ping/a.krm", "bytes-changed"),
        ("definitions/ping/a.krm", "bytes-changed"),
        ("definitions/ping/b.krm", "definition-missing"),
    ]
    assert found[2]["source"] == "Mark => not top level"


def test_changes_of_the_other_branch_do_not_count(user: Path) -> None:
    git(user, "checkout", "-q", "main")
    (user / "definitions" / "ping" / "c.krm").write_text("Late => not top level\n  A: int8\n")
    commit(user)
    git(user, "checkout", "-q", "work")
    assert diff("--against", "main", "definitions").output == "no breaking changes\n"
    # Branches without a common commit are compared as they are.
    git(user, "checkout", "-q", "--orphan", "other")
    (user / "other.txt").touch()  # or the commit would be the first one of main
    commit(user)
    result = diff("--against", "main", "definitions")
    assert "error B101: Late is missing" in result.output


def test_definitions_that_are_new(user: Path) -> None:
    (user / "more").mkdir()
    (user / "more" / "a.krm").write_text(GOOD)
    result = diff("--against", "main", "more")
    assert result.exit_code == 0
    assert result.stderr == "more has no definitions at main: everything is new\n"
    assert result.stdout.endswith("no breaking changes\n")


@pytest.mark.parametrize("ref", ["nowhere", "-p", "main:definitions"])
def test_a_revision_that_does_not_exist(user: Path, ref: str) -> None:
    result = diff(f"--against={ref}", "definitions")
    assert result.exit_code == 2
    assert f"git knows no revision {ref!r} in {user} (fetch it, such as with" in result.output


def test_no_repository(tmp_path: Path) -> None:
    (tmp_path / "a.krm").write_text(GOOD)
    result = diff("--against", "main", str(tmp_path))
    assert result.exit_code == 2
    assert "git rev-parse: fatal: not a git repository" in result.output


def test_git_is_not_installed(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    result = diff("--against", "main", "definitions")
    assert result.exit_code == 2
    assert "git is not installed, so revisions cannot be compared" in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["definitions"], "give OLD and NEW"),
        (["definitions", "definitions", "definitions"], "give OLD and NEW"),
        (["--against", "main", "definitions", "definitions"], "give NEW only"),
        (["--against", "", "definitions"], "--against is empty (give a git revision"),
    ],
)
def test_misuse(user: Path, arguments: list[str], message: str) -> None:
    result = diff(*arguments)
    assert (result.exit_code, message in result.output) == (2, True)


def test_accepted_changes(user: Path) -> None:
    change(user)
    accepted = user / "accepted.txt"
    accepted.write_text(
        "# Nobody used it.\n\n"
        "definition-missing: Mark is missing\n"
        "bytes-changed: PingRequest.*\n"
        "key-changed: Gone*\n"
    )
    result = diff("--against", "main", "definitions", "--accepted", "accepted.txt")
    assert result.exit_code == 1
    assert result.stdout.count("error B") == 1
    assert "PingResponse.A is int16" in result.stdout
    assert "accepted.txt:5: no change matches this line any more\n" in result.stderr

    accepted.write_text("*: Mark is missing\n* : Ping*.A is int16, it was int8 in v0\n")
    result = diff("--against", "main", "definitions", "--accepted", "accepted.txt")
    assert (result.exit_code, result.output) == (0, "no breaking changes, except 3 accepted\n")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("bytes-changed", "accepted.txt:1: needs `rule: message`, such as"),
        ("bytes-changed:", "accepted.txt:1: needs `rule: message`, such as"),
        (
            "byte-changed: A",
            "accepted.txt:1: unknown rule 'byte-changed' (did you mean \"bytes-changed\"?)",
        ),
        ("B104: A", "accepted.txt:1: unknown rule 'B104' (rules: definition-missing, key-changed,"),
        (b"\xff", "accepted.txt is not UTF-8: "),
    ],
)
def test_files_of_accepted_changes_that_cannot_be(
    user: Path, line: str | bytes, message: str
) -> None:
    (user / "accepted.txt").write_bytes(line if isinstance(line, bytes) else line.encode())
    result = diff("--against", "main", "definitions", "--accepted", "accepted.txt")
    assert result.exit_code == 2
    assert message in result.output


def test_definitions_of_other_packages(user: Path) -> None:
    """A package that another one uses is compared as it was at the revision too."""
    marks = user / "definitions" / "marks"
    marks.mkdir()
    (marks / "marks.krm").write_text("Colour int8 (\n  0: RED\n)\n")
    used = "use marks: Colour\n\nuse kafka_wire: ErrorCode\n\nPaint => not top level\n  A: enum-Colour\n"
    (user / "definitions" / "ping" / "c.krm").write_text(used)
    commit(user)
    git(user, "branch", "-f", "main", "work")
    result = diff("--against", "main", "definitions")
    assert (result.exit_code, result.output) == (0, "no breaking changes\n")

    (marks / "marks.krm").write_text("Colour int16 (\n  0: RED\n)\n")
    result = diff("--against", "main", "definitions")
    assert result.exit_code == 1
    assert "Paint.A is int16, it was int8" in result.output


def test_links_in_a_revision(user: Path) -> None:
    """A link to a file of the folder is read; one that leads nowhere is an error."""
    ping = user / "definitions" / "ping"
    (ping / "c.krm").symlink_to("b.krm")
    (ping / "b.krm").rename(ping / "d.txt")
    (ping / "c.krm").unlink()
    (ping / "c.krm").symlink_to("missing.krm")
    commit(user)
    git(user, "branch", "-f", "linked")
    (ping / "c.krm").unlink()
    result = diff("--against", "linked", "definitions")
    assert result.exit_code == 2
    text = " ".join(result.output.split())
    assert "definitions/ping/c.krm is a link to missing.krm at linked" in text
