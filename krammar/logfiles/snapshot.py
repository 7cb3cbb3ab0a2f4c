"""``.snapshot``: the state of a partition's producers at the begin of a segment."""

from __future__ import annotations

from kafka_wire import ProducerSnapshot

from krammar.logfiles.damage import Damage, DamageError
from krammar.wire.batches import crc32c
from krammar.wire.errors import WireError

# The CRC follows the version, and covers the bytes after it.
CRC_AT = 2
CRC_COVERS_FROM = 6


def read_snapshot(data: bytes) -> ProducerSnapshot:
    """Decode the content of the file. Raises DamageError."""
    try:
        snapshot = ProducerSnapshot.decode(data)
    except WireError as error:
        raise DamageError(Damage.SNAPSHOT, str(error)) from None
    if crc32c(data[CRC_COVERS_FROM:]) != snapshot.crc:
        raise DamageError(Damage.SNAPSHOT, "the CRC does not match", CRC_AT)
    return snapshot
