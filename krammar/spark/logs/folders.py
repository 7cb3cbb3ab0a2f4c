"""Finds the partitions below the paths that ``load`` was given."""

from __future__ import annotations

from collections.abc import Sequence

from krammar.logfiles.partition import PartitionFolder, partitions_in
from krammar.spark.errors import MissingDataError
from krammar.spark.offsets import TopicPartition

# The folders of one partition; there are several if the paths belong to several brokers.
Replicas = list[PartitionFolder]


def find_partitions(paths: Sequence[str]) -> dict[TopicPartition, Replicas]:
    """Return the partitions in log dirs, by topic and number; a path may also be a partition's folder.

    Raises:
        MissingDataError: a path does not exist, is not a folder, or contains no partition.
    """
    found: dict[TopicPartition, Replicas] = {}
    for path in paths:
        try:
            folders = list(partitions_in(path))
        except FileNotFoundError:
            raise MissingDataError(f"{path} does not exist") from None
        except NotADirectoryError:
            raise MissingDataError(f"{path} is not a folder") from None
        if not folders:
            raise MissingDataError(
                f"{path} contains no partition's folder, such as orders-0; load a broker's log dir"
            )
        for folder in folders:
            found.setdefault(folder.key, []).append(folder)
    return found


def only_replica(replicas: Replicas) -> PartitionFolder:
    """Return the folder of a partition.

    Raises:
        MissingDataError: the partition has several folders. Nothing in them tells which replica is complete.
    """
    folder, *others = replicas
    if others:
        raise MissingDataError(
            f"{folder.topic}-{folder.partition} is in {folder.path} and in {others[0].path}; load one of"
            " them"
        )
    return folder
