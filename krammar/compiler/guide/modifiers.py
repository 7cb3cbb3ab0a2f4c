"""The modifiers after the key of an API: ``Credit API (Key: 9, one way, header 0)``.

They are those of definitions. Kafka's guides have none, and ``krammar show`` writes them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from krammar.compiler.ir import ROUTINGS
from krammar.util.diagnostics import did_you_mean

_HEADER = re.compile(
    r"(?P<response>response )?header (?P<header>\d{1,5})(?: v(?P<first>\d{1,5})\+)?"
)
_RESPONSE_KEY = re.compile(r"response key (?P<key>\d{1,5})")
_WORDS = (*ROUTINGS, "cluster action", "one way", "push", "header", "response header")


@dataclass(slots=True)
class Modifiers:
    """What a text says about a request or a push, besides its key and its fields.

    ``headers`` and ``response_headers`` are the header versions from a version of the message on.
    """

    routing: str = ""
    cluster_action: bool = False
    one_way: bool = False
    push: bool = False
    response_key: int | None = None
    headers: dict[int, int] = field(default_factory=dict)
    response_headers: dict[int, int] = field(default_factory=dict)

    def add(self, word: str) -> str | None:
        """Add a modifier. Return a hint if no such modifier exists."""
        if word in ROUTINGS:
            self.routing = word
        elif word in ("cluster action", "one way", "push"):
            setattr(self, word.replace(" ", "_"), True)
        elif key := _RESPONSE_KEY.fullmatch(word):
            self.response_key = int(key["key"])
        elif match := _HEADER.fullmatch(word):
            headers = self.response_headers if match["response"] else self.headers
            headers[int(match["first"] or 0)] = int(match["header"])
        else:
            return did_you_mean(word, _WORDS) or "the modifiers are those of definitions"
        return None


def given_headers(headers: dict[int, int], low: int, high: int) -> dict[int, int]:
    """Return the header version of each version of a message that the text gives."""
    found = {}
    for version in range(low, high + 1):
        firsts = [first for first in headers if first <= version]
        if firsts:
            found[version] = headers[max(firsts)]
    return found
