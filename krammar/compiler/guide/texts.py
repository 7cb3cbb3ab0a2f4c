"""Turns HTML, Markdown and text copied from a browser into lines of plain text, one for each line of the file."""

from __future__ import annotations

import html
import re

# The guide on Kafka's site is HTML. Other angle brackets, such as `<tag 0>`, belong to the notation.
_HTML = re.compile(
    r"</?(?:a|abbr|article|b|br|button|code|details|div|em|figure|h\d|hr|i|li|main|nav|ol|p|pre|section|small"
    r"|span|strong|summary|table|tbody|thead|ul)(?:\s[^>]*)?/?>"
)
# Cells stay apart, because the tables of guides name tagged fields.
_CELL = re.compile(r"</t[dh]\s*>")
_CELLS = re.compile(r"</?t[dhr]\b[^>]*>")
# Browsers and editors copy the indent of a line as no-break spaces.
_SPACES = str.maketrans({"\xa0": " ", "\u202f": " ", "\u2007": " ", "\ufeff": None, "\u200b": None})
# Outside of code, Markdown escapes the characters of the notation that would format text.
_ESCAPED = re.compile(r"\\([_\[\](){}<>=?*|])")
_QUOTE = re.compile(r"^(?:> ?)+")


def plain_lines(text: str) -> list[str]:
    """Return the lines of a text without markup.

    Each is at the number of its line in the file, but possibly in another column. Tabs separate the cells of
    tables, and become spaces in lines of the notation.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    return [_plain(line) for line in lines]


def _plain(line: str) -> str:
    line = _CELLS.sub("", _CELL.sub("\t", _HTML.sub("", line)))
    line = html.unescape(line).translate(_SPACES)
    line = _QUOTE.sub("", _ESCAPED.sub(r"\1", line))
    return line.expandtabs(8) if "=>" in line else line
