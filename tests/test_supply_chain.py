"""What builds and installs krammar: pinned, and with licences that allow every use."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tools"))

import licences  # noqa: E402  (tools/ is no package)

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit(workflow: Path) -> None:
    used = [step["uses"] for step in steps(workflow) if "uses" in step]
    assert used
    for each in used:
        assert re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40}", each), each
    # Dependabot reads the version after the commit.
    assert len(re.findall(r"@[0-9a-f]{40} # v[\d.]+$", workflow.read_text(), re.M)) == len(used)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_can_read_and_nothing_else(workflow: Path) -> None:
    found = yaml.safe_load(workflow.read_text())
    assert found["permissions"] == {"contents": "read"}
    for step in steps(workflow):
        if "checkout" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False


def test_build_tools_are_pinned() -> None:
    lines = (ROOT / ".github" / "build-requirements.txt").read_text().splitlines()
    pinned = {line.split("==")[0] for line in lines if not line.startswith("#")}
    assert all("==" in line for line in lines if not line.startswith("#"))
    release = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    for names in re.findall(r"pip install (.*) -c \.github/build-requirements\.txt", release):
        assert set(names.split()) <= pinned
    assert release.count("pip install") == release.count("-c .github/build-requirements.txt")


def test_the_release_attests_its_files() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    publish = workflow["jobs"]["publish"]
    used = [step["uses"].split("@")[0] for step in publish["steps"]]
    assert used.index("actions/attest-build-provenance") < used.index("pypa/gh-action-pypi-publish")
    assert publish["permissions"] == {"id-token": "write", "attestations": "write"}


def test_licences_are_listed() -> None:
    assert licences.problems(licences.PAGE.read_text(encoding="utf-8")) == []


def test_what_the_check_finds() -> None:
    page = licences.PAGE.read_text(encoding="utf-8")
    without = re.sub(r"^\| click .*\n", "", page, flags=re.M)
    [line] = licences.problems(without)
    assert line.startswith("click (installed by ") and "docs/licences.md does not list it" in line
    [line] = licences.problems(page.replace("| lark | MIT |", "| lark | ISC |"))
    assert "lark (installed by krammar) has the licence MIT, but docs/licences.md has ISC" in line


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("MIT", True),
        ("MIT or GPL-3.0", True),
        ("MIT and GPL-3.0", False),
        ("GNU Lesser General Public License v2 or later (LGPLv2+)", False),
        ("", False),
    ],
)
def test_which_licences_are_allowed(text: str, allowed: bool) -> None:
    assert licences.is_allowed(text) == allowed
