"""The lines that ``krammar inspect PATH`` prints."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from krammar.logfiles.damage import DamageError
from krammar.util.printable import escape, printable_json


@dataclass(frozen=True, slots=True)
class Item:
    """A line: ``kind`` is file, batch, record, entry, transaction, producer or damage."""

    kind: str
    fields: dict[str, Any]

    @property
    def is_damage(self) -> bool:
        return self.kind == "damage"

    def as_json(self) -> str:
        """Return the item as one line of JSON."""
        return printable_json({"kind": self.kind, **self.fields})

    def as_text(self) -> str:
        """Return the item as ``kafka-dump-log`` prints it. Control characters are escaped."""
        if self.kind == "file":
            return f"Dumping {escape(self.fields['path'])}"
        text = " ".join(f"{name}: {_text(name, value)}" for name, value in self.fields.items())
        if self.kind == "record":
            return f"| {text}"
        return f"DAMAGED {text}" if self.is_damage else text


def _text(name: str, value: Any) -> str:
    quoted = not isinstance(value, str) or name in ("key", "value")
    return escape(json.dumps(value, ensure_ascii=False) if quoted else value)


def damage_item(error: DamageError) -> Item:
    fields: dict[str, Any] = {"case": error.damage.value}
    if error.position >= 0:
        fields["position"] = error.position
    return Item("damage", {**fields, "message": str(error)})
