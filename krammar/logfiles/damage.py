"""The kinds of damage in the files of a log, and how each reader handles them.

The library detects damage and raises ``DamageError``, whose ``damage`` is one of these cases. The reader decides
what to do:

| case | broker at start | broker later | Spark (``failOnDataLoss``) | ``krammar inspect`` |
|---|---|---|---|---|
| ``ZEROS``: preallocated space | repair: cut there | error | skip in the newest segment, else as ``TORN`` | report, end of file |
| ``TORN``: the file ends within a batch | repair: cut there | error | skip in the newest segment; else error (true) or skip the rest of the segment (false) | report, end of file |
| ``NO_BATCH``: bytes that are not a batch, so that the next one is not found | repair: cut there | error | error, or skip the rest of the segment | report, end of file |
| ``HEADER``: a header with an impossible number | repair: cut there | error | error, or skip the batch | report, continue |
| ``OFFSETS``: offsets that do not belong to the segment, or do not ascend | repair: cut there | error | error, or skip the batch | report, continue |
| ``CRC``: a batch whose checksum differs | repair: cut there | served unchanged (clients check it) | error, or skip the batch | report, continue |
| ``RECORDS``: records that cannot be decoded | served unchanged | compaction skips the log | error, or skip the batch | report, continue |
| ``INDEX``: ``.index`` or ``.timeindex`` does not match | repair: rebuild from the batches | repair: rebuild | skip the index: read the batches | report |
| ``TRANSACTION_INDEX``: ``.txnindex`` does not match | repair: rebuild from the batches | error | skip the index: read the batches, with a warning | report |
| ``SNAPSHOT``: ``.snapshot`` is invalid | repair: use an older one, or the batches | not read | skip it: use an older one, or the batches | report |
| ``CHECKPOINT``: a checkpoint file is invalid | repair: treat it as missing, with a warning | not read | skip it: treat it as missing | not read |
| ``TOPIC_ID``: ``partition.metadata`` is invalid | repair: rename the folder, begin an empty one | not read | not read | not read |

The broker checks the segments that it had not flushed before it stopped. After a clean shutdown it reads only the end
of the active segment. Later, a request that reads damaged bytes gets KAFKA_STORAGE_ERROR. The cluster metadata log has
other rules: only a torn tail is cut off, and any other damage is an error at start, because topics would be lost.
"""

from __future__ import annotations

from enum import Enum

from krammar.wire.errors import DecodeError


class Damage(Enum):
    """A case of the table above."""

    ZEROS = "zeros"
    TORN = "torn"
    NO_BATCH = "no batch"
    HEADER = "header"
    OFFSETS = "offsets"
    CRC = "crc"
    RECORDS = "records"
    INDEX = "index"
    TRANSACTION_INDEX = "transaction index"
    SNAPSHOT = "snapshot"
    CHECKPOINT = "checkpoint"
    TOPIC_ID = "topic id"


# Damage that a crash leaves at the end of the newest segment.
UNFINISHED = (Damage.ZEROS, Damage.TORN)


class DamageError(DecodeError):
    """A file of a log is damaged.

    Attributes:
        position: the position in bytes; -1 if the whole file is damaged
        size: the number of bytes that a reader can skip to continue; None if unknown
    """

    def __init__(
        self, damage: Damage, text: str, position: int = -1, size: int | None = None
    ) -> None:
        super().__init__(text, offset=position)
        self.damage = damage
        self.position = position
        self.size = size


def raise_damage(error: DamageError) -> None:
    """Raise the error, which is the default of readers that accept another handler."""
    raise error
