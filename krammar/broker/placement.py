"""Which partition of an internal topic keeps a group or a transactional id."""

from __future__ import annotations


def partition_of(key: str, partitions: int) -> int:
    """A number below ``partitions``, as Kafka's coordinators find it."""
    return java_abs(java_hash(key)) % partitions


def java_hash(text: str) -> int:
    """Java's ``String.hashCode``: over UTF-16 units, in 32 bits with a sign."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(data), 2):
        value = (31 * value + (data[index] << 8 | data[index + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value & 0x80000000 else value


def java_abs(value: int) -> int:
    """The absolute value as Kafka takes it: of the smallest 32-bit number it is 0."""
    return 0 if value == -(1 << 31) else abs(value)
