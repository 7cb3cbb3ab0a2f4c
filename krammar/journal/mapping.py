"""Which journal a message goes to.

A mapping is a function that gives a message's journal and framing. It chooses among the journals that a
function lists; that function should return the same object as long as nothing has changed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from krammar.journal.errors import EmptyListError
from krammar.journal.framing import Framing
from krammar.journal.specs import JournalSpec

Mapping = Callable[[Any], tuple[str, Framing]]
MappingKey = Callable[[Any], bytes]
Partitions = Callable[[], Sequence[JournalSpec]]

_OFFSET_BASIS = 0x811C9DC5
_PRIME = 0x01000193


def fnv1a(data: bytes) -> int:
    """The 32-bit FNV-1a hash of bytes, by Fowler, Noll and Vo."""
    value = _OFFSET_BASIS
    for byte in data:
        value = (value ^ byte) * _PRIME & 0xFFFFFFFF
    return value


# A loop over bytes takes 60 ns for each of them; keys come again and again.
_hash = lru_cache(1 << 16)(fnv1a)


def modulo_mapping(key: MappingKey, partitions: Partitions) -> Mapping:
    """Choose by the FNV-1a of the message's key, modulo the number of journals.

    Stable while the list stays the same; almost all keys move when it grows or shrinks.
    The mapping raises EmptyListError where there are no journals.
    """
    targets = _Targets(partitions)

    def choose(message: Any) -> tuple[str, Framing]:
        found = targets()
        return found[_hash(key(message)) % len(found)]

    return choose


def rendezvous_mapping(key: MappingKey, partitions: Partitions) -> Mapping:
    """Choose the journal with the highest weight, a hash of its name and of the message's key.

    When a journal comes, it takes its share of the keys from all others and no other key moves; when one
    goes, only its keys move. It costs a hash for each journal, unless the key was seen lately.
    The mapping raises EmptyListError where there are no journals.
    """
    targets = _Targets(partitions)
    seed: list[tuple[str, Framing]] = []
    names: list[int] = []
    chosen: dict[int, tuple[str, Framing]] = {}

    def choose(message: Any) -> tuple[str, Framing]:
        nonlocal seed, names, chosen
        found = targets()
        if found is not seed:
            # The order of the list decides nothing, not even between names of equal hashes.
            seed, chosen = found, {}
            names = [fnv1a(name.encode()) for name, _ in found]
        hashed = _hash(key(message))
        target = chosen.get(hashed)
        if target is None:
            if len(chosen) >= 1 << 16:
                chosen.clear()
            best = max(range(len(found)), key=lambda i: (_mix(hashed ^ names[i]), found[i][0]))
            target = chosen[hashed] = found[best]
        return target

    return choose


def random_mapping(partitions: Partitions) -> Mapping:
    """Choose any journal, each as likely as another. The mapping raises EmptyListError where there are
    none."""
    targets = _Targets(partitions)
    return lambda message: random.choice(targets())


class _Targets:
    """The journals of a list with their framings, worked out anew when the list is another object."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions
        self._list: Sequence[JournalSpec] | None = None
        self._found: list[tuple[str, Framing]] = []

    def __call__(self) -> list[tuple[str, Framing]]:
        listed = self._partitions()
        if listed is not self._list:
            self._found = [(spec.name, spec.framing) for spec in listed]
            self._list = listed
        if not self._found:
            raise EmptyListError("there are no journals to choose from")
        return self._found


def _mix(value: int) -> int:
    """A permutation of the 32-bit numbers in which every bit depends on all: FNV-1a's high bits hardly
    depend on the last bytes, by which names of partitions differ. The steps and their constants are
    those of the last stage of MurmurHash3 (32 bits)."""
    value = (value ^ value >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    value = (value ^ value >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return value ^ value >> 16
