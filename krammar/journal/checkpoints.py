"""Intents and checkpoints: programs store them so that a crash loses and repeats nothing.

Both are encoded as structs of ``definitions/journal_wire``, with a checksum since version 1. ``store_bytes`` writes
them to a file. Bytes in a database need no more than its transaction.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple
from uuid import UUID
from zlib import crc32

import journal_wire as wire

from krammar.journal.errors import CheckpointError
from krammar.journal.producers import ProducerState
from krammar.journal.uuids import NULL_UUID, ProducerID
from krammar.util.durable import write_atomically

_SIGN = 1 << 63
_BITS = 1 << 64


class AckIntent(NamedTuple):
    """A framed acknowledgement, and the journal to which it must be appended to commit messages there."""

    journal: str
    intent: bytes


def encode_intents(intents: Iterable[AckIntent]) -> bytes:
    """Encode intents. Store the bytes before the first intent is appended; see ``store_bytes``."""
    return _with_checksum(wire.AckIntents(version=1, intents=_wire_intents(intents)).encode())


def decode_intents(data: bytes) -> list[AckIntent]:
    """Decode the bytes of ``encode_intents``. Raises CheckpointError if they are malformed or damaged."""
    try:
        found = wire.AckIntents.decode(data)
        _check(data, found.version)
    except ValueError as error:
        raise CheckpointError(f"these bytes are not intents: {error}") from error
    return _intents(found.intents)


def store_bytes(path: Path | str, data: bytes) -> None:
    """Store intents or a checkpoint in a file, so that they survive a power cut when the function returns.

    A crash leaves the old or the new content, never a part of it. No other process may write the file at the same time.

    Raises:
        OSError: the bytes cannot be stored. The file has the old content, unless only its folder could not be forced to
            the disk; then it is unknown which content a power cut leaves.
    """
    write_atomically(path, data)


@dataclass(slots=True)
class Checkpoint:
    """The position of a reader of committed messages, which it stores together with its results.

    Attributes:
        read_through: by journal: the next offset after the last message that was read
        states: the states of producers, from ``Sequencer.producer_states``
        ack_intents: the acknowledgements of what the reader itself has published since the last checkpoint;
            append them after the checkpoint is stored, and again after a restart
        journal_ids: by journal: the id of the journal that was read. A reader with this id refuses a journal that
            was deleted and created again
    """

    read_through: dict[str, int] = field(default_factory=dict)
    states: list[ProducerState] = field(default_factory=list)
    ack_intents: list[AckIntent] = field(default_factory=list)
    journal_ids: dict[str, UUID] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Encode the checkpoint as the message Checkpoint of ``definitions/journal_wire``."""
        checkpoint = wire.Checkpoint(
            version=2,
            read_through=[
                wire.Checkpoint.ReadThrough(
                    journal=journal,
                    offset=offset,
                    journal_id=self.journal_ids.get(journal, NULL_UUID),
                )
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
        )
        return _with_checksum(checkpoint.encode())

    @classmethod
    def decode(cls, data: bytes) -> Checkpoint:
        """Decode the bytes of ``encode``. Raises CheckpointError if they are malformed or damaged."""
        try:
            found = wire.Checkpoint.decode(data)
            _check(data, found.version)
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
            {at.journal: at.journal_id for at in found.read_through if at.journal_id != NULL_UUID},
        )


def _with_checksum(data: bytes) -> bytes:
    """Fill in the checksum, which is the last field."""
    return data[:-4] + crc32(data[:-4]).to_bytes(4, "big")


def _check(data: bytes, version: int) -> None:
    """Raise ValueError if the checksum is wrong. Version 0 has none."""
    if version and crc32(data[:-4]) != int.from_bytes(data[-4:], "big"):
        raise ValueError("the checksum is wrong")


def _wire_intents(intents: Iterable[AckIntent]) -> list[wire.AckIntent]:
    return [wire.AckIntent(journal=journal, intent=intent) for journal, intent in intents]


def _intents(found: list[wire.AckIntent]) -> list[AckIntent]:
    return [AckIntent(one.journal, one.intent) for one in found]
