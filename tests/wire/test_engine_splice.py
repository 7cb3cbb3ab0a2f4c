"""Changing names in the bytes of a frame: the engine and pure Python write the same frames."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from krammar.wire import splice as splicing
from krammar.wire.engine_loading import ENGINE
from krammar.wire.primitives import encode_uvarint
from tests.wire.both import needs_engine

pytestmark = needs_engine

NAMES = ("topicName", "groupId")


def both(*arguments: Any) -> list[bytes] | None:
    """What both return, as bytes."""
    assert ENGINE is not None
    found = [splice(*arguments) for splice in (ENGINE.splice, splicing._splice)]
    pieces = [None if each is None else [bytes(piece) for piece in each] for each in found]
    assert pieces[0] == pieces[1], arguments
    ours, theirs = ([type(piece) for piece in each or ()] for each in found)
    assert ours == theirs
    return pieces[0]


def frame(
    rng: Random, compact: bool, prefix: bytes
) -> tuple[bytes, list[tuple[str, int, int, int]]]:
    """A frame after two other bytes, and the places in it."""
    data, places = b"xy\0\0\0\0", []
    for _ in range(rng.randrange(4)):
        data += rng.randbytes(rng.choice((0, 1, 30, 3000, 5000)))
        mark = rng.choice((*NAMES, "brokerId"))
        size = rng.choice((0, 1, 5, 121, 122, 126, 127, 16_378, 32_567 + (not prefix)))
        text = prefix * (rng.random() < 0.9) + b"n" * size
        begin = len(data)
        if rng.random() < 0.1:
            data += b"\0" if compact else b"\xff\xff"
            places.append((mark, begin, -1, len(data)))
            continue
        data += encode_uvarint(len(text) + 1) if compact else splicing._int16(len(text))
        places.append((mark, begin, len(data), len(data) + len(text)))
        data += text
    return data + rng.randbytes(rng.choice((0, 5, 4096, 4097))), places


@pytest.mark.parametrize("number", [1000, pytest.param(30_000, marks=pytest.mark.sweep)])
def test_random_frames(number: int) -> None:
    rng = Random(number)
    refused = changed = viewed = 0
    for _ in range(number):
        compact, adds = rng.random() < 0.5, rng.random() < 0.5
        prefix = rng.choice((b"blue.", b"a" * 200))
        data, places = frame(rng, compact, b"" if adds else prefix)
        end = len(data)
        given = (bytearray(data + b"z" * 9), 2, end, places, NAMES, prefix, adds, compact)
        found = both(*given)
        if found is None:
            refused += 1
            continue
        changed += 1
        viewed += len(found) == 2
        whole = b"".join(found)
        assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    assert min(refused, changed, viewed) > number / 20


def test_a_name_gets_and_loses_its_prefix() -> None:
    data = b"\0\0\0\x08" + b"ab\x04abc" + b"zz"
    added = both(data, 0, len(data), [("topicName", 6, 7, 10)], NAMES, b"blue.", True, True)
    assert added == [b"\0\0\0\x0d" + b"ab\x09blue.abc" + b"zz"]
    again = both(
        added[0], 0, len(added[0]), [("topicName", 6, 7, 15)], NAMES, b"blue.", False, True
    )
    assert again == [data]
    assert both(data, 0, len(data), [("topicName", 6, 7, 10)], NAMES, b"b.", False, True) is None


DATA = bytes(40)
VALID = (DATA, 0, 40, [("topicName", 5, 6, 8)], NAMES, b"b.", True, True)


@pytest.mark.parametrize(
    ("at", "wrong"),
    [
        (0, "text"),
        (1, 37),
        (1, -1),
        (1, None),
        (2, 41),
        (2, 3),
        (3, ()),
        (3, [3]),
        (3, [("topicName", 5, 6)]),
        (3, [("topicName", 5, "6", 8)]),
        (3, [("topicName", 3, 6, 8)]),
        (3, [("topicName", 5, 4, 8)]),
        (3, [("topicName", 5, 6, 41)]),
        (3, [("topicName", 5, 6, 5)]),
        (3, [("topicName", 5, 6, 1 << 80)]),
        (3, [(3, 5, 6, 8)]),
        (3, [("topicName", 5, 6, 8), ("topicName", 7, 8, 9)]),
        (4, ["topicName"]),
        (4, (3,)),
        (5, "b."),
        (6, 1),
        (7, None),
    ],
)
def test_wrong_calls(at: int, wrong: Any) -> None:
    assert ENGINE is not None
    assert ENGINE.splice(*VALID)
    with pytest.raises((TypeError, OverflowError)):
        ENGINE.splice(*VALID[:at], wrong, *VALID[at + 1 :])
    with pytest.raises(TypeError):
        ENGINE.splice(*VALID[:at])
