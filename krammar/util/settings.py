"""Settings: what a program declares about each, their errors, and the parsers of single values.

A table declares the settings of a broker, a client, a proxy or a data source. ``find`` returns the setting that a
name means, and ``read`` converts what a user gave:

```python
TABLE = SettingTable([Setting("workers", integer(1), 1), Setting("password", text, secret=True)])
TABLE.read(TABLE.find("workers"), "4")  # 4
TABLE.read(TABLE.find("workers"), "0")  # SettingError: workers: '0' needs at least 1
TABLE.find("worker")                    # SettingError: worker: unknown setting; did you mean "workers"?
```

A parser accepts the text, or the Python value, that a user gave. It raises ValueError with a phrase that can follow
the value, such as "needs a whole number".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Parser = Callable[[Any], Any]

INT32 = 2**31 - 1
# What Java reads as a number; int() and float() also read 1_000, digits of all alphabets, and nan.
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
# The pattern would be slow on very long texts.
_LONGEST_NUMBER = 400
# Errors list the names of a table that has no more than these.
_FEW = 20


class SettingError(ValueError):
    """A setting is unknown, invalid, not supported, or contradicts another one.

    Attributes:
        name: the setting, as messages show it
        reason: the problem, as a phrase that follows name and value
        value: what was given; None if there is nothing to show, or if it is a secret
        origin: where it was given, such as ``line 12 of server.properties``, or empty
    """

    # What separates value and reason.
    between = " "

    def __init__(self, name: str, reason: str, value: Any = None, origin: str = "") -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason
        self.value = value
        self.origin = origin

    def __str__(self) -> str:
        given = "" if self.value is None else f"{self.value!r}{self.between}"
        origin = f" ({self.origin})" if self.origin else ""
        return f"{self.label}: {given}{self.reason}{origin}"

    @property
    def label(self) -> str:
        """What a message calls the setting."""
        return self.name

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark pickles errors, and subclasses have constructors of their own.
        return _restore, (type(self), self.args, vars(self).copy())


def _restore(
    cls: type[SettingError], args: tuple[object, ...], attributes: dict[str, object]
) -> SettingError:
    error = cls.__new__(cls, *args)
    vars(error).update(attributes)
    return error


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        name: in its documented spelling
        parse: converts what a user gave; raises ValueError
        default: the value if the setting is not given
        secret: whether the value must not be shown
        aliases: other names of the setting
        applies_to: where the setting can be given, in terms of its table; empty for everywhere
        refused: why the setting is not supported; empty if it is
        ignored: why the setting has no effect, for a warning; empty if it has one
    """

    name: str
    parse: Parser
    default: Any = None
    secret: bool = False
    aliases: tuple[str, ...] = ()
    applies_to: frozenset[Any] = frozenset()
    refused: str = ""
    ignored: str = ""


S = TypeVar("S", bound=Setting)


class SettingTable(dict[str, S], Generic[S]):
    """Settings by name.

    Args:
        error: the class of errors about these settings.
        fold: converts names to the form in which they are compared, and by which the table finds them.
        unknown: the reason of the error for a name that the table does not have.
        others: returns further names that such an error can propose.
    """

    def __init__(
        self,
        settings: Iterable[S],
        error: type[SettingError] = SettingError,
        *,
        fold: Callable[[str], str] = str,
        unknown: str = "unknown setting",
        others: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        super().__init__((fold(each.name), each) for each in settings)
        self._aliases = {fold(alias): each for each in self.values() for alias in each.aliases}
        self._error = error
        self._fold = fold
        self._unknown = unknown
        self._others = others

    def lookup(self, name: str) -> S | None:
        """Return the setting with a name or an alias; None if there is none."""
        key = self._fold(name)
        return self.get(key) or self._aliases.get(key)

    def find(self, name: str) -> S:
        """Return the setting with a name or an alias. Raises the table's error if it is unknown or not supported."""
        setting = self.lookup(name)
        if setting is None:
            raise self._error(name=name, reason=self.unknown(name))
        if setting.refused:
            raise self._error(name=setting.name, reason=f"is not supported: {setting.refused}")
        return setting

    def read(self, setting: S, value: Any) -> Any:
        """Convert a value that a user gave. Raises the table's error, which does not show a secret."""
        try:
            return setting.parse(value)
        except ValueError as error:
            shown = None if setting.secret else value
            raise self._error(name=setting.name, reason=str(error), value=shown) from None

    def unknown(self, name: str) -> str:
        """Return the reason of the error for an unknown name, with the most similar name that is known."""
        # Imported here because only a misspelt setting needs it, and the import slows the start down.
        from krammar.util.diagnostics import meant, most_similar

        names = [each.name for each in self.values()]
        aliases = [alias for each in self.values() for alias in each.aliases]
        known = {self._fold(each): each for each in (*names, *aliases, *self._others())}
        near = most_similar(self._fold(name), known)
        if near:
            return f"{self._unknown}; {meant(known[near])}"
        if len(names) <= _FEW:
            return f"{self._unknown} (the settings are {', '.join(names)})"
        return self._unknown


def split_list(value: str) -> list[str]:
    """Split a comma-separated text and strip white space around the values. Values can be empty."""
    value = value.strip()
    return [item.strip() for item in value.split(",")] if value else []


def split_names(value: str | None) -> list[str]:
    """Split a comma-separated text as ``split_list`` does, without empty values."""
    return [item for item in split_list(value or "") if item]


def text(value: Any) -> str:
    """Return text as it is."""
    if not isinstance(value, str):
        raise ValueError(f"needs text, not {type(value).__name__}")
    return value


def trimmed(value: Any) -> str:
    """Return text without the white space around it."""
    return text(value).strip()


def boolean(value: Any) -> bool:
    """Return the value of True, False, or one of the words true and false in any case."""
    word = str(value).strip().lower()
    if word not in ("true", "false"):
        raise ValueError("needs true or false")
    return word == "true"


def integer(low: int = 0, high: int = INT32) -> Parser:
    """Return a parser of whole numbers from ``low`` to ``high``."""

    def parse(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise ValueError("needs a whole number")
        if isinstance(value, str) and not _INTEGER.fullmatch(value.strip()):
            raise ValueError("needs a whole number")
        number = int(value)
        if number < low:
            raise ValueError(f"needs at least {low}")
        if number > high:
            raise ValueError(f"needs at most {high}")
        return number

    return parse


def number(value: str) -> float:
    """Return a number with or without a fraction and an exponent."""
    value = value.strip()
    if len(value) > _LONGEST_NUMBER or not _NUMBER.fullmatch(value):
        raise ValueError("needs a number")
    return float(value)


def choice(*words: str) -> Parser:
    """Return a parser that accepts the words in any case, and returns them in this spelling."""
    by_key = {word.lower(): word for word in words}

    def parse(value: Any) -> str:
        word = by_key.get(str(value).strip().lower())
        if word is None:
            raise ValueError(f"needs one of {', '.join(filter(None, words))}")
        return word

    return parse
