"""A disk that fails on request: the real calls of this process on one folder, recorded, and refused by a rule."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

# The calls that change a disk, by default. Those with a file descriptor fail by the file that it belongs to.
CALLS = (
    "open",
    "mkdir",
    "write",
    "pwrite",
    "pwritev",
    "ftruncate",
    "fsync",
    "fdatasync",
    "rename",
    "replace",
    "unlink",
)
_CREATES = os.O_CREAT | os.O_TRUNC


class Disk:
    """Records the calls on files below ``root``, and lets some fail.

    ``calls``   each call and the path below ``root``; of renames, the target
    ``failed``  the calls that failed because of the rule
    """

    def __init__(
        self, root: Path, monkeypatch: pytest.MonkeyPatch, calls: Sequence[str] = CALLS
    ) -> None:
        self.root = os.fspath(root)
        self.calls: list[tuple[str, str]] = []
        self.failed: list[tuple[str, str]] = []
        self._rule: tuple[Callable[[str, str], bool], int] | None = None
        for name in calls:
            monkeypatch.setattr(os, name, self._recording(name, getattr(os, name)))

    def fail(self, call: str, path: str, error: int = errno.EIO) -> None:
        """Let calls fail from now on whose name and path match these expressions."""
        self.fail_where(
            lambda name, file: bool(re.fullmatch(call, name) and re.fullmatch(path, file)), error
        )

    def fail_where(self, fails: Callable[[str, str], bool], error: int) -> None:
        """Let calls fail from now on if ``fails`` returns true for their name and path."""
        self.failed.clear()
        self._rule = fails, error

    def mend(self) -> None:
        """Let no call fail."""
        self._rule = None

    @contextmanager
    def failing(self, call: str, path: str, error: int = errno.EIO) -> Iterator[None]:
        """Let calls fail within the block. At least one call must."""
        self.fail(call, path, error)
        try:
            yield
        finally:
            self.mend()
        assert self.failed

    def _recording(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            path = self._path(name, arguments)
            if path is not None:
                self.calls.append((name, path))
                if self._rule is not None and self._rule[0](name, path):
                    self.failed.append((name, path))
                    error = self._rule[1]
                    named_by = () if isinstance(arguments[0], int) else (os.fspath(arguments[0]),)
                    raise OSError(error, os.strerror(error), *named_by)
            return real(*arguments, **named)

        return call

    def _path(self, name: str, arguments: tuple[Any, ...]) -> str | None:
        if name == "open" and not arguments[1] & _CREATES:
            return None
        target = arguments[1 if name in ("rename", "replace") else 0]
        try:
            if isinstance(target, int):
                target = os.readlink(f"/proc/self/fd/{target}")
            path = os.path.relpath(target, self.root)
        except (OSError, ValueError):
            return None
        return None if path.startswith("..") else path
