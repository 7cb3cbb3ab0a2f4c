"""Writes the content of a capture as a file for another program."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import BinaryIO

from krammar.tap.capture import Capture, CaptureError, replay
from krammar.tap.pcap import SECTION, PcapWriter
from krammar.wire.package import package_of


def write_pcap(protocol: ModuleType, source: Path, target: Path, *, secrets: bool = False) -> str:
    """Write a capture as pcapng, for Wireshark.

    Args:
        target: an older pcapng file is replaced.
        secrets: whether to write passwords and tokens; otherwise their bytes are masked.

    Returns:
        What was written.

    Raises:
        CaptureError: ``source`` is not a capture, or ``target`` exists and is not a pcapng file.
        OSError: a file cannot be read or written.
    """
    capture = Capture(source)
    package = package_of(protocol)
    with new_file(target, SECTION, "pcapng file") as file:
        writer = PcapWriter(package, file.write, secrets)
        replay(capture, package, [writer])
    torn = f"\n{source}: {capture.torn}" if capture.torn else ""
    return f"wrote {target}: {writer.packets:,} packets{torn}"


@contextmanager
def new_file(path: Path, magic: bytes, kind: str) -> Iterator[BinaryIO]:
    """Open a file that replaces ``path`` when the block ends without an error.

    Only its owner can read it, because captures contain what was sent.

    Raises:
        CaptureError: ``path`` exists and does not begin with ``magic``.
        OSError: the file cannot be written.
    """
    if path.exists():
        with path.open("rb") as old:
            begin = old.read(len(magic))
        if begin and begin != magic:
            raise CaptureError(
                f"{path} is not a {kind}, so it is not overwritten; name another file"
            )
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            yield file
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
