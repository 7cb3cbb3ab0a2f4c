"""The documentation site."""

from __future__ import annotations

from pathlib import Path

from krammar.cli import main
from tests.samples import ROOT
from tools.site import link_pages


def test_pages_of_the_protocol_link_to_the_documentation(tmp_path: Path) -> None:
    folder = tmp_path / "protocol"
    definitions = str(ROOT / "definitions" / "wafka_wire")
    main(["docs", definitions, "-o", str(folder / "wafka_wire")], standalone_mode=False)
    (folder / "index.html").write_text("<header>\n<nav>definitions</nav>\n", "utf-8")
    link_pages(folder)
    link_pages(folder)  # again, as `mkdocs serve` does
    pages = sorted(folder.rglob("*.html"))
    assert len(pages) > 2
    for page in pages:
        home = "../" * (len(page.relative_to(tmp_path).parts) - 1) + "index.html"
        text = page.read_text("utf-8")
        assert text.count(f'<a href="{home}">krammar</a>') == 1, page
