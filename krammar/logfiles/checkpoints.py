"""Reads the text files of a log folder: offsets by partition, leader epochs (KIP-101), and topic ids."""

from __future__ import annotations

import re
from pathlib import Path
from uuid import UUID

from krammar.logfiles.damage import Damage, DamageError
from krammar.logfiles.names import (
    LEADER_EPOCHS,
    PARTITION_METADATA,
    epoch_problem,
    offset_problem,
    partition_problem,
    topic_problem,
)
from krammar.logfiles.uuids import parse_uuid
from krammar.util.regular_files import read_small
from krammar.wire.primitives import NULL_UUID

# The sizes up to which files are read, in bytes: offsets of 200,000 partitions with the longest names, and the two
# lines of a topic's id.
LARGEST_CHECKPOINT = 64 << 20
LARGEST_TOPIC_ID = 64 << 10

_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_LONGEST_SHOWN = 300  # characters of a line in an error
# Kafka also accepts newer versions, for downgrades.
_TOPIC_ID = re.compile(r"version:\s+\+?[0-9]+\r?\ntopic_id:\s+(\S+)\s*(\n|$)")


def read_checkpoint(path: Path) -> list[list[str]]:
    """Read a checkpoint file: the words of each line. [] if the file does not exist.

    The first line is the version of the format, 0. The second line is the number of lines that follow.

    Raises:
        OSError: the file cannot be read.
        DamageError: the file has another format.
    """
    try:
        lines = read_small(path, LARGEST_CHECKPOINT).decode("utf-8").splitlines()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError:
        raise _damaged("not text") from None
    if not lines or lines[0].strip() != "0":
        raise _damaged("the version is not 0")
    rows = [line.split() for line in lines[2:] if line.strip()]
    if len(lines) < 2 or _number(lines[1]) != len(rows):
        raise _damaged("the number of lines differs from the number in the second line")
    return rows


def read_offsets(path: Path) -> dict[tuple[str, int], int]:
    """Read offsets by topic and partition from a checkpoint file. Raises OSError and DamageError."""
    offsets = {}
    for row in read_checkpoint(path):
        if len(row) != 3:
            raise _damaged(f"not a topic, a partition and an offset: {_shown(row)}")
        topic, partition, offset = row[0], _number(row[1]), _number(row[2])
        problem = topic_problem(topic) or partition_problem(partition) or offset_problem(offset)
        if problem is not None:
            raise _damaged(f"{_shown(row)}: {problem}")
        offsets[topic, partition] = offset
    return offsets


def read_leader_epochs(folder: Path) -> list[tuple[int, int]]:
    """Read leader epochs and their first offsets. Raises OSError and DamageError."""
    entries = []
    for row in read_checkpoint(folder / LEADER_EPOCHS):
        if len(row) != 2:
            raise _damaged(f"not an epoch and an offset: {_shown(row)}")
        epoch, start = _number(row[0]), _number(row[1])
        problem = epoch_problem(epoch) or offset_problem(start)
        if problem is not None:
            raise _damaged(f"{_shown(row)}: {problem}")
        entries.append((epoch, start))
    epochs = [epoch for epoch, _ in entries]
    starts = [start for _, start in entries]
    if sorted(set(epochs)) != epochs or sorted(starts) != starts:
        raise _damaged("the epochs do not ascend")
    return entries


def read_topic_id(folder: Path) -> UUID | None:
    """Read the topic id in ``partition.metadata``. None if the file does not exist.

    Raises:
        OSError: the file cannot be read.
        DamageError: the file is invalid, for Kafka too.
    """
    try:
        data = read_small(folder / PARTITION_METADATA, LARGEST_TOPIC_ID)
    except FileNotFoundError:
        return None
    found = _TOPIC_ID.match(data.decode("utf-8", "replace"))
    if found is None:
        raise DamageError(Damage.TOPIC_ID, "the file does not contain a version and a topic_id")
    try:
        topic_id = parse_uuid(found[1])
    except ValueError as error:
        raise DamageError(Damage.TOPIC_ID, str(error)) from None
    if topic_id == NULL_UUID:
        raise DamageError(Damage.TOPIC_ID, "the topic_id is null")
    return topic_id


def _number(text: str) -> int:
    if _NUMBER.fullmatch(text) is None:
        raise _damaged(f"not a number: {_shown([text])}")
    return int(text)


def _shown(row: list[str]) -> str:
    """Return the words of a line for an error, shortened."""
    return repr(" ".join(row)[:_LONGEST_SHOWN])


def _damaged(text: str) -> DamageError:
    return DamageError(Damage.CHECKPOINT, text)
