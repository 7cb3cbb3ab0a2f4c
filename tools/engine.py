"""The engine in C: ``python tools/engine.py check`` (``make lint``) or ``sanitize`` (``make sanitize``).

``check`` compiles the sources with all warnings as errors, if there is a C compiler, and writes nothing. ``sanitize``
builds the engine with AddressSanitizer and UndefinedBehaviorSanitizer in a copy below build/, and runs its tests there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[1]
COPY = ROOT / "build" / "sanitize"
COPIED = ("krammar", "generated", "definitions", "templates", "tests", "pyproject.toml")
COMPILER = os.environ.get("CC", "cc")
WARNINGS = ["-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Wno-sign-conversion", "-Werror"]
SANITIZERS = [
    "-O1",
    "-g",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-fsanitize=address,undefined",
]
TESTS = sorted((ROOT / "tests" / "wire").glob("test_engine*.py"))
# The rest is the same for each message: minutes without a new line of C.
SELECTED = (
    "every_form or programs or allocations or records or splice or calls or buffer "
    "or Metadata or Fetch or Produce or wafka"
)


def main() -> int:
    if sys.argv[1:] == ["sanitize"]:
        return sanitize()
    if sys.argv[1:] != ["check"]:
        sys.exit(__doc__)
    if shutil.which(COMPILER) is None:
        print(f"the engine was not checked: there is no C compiler {COMPILER!r}")
        return 0
    return compile_in(ROOT, "-fsyntax-only")


def compile_in(folder: Path, *options: str) -> int:
    """Run the C compiler on the engine's sources. Returns its exit code."""
    sources = sorted((folder / "krammar" / "wire" / "engine").glob("*.c"))
    include = f"-I{sysconfig.get_path('include')}"
    return subprocess.run(
        [COMPILER, *WARNINGS, include, *options, *sources], check=False
    ).returncode


def sanitize() -> int:
    for name in COPIED:
        source, target = ROOT / name, COPY / name
        if source.is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "_engine.*.so")
            shutil.rmtree(target, ignore_errors=True)
            shutil.copytree(source, target, ignore=ignored)
        else:
            shutil.copy(source, target)
    extension = COPY / "krammar" / "wire" / f"_engine{sysconfig.get_config_var('EXT_SUFFIX')}"
    if code := compile_in(COPY, *SANITIZERS, "-o", str(extension)):
        return code
    library = subprocess.run(
        [COMPILER, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    environment = {
        **os.environ,
        "LD_PRELOAD": library,
        # Python frees little at its end. Its own allocator would hide errors.
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
        "PYTHONPATH": f"{COPY}{os.pathsep}{COPY / 'generated'}",
    }
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-k",
        SELECTED,
        *(f"tests/wire/{test.name}" for test in TESTS),
    ]
    return subprocess.run(command, cwd=COPY, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
