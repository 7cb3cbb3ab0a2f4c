"""Hostile bytes made from valid ones, the same in every run."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

# Lengths, counts and numbers at the ends of their ranges, in every encoding a length has: int8,
# int16, int32, int64, and varints of one to ten bytes, cut short and too long.
EXTREMES = tuple(
    bytes.fromhex(text)
    for text in [
        "00",
        "01",
        "7f",
        "80",
        "81",
        "ff",
        "7fff",
        "8000",
        "ffff",
        "fffe",
        "7fffffff",
        "80000000",
        "ffffffff",
        "fffffffe",
        "77359400",
        "7fffffffffffffff",
        "8000000000000000",
        "8001",
        "8080",
        "ffff03",
        "ffffffff07",
        "ffffffff0f",
        "ffffffff1f",
        "808080808000",
        "ffffffffffffffffff01",
        "ffffffffffffffffffff01",
        "8094ebdc03",
        "0000000000000000",
        "c0af",
        "c328",
        "eda080",
    ]
)


def mutations(seeds: list[bytes], rng: Random, number: int) -> Iterator[bytes]:
    """``number`` byte strings, each made from one of ``seeds`` by one to three changes.

    Changes are truncations, flipped bits, bytes set, cut out, put in or said twice, extremes written
    over or put in, and splices of two seeds. ``seeds`` must not be empty; one may be.
    """
    choice, randrange = rng.choice, rng.randrange
    for _ in range(number):
        data = bytearray(choice(seeds))
        for _ in range(choice((1, 1, 1, 2, 3))):
            size = len(data)
            kind = randrange(10)
            at = randrange(size + 1)
            if kind == 0:
                del data[at:]
            elif kind <= 2 and size:
                data[at - 1] ^= 1 << randrange(8)
            elif kind == 3 and size:
                data[at - 1] = randrange(256)
            elif kind <= 6:
                extreme = choice(EXTREMES)
                data[at : at + len(extreme)] = extreme
            elif kind == 7:
                data[at:at] = choice(EXTREMES) if randrange(2) else rng.randbytes(randrange(1, 9))
            elif kind == 8:
                end = at + randrange(9)
                data[at:at] = data[at:end] if randrange(2) else b""
                if randrange(2):
                    del data[at:end]
            else:
                other = choice(seeds)
                data[at:] = other[randrange(len(other) + 1) :]
        yield bytes(data)
