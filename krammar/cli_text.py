"""Words that the verbs of the command line share."""

from __future__ import annotations


def examples(*lines: str) -> str:
    """The end of a verb's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def quantity(count: int, noun: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
