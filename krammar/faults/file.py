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
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from krammar.faults.declared import Values, declared
from krammar.faults.engine import Faults
from krammar.faults.errors import FaultError, unknown
from krammar.faults.rules import ACTIONS, Rule
from krammar.faults.toml_places import Places, Way
from krammar.util.diagnostics import Diagnostics, Position, format_text

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
        self._places = Places(text)
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
        known = [*_KEYS, *ACTIONS]
        for key in fault:
            if key not in known:
                self._report(unknown("the key", key, known), (*way, key), on_key=True)
            else:
                self._try((*way, key), _typed, key, fault[key])
        if len(self._diagnostics.found) and any(
            key not in known or not _values(key).allow(fault[key]) for key in fault
        ):
            return None
        selection = {key: fault[key] for key in fault if key in _SELECTION}
        apis = selection.pop("api", [])
        name = fault.get("name", "")
        if name in self._rules:
            error = FaultError(f'two rules have the name "{name}"', hint="rename one")
            self._report(error, (*way, "name"))
        rule: Rule | None = self._try(
            way,
            lambda: self._faults.on(*([apis] if isinstance(apis, str) else apis), **selection),
        )
        if rule is None:
            return None
        self._rules[rule.name] = rule
        if not any(key in ACTIONS for key in fault):
            error = FaultError(
                "the rule does nothing",
                hint=f"add one of {', '.join(ACTIONS)}",
                code="F501",
            )
            self._report(error, way, on_key=True)
        for key, value in fault.items():
            if key == "after":
                self._try((*way, key), self._after, rule, value)
            elif key == "probability":
                rule_seed = fault.get("seed", 0)
                self._try((*way, key), rule.with_probability, value, seed=rule_seed)
            elif key in _LIMITS:
                self._try((*way, key), _LIMITS[key], rule, value)
            elif key == "change":
                for path, new in value.items():
                    self._try((*way, key, path), rule.change, path, new)
            elif key in ACTIONS:
                self._try((*way, key), self._act, rule, key, value, fault.get("seed", 0))
        return rule

    def _act(self, rule: Rule, key: str, value: Any, seed: int) -> None:
        rule.do(ACTIONS[key].from_file(value, seed))

    def _after(self, rule: Rule, name: str) -> None:
        if name not in self._rules or self._rules[name] is rule:
            others = [other for other, each in self._rules.items() if each is not rule]
            error = unknown("an earlier rule called", name, others)
            raise error
        rule.after(self._rules[name])

    def _try(self, way: Way, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except FaultError as error:
            self._report(error, (*way, error.key) if error.key else way)
            return None

    def _report(self, error: FaultError, way: Way, *, on_key: bool = False) -> None:
        """Report an error at a value, or at its key."""
        if (*way, 0) in self._places.keys:  # a table of an array
            way = (*way, 0)
        spans = self._places.keys if on_key else self._places.values
        while way and way not in spans:
            way = way[:-1]
            if way in self._places.keys and way not in self._places.values:
                spans = self._places.keys
        span, key = spans.get(way), self._places.keys.get(way)
        if span and key and error.word and error.word not in self._text[span.begin : span.end]:
            span = key if error.word in self._text[key.begin : key.end] else span
        begin, end = (span.begin, span.end) if span else (0, 1)
        if not on_key and error.word and error.word in self._text[begin:end]:
            begin = self._text.index(error.word, begin)
            end = begin + len(error.word)
        line = self._text.count("\n", 0, begin) + 1
        column = begin - (self._text.rfind("\n", 0, begin) + 1) + 1
        length = len(self._text[begin:end].split("\n")[0])
        position = Position(self._path, line, column, max(1, length))
        self._diagnostics.add(error.code, error.message, position, error.hint)


def _values(key: str) -> Values:
    return ACTIONS[key].in_files() if key in ACTIONS else _KEYS[key]


def _typed(key: str, value: Any) -> None:
    if not _values(key).allow(value):
        example = ACTIONS[key].example if key in ACTIONS else _EXAMPLES.get(key)
        raise FaultError(
            f"{key} needs {_values(key).words}", hint=f"write {example}" if example else ""
        )


def _between(rule: Rule, value: list[Any]) -> None:
    if len(value) != 2:
        raise FaultError(f"between needs two moments, not {len(value)}")
    for each in value:
        if isinstance(each, datetime) and each.tzinfo is None:
            raise FaultError(f"{each} has no time zone", hint="add Z for UTC")
    rule.between(*value)


def _once(rule: Rule, value: bool) -> None:
    if value is not True:
        raise FaultError("once needs true", hint="or leave it out", word="false")
    rule.once()


_LIMITS: Mapping[str, Callable[[Rule, Any], object]] = {
    "once": _once,
    "times": Rule.times,
    "nth": Rule.nth,
    "every": Rule.every,
    "between": _between,
}
# The arguments of ``Faults.on``, the limits, and the kinds of their values.
_SELECTION = {"api": Values((str, list)), **declared(Faults.on)}
del _SELECTION["apis"]
_KEYS: Mapping[str, Values] = {
    **_SELECTION,
    "once": Values((bool,)),
    **dict.fromkeys(("times", "nth", "every", "seed", "expect"), Values((int,))),
    "probability": Values((int, float)),
    "between": Values((list,)),
    "after": Values((str,)),
}
