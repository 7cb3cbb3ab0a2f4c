"""Hooks for PyInstaller, which finds them by an entry point: krammar imports many modules by name."""

from __future__ import annotations

from pathlib import Path


def hook_dirs() -> list[str]:
    """Return the folder of the hooks."""
    return [str(Path(__file__).parent / "hooks")]
