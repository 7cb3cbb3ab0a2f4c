"""``ssl.principal.mapping.rules``: rules that turn the name in a certificate into a user name (KIP-371).

```
RULE:^CN=([^,]*),.*$/$1/L, DEFAULT
```
"""

from __future__ import annotations

import re
from typing import NamedTuple

_PART = r"(?:\\.|[^\\/])*"
_RULE = re.compile(
    rf"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>{_PART})/(?P<replacement>{_PART})/(?P<case>[LU]?))"
    r"\s*(?:,|$)"
)


class MappingError(ValueError):
    """The rules are invalid."""


class Rule(NamedTuple):
    """One rule. ``case`` is L for lower case, U for upper case, or empty."""

    pattern: re.Pattern[str]
    replacement: str
    case: str


_DEFAULT = Rule(re.compile(".*", re.DOTALL), r"\g<0>", "")


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Parse the value of the setting. Raises MappingError."""
    rules = []
    at = 0
    while at < len(text):
        match = _RULE.match(text, at)
        if match is None:
            raise MappingError(f"not a rule: {text[at:].strip()!r}")
        at = match.end()
        if match["default"]:
            rules.append(_DEFAULT)
            continue
        try:
            pattern = re.compile(match["pattern"])
        except re.error as error:
            raise MappingError(f"{match['pattern']!r} is not a pattern: {error}") from None
        rules.append(Rule(pattern, _template(match["replacement"], pattern), match["case"]))
    return tuple(rules) or (_DEFAULT,)


def map_name(rules: tuple[Rule, ...], name: str) -> str | None:
    """Convert a distinguished name by the first rule that matches. Returns None if no rule matches."""
    for pattern, replacement, case in rules:
        if pattern.fullmatch(name):
            name = pattern.sub(replacement, name)
            return name.lower() if case == "L" else name.upper() if case == "U" else name
    return None


def _template(replacement: str, pattern: re.Pattern[str]) -> str:
    """Convert Java's ``$1`` to Python's ``\\g<1>``."""
    for number in map(int, re.findall(r"\$(\d)", replacement)):
        if number > pattern.groups:
            raise MappingError(f"{pattern.pattern!r} has no group {number}")
    return re.sub(r"\$(\d)", r"\\g<\1>", replacement.replace("\\", "\\\\"))
