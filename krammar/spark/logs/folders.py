"""Where partitions are: ``<log dir>/<topic>-<partition>/<first offset>.log``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from krammar.spark.errors import MissingDataError
from krammar.spark.offsets import TopicPartition

# Others in a log dir end in -delete, -future or -stray: they are going away or not there yet.
_PARTITION = re.compile(r"([a-zA-Z0-9._-]+)-([0-9]+)")
_SEGMENT = re.compile(r"([0-9]{20})\.log")
_START_OFFSETS = "log-start-offset-checkpoint"


@dataclass(frozen=True, slots=True)
class PartitionFolder:
    """A partition's folder.

    ``start_offset``  the first offset that counts: records before it were deleted (DeleteRecords)
    ``others``        paths of more folders of the same partition, as other brokers have them
    """

    topic: str
    partition: int
    path: str
    start_offset: int = 0
    others: tuple[str, ...] = ()

    @property
    def key(self) -> TopicPartition:
        return self.topic, self.partition

    def bases(self) -> list[int]:
        """The first offsets of its segments, in order. What is being deleted, cleaned or swapped in
        (``.deleted``, ``.cleaned``, ``.swap``) does not count. Raises MissingDataError."""
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            raise MissingDataError(f"{self.path} is gone") from None
        return sorted(int(found[1]) for name in names if (found := _SEGMENT.fullmatch(name)))


def find_partitions(paths: Sequence[str]) -> dict[TopicPartition, PartitionFolder]:
    """The partitions in log dirs; a path may be a partition's folder too.

    Raises MissingDataError for a path that is not there or holds no partition.
    """
    found: dict[TopicPartition, PartitionFolder] = {}
    for path in paths:
        folders = list(_partitions_in(path))
        if not folders:
            raise MissingDataError(f"{path} holds no folder of a partition, such as orders-0")
        for folder in folders:
            other = found.setdefault(folder.key, folder)
            if other is not folder:
                found[folder.key] = replace(other, others=(*other.others, folder.path))
    return found


def check_once(folders: Iterable[PartitionFolder]) -> None:
    """Raises MissingDataError for a partition that has several folders: which of these replicas is right
    is not known to them."""
    for folder in folders:
        if folder.others:
            raise MissingDataError(
                f"{folder.topic}-{folder.partition} is in {folder.path} and in {folder.others[0]}"
            )


def _partitions_in(path: str) -> Iterable[PartitionFolder]:
    path = os.path.abspath(path)
    try:
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)
    except FileNotFoundError:
        raise MissingDataError(f"{path} does not exist") from None
    except NotADirectoryError:
        raise MissingDataError(f"{path} is no folder") from None
    parent, name = os.path.split(path)
    if (itself := _PARTITION.fullmatch(name)) and any(_SEGMENT.fullmatch(e.name) for e in entries):
        yield _folder(itself, path, _start_offsets(parent))
        return
    starts = _start_offsets(path)
    for entry in entries:
        found = _PARTITION.fullmatch(entry.name)
        if found and entry.is_dir():
            yield _folder(found, entry.path, starts)


def _folder(name: re.Match[str], path: str, starts: dict[TopicPartition, int]) -> PartitionFolder:
    topic, partition = name[1], int(name[2])
    return PartitionFolder(topic, partition, path, starts.get((topic, partition), 0))


def _start_offsets(log_dir: str) -> dict[TopicPartition, int]:
    """What the checkpoint of first offsets says; nothing where it is missing or unreadable, since all
    records are still there then."""
    try:
        with open(os.path.join(log_dir, _START_OFFSETS), encoding="utf-8") as file:
            lines = file.read().splitlines()
        return {
            (topic, int(partition)): int(offset)
            for topic, partition, offset in (line.rsplit(" ", 2) for line in lines[2:] if line)
        }
    except (OSError, ValueError):
        return {}
