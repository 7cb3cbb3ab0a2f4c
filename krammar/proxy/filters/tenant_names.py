"""Names of tenants: prefixes, also inside texts and regular expressions."""

from __future__ import annotations

import re
from collections.abc import Iterable

# Kafka's limit for names of topics, in characters.
MAX_TOPIC = 249
# Between a tenant's name and its own names. Names of tenants cannot contain it, so no prefix begins with another one.
SEPARATOR = "."
# Without "_": Kafka takes "." and "_" for the same in names of metrics, and refuses topics whose names would collide.
_TENANT = re.compile(r"[A-Za-z0-9-]+")
_NAME = r"[A-Za-z0-9._-]"


class Tenant:
    """A tenant: ``name``, and ``prefix`` of its topics, groups and transactional ids at the broker.

    Args:
        others: the names of the other tenants, to hide them in error messages.

    Raises:
        ValueError: the name cannot be a prefix.
    """

    __slots__ = ("_hidden", "_mine", "_pattern", "name", "prefix", "prefix_bytes")

    def __init__(self, name: str, others: Iterable[str] = ()) -> None:
        if not isinstance(name, str) or not _TENANT.fullmatch(name):
            raise ValueError(
                f"tenant {name!r}: a name consists of letters, digits and '-' (the prefix of its topics is the name "
                f"and {SEPARATOR!r})"
            )
        self.name = name
        self.prefix = name + SEPARATOR
        self.prefix_bytes = self.prefix.encode()
        if len(self.prefix) >= MAX_TOPIC:
            raise ValueError(
                f"tenant {name[:20]!r}…: a name has {MAX_TOPIC - 2} characters at most"
            )
        self._pattern = f"{_quoted(self.prefix)}(?:"
        self._mine = re.compile(rf"(?<!{_NAME}){re.escape(self.prefix)}")
        hidden = "|".join(re.escape(each) for each in sorted(others) if each != name)
        self._hidden = re.compile(rf"(?<!{_NAME})(?:{hidden})\.{_NAME}+") if hidden else None

    def add(self, name: str) -> str:
        """Return the name at the broker."""
        return self.prefix + name

    def owns(self, name: str) -> bool:
        """Return whether a name at the broker belongs to the tenant."""
        return name.startswith(self.prefix)

    def strip(self, name: str) -> str:
        """Return the tenant's own name of a name at the broker that belongs to it."""
        return name[len(self.prefix) :]

    def clean(self, text: str) -> str:
        """Return a text of the broker for the tenant: without its prefix, and without names of other tenants."""
        text = self._mine.sub("", text.replace(self._pattern, "("))
        return text if self._hidden is None else self._hidden.sub("…", text)

    def problem(self, topic: str) -> str:
        """Return why a topic of the tenant cannot be created, for its name; empty if it can."""
        if topic in ("", ".", ".."):
            return f"the name of a topic cannot be {topic!r}"
        longest = MAX_TOPIC - len(self.prefix)
        if len(topic) > longest:
            return (
                f"the name of a topic has {longest} characters at most here, not {len(topic)} "
                f"(Kafka's limit is {MAX_TOPIC}, and the proxy adds a prefix of {len(self.prefix)})"
            )
        return ""

    def add_pattern(self, pattern: str) -> str:
        """Return an RE2 expression that matches the prefix and what ``pattern`` matches as a whole.

        Raises:
            ValueError: parentheses or brackets of ``pattern`` are not closed, so it cannot be put into a group.
        """
        return f"{self._pattern}{_inner(pattern)})" if pattern else pattern

    def strip_pattern(self, pattern: str) -> str | None:
        """Return the tenant's own expression of one at the broker; None if it is not of the tenant."""
        if not pattern:
            return pattern
        return pattern[len(self._pattern) : -1] if pattern.startswith(self._pattern) else None


def _quoted(text: str) -> str:
    # RE2 accepts a backslash before punctuation only.
    return "".join(c if c.isalnum() or c == "_" or ord(c) > 127 else f"\\{c}" for c in text)


def _inner(pattern: str) -> str:
    """Return an expression without what cannot be in a group: ``\\Q`` without an end, and the beginning of the text.

    The broker matches whole names, so an anchor for the beginning matches nothing more than an empty group does. One in
    the middle of an expression, which can never match, is ignored too.
    """
    parts = []
    position = depth = 0
    while position < len(pattern):
        end = position + 1
        part = pattern[position]
        if part == "\\":
            end += 1
            part = pattern[position:end]
            if len(part) < 2:
                raise ValueError("a backslash is the last character")
            if part == "\\Q":
                literal = pattern[end:].partition("\\E")[0]
                end = min(len(pattern), end + len(literal) + 2)
                part = _quoted(literal)
            elif part == "\\A":
                part = "(?:)"
        elif part == "[":
            end = _class_end(pattern, position)
            part = pattern[position:end]
        elif part == "(":
            depth += 1
        elif part == ")":
            depth -= 1
            if depth < 0:
                raise ValueError("a parenthesis is closed that is not open")
        elif part == "^":
            part = "(?:)"
        parts.append(part)
        position = end
    if depth:
        raise ValueError("a parenthesis is not closed")
    return "".join(parts)


def _class_end(pattern: str, position: int) -> int:
    """Return the offset after the class that begins at a position."""
    position += 2 if pattern.startswith("[^", position) else 1
    first = True
    while position < len(pattern):
        if pattern[position] == "]" and not first:
            return position + 1
        first = False
        if pattern.startswith("[:", position) and (end := pattern.find(":]", position + 2)) >= 0:
            position = end + 2
        else:
            position += 2 if pattern[position] == "\\" else 1
    raise ValueError("a bracket is not closed")
