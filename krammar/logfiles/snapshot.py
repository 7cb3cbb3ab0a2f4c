"""``.snapshot``: the state of a partition's producers at the begin of a segment."""

from __future__ import annotations

from pathlib import Path

from kafka_wire import ProducerSnapshot

from krammar.logfiles.damage import Damage, DamageError
from krammar.logfiles.names import MAX_OFFSET
from krammar.util.regular_files import read_small
from krammar.wire.batches import crc32c
from krammar.wire.errors import WireError

# The CRC follows the version, and covers the bytes after it.
CRC_AT = 2
CRC_COVERS_FROM = 6
# The lowest values of an entry; -1 for none.
_LEAST = {
    "producer_id": 0,
    "epoch": -1,
    "last_sequence": -1,
    "last_offset": -1,
    "offset_delta": 0,
    "timestamp": -1,
    "coordinator_epoch": -1,
    "current_txn_first_offset": -1,
}
# The size up to which a snapshot is read, in bytes: some five million producers.
LARGEST_SNAPSHOT = 256 << 20


def read_snapshot_file(path: str | Path) -> ProducerSnapshot:
    """Read the file. Raises OSError and DamageError."""
    return read_snapshot(read_small(path, LARGEST_SNAPSHOT))


def read_snapshot(data: bytes) -> ProducerSnapshot:
    """Decode the content of the file. Raises DamageError."""
    try:
        snapshot = ProducerSnapshot.decode(data)
    except WireError as error:
        raise DamageError(Damage.SNAPSHOT, str(error)) from None
    if crc32c(data[CRC_COVERS_FROM:]) != snapshot.crc:
        raise DamageError(Damage.SNAPSHOT, "the CRC does not match", CRC_AT)
    for at, entry in enumerate(snapshot.producer_entries):
        for name, least in _LEAST.items():
            number = getattr(entry, name)
            if not least <= number <= MAX_OFFSET:
                text = (
                    f"producer {entry.producer_id} (entry {at}): {name}: {number} is out of range"
                )
                raise DamageError(Damage.SNAPSHOT, text)
    return snapshot
