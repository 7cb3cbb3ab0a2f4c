"""Intents and checkpoints: programs store them so that a crash loses and repeats nothing.

Both are encoded as structs of ``definitions/journal_wire``.
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
    """A framed acknowledgement, and the journal to which it must be appended to commit messages there."""

    journal: str
    intent: bytes


def encode_intents(intents: Iterable[AckIntent]) -> bytes:
    """Encode intents. Store the bytes before the first intent is appended."""
    return wire.AckIntents(intents=_wire_intents(intents)).encode()


def decode_intents(data: bytes) -> list[AckIntent]:
    """Decode the bytes of ``encode_intents``. Raises CheckpointError if they are malformed."""
    try:
        return _intents(wire.AckIntents.decode(data).intents)
    except WireError as error:
        raise CheckpointError(f"these bytes are not intents: {error}") from error


@dataclass(slots=True)
class Checkpoint:
    """The position of a reader of committed messages, which it stores together with its results.

    ``read_through``  by journal: the next offset after the last message that was read
    ``states``        the states of producers, from ``Sequencer.producer_states``
    ``ack_intents``   the acknowledgements of what the reader itself has published since the last checkpoint;
                      append them after the checkpoint is stored, and again after a restart
    """

    read_through: dict[str, int] = field(default_factory=dict)
    states: list[ProducerState] = field(default_factory=list)
    ack_intents: list[AckIntent] = field(default_factory=list)

    def encode(self) -> bytes:
        """Encode the checkpoint as the message Checkpoint of ``definitions/journal_wire``."""
        return wire.Checkpoint(
            read_through=[
                wire.Checkpoint.ReadThrough(journal=journal, offset=offset)
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
        """Decode the bytes of ``encode``. Raises CheckpointError if they are malformed."""
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
            raise CheckpointError(f"these bytes are not a checkpoint: {error}") from error
        return cls(
            {at.journal: at.offset for at in found.read_through},
            states,
            _intents(found.ack_intents),
        )


def _wire_intents(intents: Iterable[AckIntent]) -> list[wire.AckIntent]:
    return [wire.AckIntent(journal=journal, intent=intent) for journal, intent in intents]


def _intents(found: list[wire.AckIntent]) -> list[AckIntent]:
    return [AckIntent(one.journal, one.intent) for one in found]
