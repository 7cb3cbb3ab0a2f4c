"""Compiles a generated package in place.

A compiled module is a file in the folder ``_native`` of the package. Its name contains everything that it depends
on: the generated source, the format that the runtime expects, krammar's version and compiler, and the Python. So
the name alone shows whether a build is current. Files are written atomically.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from queue import SimpleQueue

import krammar
from krammar.compiler import stamps
from krammar.compiler.backends.interface import Source
from krammar.compiler.backends.native import modules as native
from krammar.compiler.backends.python import PythonBackend, shared_context
from krammar.compiler.front.source import SourceError, compile_folder, folders
from krammar.compiler.names import snake_case
from krammar.compiler.write import replace_file
from krammar.util.diagnostics import Diagnostics
from krammar.util.extras import require
from krammar.util.native_files import (
    FOLDER,
    RECORDS,
    SUFFIX,
    extension_name,
    library_stem,
    records_digest,
    source_digest,
)

# For messages, -O1 compiles twice as fast as -O3, and the code is as fast, because most time is spent in Python's
# C API. Loops over records need a fifth less time with -O2.
_LEVELS = {RECORDS: "2"}
_NAME_DEFINITIONS = "give the folder that `krammar gen` read: --definitions FOLDER"


@dataclass(slots=True)
class CompileOutcome:
    """The modules of a run: compiled, already current, skipped with a reason, and failed with the compiler's output."""

    built: list[str] = field(default_factory=list)
    current: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def check_tools() -> None:
    """Raise MissingExtra, or SourceError if no C compiler is installed. Both name what to install."""
    require("compiling a package", "native")
    if os.name == "nt":
        return  # setuptools finds Visual C++ in the registry, and reports what is missing
    import sysconfig

    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    compiler = command.split()[0]
    if shutil.which(compiler) is None:
        raise SourceError(
            f"the C compiler {compiler} is not installed; install one (gcc or clang; on Debian and Ubuntu "
            "build-essential), or set CC to another one"
        )
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.is_file():
        raise SourceError(
            f"{header} does not exist: install the development files of Python "
            "(on Debian and Ubuntu python3-dev)"
        )


@dataclass(slots=True)
class NativePackage:
    """A generated package and the definitions that it was generated from."""

    folder: Path
    definitions: Path
    source: Source

    @classmethod
    def open(
        cls, folder: Path, definitions: Path | None = None, *, all_files: bool = False
    ) -> NativePackage:
        """Find the definitions of a generated package.

        Args:
            definitions: their folder. Default: a folder with the name in the package's header, in one of the
                folders above the package, or among krammar's own definitions.

        Raises:
            SourceError: the folder is not a generated package, or the definitions were not found.
        """
        try:
            place = stamps.place_of(folder / "__init__.py")
        except OSError as error:
            raise SourceError(
                f"{folder} is not a package: __init__.py cannot be read ({error.strerror})"
            ) from None
        if place is None:
            raise SourceError(
                f"{folder} is not a package that this version of krammar generated; run `krammar gen`"
            )
        label, _, name = place.partition("/")
        if definitions is None:
            definitions = _definitions(folder, label, name)
        for candidate in folders(definitions, all_files=all_files):
            if candidate.package == name:
                diagnostics = Diagnostics()
                protocol = compile_folder(candidate, diagnostics)
                if diagnostics.has_errors:
                    raise SourceError(
                        f"{definitions} contains errors; run `krammar check {definitions}`"
                    )
                return cls(folder, definitions.resolve(), Source(protocol, label))
        raise SourceError(f"{definitions} contains no definitions of {place}; {_NAME_DEFINITIONS}")

    def select(self, only: Iterable[str]) -> list[str]:
        """Return the modules of the messages, structs or definition files ``only``, or all if it is empty."""
        modules = [file.module for file in self.source.protocol.files]
        defined = shared_context(self.source)["modules"]
        homes = {name: module for module in modules for name in defined[module]}
        chosen = set()
        for name in only:
            candidates = [name, f"{name}Request", f"{name}Response"]
            home = next((homes[c] for c in candidates if c in homes), snake_case(name))
            if home not in modules:
                raise SourceError(f"{self.folder} has no message, struct or definition file {name}")
            chosen.add(home)
        return [module for module in modules if module in chosen or not chosen]

    def compile(
        self,
        modules: Sequence[str],
        *,
        jobs: int,
        progress: Callable[[str], None] = lambda module: None,
    ) -> CompileOutcome:
        """Compile ``modules``. Current modules are not compiled again.

        Args:
            jobs: the number of compilers that run at once.
            progress: called with the name of each finished module.

        Raises:
            SourceError: the source of a module does not match the definitions.
        """
        outcome = CompileOutcome()
        backend, pure = native.NativeBackend(), PythonBackend()
        reasons = backend.reasons(self.source)
        pending: dict[str, Path] = {}
        compiler = native.compiler_digest()[:8]
        records = (
            self.folder / FOLDER / f"{library_stem(RECORDS, records_digest())}{compiler}{SUFFIX}"
        )
        if records.is_file():
            outcome.current.append(RECORDS)
            progress(RECORDS)
        else:
            pending[RECORDS] = records
        for module in modules:
            if reasons[module]:
                outcome.skipped[module] = reasons[module]
                progress(module)
                continue
            path = self.folder / f"{module}.py"
            name = f"{library_stem(module, source_digest(path))}{compiler}{SUFFIX}"
            target = self.folder / FOLDER / name
            text = pure.module(self.source, module)
            if not stamps.is_current(path, stamps.digest(text), text):
                raise SourceError(
                    f"{path} does not match {self.definitions}: run `krammar gen` first, or "
                    f"{_NAME_DEFINITIONS}"
                )
            if target.is_file():
                outcome.current.append(module)
                progress(module)
            else:
                pending[module] = target
        if pending:
            check_tools()
            with tempfile.TemporaryDirectory(prefix="krammar-compile-") as temporary:
                texts = {
                    name: backend.module(self.source, name) for name in pending if name != RECORDS
                }
                if RECORDS in pending:
                    texts[RECORDS] = native.records_text()
                for module, result in _build_all(texts, Path(temporary), jobs):
                    if isinstance(result, str):
                        outcome.failed[module] = result
                    else:
                        _install(result, pending[module], module)
                        outcome.built.append(module)
                    progress(module)
        return outcome


def _definitions(folder: Path, label: str, name: str) -> Path:
    shipped = Path(str(resources.files("krammar"))) / "definitions"
    places = [above / label for above in folder.resolve().parents]
    for place in [*places, shipped]:
        if (place / name).is_dir() or (not name and place.is_dir()):
            return place
    wanted = f"{label}/{name}".rstrip("/")
    raise SourceError(
        f"{folder}: no folder above it contains its definitions ({wanted}); {_NAME_DEFINITIONS}"
    )


def _build_all(
    texts: dict[str, str], temporary: Path, jobs: int
) -> Iterable[tuple[str, Path | str]]:
    """Compile each text in a separate process. Yields the path of the extension module, or the error.

    The longest text comes first, so that no worker is left alone with it at the end.
    """
    caches: SimpleQueue[Path] = SimpleQueue()
    for number in range(jobs):
        caches.put(temporary / f"cache-{number}")
    running: set[subprocess.Popen[str]] = set()

    def run(module: str) -> Path | str:
        folder = temporary / module
        folder.mkdir()
        name = extension_name(module.lstrip("@"))
        (folder / f"{name}.py").write_text(texts[module], encoding="utf-8")
        cache = caches.get()
        command = [sys.executable, "-m", "krammar.compiler.backends.native.build"]
        process = subprocess.Popen(
            [*command, str(folder), name, str(cache), _LEVELS.get(module, "1")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # Python finds krammar here even where pip hides editable installs from a build.
            cwd=Path(krammar.__path__[0]).parent,
        )
        running.add(process)
        try:
            output = process.communicate()[0].strip()
        finally:
            running.discard(process)
            caches.put(cache)
        return output if process.returncode else Path(output.splitlines()[-1])

    with ThreadPoolExecutor(jobs) as pool:
        order = sorted(texts, key=lambda module: -len(texts[module]))
        futures: dict[Future[Path | str], str] = {pool.submit(run, name): name for name in order}
        try:
            while futures:
                done, _ = wait(futures, return_when=FIRST_COMPLETED)
                for future in done:
                    module = futures.pop(future)
                    yield module, future.result()
                    shutil.rmtree(temporary / module)
        finally:
            for future in futures:
                future.cancel()
            for process in list(running):
                process.terminate()


def _install(built: Path, target: Path, module: str) -> None:
    """Install a compiled module, then remove its older builds."""
    ignore = target.parent / ".gitignore"
    if not ignore.exists():
        replace_file(ignore, b"*\n")
    replace_file(target, built.read_bytes())
    for path in target.parent.glob(f"{module}-*{SUFFIX}"):
        if path != target:
            path.unlink()
