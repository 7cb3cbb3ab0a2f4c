"""Rules in a TOML file, checked as strictly as definitions: each diagnostic has a line and a caret.

```toml
[[fault]]
name = "the leader moves"
api = "Produce"
topic = "orders"
answer = "NOT_LEADER_OR_FOLLOWER"
times = 3
```
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from krammar.faults.declared import Values, declared
from krammar.faults.engine import Faults
from krammar.faults.errors import FaultError, unknown
from krammar.faults.limits import Limits
from krammar.faults.rules import ACTIONS, Rule
from krammar.util.diagnostics import Diagnostics, Position, format_text

# The places of keys and values in the text, for diagnostics. The standard library's reader has no positions.
#
# A text of several lines that looks like keys can mislead it; then a caret is at the wrong place.

# A line that ends the value before: a table, or a key.
_NEXT = re.compile(r"""^[ \t]*(?:\[[\w"'. \[]|[\w"'.*\[\] -]+=(?!=))""", re.MULTILINE)
_INLINE = re.compile(r"[^,}\n]*")
_COMMENT = re.compile(r"\s+#[^\n]*\Z")

# The way to a value: names of keys, and for arrays of tables the number of a table.
Way = tuple[str | int, ...]


class Span(NamedTuple):
    """Characters [``begin``, ``end``) of a text."""

    begin: int
    end: int


def find(text: str, way: Way) -> tuple[Span, Span]:
    """Return where a key is, and its value. The way ends early if the text lacks a part of it."""
    key = value = Span(0, 1)
    begin, end = 0, len(text)
    for number, name in enumerate(way):
        if isinstance(name, int):
            continue
        word = rf"""(?:"{re.escape(name)}"|'{re.escape(name)}'|{re.escape(name)})"""
        tables = list(re.finditer(rf"^[ \t]*(\[+[ \t]*{word}[ \t]*\]+)", text, re.MULTILINE))
        index = way[1] if len(way) > 1 and isinstance(way[1], int) else 0
        if not number and index < len(tables):
            key = value = Span(*tables[index].span(1))
            begin, end = key.end, (*(each.start() for each in tables), len(text))[index + 1]
            continue
        found = re.compile(rf"(^|[{{,.])[ \t]*({word})[ \t]*([=.\]])[ \t]*", re.MULTILINE).search(
            text, begin, end
        )
        if found is None:
            break
        key, begin = Span(*found.span(2)), found.end()
        following = _NEXT.search(text, begin, end)
        last = following.start() if following and found[3] == "=" else end
        if found[1] in ("{", ","):
            last = _INLINE.match(text, begin, end).end()  # type: ignore[union-attr]
        value = Span(begin, begin + len(_COMMENT.sub("", text[begin:last].rstrip())))
    return key, value


# Rules.

TABLE = "fault"

# Forms of the values of some keys.
_EXAMPLES = {"between": "between = [5, 10]"}
_MESSAGE = re.compile(r"(?P<message>.*?) \(at (?:line (?P<line>\d+), column (?P<column>\d+)|.*)\)")


class FaultsFileError(Exception):
    """A file of rules that has errors. ``diagnostics`` are all of them; the message shows them."""

    def __init__(self, diagnostics: Diagnostics) -> None:
        self.diagnostics = diagnostics
        super().__init__(format_text(diagnostics.sorted()))


@dataclass(frozen=True, slots=True)
class Expected:
    """How often the file expects a rule to fire, at least."""

    rule: Rule
    times: int


def read_rules(faults: Faults, path: Path) -> list[Expected]:
    """Add the rules of a file. Returns how often it expects each one to fire.

    Raises:
        FaultsFileError: the file has errors. No rule was added.
        OSError: the file cannot be read.
    """
    data = path.read_bytes()
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        diagnostics = Diagnostics()
        line = data[: error.start].count(b"\n") + 1
        diagnostics.add("F101", "the file is not UTF-8", Position(path, line, 1))
        raise FaultsFileError(diagnostics) from None
    return read_text(faults, path, text)


def read_text(faults: Faults, path: Path, text: str) -> list[Expected]:
    """Add the rules of a file's text, as ``read_rules``. Diagnostics name ``path``."""
    diagnostics = Diagnostics()
    before = faults.rules
    diagnostics.add_source(path, text)
    try:
        tables = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        diagnostics.add("F101", *_toml_error(path, text, str(error)))
        raise FaultsFileError(diagnostics) from None
    reader = _Reader(faults, path, text, diagnostics)
    expected = reader.read(tables)
    if diagnostics.found:
        faults.rules = before
        raise FaultsFileError(diagnostics)
    return expected


def _toml_error(path: Path, text: str, message: str) -> tuple[str, Position]:
    found = _MESSAGE.fullmatch(message)
    lines = text.split("\n")
    if found is None or found["line"] is None:
        return found["message"] if found else message, Position(
            path, len(lines), len(lines[-1]) + 1
        )
    return found["message"], Position(path, int(found["line"]), int(found["column"]))


class _Reader:
    def __init__(self, faults: Faults, path: Path, text: str, diagnostics: Diagnostics) -> None:
        self._faults = faults
        self._path = path
        self._text = text
        self._diagnostics = diagnostics
        self._rules: dict[str, Rule] = {}

    def read(self, tables: dict[str, Any]) -> list[Expected]:
        for name in tables:
            if name != TABLE:
                self._report(unknown("the table", name, [TABLE]), (name,), on_key=True)
        faults = tables.get(TABLE, [])
        if not isinstance(faults, list) or not all(isinstance(each, dict) for each in faults):
            error = FaultError("rules are an array of tables", hint="write [[fault]]", code="F101")
            self._report(error, (TABLE,), on_key=True)
            return []
        expected = []
        for number, fault in enumerate(faults):
            if (rule := self._rule(fault, (TABLE, number))) is not None and "expect" in fault:
                expected.append(Expected(rule, fault["expect"]))
        return expected

    def _rule(self, fault: dict[str, Any], way: Way) -> Rule | None:
        before = len(self._diagnostics.found)
        known = [*_KEYS, *ACTIONS]
        for key in fault:
            if key not in known:
                self._report(unknown("the key", key, known), (*way, key), on_key=True)
            else:
                self._try((*way, key), _typed, key, fault[key])
        if len(self._diagnostics.found) > before:
            return None
        selection = {key: fault[key] for key in fault if key in _SELECTION}
        apis = selection.pop("api", [])
        if fault.get("name") in self._rules:
            error = FaultError(f'two rules have the name "{fault["name"]}"', hint="rename one")
            self._report(error, (*way, "name"))
        apis = [apis] if isinstance(apis, str) else apis
        rule: Rule | None = self._try(way, self._faults.on, *apis, **selection)
        if rule is None:
            return None
        if not any(key in ACTIONS for key in fault):
            error = FaultError(
                "the rule does nothing",
                hint=f"add one of {', '.join(ACTIONS)}",
                code="F501",
            )
            self._report(error, way, on_key=True)
        for key, value in fault.items():
            if key == "change":
                for path, new in value.items():
                    self._try((*way, key, path), rule.change, path, new)
            elif key in ACTIONS:
                self._try((*way, key), _act, rule, key, value, fault.get("seed", 0))
            elif key in _LIMITS:
                self._try((*way, key), self._limit, rule, key, value)
        self._rules[rule.name] = rule
        return rule

    def _limit(self, rule: Rule, key: str, value: Any) -> None:
        if key == "after":
            if value not in self._rules:
                raise unknown("an earlier rule called", value, self._rules)
            rule.after(self._rules[value])
        elif key == "once":
            if not value:
                raise FaultError("once needs true", hint="or leave it out", word="false")
            rule.once()
        else:
            for each in value if key == "between" else ():
                if isinstance(each, datetime) and each.tzinfo is None:
                    raise FaultError(f"{each} has no time zone", hint="add Z for UTC")
            rule.limit(**{key: value})

    def _try(self, way: Way, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except FaultError as error:
            self._report(error, (*way, error.key) if error.key else way)
            return None

    def _report(self, error: FaultError, way: Way, *, on_key: bool = False) -> None:
        """Report an error at a key, or at the wrong word in its value or in the key."""
        text = self._text
        key, value = find(text, way)
        begin, end = key if on_key else value
        for span in () if on_key or not error.word else (key, value):
            if (at := text.find(error.word, *span)) >= 0:
                begin, end = at, at + len(error.word)
        line = text.count("\n", 0, begin) + 1
        column = begin - text.rfind("\n", 0, begin)
        length = len(text[begin:end].split("\n")[0])
        position = Position(self._path, line, column, max(1, length))
        self._diagnostics.add(error.code, error.message, position, error.hint)


def _act(rule: Rule, key: str, value: Any, seed: int) -> None:
    rule.do(ACTIONS[key].from_file(value, seed))


def _typed(key: str, value: Any) -> None:
    values = ACTIONS[key].in_files() if key in ACTIONS else _KEYS[key]
    if not values.allow(value):
        example = ACTIONS[key].example if key in ACTIONS else _EXAMPLES.get(key)
        raise FaultError(f"{key} needs {values.words}", hint=f"write {example}" if example else "")


# The arguments of ``Faults.on``, the limits, and the kinds of their values.
_SELECTION = {"api": Values((str, list)), **declared(Faults.on)}
del _SELECTION["apis"]
_LIMITS = {**declared(Limits), "once": Values((bool,)), "after": Values((str,))}
_KEYS = {**_SELECTION, **_LIMITS, "expect": Values((int,))}
