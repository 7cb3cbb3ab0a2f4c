"""Commands for rules, from any language: the rules of a file come as text, and the history goes as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from krammar.faults.engine import Faults
from krammar.faults.event import Event
from krammar.faults.file import FaultsFileError, read_text
from krammar.faults.rules import Rule
from krammar.util.http_server import Command, Reply

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
        self._faults = faults

    def __call__(self, command: Command) -> Reply | None:
        """Run a command. Returns None for another one."""
        faults = self._faults
        match command.method, command.parts:
            case "GET", ("rules",):
                return Reply(200, [_rule(rule) for rule in faults.rules])
            case "POST", ("rules",):
                before = len(faults.rules)
                try:
                    read_text(faults, _WHAT, command.body)
                except FaultsFileError as error:
                    return Reply(400, {"error": str(error)})
                return Reply(200, [_rule(rule) for rule in faults.rules[before:]])
            case "DELETE", ("rules",):
                faults.clear()
                return Reply(200, [])
            case "DELETE", ("rules", name):
                found = [rule for rule in faults.rules if rule.name == name]
                for rule in found:
                    faults.remove(rule)
                if not found:
                    return Reply(404, {"error": f'no rule has the name "{name}"'})
                return Reply(200, [_rule(rule) for rule in found])
            case "GET", ("history",):
                return Reply(200, [_event(event) for event in list(faults.history)])
        return None


def _rule(rule: Rule) -> dict[str, Any]:
    return {"name": rule.name, "matched": rule.matched, "fired": rule.fired}


def _event(event: Event) -> dict[str, Any]:
    names = ("action", "time", "connection", "client_id", "api", "version", "correlation_id")
    return {"rule": event.rule.name, **{name: getattr(event, name) for name in names}}
