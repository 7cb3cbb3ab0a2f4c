"""What Encrypt costs for each record: ``python -m tests.bench.encrypt``."""

from __future__ import annotations

import asyncio
import base64
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

from krammar.proxy.filters.batches import Allowance
from krammar.proxy.filters.encrypt import Encrypt
from krammar.wire.batches import Compression, Record, encode_batch, read_batches

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


async def compare(encrypt: Encrypt) -> None:
    print(f"{'value':>10} {'codec':>6} {'encrypt, µs':>12} {'decrypt, µs':>12} {'MB/s':>11}")
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
            speed = [size * count / seconds / 1e6 for seconds in (sealing, opening)]
            print(
                f"{size:>10,} {codec.name.lower():>6} {sealing / count * 1e6:>12.1f} "
                f"{opening / count * 1e6:>12.1f} {speed[0]:>5.0f} {speed[1]:>5.0f}"
            )


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        keys = Path(folder) / "keys.txt"
        keys.write_text(f"key {base64.b64encode(os.urandom(32)).decode()}\n")
        asyncio.run(compare(Encrypt(keys=keys)))


if __name__ == "__main__":
    main()
