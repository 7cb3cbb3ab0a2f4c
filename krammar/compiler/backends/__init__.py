"""Backends render files from layouts. ``load`` finds a backend of krammar or of another package by its name."""

from __future__ import annotations

from importlib import import_module

from krammar.compiler.backends.interface import Backend
from krammar.compiler.front.source import SourceError
from krammar.util.diagnostics import did_you_mean

GROUP = "krammar.backends"
BUILT_IN = {
    "docs": ("docs", "DocsBackend"),
    "json-schema": ("json_schema", "JsonSchemaBackend"),
    "python": ("python", "PythonBackend"),
    "wireshark": ("wireshark", "WiresharkBackend"),
}


def load_backend(name: str) -> type[Backend]:
    """Return the class of a backend.

    Other packages provide backends by entry points of the group ``krammar.backends``.

    Raises:
        SourceError: the backend does not exist or cannot be imported.
    """
    if name in BUILT_IN:
        module, class_name = BUILT_IN[name]
        found = getattr(import_module(f"{__name__}.{module}"), class_name)
    else:
        from importlib.metadata import entry_points  # 10 ms, for backends of other packages only

        installed = {entry.name: entry for entry in entry_points(group=GROUP)}
        if name not in installed:
            known = sorted({*BUILT_IN, *installed})
            hint = did_you_mean(name, known) or f"installed: {', '.join(known)}"
            raise SourceError(f"backend {name!r} is not installed ({hint})")
        try:
            found = installed[name].load()
        except (ImportError, AttributeError) as error:
            raise SourceError(
                f"backend {name!r} ({installed[name].value}) cannot be imported: {error}"
            ) from error
    if not (isinstance(found, type) and issubclass(found, Backend)):
        raise SourceError(f"backend {name!r}: {found!r} is not a subclass of {Backend.__name__}")
    return found
