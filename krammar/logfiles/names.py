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

MAX_TOPIC_LENGTH = 249
# The folder of the metadata log is named as if it belonged to a topic.
METADATA_TOPIC = "__cluster_metadata"
_MAX_PARTITION = 2**31 - 1
# What a file may contain of a number that grows by use: the half of its range, which no use reaches. So a broker can
# continue from there without leaving the range.
MAX_OFFSET = 2**62
MAX_EPOCH = 2**30

_TOPIC = re.compile(r"[a-zA-Z0-9._-]+")
# Brokers do not write leading zeros.
_PARTITION = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,9})")
_NUMBERED = re.compile(r"([0-9]{20})(\.[a-z]+)")


def stem(offset: int) -> str:
    """Return the name, without suffix, of the files of the segment that begins at ``offset``."""
    return f"{offset:020d}"


def parse_partition(name: str) -> tuple[str, int] | None:
    """Return the topic and the partition of a folder with this name. None for other folders."""
    found = _PARTITION.fullmatch(name)
    if found is None or int(found[2]) > _MAX_PARTITION:
        return None
    return found[1], int(found[2])


def partition_folder(topic: str, partition: int) -> str:
    """Return the name of a partition's folder, as the inverse of ``parse_partition``.

    Raises ValueError if no topic or no partition can have the name or number, such as ``../other``.
    """
    problem = topic_problem(topic) or partition_problem(partition)
    if problem is not None:
        raise ValueError(problem)
    return f"{topic}-{partition}"


def topic_problem(name: str) -> str | None:
    """Return why no topic can have a name; None for a valid name. The limits follow from the names of folders."""
    if not name:
        return "it is empty"
    if name in (".", ".."):
        return f"'{name}' is reserved by the file system"
    if len(name) > MAX_TOPIC_LENGTH:
        return f"it is longer than {MAX_TOPIC_LENGTH} characters"
    if not _TOPIC.fullmatch(name):
        return f"'{name}' has characters other than ASCII letters, digits, '.', '_' and '-'"
    return None


def offset_problem(offset: int) -> str | None:
    """Return why a log cannot begin or end at an offset; None for a valid offset."""
    if 0 <= offset <= MAX_OFFSET:
        return None
    return f"{offset} is not an offset, which is a number from 0 to {MAX_OFFSET}"


def epoch_problem(epoch: int) -> str | None:
    """Return why a leader, a partition or a group cannot have an epoch; None for a valid epoch."""
    if 0 <= epoch <= MAX_EPOCH:
        return None
    return f"{epoch} is not an epoch, which is a number from 0 to {MAX_EPOCH}"


def partition_problem(number: int) -> str | None:
    """Return why no partition can have a number; None for a valid number."""
    if 0 <= number <= _MAX_PARTITION:
        return None
    return f"{number} is not a partition, which is a number from 0 to {_MAX_PARTITION}"


def _offsets(names: Iterable[str], ending: str) -> list[int]:
    found = filter(None, map(_NUMBERED.fullmatch, names))
    return sorted(int(match[1]) for match in found if match[2] == ending)


def segment_bases(names: Iterable[str]) -> list[int]:
    """Return the base offsets of the segments among the files ``names``, in order."""
    return [base for base in _offsets(names, LOG) if base <= MAX_OFFSET]


def snapshot_offsets(names: Iterable[str]) -> list[int]:
    """Return the offsets of the producer snapshots among the files ``names``, in order."""
    return [offset for offset in _offsets(names, SNAPSHOT) if offset <= MAX_OFFSET]
