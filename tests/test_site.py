"""The documentation site."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from krammar.cli import main
from tests.samples import ROOT
from tools.site import add_to_search, link_pages, pages_of, problems_of_page


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


def test_the_search_knows_messages_and_their_pages(tmp_path: Path) -> None:
    definitions = str(ROOT / "definitions" / "wafka_wire")
    folder = tmp_path / "protocol" / "wafka_wire"
    main(["docs", definitions, "-o", str(folder)], standalone_mode=False)
    index = tmp_path / "search" / "search_index.json"
    index.parent.mkdir()
    index.write_text('{"docs": []}', "utf-8")
    add_to_search(tmp_path)
    titles = {doc["location"]: doc["title"] for doc in json.loads(index.read_text("utf-8"))["docs"]}
    page = "protocol/wafka_wire/produce.html"
    assert titles[page] == "ProduceRequest, ProduceResponse"
    assert titles[f"{page}#ProduceRequest"] == "ProduceRequest"
    assert all(location.partition("#")[0] in titles for location in titles)


@pytest.mark.parametrize("page", pages_of(ROOT / "docs"), ids=lambda page: page.stem)
def test_a_page_has_no_dates_or_lost_rows_and_its_code_is_narrow(page: Path) -> None:
    assert list(problems_of_page(page)) == []


def test_a_page_with_problems(tmp_path: Path) -> None:
    wide = "x" * 69
    (tmp_path / "page.md").write_text(
        f"""Tested on 2024-02-29 and in March 2024, unlike `2024-03-01`.

| Setting | Default |
|---|---|
| one | 1 |

| two | 2 |

- A list:

    ```python
    {wide[1:]}
    ```

```python
{wide}
```

```
krammar {wide}
{wide} is output
```

```
$ pip {wide}
krammar {wide}
```
""",
        "utf-8",
    )
    too_wide = "page.md: a line of a sample has more than 68 characters: "
    assert list(problems_of_page(tmp_path / "page.md")) == [
        "page.md has a date, 2024-02-29",
        "page.md has a date, March 2024",
        "page.md has a row of a table after a blank line: | two | 2 |",
        f"{too_wide}{wide}",
        f"{too_wide}krammar {wide}",
        f"{too_wide}$ pip {wide}",
    ]
