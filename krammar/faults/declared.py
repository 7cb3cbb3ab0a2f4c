"""The kinds of values that annotations declare for a field or an argument, in Python and in files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from krammar.faults.errors import FaultError
from krammar.util.diagnostics import did_you_mean

_WORDS: dict[type, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "a table",
}
_ORIGINS: dict[Any, type] = {Mapping: dict, Iterable: list, list: list}


@dataclass(frozen=True, slots=True)
class Check:
    """A check of a value, in ``Annotated``. The error message can use ``{name}`` and ``{value}``."""

    holds: Callable[[Any], bool]
    error: str


def minimum(least: int) -> Check:
    """Return the check of a minimum."""
    return Check(lambda value: value >= least, f"{{name}} must be at least {least}, not {{value}}")


@dataclass(frozen=True, slots=True)
class Values:
    """The values that an annotation declares: their kinds (none for all), a few strings, and checks."""

    kinds: tuple[type, ...] = ()
    choices: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()

    @property
    def words(self) -> str:
        """The kinds, such as ``a number or a table``."""
        words = [_WORDS[kind] for kind in dict.fromkeys(self.kinds) if kind in _WORDS]
        if _WORDS[float] in words and _WORDS[int] in words:
            words.remove(_WORDS[int])
        return " or ".join(words)

    def check(self, name: str, value: Any, label: str) -> None:
        """Raise FaultError for a value that is not one of them. ``label`` is how a file names it."""
        if not self.allow(value):
            raise FaultError(f"{name} needs {self.words}", word=str(value), key=name)
        if self.choices and value not in self.choices:
            several = " or ".join((", ".join(self.choices[:-1]), self.choices[-1]))
            hint = did_you_mean(value, self.choices) or f"write {several}"
            raise FaultError(f'{label} cannot be "{value}"', hint=hint, word=value)
        for check in self.checks:
            if not check.holds(value):
                text = check.error.format(name=label, value=value)
                raise FaultError(text, word=str(value))

    def allow(self, value: Any) -> bool:
        """Return whether a value is of one of the kinds. A bool is not a number."""
        kinds = self.kinds
        return not kinds or (bool in kinds if isinstance(value, bool) else isinstance(value, kinds))


def several(name: str, value: Any, declares: Values) -> tuple[Any, ...]:
    """Return one value or several as a tuple. Raises FaultError for values of another than the first declared kind."""
    one = Values(declares.kinds[:1])
    is_list = isinstance(value, Iterable) and not isinstance(value, (str, bytes))
    values = tuple(value) if is_list else (value,)
    for each in values:
        if not one.allow(each):
            raise FaultError(f"{each!r} is not {one.words}", word=str(each), key=name)
    return values


def declared(declaration: Any) -> dict[str, Values]:
    """Return the values of a class's fields, or of a function's arguments, by name."""
    return _declared(declaration)


@cache
def _declared(declaration: Any) -> dict[str, Values]:
    hints = get_type_hints(declaration, include_extras=True)
    if is_dataclass(declaration):
        return {each.name: _values(hints[each.name]) for each in fields(declaration) if each.init}
    return {name: _values(hint) for name, hint in hints.items() if name != "return"}


def _values(hint: Any) -> Values:
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        inner = _values(arguments[0])
        return Values(inner.kinds, inner.choices, arguments[1:])
    if origin is Literal:
        return Values((str,), arguments)
    if hint is Any or origin is Callable:
        return Values()
    if hint is float:
        return Values((int, float))
    if origin in _ORIGINS:
        return Values((_ORIGINS[origin],))
    if arguments:
        return Values(tuple(kind for each in arguments for kind in _values(each).kinds))
    return Values((hint,))
