"""The page that shows a conversation: one document with its style and script inside, without requests elsewhere."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

_FOLDER = files(__name__)
_DOCUMENT = (_FOLDER / "page.html").read_text("utf-8")
_STYLE = (_FOLDER / "page.css").read_text("utf-8")
_SCRIPT = "".join(
    (_FOLDER / name).read_text("utf-8")
    for name in ("lists.js", "charts.js", "detail.js", "page.js")
)

# The first bytes of the document, by which a file is known to be one.
MARK = b"<!doctype html><!-- krammar tap -->"


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


# Only the page's own script and style run, even if a value were to get into the document as markup.
POLICY = (
    f"default-src 'none'; script-src {_hash(_SCRIPT)}; style-src {_hash(_STYLE)}; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'"
)


_BEGIN, _END = (
    _DOCUMENT.replace("$POLICY", POLICY)
    .replace("/* style */", _STYLE)
    .replace("/* script */", _SCRIPT)
    .split("<!-- data -->")
)


def page_html(config: Mapping[str, Any]) -> str:
    """Return the document for a server.

    ``config`` has ``live``, ``source`` and, for a document with data, ``omitted``.
    """
    begin, end = parts(config)
    return begin + end


def parts(config: Mapping[str, Any]) -> tuple[str, str]:
    """Return what precedes and what follows the data of a document."""
    return _BEGIN, _END.replace("$CONFIG", json.dumps(config).replace("<", "\\u003c"), 1)


def block(name: str, value: Any) -> str:
    """Return a value as an element of the document. It is base64, so it cannot contain markup."""
    data = gzip.compress(json.dumps(value, separators=(",", ":")).encode(), 6, mtime=0)
    packed = base64.b64encode(data).decode("ascii")
    return f'<script type="text/plain" id="data-{name}">{packed}</script>\n'
