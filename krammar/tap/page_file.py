"""Writes a capture as the page of ``krammar tap --ui``, in one file that needs no server."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

from krammar.tap.capture import Capture, new_file, replay
from krammar.tap.describe import Describer
from krammar.tap.details import details
from krammar.tap.exchanges import Exchanges, ExchangeSelection, TappedExchange
from krammar.tap.feed import MAX_ROWS, Connections, pack, row_of, unpack
from krammar.tap.page import MARK, block, parts
from krammar.wire.package import Package, package_of

_BLOCK_ROWS = 200
_BLOCK_BYTES = 1 << 20


def write_html(
    protocol: ModuleType,
    source: Path,
    target: Path,
    select: ExchangeSelection,
    *,
    secrets: bool = False,
    max_rows: int = MAX_ROWS,
) -> str:
    """Write a capture as the page of ``krammar tap --ui``, in one document without requests elsewhere.

    Args:
        target: an older page is replaced.
        select: the exchanges that the page has.
        secrets: whether to write passwords and tokens; otherwise their bytes are masked.
        max_rows: the most exchanges that the page has.

    Returns:
        What was written.

    Raises:
        CaptureError: ``source`` is not a capture, or ``target`` exists and is not such a page.
        OSError: a file cannot be read or written.
    """
    capture = Capture(source)
    package = package_of(protocol)
    with new_file(target, MARK, "page of krammar tap") as file:
        blocks = _Blocks(package, file, select, secrets, max_rows)
        begin, _ = parts({})
        file.write(begin.encode())
        connections = Connections()
        exchanges = Exchanges(Describer(package), blocks.add)
        replay(capture, package, [connections, exchanges])
        exchanges.close()
        blocks.flush()
        blocks.rows.sort()  # by number
        rows = {"rows": blocks.rows, "connections": list(connections.all.values()), "first": 0}
        file.write(block("rows", rows).encode())
        _, end = parts({"live": False, "source": source.name, "omitted": blocks.omitted})
        file.write(end.encode())
    more = f"; {blocks.omitted:,} more are left out" if blocks.omitted else ""
    torn = f"\n{source}: {capture.torn}" if capture.torn else ""
    count = len(blocks.rows)
    return f"wrote {target}: {count:,} request{'' if count == 1 else 's'}{more}{torn}"


class _Blocks:
    """Writes the details of exchanges in compressed blocks, of which the page unpacks one at a time."""

    def __init__(
        self,
        package: Package,
        file: BinaryIO,
        select: ExchangeSelection,
        secrets: bool,
        max_rows: int,
    ) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.omitted = 0
        self._package = package
        self._file = file
        self._select = select
        self._secrets = secrets
        self._max_rows = max_rows
        self._block: list[Any] = []
        self._size = 0
        self._written = 0

    def add(self, exchange: TappedExchange) -> None:
        if not self._select.matches(exchange):
            return
        if len(self.rows) >= self._max_rows:
            self.omitted += 1
            return
        self.rows.append((*row_of(exchange), (self._written, len(self._block))))
        frames = [
            unpack(pack(self._package, frame, secrets=self._secrets))
            for frame in (exchange.request, exchange.response)
        ]
        self._block.append([details(self._package, frame) for frame in frames])
        self._size += sum(len(frame.data) for frame in exchange.frames)
        if len(self._block) >= _BLOCK_ROWS or self._size >= _BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the current block."""
        if self._block:
            self._file.write(block(f"details-{self._written}", self._block).encode())
            self._written += 1
            self._block, self._size = [], 0
