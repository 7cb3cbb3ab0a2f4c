"""Commands for rules, from any language: the rules of a file come as text, and the history goes as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import unquote

from krammar.faults.engine import Faults
from krammar.faults.event import Event
from krammar.faults.file import FaultsFileError, read_text
from krammar.faults.rules import Rule
from krammar.util.http_server import Reply

_WHAT = Path("request")


class FaultsControl:
    """The commands.

    ``GET /rules``          the rules, and how often they matched and fired
    ``POST /rules``         adds the rules of the body, in the form of a file
    ``DELETE /rules``       removes all rules, and forgets the history
    ``DELETE /rules/NAME``  removes one
    ``GET /history``        what has fired
    """

    def __init__(self, faults: Faults) -> None:
        self.faults = faults

    def __call__(self, method: str, path: str, body: str) -> Reply:
        parts = [unquote(part) for part in path.partition("?")[0].split("/") if part]
        return self.run(method, parts, body)

    def run(self, method: str, parts: list[str], body: str) -> Reply:
        """Run a command. ``parts`` are the parts of the path."""
        faults = self.faults
        if (method, parts) == ("GET", ["rules"]):
            return Reply(200, [_rule(rule) for rule in faults.rules])
        if (method, parts) == ("POST", ["rules"]):
            before = len(faults.rules)
            try:
                read_text(faults, _WHAT, body)
            except FaultsFileError as error:
                return Reply(400, {"error": str(error)})
            return Reply(200, [_rule(rule) for rule in faults.rules[before:]])
        if (method, parts) == ("DELETE", ["rules"]):
            faults.clear()
            return Reply(200, [])
        if method == "DELETE" and len(parts) == 2 and parts[0] == "rules":
            found = [rule for rule in faults.rules if rule.name == parts[1]]
            for rule in found:
                faults.remove(rule)
            if not found:
                return Reply(404, {"error": f'no rule has the name "{parts[1]}"'})
            return Reply(200, [_rule(rule) for rule in found])
        if (method, parts) == ("GET", ["history"]):
            return Reply(200, [_event(event) for event in list(faults.history)])
        return Reply(404, {"error": f"{method} /{'/'.join(parts)} does not exist"})


def _rule(rule: Rule) -> dict[str, Any]:
    return {"name": rule.name, "matched": rule.matched, "fired": rule.fired}


def _event(event: Event) -> dict[str, Any]:
    names = ("action", "time", "connection", "client_id", "api", "version", "correlation_id")
    return {"rule": event.rule.name, **{name: getattr(event, name) for name in names}}
