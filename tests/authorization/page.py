"""The table of docs/security.md: what each API asks for."""

from __future__ import annotations

from kafka_wire import AclOperation, AclResourceType

from krammar.authorization.table import CONFIGS, TABLE, Refusal

_REFUSALS = {
    Refusal.WHOLE: "the whole response",
    Refusal.EACH: "each one refused; the others are served",
    Refusal.HIDDEN: "left out",
}


def _title(member: AclOperation | AclResourceType) -> str:
    return "".join(word.capitalize() for word in member.name.split("_"))


def table() -> str:
    """The rows, without the heading."""
    rows = []
    for api in sorted({*TABLE, *CONFIGS}):
        for ask in TABLE.get(api, ()):
            unless = f", or {_title(ask.unless)} on the cluster" if ask.unless else ""
            rows.append(
                f"| {api} | {_title(ask.operation)}{unless} | {_title(ask.resource)} | {_REFUSALS[ask.refusal]} |"
            )
        if api in CONFIGS:
            rows.append(
                f"| {api} | {_title(CONFIGS[api])} | Topic, Group; Cluster for others | {_REFUSALS[Refusal.EACH]} |"
            )
    return "\n".join(rows)
