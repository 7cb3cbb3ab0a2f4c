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
from functools import cache
from importlib import import_module
from importlib.machinery import ExtensionFileLoader, SourceFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_file_location, spec_from_loader
from typing import Any

from krammar.native_files import FOLDER, RECORDS, SUFFIX, extension_name, source_digest, stem
from krammar.wire.message import Codec, VersionedCodec

PURE = "KRAMMAR_PURE_PYTHON"
_OWN = frozenset({"__slots__", "__dict__", "__weakref__", "__module__", "__qualname__", "__init__"})
_TAKEN = frozenset({"__eq__", "__hash__", "__repr__", "__doc__", "__annotations__"})


class Compiled:
    """What is compiled of one package: file names by module, current or not, and the extension modules
    that are ``loaded``, by module too."""

    # No dataclass: their module takes 7 ms to import, as long as all else of a package.
    __slots__ = ("folder", "loaded", "name", "names", "warned")

    def __init__(self, name: str, folder: str, names: dict[str, list[str]]) -> None:
        self.name = name
        self.folder = folder
        self.names = names
        self.loaded: dict[str, Any] = {}
        self.warned = False

    def current(self, module: str) -> str | None:
        """The path of what is compiled of a module, if it was compiled from what is there now."""
        names = self.names.get(module)
        if names is None:
            return None
        wanted = stem(module, source_digest(self.source(module)))
        for name in names:
            if name.startswith(wanted):
                return os.path.join(self.folder, FOLDER, name)
        return None

    def source(self, module: str) -> str:
        """The path of the generated module."""
        return os.path.join(self.folder, f"{module}.py")

    def warn(self, why: str) -> None:
        """Say, once, that pure Python runs where something is compiled."""
        if not self.warned:
            self.warned = True
            warnings.warn(
                f"{self.name}: {why}; pure Python runs instead. Run "
                f"`krammar compile {self.folder}`, or set {PURE}=1",
                RuntimeWarning,
                stacklevel=2,
            )


_PACKAGES: dict[str, Compiled] = {}


def is_off() -> bool:
    """Whether the environment asks for pure Python."""
    return os.environ.get(PURE, "") not in ("", "0")


def activate(name: str, folder: str) -> None:
    """Let the modules of the package ``name`` load what is compiled for them.

    Whether it is current is looked at when a module is imported."""
    if is_off():
        return
    names: dict[str, list[str]] = {}
    others = False
    for file in os.listdir(os.path.join(folder, FOLDER)):
        module, dash, _ = file.partition("-")
        if not dash:
            continue
        if file.endswith(SUFFIX):
            names.setdefault(module, []).append(file)
        others = others or file.endswith((".so", ".pyd"))
    package = Compiled(name, folder, names)
    if names:
        _PACKAGES[name] = package
        if _FINDER not in sys.meta_path:
            sys.meta_path.insert(0, _FINDER)
    elif others:
        package.warn("what is compiled is for another Python")


class _Finder:
    """Finds the generated modules that have a compiled one, and nothing else."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> Any:
        name, _, module = fullname.rpartition(".")
        package = _PACKAGES.get(name)
        if package is None or module not in package.names:
            return None
        compiled = package.current(module)
        if compiled is None:
            package.warn(f"what is compiled of {module} is not current")
            return None
        source = package.source(module)
        loader = _Loader(fullname, source, package, module, compiled)
        return spec_from_file_location(fullname, source, loader=loader)


_FINDER = _Finder()


class _Loader(SourceFileLoader):
    """Loads a generated module, then puts its compiled classes in the places of the pure ones."""

    def __init__(
        self, fullname: str, source: str, package: Compiled, module: str, compiled: str
    ) -> None:
        super().__init__(fullname, source)
        self._package = package
        self._module = module
        self._compiled = compiled

    def exec_module(self, module: types.ModuleType) -> None:
        super().exec_module(module)
        try:
            extension = _load(self._module, self._compiled)
        except ImportError as error:
            del self._package.names[self._module]
            self._package.warn(f"what is compiled of {self._module} cannot be loaded ({error})")
            return
        self._package.loaded[self._module] = extension
        adopt(module, extension)


def _load(module: str, path: str) -> Any:
    name = extension_name(module.lstrip("@"))
    spec = spec_from_loader(name, ExtensionFileLoader(name, path))
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
    packages = list(_PACKAGES.values())
    if not packages:
        try:
            spec = find_spec("kafka_wire")
        except (ImportError, ValueError):
            spec = None
        for place in (spec.submodule_search_locations or ()) if spec is not None else ():
            found = os.path.join(place, FOLDER)
            if os.path.isdir(found):
                names = [name for name in os.listdir(found) if name.endswith(SUFFIX)]
                packages.append(Compiled("kafka_wire", place, {RECORDS: names}))
    wanted = stem(RECORDS, "runtime")
    for package in packages:
        for name in package.names.get(RECORDS, ()):
            if name.startswith(wanted):
                try:
                    return _load(RECORDS, os.path.join(package.folder, FOLDER, name))
                except ImportError as error:
                    package.warn(f"compiled record batches cannot be loaded ({error})")
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
    modules = [] if package is None else [name for name in package.names if name != RECORDS]
    current = [name for name in modules if package is not None and package.current(name)]
    if not current:
        return f"{name}: pure Python"
    stale = len(modules) - len(current)
    return f"{name}: {len(current)} module{'' if len(current) == 1 else 's'} compiled" + (
        f", {stale} not current and so pure" if stale else ""
    )
