"""Formats generated Python with black.

krammar's own templates emit black's style, but do not know the length of a line. So black formats only the
statements that are too long, which takes a twentieth of the time for whole files. The output of other
templates is formatted as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from krammar.compiler.front.source import SourceError

WIDTH = 88
_OPEN = ("(", "[", "{")
_PARAMETER = re.compile(r"\w+: ")
_ENTRY = re.compile(r'["\d][^"]*"?: ')


def formatted(path: str, text: str) -> str:
    """Format a whole Python file.

    Raises:
        SourceError: the text is not valid Python. It names ``path``.
    """
    try:
        return _black(text, WIDTH)
    except ValueError as error:
        raise SourceError(f"the template of {path} rendered invalid Python: {error}") from None


def shortened(text: str) -> str:
    """Format the lines of a Python file that are longer than ``WIDTH``; the rest has black's style already."""
    if not any(len(line) > WIDTH for line in text.splitlines()):
        return text
    return "".join(_lines(text))


def _lines(text: str) -> Iterator[str]:
    inside = False
    for line in text.splitlines(keepends=True):
        quotes = line.count('"""')
        if (
            len(line) <= WIDTH + 1
            or inside
            or quotes
            or line.lstrip().startswith("#")
            or line.rstrip().endswith(
                _OPEN
            )  # long names: what is in the brackets has lines of its own
        ):
            yield line
        else:
            indent = len(line) - len(line.lstrip(" "))
            for part in _short(line.strip(), WIDTH - indent):
                yield f"{' ' * indent}{part}\n"
        inside ^= quotes % 2 == 1


@lru_cache(maxsize=1 << 12)
def _short(code: str, width: int) -> tuple[str, ...]:
    """Format a statement, a decorator, the head of a statement, or an element of a list that has its own line."""
    if code.endswith(","):
        begin, end = "_(", ")"
        if _ENTRY.match(code):
            begin, end = "{", "}"
        elif _PARAMETER.match(code):
            begin, end = "def _(", "): ..."
        lines = _black(f"{begin}\n    {code}\n{end}\n", width + 4).splitlines()
        return tuple(line[4:] for line in lines[1:-1])
    if code.endswith(":"):
        head = code.removeprefix("el")
        lines = _black(f"{head}\n    pass\n", width - len(code) + len(head)).splitlines()
        return (code[: len(code) - len(head)] + lines[0], *lines[1:-1])
    if code.startswith("@"):
        return tuple(_black(f"{code}\ndef _(): ...\n", width).splitlines()[:-1])
    return tuple(_black(code, width).splitlines())


def _black(text: str, width: int) -> str:
    # Imported here, because a run that changes nothing needs no black.
    import black
    from black.mode import TargetVersion
    from black.parsing import InvalidInput

    try:
        mode = black.Mode(line_length=width, target_versions={TargetVersion.PY311})
        return black.format_str(text, mode=mode)
    except InvalidInput as error:
        raise ValueError(str(error)) from None
