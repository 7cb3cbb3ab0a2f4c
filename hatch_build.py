"""Builds the engine, ``krammar.wire._engine``, into wheels and editable installs.

Without a C compiler, such as with ``CC=false``, the wheel is a pure one, for all platforms.
"""

from __future__ import annotations

import shutil
import sysconfig
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class EngineHook(BuildHookInterface):  # type: ignore[misc,type-arg]
    PLUGIN_NAME = "custom"
    _folder: str | None = None

    def dependencies(self) -> list[str]:
        return ["setuptools"] if self.target_name == "wheel" else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        self._folder = tempfile.mkdtemp(prefix="krammar-wheel-")
        with chdir(self.root):
            engine = self._build(Path(self._folder))
        if engine is None:
            return
        if version == "editable":
            shutil.copy(engine, Path(self.root) / "krammar" / "wire")
            return
        build_data["force_include"][str(engine)] = f"krammar/wire/{engine.name}"
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact: str) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder)

    def _build(self, folder: Path) -> Path | None:
        """Compile the engine. Returns the extension module, or None without a C compiler."""
        from setuptools import Distribution, Extension
        from setuptools.command.build_ext import build_ext
        from setuptools.errors import CCompilerError, ExecError, PlatformError

        windows = sysconfig.get_platform().startswith("win")
        extension = Extension(
            "krammar.wire._engine",
            sorted(str(path) for path in Path("krammar/wire/engine").glob("*.c")),
            depends=[str(path) for path in Path("krammar/wire/engine").glob("*.h")],
            # Without debug information, which is four times as large as the code.
            extra_compile_args=[] if windows else ["-std=c11", "-fvisibility=hidden", "-g0"],
        )
        command = build_ext(Distribution({"ext_modules": [extension]}))
        command.build_lib = command.build_temp = str(folder)
        command.ensure_finalized()
        try:
            command.run()
        except (CCompilerError, ExecError, PlatformError) as error:
            reason = str(error).splitlines()[0]
            self.app.display_warning(
                "krammar runs in pure Python, several times slower, because its engine could not be compiled: "
                f"{reason}"
            )
            return None
        return Path(command.get_ext_fullpath(extension.name))
