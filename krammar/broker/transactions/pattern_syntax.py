"""The syntax of RE2's regular expressions: from text to a tree.

https://github.com/google/re2/wiki/Syntax says what there is.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

Test: TypeAlias = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Characters:
    """One character that passes a test."""

    has: Test


@dataclass(frozen=True, slots=True)
class Assertion:
    """A place in the text, such as its end."""

    holds: Callable[[str, int], bool]


@dataclass(frozen=True, slots=True)
class Sequence:
    parts: list[Node]


@dataclass(frozen=True, slots=True)
class Alternatives:
    choices: list[Node]


@dataclass(frozen=True, slots=True)
class Repeat:
    node: Node
    least: int
    most: int | None


Node: TypeAlias = Characters | Assertion | Sequence | Alternatives | Repeat

_MOST_REPEATS = 1000
_COUNTED = re.compile(r"\{(\d+)(,(\d*))?\}", re.ASCII)
_NAMED_GROUP = re.compile(r"\?P?<(\w+)>")
_FLAGS = re.compile(r"\?([imsU]*)(?:-([imsU]+))?([:)])")
_UNICODE = re.compile(r"\{(\^?)(\w+)\}|([A-Z])", re.ASCII)
_HEX = re.compile(r"([0-9a-fA-F]{2})|\{([0-9a-fA-F]{1,6})\}")
_OCTAL = re.compile(r"0[0-7]{0,2}|[1-7][0-7]{1,2}")
_POSIX = re.compile(r"\[:(\^?)(\w+):\]", re.ASCII)
_CONTROLS = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
# Letters of a general category and of its parts; together they are the category's abbreviation.
_CATEGORIES = {
    "C": "cfos",
    "L": "lmotu",
    "M": "cen",
    "N": "dlo",
    "P": "cdefios",
    "S": "ckmo",
    "Z": "lps",
}
_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")


def _is_word(character: str) -> bool:
    return character == "_" or (character.isascii() and character.isalnum())


_ASCII_CLASSES: dict[str, Test] = {
    "alnum": lambda c: c.isascii() and c.isalnum(),
    "alpha": lambda c: c.isascii() and c.isalpha(),
    "ascii": str.isascii,
    "blank": lambda c: c in "\t ",
    "cntrl": lambda c: c < " " or c == "\x7f",
    "digit": lambda c: "0" <= c <= "9",
    "graph": lambda c: "!" <= c <= "~",
    "lower": lambda c: "a" <= c <= "z",
    "print": lambda c: " " <= c <= "~",
    "punct": lambda c: c in _PUNCTUATION,
    "space": lambda c: c in "\t\n\v\f\r ",
    "upper": lambda c: "A" <= c <= "Z",
    "word": _is_word,
    "xdigit": lambda c: c in "0123456789abcdefABCDEF",
}
_PERL_CLASSES: dict[str, Test] = {
    "d": _ASCII_CLASSES["digit"],
    "s": lambda c: c in "\t\n\f\r ",
    "w": _is_word,
}


def _at_word_boundary(text: str, position: int) -> bool:
    before = position > 0 and _is_word(text[position - 1])
    return before != (position < len(text) and _is_word(text[position]))


_BEGIN = Assertion(lambda text, position: position == 0)
_END = Assertion(lambda text, position: position == len(text))
_LINE_BEGIN = Assertion(lambda text, position: position == 0 or text[position - 1] == "\n")
_LINE_END = Assertion(lambda text, position: position == len(text) or text[position] == "\n")
_PLACES = {
    "A": _BEGIN,
    "z": _END,
    "b": Assertion(_at_word_boundary),
    "B": Assertion(lambda text, position: not _at_word_boundary(text, position)),
}


def parse(pattern: str) -> Node:
    """Raises ValueError if ``pattern`` is no expression."""
    parser = _Parser(pattern)
    node = parser.alternatives()
    if parser.position < len(pattern):
        raise ValueError("unexpected )")
    return node


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.position = 0
        self.flags: frozenset[str] = frozenset()

    def _next(self) -> str:
        """The character that follows, or "" at the end."""
        return self.pattern[self.position : self.position + 1]

    def _take(self, what: re.Pattern[str]) -> re.Match[str] | None:
        found = what.match(self.pattern, self.position)
        if found is not None:
            self.position = found.end()
        return found

    def _skip(self, text: str) -> bool:
        if not self.pattern.startswith(text, self.position):
            return False
        self.position += len(text)
        return True

    def alternatives(self) -> Node:
        """Up to the end or a closing bracket."""
        choices: list[Node] = []
        parts: list[Node] = []
        while self._next() not in ("", ")"):
            if self._skip("|"):
                choices.append(Sequence(parts))
                parts = []
            else:
                self._part(parts)
        if not choices:
            return Sequence(parts)
        return Alternatives([*choices, Sequence(parts)])

    def _part(self, parts: list[Node]) -> None:
        if self._skip("\\Q"):
            quoted, end, _ = self.pattern[self.position :].partition("\\E")
            self.position += len(quoted) + len(end)
            parts += [self._literal(character) for character in quoted]
        else:
            node = self._atom()
            if node is not None:
                parts.append(node)
        repeat = self._repeat()
        if repeat is None:
            return
        if not parts:
            raise ValueError("nothing to repeat")
        parts[-1] = Repeat(parts[-1], *repeat)
        if self._repeat() is not None:
            raise ValueError("a repeat of a repeat")

    def _repeat(self) -> tuple[int, int | None] | None:
        bounds: tuple[int, int | None]
        if counted := self._take(_COUNTED):
            least = int(counted[1])
            if counted[2] is None:
                bounds = least, least
            else:
                bounds = least, int(counted[3]) if counted[3] else None
            if max(least, bounds[1] or 0) > _MOST_REPEATS or least > (bounds[1] or least):
                raise ValueError(f"bad repeat {counted[0]}")
            if bounds == (least, 0) and least:
                raise ValueError(f"bad repeat {counted[0]}")
        elif self._skip("*"):
            bounds = 0, None
        elif self._skip("+"):
            bounds = 1, None
        elif self._skip("?"):
            bounds = 0, 1
        else:
            return None
        self._skip("?")  # lazy: the same where only the whole text counts
        return bounds

    def _atom(self) -> Node | None:
        """None where there is nothing to match, only flags to set."""
        character = self._next()
        if character in "*+?" or _COUNTED.match(self.pattern, self.position):
            raise ValueError("nothing to repeat")
        self.position += 1
        if character == "(":
            return self._group()
        if character == "[":
            return self._set()
        if character == ".":
            return Characters((lambda c: True) if "s" in self.flags else (lambda c: c != "\n"))
        if character == "^":
            return _LINE_BEGIN if "m" in self.flags else _BEGIN
        if character == "$":
            return _LINE_END if "m" in self.flags else _END
        if character != "\\":
            return self._literal(character)
        place = _PLACES.get(self._next())
        if place is not None:
            self.position += 1
            return place
        found = self._class()
        return self._literal(self._escaped()) if found is None else Characters(found)

    def _group(self) -> Node | None:
        flags = self.flags
        if self._next() == "?" and not self._take(_NAMED_GROUP):
            changed = self._take(_FLAGS)
            if changed is None:
                raise ValueError("unknown kind of group")
            self.flags = (flags | set(changed[1])) - set(changed[2] or "")
            if changed[3] == ")":
                return None
        node = self.alternatives()
        if not self._skip(")"):
            raise ValueError("missing )")
        self.flags = flags
        return node

    def _literal(self, literal: str) -> Characters:
        return Characters(self._folded(literal.__eq__))

    def _folded(self, test: Test) -> Test:
        if "i" not in self.flags:
            return test
        return lambda c: test(c) or test(c.lower()) or test(c.upper())

    def _class(self) -> Test | None:
        """A class behind a backslash."""
        character = self._next()
        test = _PERL_CLASSES.get(character.lower())
        if test is not None:
            self.position += 1
            return _unless(test) if character.isupper() else self._folded(test)
        if character not in ("p", "P"):
            return None
        self.position += 1
        found = self._take(_UNICODE)
        if found is None:
            raise ValueError("no name of a class")
        name = found[2] or found[3]
        if name == "Any":
            test = bool
        elif name[0] in _CATEGORIES and name[1:] in ("", *_CATEGORIES[name[0]]):
            test = self._folded(lambda c: bool(c) and unicodedata.category(c[0]).startswith(name))
        else:
            raise ValueError(f"unknown class {name}")
        return _unless(test) if (character == "P") != bool(found[1]) else test

    def _escaped(self) -> str:
        """A character behind a backslash."""
        character = self._next()
        if octal := self._take(_OCTAL):
            return chr(int(octal[0], 8))
        self.position += 1
        if character == "x":
            digits = self._take(_HEX)
            if digits is None or int(digits[1] or digits[2], 16) > 0x10FFFF:
                raise ValueError("no code point")
            return chr(int(digits[1] or digits[2], 16))
        if character in _CONTROLS:
            return _CONTROLS[character]
        if not character or (character.isascii() and character.isalnum()):
            raise ValueError(f"unknown escape \\{character}")
        return character

    def _set(self) -> Node:
        """What stands in square brackets."""
        negated = self._skip("^")
        tests: list[Test] = []
        first = True
        while first or self._next() != "]":
            first = False
            if not self._next():
                raise ValueError("missing ]")
            tests.append(self._set_item())
        self.position += 1
        test: Test = lambda c: any(test(c) for test in tests)  # noqa: E731
        return Characters(_unless(test) if negated else test)

    def _set_item(self) -> Test:
        if named := self._take(_POSIX):
            test = _ASCII_CLASSES.get(named[2])
            if test is None:
                raise ValueError(f"unknown class {named[0]}")
            return _unless(test) if named[1] else self._folded(test)
        if self._skip("\\"):
            found = self._class()
            if found is not None:
                return found
            low = self._escaped()
        else:
            low = self._next()
            self.position += 1
        if self._next() != "-" or self.pattern.startswith("-]", self.position):
            return self._folded(low.__eq__)
        self.position += 1
        high = self._next()
        self.position += 1
        if high == "\\":
            high = self._escaped()
        if not high or high < low:
            raise ValueError(f"bad range {low}-{high}")
        return self._folded(lambda c: low <= c <= high)


def _unless(test: Test) -> Test:
    return lambda c: not test(c)
