"""Measure the processor time that Encrypt adds for each record.

    python -m tests.bench.encrypt [--output FILE]

Writes its section of docs/benchmarks.md, or of FILE.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from krammar.proxy.filters.batches import Allowance
from krammar.proxy.filters.encrypt import Encrypt
from krammar.wire.batches import Compression, Record, encode_batch, read_batches
from tests.bench.page import machine, markdown_table, put_file, section

_PAGE = Path(__file__).parents[2] / "docs" / "benchmarks.md"
# Bytes of a value, and records of a batch.
CASES = ((100, 1_000), (1_000, 1_000), (100_000, 10), (1_000_000, 1))
ROUNDS = 9
# Encrypt does not look at it.
EXCHANGE: Any = None


async def measured(work: Callable[[Allowance], Awaitable[Any]]) -> tuple[float, Any]:
    """Return the least processor time of several rounds, in seconds, and the result."""
    best, result = float("inf"), None
    for _ in range(ROUNDS):
        begin = time.process_time()
        result = await work(Allowance())
        best = min(best, time.process_time() - begin)
    return best, result


async def compare(encrypt: Encrypt) -> list[list[str]]:
    """Return a row for each case: bytes of a value, codec, and µs per record in both directions."""
    rows = []
    for size, count in CASES:
        for codec in (Compression.NONE, Compression.LZ4):
            half = size // 2
            records = [
                Record(key=b"key %d" % number, value=os.urandom(half) + bytes(half))
                for number in range(count)
            ]
            data = encode_batch(records, compression=codec)
            sealing, sealed = await measured(partial(encrypt.produced, "orders", data, EXCHANGE))
            (batch,) = read_batches(sealed)
            opening, _ = await measured(partial(encrypt.fetched, "orders", batch, EXCHANGE))
            times = [f"{seconds / count * 1e6:,.1f}" for seconds in (sealing, opening)]
            rows.append([f"{size:,}", codec.name.lower(), *times])
            print(*rows[-1], flush=True)
    return rows


def report(rows: list[list[str]]) -> Iterator[str]:
    yield "## Encrypt"
    yield ""
    yield "Processor time that the filter adds in the proxy. Half of each value is random."
    yield ""
    head = ("Value, bytes", "Codec", "Encrypt, µs per record", "Decrypt, µs per record")
    yield from markdown_table(head, rows, left=2)
    yield ""
    yield from machine()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path, default=_PAGE, help="page that gets the section")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder) / "keys.txt"
        keys.write_text(f"key {base64.b64encode(os.urandom(32)).decode()}\n")
        rows = asyncio.run(compare(Encrypt(keys=keys)))
    put_file(options.output, section("encrypt", "python -m tests.bench.encrypt", report(rows)))


if __name__ == "__main__":
    main()
