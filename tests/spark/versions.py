"""The tests of Spark with other versions of PySpark: ``python -m tests.spark.versions 4.1.* 4.2.*``.

Each version has a virtual environment under ``build/``. First it has what ``krammar[spark]`` brings and
nothing more, no pandas above all; then what Spark Connect needs comes in, and all tests run once more
with its sessions.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

from tests.spark.sessions import MODE

ROOT = Path(__file__).parents[2]
VERSIONS = ("4.1.*", "4.2.*")
# Packages of the development group that the tests import beside krammar and PySpark.
NEEDED = ("confluent-kafka", "hypothesis", "pytest", "pytest-timeout", "pytest-xdist")
FOR_CONNECT = ("pandas",)
# Packages that an earlier run has installed.
NOT_NEEDED = ("grpcio", "numpy", "pandas")
TESTS = ("tests/spark",)
# pytest finds it by this name only.
ONLY_CONNECT = "tests/spark/connect_only.py"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.spark.versions", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("versions", nargs="*", default=VERSIONS, metavar="VERSION")
    parser.add_argument("--tests", nargs="+", default=TESTS, help="files or folders of tests")
    given = parser.parse_args()
    results: list[tuple[str, str, bool]] = []
    for version in given.versions:
        python = _environment(version)
        _pip(python, "uninstall", "--yes", *NOT_NEEDED)
        pinned = f"pyspark=={version}"
        _pip(
            python,
            "install",
            "--editable",
            f"{ROOT}[compiler,spark]",
            pinned,
            *_requirements(NEEDED),
        )
        results.append((_version(python), "classic", _run(python, given.tests, "")))
        _pip(python, "install", f"pyspark[connect]=={version}", *_requirements(FOR_CONNECT))
        tests = [*given.tests, ONLY_CONNECT]
        results.append((_version(python), "connect", _run(python, tests, "connect")))
    for found, mode, good in results:
        print(f"PySpark {found:8} {mode:8} {'passed' if good else 'FAILED'}")
    sys.exit(not all(good for _, _, good in results))


def _environment(version: str) -> Path:
    folder = ROOT / "build" / f"pyspark-{version.replace('*', 'x')}"
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
    return python


def _requirements(names: tuple[str, ...]) -> list[str]:
    """Return the requirements as the development group states them."""
    group = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["dev"]
    by_name = {re.split(r"[^\w-]", requirement)[0]: requirement for requirement in group}
    return [by_name[name] for name in names]


def _pip(python: Path, verb: str, *arguments: str) -> None:
    command = [str(python), "-m", "pip", verb, "--quiet", "--disable-pip-version-check"]
    subprocess.run([*command, *arguments], check=True)


def _version(python: Path) -> str:
    code = "import pyspark; print(pyspark.__version__)"
    return subprocess.check_output([str(python), "-c", code], text=True).strip()


def _run(python: Path, tests: list[str], mode: str) -> bool:
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    print(f"PySpark {_version(python)}, {mode or 'classic'}", flush=True)
    done = subprocess.run(
        [str(python), "-m", "pytest", "-p", "no:cacheprovider", *tests],
        cwd=ROOT,
        env={**environment, MODE: mode},
    )
    return done.returncode == 0


if __name__ == "__main__":
    main()
