"""The extras of krammar, as in ``pip install 'krammar[compiler]'``, and the modules that they install."""

from __future__ import annotations

from importlib.util import find_spec

_COMPILER = ("black", "jinja2", "lark")

MODULES = {
    "arrow": ("pyarrow",),
    "compiler": _COMPILER,
    "encrypt": ("cryptography",),
    "lsp": (*_COMPILER, "lsprotocol", "pygls"),
    "oauth": ("joserfc",),
    "re2": ("re2",),
    "schema": ("jsonschema",),
    "spark": ("pyspark", "pyarrow"),
    "testing": ("trustme",),
}


class MissingExtra(ImportError):
    """A module of an extra is not installed."""


def require(user: str, extra: str) -> None:
    """Raise MissingExtra, which names the extra, unless all of its modules are installed.

    Args:
        user: the subject of the message, such as ``krammar gen``.
        extra: a key of ``MODULES``.
    """
    missing = [module for module in MODULES[extra] if find_spec(module) is None]
    if missing:
        *most, last = missing
        named = f"{', '.join(most)} and {last}" if most else last
        raise MissingExtra(f"{user} needs {named}: pip install 'krammar[{extra}]'", name=missing[0])
