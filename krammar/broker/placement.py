"""The partition of an internal topic that stores a group or a transactional id."""

from __future__ import annotations


def partition_of(key: str, partitions: int) -> int:
    """Return the partition for a group or transactional id, as Kafka's coordinators compute it."""
    number = java_hash(key)
    # As Kafka defines it, the absolute value of the smallest 32-bit number is 0.
    return 0 if number == -(1 << 31) else abs(number) % partitions


def java_hash(text: str) -> int:
    """Compute Java's ``String.hashCode``: over UTF-16 units, as a signed 32-bit number."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(data), 2):
        value = (31 * value + (data[index] << 8 | data[index + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value
