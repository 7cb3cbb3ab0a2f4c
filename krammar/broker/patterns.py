"""Regular expressions of clients, in RE2's syntax (KIP-1152). RE2 matches them in bounded time.

Python's ``re`` has another syntax, and a client's expression could keep it busy forever.
"""

from __future__ import annotations

from collections.abc import Callable

from krammar.util.extras import require

# The memory in bytes that RE2 may use for an expression; it refuses larger ones. The limit allows
# about a dozen classes of all letters, or 1,000 arbitrary characters.
_MEMORY = 256 * 1024


def whole_match(pattern: str) -> Callable[[str], bool]:
    """Return a function that returns whether a whole text matches ``pattern``.

    Compiling and matching release the GIL.

    Raises:
        ValueError: the pattern is not a valid expression.
        MissingExtra: google-re2 is not installed.
    """
    require("the pattern filter", "re2")
    import re2  # imported by the first request with a pattern

    options = re2.Options()
    options.max_mem = _MEMORY
    options.never_capture = True
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options=options)
    except re2.error as error:
        text = error.args[0]
        raise ValueError(text.decode() if isinstance(text, bytes) else str(text)) from None
    return lambda text: compiled.fullmatch(text) is not None
