"""The offsets of a stream of journals: by journal, the position up to which it is read and the states of producers there.

Spark's checkpoint stores them as JSON:

    {"orders/0": {"id": "6f1c…", "offset": 23, "producers": {"01a2b3c4d5e6": [139…], "03…": [139…, 139…, 17]}}}

The id is that of the journal, so that a journal that was created again is noticed. A producer has the clock of its last
acknowledgement. If it has an open transaction, its largest clock and the offset of the transaction's first message follow.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from krammar.journal.uuids import NULL_UUID
from krammar.spark.errors import SparkSourceError
from krammar.spark.journal.committed import ScannedProducer

_FORM = '{"journal": {"id": text, "offset": number, "producers": {…}}}'

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class JournalPosition:
    """A position in a journal.

    Attributes:
        journal_id: the journal's id; the null UUID if the brokers have no topic ids
        offset: the next offset to be read
        producers: the states of producers there, sorted
    """

    journal_id: UUID
    offset: int
    producers: tuple[ScannedProducer, ...] = ()

    def is_in(self, journal_id: UUID) -> bool:
        """Return whether it can be a position in the journal with this id. An unknown id fits every journal."""
        return NULL_UUID in (self.journal_id, journal_id) or self.journal_id == journal_id


Positions = Mapping[str, JournalPosition]


def positions_to_json(positions: Positions) -> Json:
    """Return positions as the checkpoint stores them. Equal positions give the same text."""
    return {
        journal: {
            "id": str(at.journal_id),
            "offset": at.offset,
            "producers": {
                f"{p.node:012x}": [p.last_ack] if p.begin < 0 else [p.last_ack, p.latest, p.begin]
                for p in at.producers
            },
        }
        for journal, at in sorted(positions.items())
    }


def positions_of(found: Any) -> dict[str, JournalPosition]:
    """Return the positions that Spark passes.

    Raises:
        SparkSourceError: they are of another source, which has written the checkpoint.
    """
    try:
        return {str(journal): _position(at) for journal, at in found.items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        text = json.dumps(found)
        raise SparkSourceError(
            f"the checkpoint has the offset {text[:200]}, but offsets of source=journal have the form "
            f"{_FORM}: another source has written it; use another checkpointLocation"
        ) from None


def _position(found: Json) -> JournalPosition:
    offset = found["offset"]
    if type(offset) is not int or offset < 0:
        raise ValueError(f"{offset!r} is not an offset")
    producers = tuple(
        _producer(int(node, 16), *numbers) for node, numbers in found["producers"].items()
    )
    return JournalPosition(UUID(found["id"]), offset, producers)


def _producer(
    node: int, last_ack: int, latest: int | None = None, begin: int = -1
) -> ScannedProducer:
    return ScannedProducer(node, last_ack, last_ack if latest is None else latest, begin)
