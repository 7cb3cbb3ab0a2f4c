"""Generated code passes its users' checks: mypy and pyright in their strict modes, and the defaults of ruff and black.

Checked are the packages of this repository, a protocol with every form of the language, one with every bad name,
and code that uses them.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from krammar.cli import main
from tests.wire.every_form import DEFINITIONS as RICH

ROOT = Path(__file__).parents[2]
CHECKED = Path(__file__).with_name("checked")
PACKAGES = ("journal_wire", "kafka_wire", "wafka_wire", "rich", "names")

pytestmark = pytest.mark.xdist_group("checked")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of a user with all packages, and ``user.py``."""
    project = tmp_path_factory.mktemp("checked")
    for name, text in (("rich", RICH), ("names", CHECKED / "names.krm")):
        (project / "definitions" / name).mkdir(parents=True)
        shutil.copy(text, project / "definitions" / name)
    result = CliRunner().invoke(main, ["gen", str(project / "definitions"), "-o", str(project)])
    assert result.exit_code == 0, result.output
    for name in PACKAGES[:3]:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "generated" / name, project / name, ignore=ignored)
    shutil.copy(CHECKED / "user.py", project)
    return project


def run(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a checker with Python's modules in ``folder``."""
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )


def test_mypy(folder: Path) -> None:
    packages = [part for name in PACKAGES for part in ("-p", name)]
    done = run("mypy", "--strict", "--config-file=", *packages, "-m", "user", folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.sweep
def test_pyright(folder: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    config = {
        "typeCheckingMode": "strict",
        "include": [*PACKAGES, "user.py"],
        "pythonVersion": "3.11",
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(config))
    done = run("pyright", "--pythonpath", sys.executable, folder=folder)
    if "npm" in done.stderr and "errors, " not in done.stdout:
        pytest.skip("npm cannot reach its registry")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 errors, 0 warnings" in done.stdout


def test_ruff(folder: Path) -> None:
    done = run("ruff", "check", "--isolated", "--no-cache", *PACKAGES, folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.sweep
def test_black(folder: Path) -> None:
    done = run("black", "--check", "--config", "/dev/null", *PACKAGES, folder=folder)
    assert done.returncode == 0, done.stderr


def test_mistakes_of_users_are_found(folder: Path) -> None:
    """The checkers see the types: wrong ones are errors."""
    mistakes = folder / "mistakes.py"
    mistakes.write_text(
        "import kafka_wire as kw\n"
        "kw.MetadataRequest(topics=[kw.ProduceRequest.TopicProduceData()])\n"
        "kw.request_class(3).no_such_field\n"
        "kw.ProduceRequest.NoSuchStruct()\n"
        "wrong: int = kw.ProduceRequest().topic_data\n"
    )
    done = run("mypy", "--strict", "--config-file=", str(mistakes), folder=folder)
    assert [line.split(":")[1] for line in done.stdout.splitlines()[:-1]] == ["2", "3", "4", "5"]
