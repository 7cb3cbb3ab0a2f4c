"""``ssl.principal.mapping.rules``: rules that turn the name in a certificate into a user name (KIP-371).

```
RULE:^CN=([^,]*),.*$/$1/L, DEFAULT
```
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_PART = r"(?:\\.|[^\\/])*"
_RULE = re.compile(
    rf"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>{_PART})/(?P<replacement>{_PART})/(?P<case>[LU]?))"
    r"\s*(?:,|$)"
)


class MappingError(ValueError):
    """The rules are invalid."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule.

    ``pattern``  None for DEFAULT, which does not change names
    ``case``     L, U or empty
    """

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        """Convert a distinguished name. Returns None if the rule does not match."""
        if self.pattern is None:
            return name
        if self.pattern.fullmatch(name) is None:
            return None
        name = self.pattern.sub(self.replacement, name)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


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
            rules.append(Rule())
            continue
        try:
            pattern = re.compile(match["pattern"])
        except re.error as error:
            raise MappingError(f"{match['pattern']!r} is not a pattern: {error}") from None
        rules.append(Rule(pattern, _template(match["replacement"], pattern), match["case"]))
    return tuple(rules) or (Rule(),)


def _template(replacement: str, pattern: re.Pattern[str]) -> str:
    """Convert Java's ``$1`` to Python's ``\\g<1>``."""
    parts = re.split(r"\$(\d)", replacement)
    for number in map(int, parts[1::2]):
        if number > pattern.groups:
            raise MappingError(f"{pattern.pattern!r} has no group {number}")
    literal = [part.replace("\\", "\\\\") for part in parts[::2]]
    groups = [f"\\g<{number}>" for number in parts[1::2]] + [""]
    return "".join(text + group for text, group in zip(literal, groups, strict=True))


def map_name(rules: tuple[Rule, ...], name: str) -> str | None:
    """Convert a name by the first rule that matches. Returns None if no rule matches."""
    return next((mapped for rule in rules if (mapped := rule.apply(name)) is not None), None)
