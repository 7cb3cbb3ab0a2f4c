"""Wheels with compiled packages: ``KRAMMAR_NATIVE=1 python -m build``.

Without that setting nothing here happens, and the wheel is a pure one: editable installs and installs from the
source distribution need no C compiler. ``KRAMMAR_NATIVE`` is ``1`` for the messages that pyproject.toml names for
this hook, ``all`` for whole packages, or names of messages of kafka_wire, separated by commas. The loops of record
batches are always compiled. Such a wheel is for the Python and the platform that built it, and needs librt to run.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SETTING = os.environ.get("KRAMMAR_NATIVE", "")


class NativeHook(BuildHookInterface):  # type: ignore[misc,type-arg]
    PLUGIN_NAME = "custom"
    _folder: str | None = None

    def dependencies(self) -> list[str]:
        """Return what the build itself needs: the packages of ``krammar[native]``."""
        # hatchling has put the packages of krammar[compiler] in the place of that extra.
        return self.metadata.core.optional_dependencies["native"] if self._asked else []

    @property
    def _asked(self) -> bool:
        return SETTING not in ("", "0") and self.target_name == "wheel"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if not self._asked or version == "editable":
            return
        self._folder = tempfile.mkdtemp(prefix="krammar-wheel-")
        if SETTING == "all":
            built = [*self._compile("kafka_wire", []), *self._compile("wafka_wire", [])]
        else:
            names = self.config["native"] if SETTING == "1" else SETTING.split(",")
            built = self._compile("kafka_wire", names)
        for path in built:
            build_data["force_include"][str(path)] = str(path.relative_to(self._folder))
        # Extension modules refuse a librt that is older than the one they were compiled with.
        build_data["dependencies"].append(f"librt>={version_of('librt')}")
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact: str) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder)

    def _compile(self, name: str, only: list[str]) -> list[Path]:
        """Compile a copy of a package, so that the sources stay pure; returns the extension modules.

        Raises:
            RuntimeError: a module was not compiled; the message is the compiler's output.
        """
        root = Path(self.root)
        # The compiler runs in processes of its own, in which mypy too looks for krammar.
        for variable in ("PYTHONPATH", "MYPYPATH"):
            # Older releases of pip put the packages that a build needs on PYTHONPATH.
            paths = [str(root), os.environ.get(variable, "")]
            os.environ[variable] = os.pathsep.join(filter(None, paths))
        if str(root) not in sys.path:
            sys.path.insert(0, str(root))
        from krammar.compiler.backends.native.package import NativePackage
        from krammar.util.native_files import FOLDER, SUFFIX

        assert self._folder is not None
        copy = Path(self._folder) / name
        ignored = shutil.ignore_patterns(FOLDER, "__pycache__")
        shutil.copytree(root / "generated" / name, copy, ignore=ignored)
        package = NativePackage.open(copy, root / "definitions")
        outcome = package.compile(package.select(only), jobs=os.cpu_count() or 1, progress=print)
        if outcome.failed:
            raise RuntimeError("\n".join(f"{m}: {said}" for m, said in outcome.failed.items()))
        return sorted((copy / FOLDER).glob(f"*{SUFFIX}"))
