"""Hooks of MkDocs for the documentation site.

They add a page with all options of all commands, connect the protocol reference, which krammar writes without MkDocs, with the other
pages, and check the pages. A problem ends the build.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable, Iterator
from html import escape
from html.parser import HTMLParser
from inspect import cleandoc
from pathlib import Path
from textwrap import dedent
from typing import Any

import click

from krammar.cli import main

ROOT = Path(__file__).parents[1]
# Every page of the protocol reference begins with its place in it.
_NAV = "<nav>"
# A section of a message in the protocol reference.
_SECTION = re.compile(
    r'<section id="([^"]+)" class="struct">\n<h2>.*?</h2>(.*?)</section>', re.DOTALL
)
_TAG = re.compile(r"<[^>]*>")
# The language and the lines of a fenced block.
_FENCE = re.compile(r"^ *```(\w*)[^\n]*\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
# Packages and modules whose `__all__` is public.
_PUBLIC = ("broker", "client", "faults", "journal", "proxy", "spark", "testing", "wire/batches")
# Characters of a line of code that fit between the navigation and the table of contents, and into a diff or a chat.
_WIDTH = 68
# Languages of samples. Output, and definitions, have the lines that they have.
_SAMPLES = ("bash", "dockerfile", "ini", "lua", "properties", "python", "toml", "yaml")
# Pages with excerpts of krammar's own code, which has its own width.
_EXCERPTS = ("architecture", "backends")
# The beginning of a command, in blocks that show no output with it.
_COMMAND = re.compile(r"(?:[A-Z_]+=\S+ )?(?:\S*/)?(?:curl|krammar|make|pip|python|tar|tshark) ")
# Modules with a class for each of Kafka's error codes, which no source names.
_ERROR_CLASSES = "krammar.client.errors."
_DATE = re.compile(
    r"\b20\d\d-\d\d-\d\d\b|\b(?:January|February|March|April|May|June|July|August|September|October|November|December)"
    r" 20\d\d\b"
)
# Rows without a head, which Markdown shows as text.
_LOST_ROW = re.compile(r"\n\n(\|[^\n]*)\n(?!\|[ :|-]*-[ :|-]*\|\n)")
# What a docstring of aligned columns becomes if it is rendered as a paragraph.
_SALAD = re.compile(r"<p>(?:<code>\w+</code>(?:, )?)+ [^<]*\n<code>\w+</code>")


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """Called by MkDocs with all files: adds the page of all commands."""
    from mkdocs.structure.files import File  # the tests of this file run without MkDocs

    files.append(File.generated(config, "commands.md", content=commands_page()))
    return files


def on_post_build(config: Any, **_: Any) -> None:
    """Called by MkDocs when all pages are written."""
    site = Path(config["site_dir"])
    link_pages(site / "protocol")
    add_to_search(site)
    problems = list(problems_of(ROOT / "docs", site))
    if problems:
        from mkdocs.exceptions import PluginError

        raise PluginError("\n".join(["the site has problems:", *problems]))


# The page of all commands


def commands_page() -> str:
    """Return the page, in Markdown: usage, arguments and options of each command."""
    lines = [
        "# All options",
        "",
        "[Command line](command-line.md) is an overview of the commands.",
        "",
    ]
    for words, command in _commands(main, ("krammar",)):
        level = "#" * min(len(words), 3)
        lines += [f"{level} {' '.join(words)}", "", *_described(words, command)]
    return "\n".join(lines)


def _commands(
    command: click.Command, words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if len(words) > 1:
        yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=words[-1])
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            if found is not None and not found.hidden:
                yield from _commands(found, (*words, name))


def _described(words: tuple[str, ...], command: click.Command) -> Iterator[str]:
    context = click.Context(command, info_name=" ".join(words), **command.context_settings)
    usage = " ".join([" ".join(words), *command.collect_usage_pieces(context)])
    yield from ("```", usage, "```", "", _plain(cleandoc(command.help or "")), "")
    options = [
        record for each in command.get_params(context) if (record := each.get_help_record(context))
    ]
    if options:
        yield from ("| Option | Meaning |", "|---|---|")
        yield from (f"| <code>{_cell(name)}</code> | {_cell(text)} |" for name, text in options)
        yield ""
    if command.epilog:
        yield from (
            "```",
            cleandoc(command.epilog.replace("\b", "")).removeprefix("Examples:").strip("\n"),
            "```",
            "",
        )


def _plain(text: str) -> str:
    """Return a help text as Markdown that shows all of its characters."""
    return (
        escape(text.replace("\b", "").replace("\f", "")).replace("*", "&#42;").replace("_", "&#95;")
    )


def _cell(text: str) -> str:
    return _plain(text).replace("|", "&#124;").replace("\n", " ")


# The protocol reference


def link_pages(folder: Path) -> None:
    """Put a link to the documentation before the other links of each page in a folder and its folders."""
    for page in folder.rglob("*.html"):
        text = page.read_text("utf-8")
        home = "../" * len(page.relative_to(folder.parent).parts[:-1]) + "index.html"
        link = f'<a href="{home}">krammar</a>'
        if link not in text and _NAV in text:
            page.write_text(text.replace(_NAV, f"{_NAV}{link} / ", 1), "utf-8")


def add_to_search(site: Path) -> None:
    """Add the messages of the protocol reference to the site's search index."""
    path = site / "search" / "search_index.json"
    index = json.loads(path.read_text("utf-8"))
    for page in sorted((site / "protocol").rglob("*.html")):
        place = page.relative_to(site).as_posix()
        # A name with a dot is a struct of a message, which the message's own page describes.
        sections = {
            name: " ".join(_TAG.sub(" ", content).split())
            for name, content in _SECTION.findall(page.read_text("utf-8"))
            if "." not in name
        }
        if sections:
            # The search groups sections below their page, which must precede them.
            title = ", ".join(sections)
            index["docs"].append({"location": place, "title": title, "text": ""})
        for name, text in sections.items():
            index["docs"].append({"location": f"{place}#{name}", "title": name, "text": text})
    path.write_text(json.dumps(index), "utf-8")


# Checks


def problems_of(docs: Path, site: Path) -> Iterator[str]:
    """Yield a sentence for each problem of the pages."""
    anchors = {anchor for page in (site / "api").rglob("*.html") for anchor in _anchors(page)}
    pages = pages_of(docs)
    for name in sorted({*_exported(), *_imported(pages)} - anchors):
        if name.startswith(_ERROR_CLASSES):
            continue
        yield f"no page of the API reference has {name}"
    for page in sorted((site / "api").rglob("*.html")):
        for found in _SALAD.findall(page.read_text("utf-8")):
            yield f"{page.relative_to(site)}: columns of a docstring are one paragraph: {_TAG.sub('', found)!r}"
    for page in pages:
        yield from problems_of_page(page)


def pages_of(docs: Path) -> list[Path]:
    """Return the pages of a folder, and the README beside it."""
    return [docs.parent / "README.md", *sorted(docs.rglob("*.md"))]


def problems_of_page(page: Path) -> Iterator[str]:
    """Yield a sentence for each date of a page, each row outside of a table, and each line of its code that is too wide."""
    name = page.stem
    text = page.read_text("utf-8")
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    if name != "benchmarks":
        for date in _DATE.findall(re.sub(r"`[^`\n]*`", "", prose)):
            yield f"{page.name} has a date, {date}"
    for row in _LOST_ROW.findall(prose):
        yield f"{page.name} has a row of a table after a blank line: {row}"
    for language, sample in _FENCE.findall(text):
        for line in _code(language, dedent(sample)):
            if len(line) > _WIDTH and name not in _EXCERPTS:
                yield f"{page.name}: a line of a sample has more than {_WIDTH} characters: {line}"


def _code(language: str, sample: str) -> list[str]:
    """Return the lines of a block that readers copy: all lines of a sample, or commands without their output."""
    lines = sample.splitlines()
    if language in _SAMPLES:
        return lines
    if any(line.startswith("$ ") for line in lines):
        return [line for line in lines if line.startswith("$ ")]
    return [line for line in lines if _COMMAND.match(line)]


def _anchors(page: Path) -> set[str]:
    parser = _Anchors()
    parser.feed(page.read_text("utf-8"))
    return parser.found


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found |= {value for key, value in attrs if key == "id" and value}


def _exported() -> Iterator[str]:
    """Yield the names in `__all__` of public packages."""
    for package in _PUBLIC:
        tree = ast.parse((ROOT / "krammar" / package / "__init__.py").read_text("utf-8"))
        for node in tree.body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
                for name in ast.literal_eval(node.value):
                    yield f"krammar.{package.replace('/', '.')}.{name}"


def _imported(pages: Iterable[Path]) -> Iterator[str]:
    """Yield the names of krammar that samples import."""
    for page in pages:
        for language, sample in _FENCE.findall(page.read_text("utf-8")):
            if language != "python":
                continue
            try:
                tree = ast.parse(dedent(sample))
            except SyntaxError:
                continue  # an excerpt
            for node in ast.walk(tree):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("krammar."):
                    yield from (f"{node.module}.{alias.name}" for alias in node.names)
