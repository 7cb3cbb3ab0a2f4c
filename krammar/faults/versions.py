"""Ranges of versions, as rules write them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from krammar.faults.errors import FaultError


def range_of(versions: Any) -> tuple[int, int]:
    """Return the range of ``None`` (all), ``7``, ``"7"``, ``"3-7"``, ``"3-"`` or ``(3, 7)``."""
    if versions is None:
        return 0, 0x7FFF
    if isinstance(versions, int) and not isinstance(versions, bool):
        return versions, versions
    if isinstance(versions, (tuple, range)) and len(versions) >= 2:
        return versions[0], versions[-1]
    low, dash, high = str(versions).replace(" ", "").partition("-")
    if low.isdecimal() and (not high or high.isdecimal()):
        found = int(low), int(high) if high else 0x7FFF if dash else int(low)
        if found[0] <= found[1] <= 0x7FFF:
            return found
    raise FaultError(
        f'"{versions}" is not a range of versions',
        hint='write 7, "3-7" or "3-"',
        word=str(versions),
    )


def in_words(low: int, high: int) -> str:
    if low == high:
        return str(low)
    return f"{low} or newer" if high == 0x7FFF else f"{low} to {high}"


def spell(versions: Iterable[int]) -> str:
    """Return the longest run of versions, as a rule spells it."""
    runs: list[list[int]] = []
    for version in sorted(versions):
        if runs and runs[-1][-1] == version - 1:
            runs[-1].append(version)
        else:
            runs.append([version])
    run = max(runs, key=len)
    return f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0])
