"""Regular expressions of clients: RE2's syntax (KIP-1152), as far as Python's means the same."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

# What RE2 does not have, as its time is bounded.
_NOT_RE2 = frozenset(
    {"ASSERT", "ASSERT_NOT", "ATOMIC_GROUP", "GROUPREF", "GROUPREF_EXISTS", "POSSESSIVE_REPEAT"}
)


def whole_match(pattern: str) -> Callable[[str], bool]:
    """Whether a text as a whole matches ``pattern``. Raises ValueError if that is no expression."""
    try:
        parsed = re._parser.parse(pattern)  # type: ignore[attr-defined]
        if _has_foreign(parsed):
            raise ValueError(f"{pattern!r} has what RE2 does not have")
        expression = re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ValueError(str(error)) from None
    return lambda text: expression.fullmatch(text) is not None


def _has_foreign(node: Any) -> bool:
    if isinstance(node, tuple) and node and str(node[0]) in _NOT_RE2:
        return True
    if isinstance(node, (list, tuple, re._parser.SubPattern)):  # type: ignore[attr-defined]
        return any(_has_foreign(part) for part in node)
    return False
