"""Mappings: functions that choose the journal and framing of a message.

A mapping chooses among the journals that another function lists. That function should return the same object as long as
the list has not changed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from krammar.journal.errors import EmptyListError
from krammar.journal.frames import Framing
from krammar.journal.specs import JournalSpec

Mapping = Callable[[Any], tuple[str, Framing]]
MappingKey = Callable[[Any], bytes]
Partitions = Callable[[], Sequence[JournalSpec]]

_OFFSET_BASIS = 0x811C9DC5
_PRIME = 0x01000193


def fnv1a(data: bytes) -> int:
    """Return the 32-bit FNV-1a hash of bytes, by Fowler, Noll and Vo."""
    value = _OFFSET_BASIS
    for byte in data:
        value = (value ^ byte) * _PRIME & 0xFFFFFFFF
    return value


# The loop takes 60 ns per byte, and the same keys are hashed many times.
_hash = lru_cache(1 << 16)(fnv1a)


def modulo_mapping(key: MappingKey, partitions: Partitions) -> Mapping:
    """Return a mapping by the FNV-1a hash of the message's key, modulo the number of journals.

    The choice is stable as long as the list stays the same; almost all keys move when it grows or shrinks.
    The mapping raises EmptyListError if the list is empty.
    """
    targets = _Targets(partitions)

    def choose(message: Any) -> tuple[str, Framing]:
        found = targets()
        return found[_hash(key(message)) % len(found)]

    return choose


def rendezvous_mapping(key: MappingKey, partitions: Partitions) -> Mapping:
    """Return a mapping to the journal with the highest weight.

    The weight is the FNV-1a hash of the journal's name XOR that of the message's key. If weights are equal, the first
    journal in the list wins. The choice is the same as that of Gazette's RendezvousMapping. When a journal is added
    or removed, no key moves between the others. The hashes of names are uneven, and thus the shares of journals; use
    ``even_rendezvous_mapping`` unless Gazette applications write to the same journals.

    Each choice computes the weights of all journals, unless the key was seen recently. The mapping raises
    EmptyListError if the list is empty.
    """
    return _rendezvous(key, partitions, lambda weight: weight)


def even_rendezvous_mapping(key: MappingKey, partitions: Partitions) -> Mapping:
    """Return a mapping like ``rendezvous_mapping``, but with even weights.

    Each journal gets about the same share of the keys, and a new journal takes its share from all others. The choice
    differs from Gazette's.
    """
    return _rendezvous(key, partitions, _mix)


def _rendezvous(key: MappingKey, partitions: Partitions, weigh: Callable[[int], int]) -> Mapping:
    targets = _Targets(partitions)
    seed: list[tuple[str, Framing]] = []
    names: list[int] = []
    chosen: dict[int, tuple[str, Framing]] = {}

    def choose(message: Any) -> tuple[str, Framing]:
        nonlocal seed, names, chosen
        found = targets()
        if found is not seed:
            seed, chosen = found, {}
            names = [fnv1a(name.encode()) for name, _ in found]
        hashed = _hash(key(message))
        target = chosen.get(hashed)
        if target is None:
            if len(chosen) >= 1 << 16:
                chosen.clear()
            weights = [weigh(hashed ^ name) for name in names]
            target = chosen[hashed] = found[weights.index(max(weights))]
        return target

    return choose


def random_mapping(partitions: Partitions) -> Mapping:
    """Return a mapping that chooses journals randomly, with equal probability.

    The mapping raises EmptyListError if the list is empty.
    """
    targets = _Targets(partitions)
    return lambda message: random.choice(targets())


def refreshing(find: Callable[[], Sequence[JournalSpec]], refresh_ms: float) -> Partitions:
    """Return a function that caches the result of ``find`` for ``refresh_ms``.

    It returns the same object until the result changes, as mappings expect.
    """
    last: Sequence[JournalSpec] = ()
    due = float("-inf")

    def partitions() -> Sequence[JournalSpec]:
        nonlocal last, due
        now = time.monotonic()
        if now >= due:
            if last:  # if this fails, the last list is used for a while
                due = now + refresh_ms / 1000
            new = find()
            due = now + refresh_ms / 1000
            if new != last:
                last = new
        return last

    return partitions


class _Targets:
    """The listed journals with their framings; computed again if the list is another object."""

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
            raise EmptyListError("the list of journals is empty; create a journal first")
        return self._found


def _mix(value: int) -> int:
    """Permute the 32-bit numbers so that every bit depends on all others.

    The high bits of FNV-1a hardly depend on the last bytes, in which the names of partitions differ. The steps and
    constants are those of the final stage of MurmurHash3 (32 bits).
    """
    value = (value ^ value >> 16) * 0x85EBCA6B & 0xFFFFFFFF
    value = (value ^ value >> 13) * 0xC2B2AE35 & 0xFFFFFFFF
    return value ^ value >> 16
