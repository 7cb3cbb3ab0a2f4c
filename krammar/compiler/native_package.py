"""Compiling a generated package in place: what can be, what need not be again, and where it goes.

A compiled module is a file of the package's folder ``_native``, whose name says all that it depends on:
the generated text, the format that the runtime expects, krammar's version and compiler, and the Python. So
a build is current or not by its name alone, and a file is there whole or not at all.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from queue import SimpleQueue

from krammar.compiler import ir, native
from krammar.compiler.emitter import GENERATED, Emitter
from krammar.compiler.findings import Findings
from krammar.compiler.names import snake_case
from krammar.compiler.source import SourceError, compile_folder, folders, replace_file
from krammar.native_files import FOLDER, RECORDS, SUFFIX, extension_name, source_digest, stem

_HEADER = re.compile(rf"{GENERATED} (.+?)\. Do not edit")
# For messages -O1 takes half the time of -O3 and gives code as fast: what is hot there are calls of
# Python's C API. Loops over records take a fifth less with -O2.
_LEVELS = {RECORDS: "2"}
_NEEDED = ("mypyc", "librt", "setuptools")


@dataclass(slots=True)
class Outcome:
    """What a run did: modules compiled, those that were current, those that cannot be compiled with the
    reason, and those that failed with what the compiler said."""

    built: list[str] = field(default_factory=list)
    current: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


def check_tools() -> None:
    """Raise SourceError, saying what to install, if there is no mypyc, no librt or no C compiler."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise SourceError(f"{' and '.join(missing)} not installed: pip install 'krammar[native]'")
    if os.name == "nt":
        return  # setuptools looks for Visual C++ in the registry, and says what it does not find
    import sysconfig

    command = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    compiler = command.split()[0]
    if shutil.which(compiler) is None:
        raise SourceError(
            f"no C compiler: {compiler} is not there; install one (gcc or clang; on Debian and Ubuntu "
            "build-essential), or name one in CC"
        )
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.is_file():
        raise SourceError(
            f"{header} is not there: install the development files of Python "
            "(on Debian and Ubuntu python3-dev)"
        )


@dataclass(slots=True)
class Package:
    """A generated package and the definitions that it was generated from."""

    folder: Path
    protocol: ir.Protocol
    source: Emitter

    @classmethod
    def open(cls, folder: Path, definitions: Path | None = None) -> Package:
        """Find the definitions of a generated package: ``definitions``, or a folder with the name that
        the package's header says, beside one of the folders above, or krammar's own.

        Raises SourceError where the folder is no such package or they are not found.
        """
        try:
            head = (folder / "__init__.py").read_text(encoding="utf-8")[:500]
        except OSError as error:
            raise SourceError(f"{folder}: not a package ({error.strerror})") from None
        found = _HEADER.search(head)
        if found is None:
            raise SourceError(f"{folder}: not a package that krammar generated")
        label, _, name = found[1].partition("/")
        if definitions is None:
            definitions = _definitions(folder, label, name)
        source = Emitter(definitions, folder)
        source.label = label
        for candidate in folders(definitions):
            if candidate.package == name:
                findings = Findings()
                protocol = compile_folder(candidate, findings)
                if findings.has_errors:
                    raise SourceError(
                        f"{definitions}: has errors; see `krammar check {definitions}`"
                    )
                return cls(folder, protocol, source)
        raise SourceError(f"{definitions}: no definitions of {found[1]} in it")

    def select(self, only: Iterable[str]) -> list[str]:
        """The modules of the messages, structs or definition files ``only``; all for none of them."""
        emitter = native.NativeEmitter(self.protocol, self.source.label)
        modules = [file.module for file in self.protocol.files]
        homes = {name: module for module in modules for name in emitter.defines(module)}
        chosen = set()
        for name in only:
            candidates = [name, f"{name}Request", f"{name}Response"]
            home = next((homes[c] for c in candidates if c in homes), snake_case(name))
            if home not in modules:
                raise SourceError(f"{self.folder}: no message, struct or definition file {name}")
            chosen.add(home)
        return [module for module in modules if module in chosen or not chosen]

    def compile(
        self,
        modules: Sequence[str],
        *,
        jobs: int,
        progress: Callable[[str], None] = lambda module: None,
    ) -> Outcome:
        """Compile ``modules``, ``jobs`` at once; those that are current already are left alone.

        Each is put into its place when it is whole; ``progress`` is told of it. Raises SourceError for a
        module that is not what the definitions make.
        """
        outcome = Outcome()
        emitter = native.NativeEmitter(self.protocol, self.source.label)
        reasons = emitter.modules()
        pending: dict[str, Path] = {}
        compiler = native.digest()[:8]
        records = self.folder / FOLDER / f"{stem(RECORDS, 'runtime')}{compiler}{SUFFIX}"
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
            name = f"{stem(module, source_digest(path))}{compiler}{SUFFIX}"
            target = self.folder / FOLDER / name
            if native.pure_digest(self.source, self.protocol, module) != _inputs(path):
                raise SourceError(
                    f"{path} is not what {self.source.source} makes: run `krammar gen` first"
                )
            if target.is_file():
                outcome.current.append(module)
                progress(module)
            else:
                pending[module] = target
        if pending:
            check_tools()
            with tempfile.TemporaryDirectory(prefix="krammar-compile-") as temporary:
                texts = {name: emitter.render(name) for name in pending if name != RECORDS}
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
    raise SourceError(
        f"{folder}: its definitions ({label}/{name}) are in no folder above it; name the folder that "
        "`krammar gen` read with --definitions"
    )


def _inputs(path: Path) -> str:
    """The digest of the rendered text in a generated module's stamp."""
    try:
        found = re.search(r"krammar: inputs ([0-9a-f]{16})", path.read_text(encoding="utf-8")[:600])
    except OSError:
        return ""
    return "" if found is None else found[1]


def _build_all(
    texts: dict[str, str], temporary: Path, jobs: int
) -> Iterable[tuple[str, Path | str]]:
    """Compile each text in a process of its own: the path of what was made, or what went wrong.

    The longest first, so that no worker ends alone with it.
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
        command = [sys.executable, "-m", "krammar.compiler.native_build"]
        process = subprocess.Popen(
            [*command, str(folder), name, str(cache), _LEVELS.get(module, "1")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=folder,
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
    """Put a compiled module into its place, then remove those of it that it replaces."""
    ignore = target.parent / ".gitignore"
    if not ignore.exists():
        replace_file(ignore, b"*\n")
    replace_file(target, built.read_bytes())
    for path in target.parent.glob(f"{module}-*{SUFFIX}"):
        if path != target:
            path.unlink()
