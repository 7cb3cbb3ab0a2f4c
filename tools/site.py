"""Hooks of MkDocs: pages of the protocol reference, which krammar writes itself, link to the documentation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

# Every page begins with its place in the reference.
_NAV = "<nav>"


def on_post_build(config: Any, **_: Any) -> None:
    """Called by MkDocs when all pages are written."""
    link_pages(Path(config["site_dir"]) / "protocol")


def link_pages(folder: Path) -> None:
    """Put a link to the documentation before the other links of each page in a folder and its folders."""
    for page in folder.rglob("*.html"):
        text = page.read_text("utf-8")
        home = "../" * len(page.relative_to(folder.parent).parts[:-1]) + "index.html"
        link = f'<a href="{home}">krammar</a>'
        if link not in text and _NAV in text:
            page.write_text(text.replace(_NAV, f"{_NAV}{link} / ", 1), "utf-8")
