"""Whether all that the demo needs is there; if not, what to do about it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

JAVA = 17

_INSTALL = f"""\
Install one of these, or name a JDK in JAVA_HOME, and run it again:
  Debian, Ubuntu   sudo apt-get install openjdk-{JAVA}-jre-headless
  Fedora           sudo dnf install java-21-openjdk-headless
  macOS            brew install openjdk@{JAVA}, and JAVA_HOME=$(brew --prefix openjdk@{JAVA})
  elsewhere        https://adoptium.net"""


class Missing(Exception):
    """Something that only the user can provide; the message says how."""


def check_packages() -> None:
    """Raises Missing without one of the packages that the demo is written with."""
    modules = {
        "pyspark": "pyspark",
        "pyarrow": "pyarrow",
        "confluent_kafka": "confluent-kafka",
        "matplotlib": "matplotlib",
        "krammar": "krammar",
    }
    absent = [package for module, package in modules.items() if find_spec(module) is None]
    if absent:
        raise Missing(
            f"This Python has no {', '.join(absent)}.\n"
            "`make demo` installs everything into .venv and runs the demo there."
        )


def check_java() -> None:
    """Raises Missing without Java, or with one too old for Spark."""
    home = os.environ.get("JAVA_HOME")
    found = Path(home, "bin", "java") if home else shutil.which("java")
    if found is None:
        raise Missing(f"Spark needs Java {JAVA} or newer, and there is none.\n{_INSTALL}")
    try:
        # It says its version where errors are said.
        done = subprocess.run([found, "-version"], capture_output=True, text=True, timeout=30)
        said = done.stderr + done.stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        why = getattr(error, "strerror", None) or error
        raise Missing(
            f"Spark needs Java {JAVA} or newer; {found} does not run: {why}.\n{_INSTALL}"
        ) from None
    version = java_version(said)
    if version is None or version < JAVA:
        has = "says no version" if version is None else f"is Java {version}"
        raise Missing(f"Spark needs Java {JAVA} or newer; {found} {has}.\n{_INSTALL}")


def java_version(said: str) -> int | None:
    """The 17 of ``openjdk version "17.0.15" 2025-04-15``, the 8 of ``"1.8.0_392"``."""
    match = re.search(r'version "(?:1\.)?(\d+)', said)
    return int(match[1]) if match else None
