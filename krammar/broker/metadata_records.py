"""Encodes records of the cluster metadata log, at the versions that belong to a ``metadata.version``."""

from __future__ import annotations

from functools import cache

from krammar.logfiles.metadata_frame import FRAME_VERSION, TYPES
from krammar.wire.message import Codec
from krammar.wire.primitives import encode_uvarint

_NUMBERS = {name: number for number, name in TYPES.items()}

# The levels of `metadata.version` at which record versions change.
LEVEL_3_4_IV0 = 8
LEVEL_3_7_IV2 = 17
LEVEL_4_0_IV1 = 23
LEVEL_4_0_IV3 = 25
LEVEL_4_3_IV0 = 30
LEVEL_4_4_IV2 = 33

# (since level, version), the newest first. Other records are written at version 0.
_VERSIONS: dict[str, tuple[tuple[int, int], ...]] = {
    "RegisterBrokerRecord": ((LEVEL_4_3_IV0, 4), (LEVEL_3_7_IV2, 3), (LEVEL_3_4_IV0, 2), (0, 1)),
    "PartitionRecord": ((LEVEL_4_0_IV1, 2), (LEVEL_3_7_IV2, 1)),
    "PartitionChangeRecord": ((LEVEL_4_0_IV1, 2), (LEVEL_3_7_IV2, 1)),
    "BrokerRegistrationChangeRecord": ((LEVEL_4_3_IV0, 3), (LEVEL_3_7_IV2, 2), (0, 1)),
}


def encode_frame(record: Codec, level: int) -> bytes:
    """Encode a record for a cluster with this ``metadata.version``. Raises EncodeError."""
    header, version = _header(type(record).__name__, level)
    return header + record.encode(version)


@cache
def _header(name: str, level: int) -> tuple[bytes, int]:
    """Return the header of a frame, and the version of the record in it."""
    versions = _VERSIONS.get(name, ())
    version = next((version for since, version in versions if level >= since), 0)
    numbers = (FRAME_VERSION, _NUMBERS[name], version)
    return b"".join(map(encode_uvarint, numbers)), version
