"""Checks whether the demo's requirements are installed, and says how to install them."""

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
    """A requirement is missing; the message says how to install it."""


def check_packages() -> None:
    """Raise Missing if one of the demo's packages is not installed."""
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
            f"These packages are not installed: {', '.join(absent)}.\n"
            "Run `make demo`, which installs everything into .venv."
        )


def check_java() -> None:
    """Raise Missing if Java is not installed, or too old for Spark."""
    home = os.environ.get("JAVA_HOME")
    found = Path(home, "bin", "java") if home else shutil.which("java")
    if found is None:
        raise Missing(f"Spark needs Java {JAVA} or newer, but Java is not installed.\n{_INSTALL}")
    try:
        # Java prints its version to standard error.
        done = subprocess.run([found, "-version"], capture_output=True, text=True, timeout=30)
        output = done.stderr + done.stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        why = getattr(error, "strerror", None) or error
        raise Missing(
            f"Spark needs Java {JAVA} or newer; {found} does not run: {why}.\n{_INSTALL}"
        ) from None
    version = java_version(output)
    if version is None or version < JAVA:
        has = "prints no version" if version is None else f"is Java {version}"
        raise Missing(f"Spark needs Java {JAVA} or newer; {found} {has}.\n{_INSTALL}")


def java_version(output: str) -> int | None:
    """Return 17 for ``openjdk version "17.0.15" 2025-04-15``, and 8 for ``"1.8.0_392"``."""
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(match[1]) if match else None
