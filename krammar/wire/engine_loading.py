"""Whether this process encodes and decodes with the engine, ``krammar.wire._engine``, or in pure Python.

Both give the same values, bytes and errors. The engine is missing if krammar was installed from its source without a C
compiler, and ``KRAMMAR_PURE_PYTHON=1`` in the environment turns it off.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

PURE = "KRAMMAR_PURE_PYTHON"
# What this code expects of the engine: the form of programs, and the arguments of functions. `engine.h` has the same
# number.
FORMAT = 2


def _load() -> tuple[ModuleType | None, str]:
    if os.environ.get(PURE, "") not in ("", "0"):
        return None, f"{PURE} is set"
    try:
        return checked(import_module("krammar.wire._engine")), ""
    except ImportError as error:
        return None, str(error)


def checked(engine: ModuleType) -> ModuleType:
    """Return the engine.

    Raises:
        ImportError: it was compiled from the source of another version of krammar.
    """
    if engine.FORMAT != FORMAT:
        raise ImportError(
            "the engine was compiled for another version of krammar: install krammar again"
        )
    return engine


# The engine, or None, and why it is missing.
ENGINE, MISSING = _load()


def status() -> str:
    """Describe in one line what encodes and decodes."""
    return "engine: native" if ENGINE is not None else f"engine: pure Python ({MISSING})"
