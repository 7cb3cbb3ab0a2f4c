"""Importing the protocol guides of Kafka's releases, whose notations differ, in all forms of a text.

``guides/`` has parts of the guides without their prose. `make interop` imports complete guides, which the classes of
Kafka print.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from krammar.cli import main
from krammar.compiler import ir, layout
from tests.compiler.support import structs

GUIDES = Path(__file__).parent / "guides"
KAFKA = Path(__file__).parents[2] / "definitions" / "kafka_wire"

# Records that can be null in version 0 only; definitions cannot express this, so those of Kafka allow null in all
# versions. The guides of Kafka 4.1 and later have no version 0.
NULL_UP_TO_0 = {("ShareFetchResponse", 1), ("ShareFetchResponse", 2)}


def bytes_of(struct: ir.Struct, version: int) -> str:
    """What the layout says about bytes and nulls. The notation has no names of nested structs."""
    return re.sub(r"[\w.]+(?=\()", "", layout.build_layout(struct, version).key)


def differences(made: Path) -> tuple[int, set[tuple[str, int]]]:
    """The number of message-versions in imported definitions, and those that differ from Kafka's definitions."""
    ours = structs(KAFKA)
    compared = 0
    wrong = set()
    for name, struct in structs(made).items():
        for version in range(struct.min_version, (struct.max_version or 0) + 1):
            compared += 1
            known = ours.get(name)
            if known is None or bytes_of(struct, version) != bytes_of(known, version):
                wrong.add((name, version))
    return compared, wrong


def markdown(text: str) -> str:
    """A guide as pandoc writes it: fences, headings, bold words and tables of Markdown."""
    text = re.sub(r"(?:<div>)?<pre>(.*?)</pre>", r"```\n\1```\n", text, flags=re.S)
    text = re.sub(r"<h5>(?:<a name=\"(\w+)\">)?(.*?)(?:</a>)?</h5>", r"##### [\2](#\1)", text)
    text = re.sub(r"<b>(.*?)</b>", r"**\1**", text)
    text = re.sub(r"</t[dh]>\s*(?=<t[dh]>)", " | ", text)
    return html.unescape(re.sub(r"<[^>]+>", "", text.replace("&lt;", "&amp;lt;"))).replace(
        "&lt;", "<"
    )


def copied(text: str) -> str:
    """A guide as copied from a browser: no markup, cells between tabs, no-break spaces as indent."""
    text = re.sub(r"</t[dh]>\s*(?=<t[dh]>)", "\t", text)
    text = re.sub(r"<(?=[/a-z])[^>]*>", "", text)
    return re.sub(r"^ +", lambda indent: "\xa0" * len(indent[0]), html.unescape(text), flags=re.M)


def quoted(text: str) -> str:
    """Markdown in a quotation, with Windows' ends of lines."""
    return "".join(f"> {line}\r\n" for line in markdown(text).split("\n"))


FORMS: dict[str, Callable[[str], str]] = {
    "html": str,
    "markdown": markdown,
    "copied": copied,
    "quoted": quoted,
}


def run(text: str, folder: Path, *options: str) -> Result:
    """Run ``krammar import`` on the text of a protocol guide."""
    (folder / "guide.txt").write_bytes(text.encode())
    command = ["import", str(folder / "guide.txt"), "-o", str(folder / "made"), *options]
    return CliRunner().invoke(main, command)


@pytest.mark.parametrize("form", FORMS)
def test_the_guide_of_kafka_4_4(tmp_path: Path, form: str) -> None:
    result = run(FORMS[form]((GUIDES / "kafka-4.4.html").read_text()), tmp_path)
    assert result.exit_code == 0, result.output
    assert set(re.findall(r"warning (W\d+)", result.output)) == {"W602", "W606"}
    assert differences(tmp_path / "made") == (28, NULL_UP_TO_0)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("release", "untyped"), [("3.9", 0), ("4.1", 4), ("4.2", 0)])
def test_older_guides(tmp_path: Path, release: str, untyped: int, form: str) -> None:
    # These guides do not say that structs and arrays can be null.
    answers = [
        f"--nullable={path}"
        for path in (
            "DescribeTopicPartitionsRequest.cursor",
            "DescribeTopicPartitionsResponse.next_cursor",
            "DescribeTopicPartitionsResponse.topics.partitions.eligible_leader_replicas",
            "DescribeTopicPartitionsResponse.topics.partitions.last_known_elr",
        )
    ]
    text = FORMS[form]((GUIDES / f"kafka-{release}.html").read_text())
    result = run(text, tmp_path, *answers)
    assert result.exit_code == 0, result.output
    assert result.output.count("warning W607") == untyped
    # Before 4.2, the guides lack the types of tagged fields; that of 3.9 lacks their names too.
    untagged = {"3.9": {3}, "4.1": {3, 4}, "4.2": set()}[release]
    compared, wrong = differences(tmp_path / "made")
    assert wrong == {("ApiVersionsResponse", version) for version in untagged}
    assert compared == {"3.9": 11, "4.1": 12, "4.2": 12}[release]
