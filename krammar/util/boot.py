"""Identifies the boot of the machine. After the next one, bytes that were not forced to the disk can be missing."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path
from uuid import UUID

# The system does not identify its boots, so a restart of the machine cannot be noticed.
UNKNOWN_BOOT = UUID(int=1)


def current_boot() -> UUID:
    """Return what identifies the current boot of the machine.

    It is the kernel's boot id on Linux (random(4)), and a digest of what sysctl reports on macOS and BSD. All processes
    and containers of a machine see the same one. Elsewhere, it is ``UNKNOWN_BOOT``.
    """
    return _boot()


@cache
def _boot() -> UUID:
    if sys.platform == "linux":
        with contextlib.suppress(OSError, ValueError):
            return UUID(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        return UNKNOWN_BOOT
    for name in ("kern.bootsessionuuid", "kern.boottime"):
        try:
            found = subprocess.run(["sysctl", "-n", name], capture_output=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            continue
        return UUID(bytes=sha256(found).digest()[:16])
    return UNKNOWN_BOOT
