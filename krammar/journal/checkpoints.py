"""What is stored so that a crash loses nothing and repeats nothing: intents and checkpoints.

Both are structs of ``definitions/journal_wire``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import journal_wire as wire

from krammar.journal.errors import CheckpointError
from krammar.journal.sequencer import ProducerState
from krammar.journal.uuids import ProducerID
from krammar.wire.errors import WireError

_SIGN = 1 << 63
_BITS = 1 << 64


class AckIntent(NamedTuple):
    """A framed acknowledgement and the journal to append it to, where it commits what was published there
    uncommitted."""

    journal: str
    intent: bytes


def encode_intents(intents: Iterable[AckIntent]) -> bytes:
    """Intents as bytes, to be stored before the first of them is appended."""
    return wire.AckIntents(intents=_wire_intents(intents)).encode()


def decode_intents(data: bytes) -> list[AckIntent]:
    """The inverse of ``encode_intents``. Raises CheckpointError."""
    try:
        return _intents(wire.AckIntents.decode(data).intents)
    except WireError as error:
        raise CheckpointError(f"no intents: {error}") from error


@dataclass(slots=True)
class Checkpoint:
    """What a reader of committed messages stores with its results.

    ``read_through``  by journal the offset behind the last message that was read
    ``states``        those of the producers, as ``Sequencer.producer_states`` gives them
    ``ack_intents``   what the reader has published itself since the checkpoint before: to be appended
                      when the checkpoint is stored, and again after a restart from it
    """

    read_through: dict[str, int] = field(default_factory=dict)
    states: list[ProducerState] = field(default_factory=list)
    ack_intents: list[AckIntent] = field(default_factory=list)

    def encode(self) -> bytes:
        return wire.Checkpoint(
            read_through=[
                wire.CheckpointReadThrough(journal=journal, offset=offset)
                for journal, offset in self.read_through.items()
            ],
            producers=[
                wire.ProducerState(
                    journal=journal,
                    producer=bytes(producer),
                    last_ack=last_ack - _BITS if last_ack & _SIGN else last_ack,
                    begin=begin,
                )
                for journal, producer, last_ack, begin in self.states
            ],
            ack_intents=_wire_intents(self.ack_intents),
        ).encode()

    @classmethod
    def decode(cls, data: bytes) -> Checkpoint:
        """Raises CheckpointError."""
        try:
            found = wire.Checkpoint.decode(data)
            states = [
                ProducerState(
                    p.journal,
                    ProducerID(p.producer),
                    p.last_ack + _BITS if p.last_ack < 0 else p.last_ack,
                    p.begin,
                )
                for p in found.producers
            ]
        except ValueError as error:
            raise CheckpointError(f"no checkpoint: {error}") from error
        return cls(
            {at.journal: at.offset for at in found.read_through},
            states,
            _intents(found.ack_intents),
        )


def _wire_intents(intents: Iterable[AckIntent]) -> list[wire.AckIntent]:
    return [wire.AckIntent(journal=journal, intent=intent) for journal, intent in intents]


def _intents(found: list[wire.AckIntent]) -> list[AckIntent]:
    return [AckIntent(one.journal, one.intent) for one in found]
