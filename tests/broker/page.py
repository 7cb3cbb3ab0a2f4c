"""The tables of docs/broker.md that come from the code: the APIs and the metrics.

``python -m tests.broker.page`` writes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from kafka_wire import request_class

from krammar.broker import Broker
from krammar.broker.apis import APIS, answer_with_error

PAGE = Path(__file__).parents[2] / "docs" / "broker.md"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def name(key: int) -> str:
    return str(request_class(key).__name__).removesuffix("Request")


def apis() -> str:
    """The APIs that are served, with the versions that ApiVersions lists."""
    served = {name(key): api for key, api in APIS.items() if api.find is not answer_with_error}
    return table(
        ("API", "Versions"),
        (
            (
                f"`{api}`",
                f"{found.low}" if found.low == found.high else f"{found.low} to {found.high}",
            )
            for api, found in sorted(served.items())
        ),
    )


def metrics() -> str:
    """The metrics in the order of the text."""
    with Broker.start() as broker:
        return table(
            ("Metric", "Type", "Labels", "What it counts"),
            (
                (
                    f"`{each.name}`",
                    each.kind,
                    ", ".join(f"`{it}`" for it in each.labels),
                    each.about,
                )
                for each in broker.metrics.all
            ),
        )


TABLES = {"apis": apis, "metrics": metrics}


def current(text: str) -> str:
    """Return the page with its tables as the code has them."""
    for key, build in TABLES.items():
        pattern = re.compile(f"(<!-- {key}: [^\n]* -->\n).*?(<!-- end -->\n)", re.DOTALL)
        built = build()
        text, count = pattern.subn(
            lambda found, built=built: f"{found[1]}\n{built}\n{found[2]}", text
        )
        assert count == 1, f"docs/broker.md has {count} tables of {key}"
    return text


if __name__ == "__main__":
    PAGE.write_text(current(PAGE.read_text("utf-8")), "utf-8")
