"""The largest batch that is decoded: every reader of batches has the same limits.

A few kilobytes can contain millions of records or headers, or expand to gigabytes. A batch that exceeds a limit
raises BatchLimitError before it needs time or memory. The producer's max.request.size (1 MiB by default) counts
uncompressed records, so the limits leave a wide margin over real settings.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache

from krammar.wire import engine_loading
from krammar.wire.errors import BatchLimitError
from krammar.wire.primitives import FAILURES, Malformed, varint, varlong

# Up to this size in bytes, a batch may expand by any ratio: small batches of equal records compress very well.
RATIO_FROM = 16 << 20


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one batch.

    Attributes:
        uncompressed: the size of its decompressed records in bytes
        records: the number of its records
        headers: the number of headers of all its records
        ratio: the size of its decompressed records divided by their compressed size; counts above 16 MiB
    """

    uncompressed: int = 64 << 20
    records: int = 1_000_000
    headers: int = 1_000_000
    ratio: int = 1000

    def expanded(self, compressed: int) -> int:
        """Return the maximum size in bytes to which this number of compressed bytes may expand."""
        return min(self.uncompressed, max(RATIO_FROM, self.ratio * compressed))

    def too_long(self, compressed: int) -> BatchLimitError:
        """Return the error for a batch whose records expand too much."""
        if self.expanded(compressed) == self.uncompressed:
            return _error(
                f"expands to more than max_uncompressed, {self.uncompressed} bytes", "uncompressed"
            )
        return _error(f"{compressed} bytes expand more than {self.ratio} times", "ratio")

    def check_size(self, size: int) -> None:
        """Raise BatchLimitError if records of this size in bytes, which are not compressed, are too large."""
        if size > self.uncompressed:
            raise _error(
                f"{size} bytes of records in a batch, more than {self.uncompressed}", "uncompressed"
            )

    def check_count(self, count: int) -> None:
        """Raise BatchLimitError if a batch with this number of records has too many."""
        if count > self.records:
            raise _error(f"{count} records in a batch, more than {self.records}", "records")

    def too_many_headers(self) -> BatchLimitError:
        """Return the error for a batch with too many headers."""
        return _error(f"more than {self.headers} headers in a batch", "headers")

    def check_headers(self, buf: bytes, pos: int, end: int, count: int) -> None:
        """Raise BatchLimitError if ``count`` records between two positions have too many headers.

        Records that are too short for them, which is usual, are not read. Invalid records pass.
        """
        # A header needs two bytes, and a record seven more.
        if end - pos - 7 * count <= 2 * self.headers:
            return
        try:
            found = _headers(buf, pos, count, self.headers)
        except FAILURES:
            return
        if found > self.headers:
            raise self.too_many_headers()


def _error(text: str, limit: str) -> BatchLimitError:
    return BatchLimitError(
        f"{text} (to raise the limit, set {variable(limit)} in the environment)", limit=limit
    )


def _headers(buf: bytes, pos: int, count: int, most: int) -> int:
    """Count headers without reading them. Stops above ``most``."""
    native = engine_loading.ENGINE
    if native is not None:
        try:
            counted: int = native.count_headers(buf, pos, count, most)
            return counted
        except FAILURES:
            pass
    found = 0
    for _ in range(count):
        size, pos = varint(buf, pos)
        if not 1 <= size <= len(buf) - pos:
            raise Malformed
        end = pos + size
        _, pos = varlong(buf, pos + 1)
        _, pos = varint(buf, pos)
        for _ in ("key", "value"):
            size, pos = varint(buf, pos)
            if not -1 <= size <= len(buf) - pos:
                raise Malformed
            pos += max(size, 0)
        headers, pos = varint(buf, pos)
        found += max(headers, 0)
        if found > most:
            break
        pos = end
    return found


def variable(limit: str) -> str:
    """Return the environment variable of a limit."""
    return f"KRAMMAR_MAX_{limit.upper()}"


def bounds_of(environment: Mapping[str, str]) -> Bounds:
    """Return the limits that an environment sets. Raises ValueError if one is not a number above 0."""
    values = {}
    for field in fields(Bounds):
        name = variable(field.name)
        text = environment.get(name, "").strip()
        if not text:
            continue
        if not (text.isascii() and text.isdigit() and int(text[:19]) > 0 and len(text) < 19):
            raise ValueError(
                f"the environment variable {name} is {text!r}; set it to a whole number above 0, or unset it"
            )
        values[field.name] = int(text)
    return Bounds(**values)


@cache
def default_bounds() -> Bounds:
    """Return the limits of this process: the environment is read once. Raises ValueError as ``bounds_of`` does."""
    return bounds_of(os.environ)
