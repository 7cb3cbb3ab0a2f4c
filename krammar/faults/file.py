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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from krammar.faults.engine import Faults
from krammar.faults.errors import FaultError, unknown
from krammar.faults.rules import Rule
from krammar.faults.toml_places import Places, Way
from krammar.util.diagnostics import Diagnostics, Position, format_text

TABLE = "fault"

_WORDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "a table",
}
_NUMBER = (int, float)
# For keys whose values have a form of their own.
_EXAMPLES = {
    "between": "between = [5, 10]",
    "change": 'change = { "request.acks" = 1 }',
    "offer": 'offer = { Produce = "3-7" }',
    "trickle": "trickle = { bytes = 10, every_ms = 5 }",
}
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
    """Add the rules of a file. Returns what it expects of them.

    Raises:
        FaultsFileError: the file has errors. No rule was added.
        OSError: the file cannot be read.
    """
    diagnostics = Diagnostics()
    data = path.read_bytes()
    before = faults.rules
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        diagnostics.add("F101", "the file is not UTF-8", Position(path, line, 1))
        raise FaultsFileError(diagnostics) from None
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
        for key in fault:
            if key not in _KEYS:
                self._report(unknown("the key", key, _KEYS), (*way, key), on_key=True)
            else:
                self._try((*way, key), _typed, key, fault[key])
        if len(self._diagnostics.found) and any(
            key not in _KEYS or not _is_typed(key, fault[key]) for key in fault
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
        if not any(key in (*_ACTIONS, "change") for key in fault):
            error = FaultError(
                "the rule does nothing",
                hint=f"add one of {', '.join([*_ACTIONS, 'change'])}",
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
            elif key in _ACTIONS:
                self._try((*way, key), _act, key, rule, value, fault.get("seed", 0))
        return rule

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


def _is_typed(key: str, value: Any) -> bool:
    kinds = _KEYS[key]
    if isinstance(value, bool):
        return bool in kinds
    return isinstance(value, kinds)


def _typed(key: str, value: Any) -> None:
    if not _is_typed(key, value):
        example = _EXAMPLES.get(key)
        raise FaultError(
            f"{key} needs {_words(_KEYS[key])}", hint=f"write {example}" if example else ""
        )


def _words(kinds: Iterable[type]) -> str:
    """The kinds of values that a key accepts, in words."""
    words = [_WORDS[kind] for kind in kinds if kind in _WORDS]
    if _WORDS[float] in words and _WORDS[int] in words:
        words.remove(_WORDS[int])
    return " or ".join(words)


def _act(key: str, rule: Rule, value: Any, seed: int) -> None:
    """Add the action that a key names."""
    names, call = _ACTIONS[key]
    if not isinstance(value, dict) or key == "offer":
        call(rule, value, seed)
        return
    for name in value:
        if name not in names:
            raise unknown("the key", name, names)
    for name, kinds in names.items():
        if name not in value and name == next(iter(names)):
            raise FaultError(f"{key} needs {name}", hint=f"write {key} = {{ {name} = … }}")
        if name in value and (
            not isinstance(value[name], kinds)
            or (isinstance(value[name], bool) and bool not in _several(kinds))
        ):
            raise FaultError(
                f"{name} needs {_words(_several(kinds))}", word=str(value[name]), key=name
            )
    call(rule, value, seed)


def _several(kinds: Any) -> tuple[type, ...]:
    return kinds if isinstance(kinds, tuple) else (kinds,)


def _true(key: str, value: Any) -> None:
    if value is not True:
        raise FaultError(f"{key} needs true", hint="or leave it out", word=str(value).lower())


def _answer(rule: Rule, value: Any, seed: int) -> None:
    given: dict[str, Any] = value if isinstance(value, dict) else {"code": value}
    rule.answer(given["code"], after=given.get("after", False), at=given.get("at"))


def _drop(rule: Rule, value: Any, seed: int) -> None:
    given: dict[str, Any] = value if isinstance(value, dict) else {"when": value}
    rule.drop(given["when"], at=given.get("at", 0.5))


def _delay(rule: Rule, value: Any, seed: int) -> None:
    given: dict[str, Any] = value if isinstance(value, dict) else {"ms": value}
    rule.delay(given["ms"], of=given.get("of", "response"))


def _trickle(rule: Rule, value: Any, seed: int) -> None:
    if "every_ms" not in value:
        raise FaultError("trickle needs every_ms", hint=f"write {_EXAMPLES['trickle']}")
    rule.trickle(value["bytes"], every_ms=value["every_ms"])


def _offer(rule: Rule, value: Any, seed: int) -> None:
    versions: dict[str, str | None] = {}
    for api, offered in value.items():
        if offered is not False and not isinstance(offered, str):
            raise FaultError(
                f"offer: {api} needs a range of versions, or false",
                hint='write "3-7", or false',
                key=api,
            )
        versions[api] = offered or None
    rule.offer(versions)


def _black_hole(rule: Rule, value: Any, seed: int) -> None:
    _true("black_hole", value)
    rule.black_hole()


def _reorder(rule: Rule, value: Any, seed: int) -> None:
    if isinstance(value, bool):
        _true("reorder", value)
        rule.reorder()
    else:
        rule.reorder(value["ms"])


def _between(rule: Rule, value: list[Any]) -> None:
    if len(value) != 2:
        raise FaultError(f"between needs two moments, not {len(value)}")
    for each in value:
        if isinstance(each, datetime) and each.tzinfo is None:
            raise FaultError(f"{each} has no time zone", hint="add Z for UTC")
    rule.between(*value)


def _once(rule: Rule, value: bool) -> None:
    _true("once", value)
    rule.once()


_Act = Callable[[Rule, Any, int], object]

# Of each action that can be a table: its keys, the required one first.
_ACTIONS: Mapping[str, tuple[dict[str, Any], _Act]] = {
    "answer": ({"code": (int, str), "after": bool, "at": str}, _answer),
    "drop": ({"when": str, "at": _NUMBER}, _drop),
    "delay_ms": ({"ms": _NUMBER, "of": str}, _delay),
    "throttle_ms": ({}, lambda rule, value, seed: rule.throttle(value)),
    "trickle": ({"bytes": int, "every_ms": _NUMBER}, _trickle),
    "black_hole": ({}, _black_hole),
    "truncate": ({}, lambda rule, value, seed: rule.truncate(value)),
    "flip_bits": ({}, lambda rule, value, seed: rule.flip_bits(value, seed=seed)),
    "correlation_id": ({}, lambda rule, value, seed: rule.correlation_id(value)),
    "offer": ({}, _offer),
    "corrupt": ({}, lambda rule, value, seed: rule.corrupt(value)),
    "reorder": ({"ms": _NUMBER}, _reorder),
    "advance_clock_ms": ({}, lambda rule, value, seed: rule.advance_clock(value)),
}
_LIMITS: Mapping[str, Callable[[Rule, Any], object]] = {
    "once": _once,
    "times": lambda rule, value: rule.times(value),
    "nth": lambda rule, value: rule.nth(value),
    "every": lambda rule, value: rule.every(value),
    "between": _between,
}
_SELECTION = (
    "name",
    "api",
    "versions",
    "client_id",
    "principal",
    "connection",
    "node",
    "topic",
    "partition",
    "group",
    "transactional_id",
    "where",
)
# All keys of a rule, and the types of their values.
_KEYS: Mapping[str, tuple[type, ...]] = {
    "name": (str,),
    "api": (str, list),
    "versions": (int, str),
    "client_id": (str, list),
    "principal": (str, list),
    "connection": (int, list),
    "node": (int, list),
    "topic": (str, list),
    "partition": (int, list),
    "group": (str, list),
    "transactional_id": (str, list),
    "where": (str, list),
    "once": (bool,),
    "times": (int,),
    "nth": (int,),
    "every": (int,),
    "probability": _NUMBER,
    "seed": (int,),
    "between": (list,),
    "after": (str,),
    "answer": (str, int, dict),
    "drop": (str, dict),
    "delay_ms": (*_NUMBER, dict),
    "throttle_ms": (int,),
    "trickle": (dict,),
    "black_hole": (bool,),
    "change": (dict,),
    "truncate": (int,),
    "flip_bits": (int,),
    "correlation_id": (int,),
    "offer": (dict,),
    "corrupt": (str,),
    "reorder": (bool, dict),
    "advance_clock_ms": (int,),
    "expect": (int,),
}
