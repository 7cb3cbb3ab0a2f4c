"""Disks that fail: each call that changes a file or a folder can raise an error, once or from then on."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CALLS = ("pwrite", "write", "fsync", "ftruncate", "link", "mkdir", "rename", "replace", "unlink")
ERRORS = (errno.ENOSPC, errno.EIO)


class Disk:
    """Counts calls, and raises ``error`` at the call ``at`` (from 1) or, with ``stays``, also at all later ones.

    A write that fails has written half of its bytes. Calls that only read, and unlinking on a full disk, never fail.
    """

    def __init__(self, at: int, error: int, *, stays: bool = False) -> None:
        self.at = at
        self.error = error
        self.stays = stays
        self.calls = 0
        self.failed: list[str] = []

    def call(self, name: str, real: Callable[..., Any], *args: Any, **more: Any) -> Any:
        self.calls += 1
        fails = self.calls >= self.at if self.stays else self.calls == self.at
        if not fails or (name == "unlink" and self.error == errno.ENOSPC):
            return real(*args, **more)
        self.failed.append(name)
        if name in ("pwrite", "write"):
            file, data, *rest = args
            real(file, bytes(data)[: len(data) // 2], *rest)
        raise OSError(self.error, os.strerror(self.error))

    @contextmanager
    def mounted(self, module: Any = os) -> Iterator[Disk]:
        """Let the calls of a block fail."""
        with pytest.MonkeyPatch.context() as patch:
            for name in CALLS:
                real = getattr(module, name)
                patch.setattr(module, name, self._wrapped(name, real))
            real_open = os.open

            def opened(path: Any, flags: int, *more: Any, **others: Any) -> int:
                if flags & os.O_CREAT and not os.path.exists(path):
                    return self.call("create", real_open, path, flags, *more, **others)  # type: ignore[no-any-return]
                return real_open(path, flags, *more, **others)

            patch.setattr(module, "open", opened)
            yield self

    def _wrapped(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args, **more: self.call(name, real, *args, **more)


def each_call(act: Callable[[Disk], None], error: int, *, stays: bool) -> Iterator[Disk]:
    """Let ``act`` run with a disk that fails at its first call, at its second, and so on, until it has no more."""
    for at in range(1, 10_000):
        disk = Disk(at, error, stays=stays)
        act(disk)
        if disk.calls < at:
            return
        yield disk
