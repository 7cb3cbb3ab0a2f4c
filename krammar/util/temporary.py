"""Temporary folders that only the process deletes that made them."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from pathlib import Path

# A server that still runs at the end of the process may write a file while its folder is deleted.
_ATTEMPTS = 5


class TemporaryFolder:
    """A temporary folder. ``remove``, the end of the object or the end of the process deletes it.

    ``tempfile.TemporaryDirectory`` is also deleted at the end of processes that were forked meanwhile.

    Args:
        prefix: the beginning of its name
    """

    def __init__(self, prefix: str) -> None:
        self.path = Path(tempfile.mkdtemp(prefix=prefix))
        self._finalizer = weakref.finalize(self, _remove, str(self.path), os.getpid())

    def remove(self) -> None:
        """Delete the folder. A second call does nothing."""
        self._finalizer()


def _remove(path: str, pid: int) -> None:
    if os.getpid() == pid:
        for _ in range(_ATTEMPTS):
            shutil.rmtree(path, ignore_errors=True)
            if not os.path.exists(path):
                return
