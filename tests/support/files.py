"""Damage to files."""

from __future__ import annotations

from pathlib import Path


def flip(path: Path, position: int) -> None:
    """Invert the bits of one byte of a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)
