"""Compiled codecs at run time: which of a package's modules have one that is current, and its use.

``krammar compile`` leaves extension modules in a folder of the package. Its generated modules stay what
they are: a compiled one is loaded behind the pure one, and its classes then stand where the pure ones did.
They have attributes, constructor, ``decode`` and ``encode`` of their own, and everything else (equality,
repr, dictionaries, layouts, class facts, documentation) from the pure class. What a compiled encoder does
not take, such as a tuple in place of a list, the pure encoder writes or refuses; what a compiled decoder
cannot read, the layout explains. So values, bytes and errors are the same with both.

``KRAMMAR_PURE_PYTHON=1`` in the environment leaves compiled modules alone.
"""

from __future__ import annotations

import copyreg
import os
import sys
import types
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.machinery import ExtensionFileLoader, SourceFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_file_location, spec_from_loader
from pathlib import Path
from typing import Any

from krammar.native_files import FOLDER, RECORDS, SUFFIX, extension_name, source_digest, stem
from krammar.wire.message import Codec, VersionedCodec

PURE = "KRAMMAR_PURE_PYTHON"
_OWN = frozenset({"__slots__", "__dict__", "__weakref__", "__module__", "__qualname__", "__init__"})
_TAKEN = frozenset({"__eq__", "__hash__", "__repr__", "__doc__", "__annotations__"})


@dataclass(slots=True)
class Compiled:
    """What is compiled of one package: current ``files`` by module, the extension modules that are
    ``loaded``, and the modules that have only what was compiled from or for something else."""

    name: str
    folder: Path
    files: dict[str, Path] = field(default_factory=dict)
    stale: set[str] = field(default_factory=set)
    loaded: dict[str, Any] = field(default_factory=dict)
    warned: bool = False

    def warn(self, why: str) -> None:
        if not self.warned:
            self.warned = True
            warnings.warn(
                f"{self.name}: {why}; pure Python runs instead. Run "
                f"`krammar compile {self.folder.parent}`, or set {PURE}=1",
                RuntimeWarning,
                stacklevel=2,
            )


_PACKAGES: dict[str, Compiled] = {}


def is_off() -> bool:
    """Whether the environment asks for pure Python."""
    return os.environ.get(PURE, "") not in ("", "0")


def find(folder: Path) -> tuple[dict[str, Path], set[str]]:
    """The compiled modules in a package's folder that are current, and the names of those that are not."""
    current: dict[str, Path] = {}
    stale: set[str] = set()
    wanted: dict[str, str] = {}
    for path in sorted((folder / FOLDER).glob(f"*-*-*-*{SUFFIX}")):
        module = path.name.partition("-")[0]
        if module == RECORDS:
            continue
        if module not in wanted:
            wanted[module] = stem(module, source_digest(folder / f"{module}.py"))
        if path.name.startswith(wanted[module]):
            current[module] = path
        else:
            stale.add(module)
    return current, stale - set(current)


def activate(name: str, folder: Path) -> None:
    """Let the modules of the package ``name`` load what is compiled for them."""
    if is_off():
        return
    files, stale = find(folder)
    if not files and not stale:
        if any((folder / FOLDER).glob("*-*-*-*.so")) or any((folder / FOLDER).glob("*-*-*-*.pyd")):
            Compiled(name, folder / FOLDER).warn("what is compiled is for another Python")
        return
    package = _PACKAGES[name] = Compiled(name, folder / FOLDER, files, stale)
    if stale:
        package.warn(f"what is compiled of {', '.join(sorted(stale))} is not current")
    if files and _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)


class _Finder:
    """Finds the generated modules that have a compiled one, and nothing else."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> Any:
        name, _, module = fullname.rpartition(".")
        package = _PACKAGES.get(name)
        if package is None or module not in package.files:
            return None
        source = str(package.folder.parent / f"{module}.py")
        return spec_from_file_location(
            fullname, source, loader=_Loader(fullname, source, package, module)
        )


_FINDER = _Finder()


class _Loader(SourceFileLoader):
    """Loads a generated module, then puts its compiled classes in the places of the pure ones."""

    def __init__(self, fullname: str, source: str, package: Compiled, module: str) -> None:
        super().__init__(fullname, source)
        self._package = package
        self._module = module

    def exec_module(self, module: types.ModuleType) -> None:
        super().exec_module(module)
        try:
            extension = _load(self._module, self._package.files[self._module])
        except ImportError as error:
            del self._package.files[self._module]
            self._package.stale.add(self._module)
            self._package.warn(f"what is compiled of {self._module} cannot be loaded ({error})")
            return
        self._package.loaded[self._module] = extension
        adopt(module, extension)


def _load(module: str, path: Path) -> Any:
    name = extension_name(module.lstrip("@"))
    spec = spec_from_loader(name, ExtensionFileLoader(name, str(path)))
    assert spec is not None and spec.loader is not None
    # Never in sys.modules: packages may have modules of the same name.
    before = sys.modules.pop(name, None)
    try:
        found = module_from_spec(spec)
        spec.loader.exec_module(found)
    finally:
        sys.modules.pop(name, None)
        if before is not None:
            sys.modules[name] = before
    return found


@cache
def records() -> Any:
    """The compiled loops of record batches: of a package that is in use, or else of kafka_wire. None
    if there are none."""
    if is_off():
        return None
    folders = [package.folder for package in _PACKAGES.values()]
    if not folders:
        try:
            spec = find_spec("kafka_wire")
        except (ImportError, ValueError):
            spec = None
        if spec is not None:
            folders = [Path(place) / FOLDER for place in spec.submodule_search_locations or ()]
    for folder in folders:
        for path in folder.glob(f"{stem(RECORDS, 'runtime')}*{SUFFIX}"):
            try:
                return _load(RECORDS, path)
            except ImportError as error:
                Compiled("records", folder).warn(f"what is compiled cannot be loaded ({error})")
    return None


def adopt(module: types.ModuleType, extension: Any) -> None:
    """Replace a generated module's classes by compiled ones, which take from them what they lack."""
    compiled: dict[str, Any] = extension._CLASSES
    for name, cls in compiled.items():
        pure = getattr(module, name)
        own = set(vars(cls)) | _OWN
        for base in reversed(pure.__mro__[:-1]):
            for key, value in vars(base).items():
                # Some that every class has by itself are the pure class's all the same.
                if key in _TAKEN or not (
                    key in own or isinstance(value, types.MemberDescriptorType)
                ):
                    setattr(cls, key, value)
        for key in ("__getstate__", "__setstate__"):  # mypyc's own form of a pickle
            if key in own:
                delattr(cls, key)
        cls.__init__ = cls._init
        cls.__reduce__ = _reduce
        cls.__module__ = module.__name__
        cls.__qualname__ = pure.__qualname__
        cls._stands_for = frozenset(pure.__mro__[:-1])
        if name in extension._DECODERS:
            cls._decoders = dict(sorted(extension._DECODERS[name].items()))
            for key in ("response_class", "request_class"):
                linked = getattr(pure, key, None)
                if linked is not None:
                    setattr(cls, key, compiled[linked.__name__])
        setattr(module, name, cls)


def _reduce(self: Any) -> Any:
    """Pickled and copied as a pure object is, so that either build reads what the other wrote."""
    state = {name: getattr(self, name) for name in ("_unknown_tags", *self._fields)}
    return copyreg.__newobj__, (type(self),), (None, state)  # type: ignore[attr-defined]


# -- what compiled methods call where they cannot go on ----------------------------------------


def decode(cls: Any, data: Any, version: Any) -> Any:
    """``cls.decode`` for other buffers than bytes, and for what cannot be read: raises, saying why."""
    if hasattr(cls, "_version_field"):
        version = VersionedCodec._peek_version.__func__(cls, data, 0, version)  # type: ignore[attr-defined]
    return Codec.decode.__func__(cls, data, version)  # type: ignore[attr-defined]


def decode_from(cls: Any, data: Any, offset: Any, version: Any) -> Any:
    """``cls.decode_from`` likewise."""
    if hasattr(cls, "_version_field"):
        version = VersionedCodec._peek_version.__func__(cls, data, offset, version)  # type: ignore[attr-defined]
    return Codec.decode_from.__func__(cls, data, offset, version)  # type: ignore[attr-defined]


def encode(value: Any, version: Any) -> bytes:
    """``value.encode`` by the pure encoder, which takes more than the compiled one, or says why not."""
    if hasattr(value, "_version_field"):
        version = VersionedCodec._own_version(value, version)
    parts: list[bytes] = []
    Codec._encode_parts(value, version, parts)
    return b"".join(parts)


# -- what runs -----------------------------------------------------------------------------------


def status(name: str) -> str:
    """One line on a generated package: which build of it runs. Raises ImportError."""
    import_module(name)
    if is_off():
        return f"{name}: pure Python, since {PURE} is set"
    package = _PACKAGES.get(name)
    if package is None or not package.files:
        return f"{name}: pure Python"
    number = len(package.files)
    return f"{name}: {number} module{'' if number == 1 else 's'} compiled" + (
        f", {len(package.stale)} not current and so pure" if package.stale else ""
    )
