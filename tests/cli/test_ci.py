"""What continuous integration runs: the hooks of pre-commit, the steps of the GitHub action, and SARIF."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from krammar import __version__
from krammar.cli import main
from krammar.compiler.front.codes import CODES, RULES
from tests.samples import blocks

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
GOOD = "PingRequest => key 0, max version 0\n  A: int8\n\nPingResponse =>\n  A: int8\n"

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def environment(**more: str) -> dict[str, str]:
    """The environment of a process: krammar's programs on the PATH, and nothing of a hook that runs the tests."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("GIT_", "PRE_COMMIT"))}
    identity = {
        f"GIT_{who}_{what}": "test@example.org"
        for who in ("AUTHOR", "COMMITTER")
        for what in ("NAME", "EMAIL")
    }
    return kept | identity | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"} | more


def git(folder: Path, *arguments: str) -> str:
    """Run git in a folder, and return its output."""
    return subprocess.run(
        ["git", "-C", str(folder), *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


def repository(folder: Path) -> Path:
    """Make a folder a git repository with one commit."""
    folder.mkdir(exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    return commit(folder)


def commit(folder: Path) -> Path:
    """Commit everything in a folder."""
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--allow-empty", "-m", "x")
    return folder


@pytest.fixture
def user(tmp_path: Path) -> Path:
    """A repository with definitions and the package that they generate."""
    folder = tmp_path / "user"
    (folder / "definitions").mkdir(parents=True)
    (folder / "definitions" / "a.krm").write_text(GOOD)
    generate(folder)
    return repository(folder)


def generate(folder: Path) -> None:
    out = ["gen", str(folder / "definitions"), "-o", str(folder / "generated")]
    assert CliRunner().invoke(main, out).exit_code == 0


# -- pre-commit ------------------------------------------------------------------------------------


def pre_commit(user: Path, hooks: Path, **override: Any) -> subprocess.CompletedProcess[str]:
    """Run all hooks of the repository ``hooks`` on all files of ``user``."""
    names = [hook["id"] for hook in yaml.safe_load((hooks / ".pre-commit-hooks.yaml").read_text())]
    entry = {
        "repo": str(hooks),
        "rev": git(hooks, "rev-parse", "HEAD"),
        "hooks": [{"id": name, **override} for name in names],
    }
    (user / ".pre-commit-config.yaml").write_text(json.dumps({"repos": [entry]}))
    git(user, "add", "-A")
    return subprocess.run(
        [BIN / "pre-commit", "run", "--all-files", "--color", "never"],
        cwd=user,
        env=environment(PRE_COMMIT_HOME=str(hooks.with_name("home"))),
        capture_output=True,
        text=True,
        check=False,
    )


def outcomes(output: str) -> dict[str, str]:
    return dict(re.findall(r"^(krammar.*?)\.\.+(Passed|Failed|\(.*?\)\w+)$", output, re.MULTILINE))


def test_the_hooks_of_pre_commit(user: Path, tmp_path: Path) -> None:
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    shutil.copy(ROOT / ".pre-commit-hooks.yaml", hooks)
    repository(hooks)
    # This environment instead of one that pre-commit builds; the sweep below has one built.
    system = {"language": "system", "additional_dependencies": []}

    done = pre_commit(user, hooks, **system)
    passed = dict.fromkeys(["krammar check", "krammar fmt", "krammar gen --check"], "Passed")
    assert (done.returncode, outcomes(done.stdout)) == (0, passed), done.stdout + done.stderr

    definition = user / "definitions" / "a.krm"
    definition.write_text(GOOD.replace("int8", "int16") + "\n\n")
    done = pre_commit(user, hooks, **system)
    assert outcomes(done.stdout) == dict.fromkeys(passed, "Failed")
    assert "definitions/a.krm:6:1: error W903" in done.stdout
    assert "files were modified by this hook" in done.stdout
    assert definition.read_text() == GOOD.replace("int8", "int16")
    assert "would change generated/" in done.stdout


@pytest.mark.sweep
def test_pre_commit_installs_krammar(user: Path, tmp_path: Path) -> None:
    hooks = tmp_path / "krammar"
    files = git(ROOT, "ls-files", "-co", "--exclude-standard").split("\n")
    for name in files:
        if (ROOT / name).is_file():
            (hooks / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, hooks / name)
    repository(hooks)

    done = pre_commit(user, hooks)
    if "pip" in done.stdout and "CalledProcessError" in done.stdout:
        pytest.skip(f"pre-commit cannot build an environment here: {done.stdout[-300:]}")
    assert set(outcomes(done.stdout).values()) == {"Passed"}, done.stdout + done.stderr


# -- the GitHub action -----------------------------------------------------------------------------


class Action:
    """Runs the steps of action.yml by bash, as GitHub's runner does."""

    def __init__(self, workspace: Path, temporary: Path, **inputs: str) -> None:
        self._action = yaml.safe_load((ROOT / "action.yml").read_text())
        assert self._action["runs"]["using"] == "composite"
        declared = {name: facts["default"] for name, facts in self._action["inputs"].items()}
        assert inputs.keys() <= declared.keys()
        self._inputs = declared | inputs
        self._workspace = workspace
        self._temporary = temporary
        self.output = ""

    def _evaluate(self, expression: str, failed: bool) -> bool:
        """Evaluate the condition of a step. Without a status function, it means success() && …."""
        python = expression.removeprefix("${{").removesuffix("}}").strip()
        if "cancelled()" not in python and failed:
            return False
        python = python.replace("!cancelled()", "True").replace("&&", "and")
        python = re.sub(r"inputs\.(\w+)", lambda m: repr(self._inputs[m[1]]), python)
        return bool(eval(python, {"__builtins__": {}}))

    def run(self, *, install: bool = False) -> dict[str, int]:
        """Return the exit code of each step that ran."""
        codes: dict[str, int] = {}
        path = self._temporary / "path"
        path.touch()
        for step in self._action["runs"]["steps"]:
            name, failed = step["name"], any(codes.values())
            if name == "Install krammar" and not install:
                continue
            if not self._evaluate(step.get("if", "${{ True }}"), failed):
                continue
            values = {
                key: re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda m: self._inputs[m[1]], value)
                for key, value in step.get("env", {}).items()
            }
            found = environment(
                GITHUB_ACTION_PATH=str(ROOT),
                RUNNER_TEMP=str(self._temporary),
                GITHUB_PATH=str(path),
                **values,
            )
            found["PATH"] = os.pathsep.join([*path.read_text().split(), found["PATH"]])
            assert step["shell"] == "bash"
            done = subprocess.run(
                ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
                cwd=self._workspace,
                env=found,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            codes[name] = done.returncode
            self.output += done.stdout
        return codes


ALL = {"generated": "generated/", "against": "main"}


def test_the_action_passes_with_accepted_changes(user: Path, tmp_path: Path) -> None:
    git(user, "checkout", "-q", "-b", "work")
    (user / "definitions" / "a.krm").write_text(GOOD.replace("int8", "int16"))
    (user / "accepted changes.txt").write_text("bytes-changed: Ping*\n")
    generate(user)
    commit(user)
    action = Action(user, tmp_path, sarif="a b.sarif", accepted="accepted changes.txt", **ALL)
    assert action.run() == {
        "Write SARIF": 0,
        "Check definitions": 0,
        "Check formatting": 0,
        "Check generated files": 0,
        "Report breaking changes": 0,
    }, action.output
    assert "::" not in action.output
    assert "no breaking changes" not in action.output  # which is not an annotation
    assert json.loads((user / "a b.sarif").read_text())["runs"][0]["results"] == []


def test_the_action_annotates_a_branch(user: Path, tmp_path: Path) -> None:
    git(user, "checkout", "-q", "-b", "work")
    (user / "definitions" / "a.krm").write_text(GOOD.replace("int8", "int16") + "\n")
    commit(user)
    action = Action(user, tmp_path, sarif="krammar.sarif", **ALL)
    assert action.run() == {
        "Write SARIF": 0,
        "Check definitions": 1,
        "Check formatting": 1,
        "Check generated files": 1,
        "Report breaking changes": 1,
    }, action.output
    assert "::error file=definitions/a.krm,line=6,col=1,endColumn=1,title=krammar W903::" in (
        action.output
    )
    assert (
        "::error file=definitions/a.krm,line=2,col=3,endColumn=3,title=krammar B104 bytes-changed::"
        "PingRequest.A is int16, it was int8 in v0"
    ) in action.output
    results = json.loads((user / "krammar.sarif").read_text())["runs"][0]["results"]
    assert [each["ruleId"] for each in results] == ["W903"]


def test_inputs_are_no_code(user: Path, tmp_path: Path) -> None:
    action = Action(
        user, tmp_path, source='definitions"; touch broken; "', against="$(touch broken)"
    )
    assert set(action.run().values()) == {2}
    assert not (user / "broken").exists()


@pytest.mark.sweep
def test_the_action_installs_krammar(user: Path, tmp_path: Path) -> None:
    action = Action(user, tmp_path, python=sys.executable, **ALL)
    codes = action.run(install=True)
    if codes["Install krammar"]:
        pytest.skip(f"pip cannot install krammar's dependencies here: {action.output[-300:]}")
    assert set(codes.values()) == {0}, action.output
    assert (tmp_path / "krammar" / "bin" / "krammar").exists()


# -- docs/ci.md ------------------------------------------------------------------------------------


def test_the_samples_of_the_documentation() -> None:
    config, workflow, scanning = map(yaml.safe_load, blocks("docs/ci.md", "yaml"))
    known = {
        hook["id"]: hook for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    }
    hooks = config["repos"][0]["hooks"]
    assert [hook["id"] for hook in hooks] == list(known)
    assert all(hook.get("args") == known[hook["id"]].get("args") for hook in hooks)
    inputs = yaml.safe_load((ROOT / "action.yml").read_text())["inputs"]
    used = workflow["jobs"]["definitions"]["steps"][1]["with"] | scanning[0]["with"]
    assert used.keys() <= inputs.keys()
    page = (ROOT / "docs" / "ci.md").read_text()
    for name, facts in inputs.items():
        default = f" `{facts['default']}` |" if facts["default"] else " |"
        assert re.search(rf"^\| `{name}` \|.*\|{re.escape(default)}$", page, re.MULTILINE), name
    for code, rule in RULES.items():
        assert f"| `{rule}` | {code} | {CODES[code]} |" in page


# -- SARIF -----------------------------------------------------------------------------------------

# The part of SARIF 2.1.0 that krammar writes: required properties, types and limits.
_TEXT = {
    "type": "object",
    "required": ["text"],
    "properties": {"text": {"type": "string"}},
    "additionalProperties": False,
}
_REGION = {
    "type": "object",
    "required": ["startLine", "startColumn", "endColumn"],
    "properties": {
        name: {"type": "integer", "minimum": 1}
        for name in ("startLine", "startColumn", "endColumn")
    },
    "additionalProperties": False,
}
_ARTIFACT = {
    "type": "object",
    "required": ["uri"],
    "properties": {"uri": {"type": "string", "pattern": r"^[!-~]+$", "not": {"pattern": r"\\"}}},
    "additionalProperties": False,
}
_RESULT = {
    "type": "object",
    "required": ["message", "ruleId", "ruleIndex", "level", "locations"],
    "properties": {
        "ruleId": {"type": "string"},
        "ruleIndex": {"type": "integer", "minimum": 0},
        "level": {"enum": ["none", "note", "warning", "error"]},
        "message": _TEXT,
        "locations": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "required": ["physicalLocation"],
                "properties": {
                    "physicalLocation": {
                        "type": "object",
                        "required": ["artifactLocation", "region"],
                        "properties": {"artifactLocation": _ARTIFACT, "region": _REGION},
                        "additionalProperties": False,
                    }
                },
                "additionalProperties": False,
            },
        },
    },
    "additionalProperties": False,
}
_RULE = {
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "string"},
        "name": {"type": "string"},
        "shortDescription": _TEXT,
    },
    "additionalProperties": False,
}
_DRIVER = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"const": "krammar"},
        "version": {"const": __version__},
        "rules": {"type": "array", "uniqueItems": True, "items": _RULE},
    },
    "additionalProperties": False,
}
_RUN = {
    "type": "object",
    "required": ["tool", "results"],
    "properties": {
        "tool": {
            "type": "object",
            "required": ["driver"],
            "properties": {"driver": _DRIVER},
            "additionalProperties": False,
        },
        "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
        "results": {"type": "array", "items": _RESULT},
    },
    "additionalProperties": False,
}
SARIF = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {
        "$schema": {"type": "string", "format": "uri"},
        "version": {"const": "2.1.0"},
        "runs": {"type": "array", "items": _RUN},
    },
    "additionalProperties": False,
}


def sarif(*arguments: str, code: int) -> Any:
    result = CliRunner().invoke(main, [*arguments, "--format", "sarif"])
    assert result.exit_code == code, result.output
    log = json.loads(result.stdout)
    jsonschema.validate(log, SARIF)
    return log["runs"][0]


def test_sarif(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "définitions"
    folder.mkdir()
    (folder / "a.krm").write_text(GOOD.replace("int8", "int9", 1) + "\n")
    run = sarif("check", "définitions", code=1)
    rules = run["tool"]["driver"]["rules"]
    assert rules == [
        {"id": "E204", "shortDescription": {"text": "No type or enum has this name."}},
        {"id": "W903", "shortDescription": {"text": "The file starts or ends with a blank line."}},
    ]
    assert [rules[each["ruleIndex"]]["id"] for each in run["results"]] == ["E204", "W903"]
    assert run["results"][0] == {
        "ruleId": "E204",
        "ruleIndex": 0,
        "level": "error",
        "message": {"text": 'unknown type "int9" (did you mean "int8"?)'},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": "d%C3%A9finitions/a.krm"},
                    "region": {"startLine": 2, "startColumn": 6, "endColumn": 10},
                }
            }
        ],
    }
    assert [each["level"] for each in run["results"]] == ["error", "warning"]
    absolute = sarif("check", str(folder), code=1)["results"][0]["locations"][0]
    uri = absolute["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == (folder / "a.krm").as_uri()


def test_sarif_of_other_verbs(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    for folder, text in ((old, GOOD), (new, GOOD.replace("int8", "int16"))):
        folder.mkdir()
        (folder / "a.krm").write_text(text)
    run = sarif("diff", str(old), str(new), code=1)
    (rule,) = run["tool"]["driver"]["rules"]
    assert (rule["id"], rule["name"]) == ("B104", "bytes-changed")
    assert len(run["results"]) == 2
    for verb in (["check"], ["fmt"], ["gen", "-o", str(tmp_path / "out")]):
        assert sarif(*verb, str(old), code=0)["results"] == []
    assert sarif("diff", str(old), str(old), code=0)["results"] == []
