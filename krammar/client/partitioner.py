"""Chooses the partition of a record: by its key like Java's producer, or randomly without a key."""

from __future__ import annotations

import random
from collections.abc import Sequence
from struct import iter_unpack

from krammar.client.metadata import Topic

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995
_SEED = 0x9747B28C


def murmur2(data: bytes) -> int:
    """Return the unsigned 32-bit MurmurHash2 of ``data`` with Kafka's seed."""
    size = len(data)
    h = _SEED ^ size
    whole = size & ~3
    for (k,) in iter_unpack("<I", data[:whole]):
        k = k * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = h * _M & _MASK ^ k
    if size > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_of_key(key: bytes, partitions: int) -> int:
    """Return the partition of a key; ``partitions`` is the number that the topic has."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class Partitioner:
    """Chooses partitions.

    Records without a key go to one random partition for ``batch_size`` bytes and then to another one, so that
    batches get full (KIP-480, KIP-794). Partitions with a leader are preferred.
    """

    def __init__(self, batch_size: int) -> None:
        self._batch_size = max(batch_size, 1)
        self._current: dict[str, tuple[int, int]] = {}  # by topic: partition, remaining bytes

    def choose(self, topic: Topic, key: bytes | None, size: int) -> int:
        """Return the partition of a record of about ``size`` bytes."""
        if key is not None:
            return partition_of_key(key, len(topic.partitions))
        partition, left = self._without_key(topic)
        self._current[topic.name] = partition, left - size
        return partition

    def choose_run(self, topic: Topic, sizes: Sequence[int], begin: int) -> tuple[int, int]:
        """Choose a partition for the next records without a key.

        Args:
            sizes: the sizes of all records, in bytes.
            begin: the index of the first record.

        Returns:
            The partition, and the index of the first record that needs another one.
        """
        partition, left = self._without_key(topic)
        end = begin
        while end < len(sizes) and left > 0:
            left -= sizes[end]
            end += 1
        self._current[topic.name] = partition, left
        return partition, end

    def _without_key(self, topic: Topic) -> tuple[int, int]:
        """Return the current partition for records without a key, and its remaining bytes."""
        partition, left = self._current.get(topic.name, (-1, 0))
        if left <= 0 or partition not in topic.partitions:
            led = [i for i, p in topic.partitions.items() if p.leader >= 0]
            others = [i for i in led or topic.partitions if i != partition]
            partition = random.choice(others or [partition])
            left = self._batch_size
        return partition, left
