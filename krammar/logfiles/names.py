"""The names of files and folders in a log folder."""

from __future__ import annotations

import re
from collections.abc import Iterable

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TRANSACTION_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
SEGMENT_FILES = (LOG, INDEX, TIME_INDEX, TRANSACTION_INDEX)

# The suffix of a segment's file that will be deleted.
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"
# The suffix of a partition's folder that will be deleted.
DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"

PARTITION_METADATA = "partition.metadata"
LEADER_EPOCHS = "leader-epoch-checkpoint"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
RUNNING = ".krammar_running"
LOCK = ".lock"

# A snapshot of the cluster metadata log: its end offset, and the epoch of the record before it.
METADATA_SNAPSHOT = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")

# A segment has at most 2**31 offsets, and no offset is higher than 2**63 - 1.
_MAX_BASE_OFFSET = 2**63 - 2**31
# Brokers do not write leading zeros.
_PARTITION = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})")
_NUMBERED = re.compile(r"([0-9]{20})(\.[a-z]+)")


def stem(offset: int) -> str:
    """Return the name, without suffix, of the files of the segment that begins at ``offset``."""
    return f"{offset:020d}"


def parse_partition(name: str) -> tuple[str, int] | None:
    """Return the topic and the partition of a folder with this name. None for other folders."""
    found = _PARTITION.fullmatch(name)
    return None if found is None else (found[1], int(found[2]))


def _offsets(names: Iterable[str], ending: str) -> list[int]:
    found = filter(None, map(_NUMBERED.fullmatch, names))
    return sorted(int(match[1]) for match in found if match[2] == ending)


def segment_bases(names: Iterable[str]) -> list[int]:
    """Return the base offsets of the segments among the files ``names``, in order."""
    return [base for base in _offsets(names, LOG) if base <= _MAX_BASE_OFFSET]


def snapshot_offsets(names: Iterable[str]) -> list[int]:
    """Return the offsets of the producer snapshots among the files ``names``, in order."""
    return _offsets(names, SNAPSHOT)
