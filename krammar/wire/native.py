"""Loads the compiled modules of generated packages.

``krammar compile`` writes extension modules to a folder of the package. The generated modules do not change. When
one is imported, its current compiled module is loaded too, and the compiled classes replace the pure ones. They
have their own attributes, constructor, ``decode`` and ``encode``, and get everything else from the pure classes
(equality, repr, dictionaries, layouts, class facts, documentation). Values that a compiled encoder does not support,
such as a tuple instead of a list, go to the pure encoder. Bytes that a compiled decoder cannot read go to the
layout, which raises a precise error. So values, bytes and errors are the same with both builds.

``KRAMMAR_PURE_PYTHON=1`` in the environment turns compiled modules off.
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
from operator import attrgetter
from typing import Any

from krammar.util.native_files import (
    FOLDER,
    RECORDS,
    SUFFIX,
    extension_name,
    library_stem,
    records_digest,
    source_digest,
)

PURE = "KRAMMAR_PURE_PYTHON"
_INSTALL_LIBRT = "pip install --upgrade librt"
# An older librt than that of the compiler raises ValueError.
_UNLOADABLE = (ImportError, ValueError)
_OWN = frozenset({"__slots__", "__dict__", "__weakref__", "__module__", "__qualname__", "__init__"})
_TAKEN = frozenset({"__eq__", "__hash__", "__repr__", "__doc__", "__annotations__"})


class Compiled:
    """What is compiled of one package: file names by module, current or not, and the extension modules
    that are ``loaded``, by module too."""

    # It is not a dataclass, because importing that module takes 7 ms, as long as the rest of a package.
    __slots__ = ("folder", "loaded", "name", "names", "warned")

    def __init__(self, name: str, folder: str, names: dict[str, list[str]]) -> None:
        self.name = name
        self.folder = folder
        self.names = names
        self.loaded: dict[str, Any] = {}
        self.warned = False

    def current(self, module: str) -> str | None:
        """Return the path of a module's current build, or None."""
        names = self.names.get(module)
        if names is None:
            return None
        source = records_digest() if module == RECORDS else source_digest(self.source(module))
        wanted = library_stem(module, source)
        for name in names:
            if name.startswith(wanted):
                return os.path.join(self.folder, FOLDER, name)
        return None

    def source(self, module: str) -> str:
        """The path of the generated module."""
        return os.path.join(self.folder, f"{module}.py")

    def warn(self, why: str, command: str = "") -> None:
        """Warn, once, that pure Python is used instead of compiled modules."""
        if not self.warned:
            self.warned = True
            warnings.warn(
                f"{self.name}: {why}; pure Python runs instead. Run "
                f"`{command or f'krammar compile {self.folder}'}`, or set {PURE}=1",
                RuntimeWarning,
                stacklevel=2,
            )

    def warn_of(self, error: Exception, what: str) -> None:
        """Warn, once, that ``what`` is current but cannot be loaded."""
        command = _INSTALL_LIBRT if "librt" in str(error) else ""
        self.warn(f"{what} cannot be loaded ({error})", command)


_PACKAGES: dict[str, Compiled] = {}


def is_off() -> bool:
    """Return whether the environment turns compiled modules off."""
    return os.environ.get(PURE, "") not in ("", "0")


def activate(name: str, folder: str) -> None:
    """Make the modules of the package ``name`` load their current builds when they are imported."""
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
        package.warn("the compiled modules are for another Python")


class _Finder:
    """Finds only generated modules that have a compiled module."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> Any:
        name, _, module = fullname.rpartition(".")
        package = _PACKAGES.get(name)
        if package is None or module not in package.names:
            return None
        compiled = package.current(module)
        if compiled is None:
            package.warn(f"the compiled module {module} is stale")
            return None
        source = package.source(module)
        loader = _Loader(fullname, source, package, module, compiled)
        return spec_from_file_location(fullname, source, loader=loader)


_FINDER = _Finder()


class _Loader(SourceFileLoader):
    """Loads a generated module, then replaces its classes by compiled ones."""

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
        except _UNLOADABLE as error:
            del self._package.names[self._module]
            self._package.warn_of(error, f"the compiled module {self._module}")
            return
        self._package.loaded[self._module] = extension
        adopt(module, extension)


def _load(module: str, path: str) -> Any:
    name = extension_name(module.lstrip("@"))
    spec = spec_from_loader(name, ExtensionFileLoader(name, path))
    assert spec is not None and spec.loader is not None
    # Not stored in sys.modules, because packages can have modules of the same name.
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
    """Return the compiled loops of record batches, from an imported package or from kafka_wire, or None."""
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
                files = os.listdir(found)
                names = [
                    name for name in files if name.startswith(RECORDS) and name.endswith(SUFFIX)
                ]
                packages.append(Compiled("kafka_wire", place, {RECORDS: names}))
    packages = [package for package in packages if package.names.get(RECORDS)]
    for package in packages:
        path = package.current(RECORDS)
        try:
            if path is not None:
                return _load(RECORDS, path)
        except _UNLOADABLE as error:
            package.warn_of(error, "the compiled module for record batches")
    for package in packages:
        package.warn("the compiled module for record batches is stale")
    return None


def adopt(module: types.ModuleType, extension: Any) -> None:
    """Replace a generated module's classes by compiled ones, which get all other attributes from them."""
    compiled: dict[str, Any] = extension._CLASSES
    pures = {name: attrgetter(name)(module) for name in compiled}
    for name, cls in compiled.items():
        pure = pures[name]
        own = set(vars(cls)) | _OWN
        for base in reversed(pure.__mro__[:-1]):
            for key, value in vars(base).items():
                # Some attributes that every class has are also taken from the pure class.
                if key in _TAKEN or not (
                    key in own or isinstance(value, types.MemberDescriptorType)
                ):
                    setattr(cls, key, value)
        for key in ("__getstate__", "__setstate__"):  # mypyc's own form of a pickle
            if key in own:
                delattr(cls, key)
        cls.__init__ = cls._init
        cls.__reduce__ = _reduce
        cls.__setstate__ = pure.__setstate__
        cls.__module__ = module.__name__
        cls.__name__ = pure.__name__
        cls.__qualname__ = pure.__qualname__
        cls._stands_for = frozenset(pure.__mro__[:-1])
        if name in extension._DECODERS:
            cls._decoders = dict.fromkeys(pure._decoders, extension._DECODERS[name])
            for key in ("response_class", "request_class"):
                linked = getattr(pure, key, None)
                if linked is not None:
                    setattr(cls, key, compiled[linked.__name__])
    replaced = {id(pure): compiled[name] for name, pure in pures.items()}
    for home in (module, *compiled.values()):
        for key, value in list(vars(home).items()):
            if id(value) in replaced:
                setattr(home, key, replaced[id(value)])


def _reduce(self: Any) -> Any:
    """Pickle and copy like a pure object, so that each build reads the pickles of the other."""
    state = {name: getattr(self, name) for name in ("_unknown_tags", *self._fields)}
    return copyreg.__newobj__, (type(self),), (None, state)  # type: ignore[attr-defined]


# -- status --------------------------------------------------------------------------------------


def status(name: str) -> str:
    """Describe in one line whether a generated package is compiled. Raises ImportError."""
    import_module(name)
    if is_off():
        return f"{name}: pure Python, because {PURE} is set"
    package = _PACKAGES.get(name)
    modules = [] if package is None else [name for name in package.names if name != RECORDS]
    current = [name for name in modules if package is not None and package.current(name)]
    if not current:
        return f"{name}: pure Python"
    stale = len(modules) - len(current)
    return f"{name}: {len(current)} module{'' if len(current) == 1 else 's'} compiled" + (
        f", {stale} stale and so pure Python" if stale else ""
    )
