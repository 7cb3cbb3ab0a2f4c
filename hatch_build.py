"""Builds the engine, ``krammar.wire._engine``, into wheels and editable installs.

Without a C compiler the wheel is a pure one. With ``KRAMMAR_NATIVE=1 python -m build``, compiled packages are built, too:
``KRAMMAR_NATIVE`` is ``1`` for the messages that pyproject.toml names for
this hook, ``all`` for whole packages, or names of messages of kafka_wire, separated by commas. The loops of record
batches are always compiled. Such a wheel is for the Python and the platform that built it, and needs librt to run.
"""

from __future__ import annotations

import os
import shutil
import sysconfig
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
        """Return what the build itself needs: for KRAMMAR_NATIVE, the packages of ``krammar[native]``."""
        if self.target_name != "wheel":
            return []
        # hatchling has put the packages of krammar[compiler] in the place of that extra.
        native = self.metadata.core.optional_dependencies["native"] if self._asked else []
        return ["setuptools", *native]

    @property
    def _asked(self) -> bool:
        return SETTING not in ("", "0") and self.target_name == "wheel"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        self._folder = tempfile.mkdtemp(prefix="krammar-wheel-")
        engine = self._build_engine()
        if engine is not None and version == "editable":
            shutil.copy(engine, Path(self.root) / "krammar" / "wire")
        elif engine is not None:
            build_data["force_include"][str(engine)] = f"krammar/wire/{engine.name}"
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
        if not self._asked or version == "editable":
            return
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

    def _build_engine(self) -> Path | None:
        """Compile ``krammar.wire._engine``. Returns the extension module, or None without a C compiler."""
        from setuptools import Distribution, Extension
        from setuptools.command.build_ext import build_ext
        from setuptools.errors import CCompilerError, ExecError, PlatformError

        assert self._folder is not None
        root = Path(self.root)
        sources = sorted((root / "krammar" / "wire" / "engine").glob("*.c"))
        options = [] if sysconfig.get_platform().startswith("win") else ["-std=c11", "-fvisibility=hidden"]
        extension = Extension(
            "krammar.wire._engine",
            [str(source.relative_to(root)) for source in sources],
            depends=[str(path.relative_to(root)) for path in sources[0].parent.glob("*.h")],
            extra_compile_args=options,
        )
        command = build_ext(Distribution({"ext_modules": [extension]}))
        command.build_lib = command.build_temp = self._folder
        command.ensure_finalized()
        before = Path.cwd()
        os.chdir(root)
        try:
            command.run()
        except (CCompilerError, ExecError, PlatformError) as error:
            reason = str(error).splitlines()[0]
            self.app.display_warning(
                f"krammar runs in pure Python, several times slower, because its engine could not be compiled: {reason}"
            )
            return None
        finally:
            os.chdir(before)
        return Path(command.get_ext_fullpath(extension.name))

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
