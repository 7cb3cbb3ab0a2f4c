"""Wheels with compiled packages: ``KRAMMAR_NATIVE=1 python -m build --wheel``.

Without that setting nothing here happens, and the wheel is a pure one. Names in place of the 1, separated by
commas, compile only these messages of kafka_wire. The wheel is for the Python and the platform that built
it, and needs librt beside what the pure one needs.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SETTING = os.environ.get("KRAMMAR_NATIVE", "")
NEEDED = [
    "mypy[mypyc]>=2.4",
    "librt>=0.16",
    "setuptools",
    "black>=25.1",
    "jinja2>=3.1",
    "lark>=1.2",
]


class NativeHook(BuildHookInterface):  # type: ignore[misc,type-arg]
    PLUGIN_NAME = "custom"
    _folder: str | None = None

    def dependencies(self) -> list[str]:
        """What the build itself needs."""
        return NEEDED if self._asked else []

    @property
    def _asked(self) -> bool:
        return SETTING not in ("", "0") and self.target_name == "wheel"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not self._asked or version == "editable":
            return
        root = Path(self.root)
        sys.path.insert(0, str(root))
        from krammar.compiler.native_package import Package
        from krammar.native_files import FOLDER, SUFFIX

        self._folder = tempfile.mkdtemp(prefix="krammar-wheel-")
        for name in ("kafka_wire", "wafka_wire"):
            # A copy: what is compiled for a wheel shall not begin to run in the sources.
            copy = Path(self._folder) / name
            shutil.copytree(
                root / "generated" / name,
                copy,
                ignore=shutil.ignore_patterns(FOLDER, "__pycache__"),
            )
            package = Package.open(copy, root / "definitions")
            only = [] if SETTING == "1" or name == "wafka_wire" else SETTING.split(",")
            outcome = package.compile(
                package.select(only), jobs=os.cpu_count() or 1, progress=print
            )
            if outcome.failed:
                raise RuntimeError("\n".join(f"{m}: {said}" for m, said in outcome.failed.items()))
            for path in (copy / FOLDER).glob(f"*{SUFFIX}"):
                build_data["force_include"][str(path)] = f"{name}/{FOLDER}/{path.name}"
        build_data["dependencies"].append("librt>=0.16")
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact: str) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder)
