"""Changing names in the bytes of a frame: the engine and pure Python write the same frames."""

from __future__ import annotations

from random import Random
from typing import Any

import kafka_wire
import pytest

from krammar.wire import skip
from krammar.wire import splice as splicing
from krammar.wire.engine_loading import ENGINE
from krammar.wire.primitives import encode_uvarint
from krammar.wire.skip import TAGGED
from tests.generated.catalogue import Message
from tests.generated.mutations import mutations
from tests.wire.both import needs_engine
from tests.wire.test_engine import encoded

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


CHANGED: list[tuple[Any, int]] = [
    (cls, version)
    for request in (
        kafka_wire.ProduceRequest,
        kafka_wire.FetchRequest,
        kafka_wire.OffsetCommitRequest,
    )
    for cls in (request, request.response_class)
    for version in range(cls.min_version, cls.max_version + 1)
]


@pytest.mark.parametrize(
    ("cls", "version"), CHANGED, ids=lambda each: str(getattr(each, "__name__", each))
)
def test_whole_frames(cls: Any, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames as they are, with mutated bytes, and with a prefix that their names have or lack."""
    of_requests = hasattr(cls, "response_class")
    headers = kafka_wire.header_versions(cls.api_key, version)
    header: Any = kafka_wire.RequestHeader if of_requests else kafka_wire.ResponseHeader
    head = (header, headers.request if of_requests else headers.response)
    compact = kafka_wire.layout(cls, version).flexible
    marks = (*NAMES, "brokerId", "errorMessage", TAGGED)
    usual = [
        splicing.change_of(head, (cls, version), marks, NAMES, adds, compact)
        for adds in (True, False)
    ]
    monkeypatch.setattr(skip, "program_of", lambda *_: None)
    monkeypatch.setattr(splicing, "program_of", lambda *_: None)
    monkeypatch.setattr(splicing, "splice", splicing._splice)
    pure = [
        splicing.change_of(head, (cls, version), marks, NAMES, adds, compact)
        for adds in (True, False)
    ]
    rng, changed = Random(f"{cls} {version}"), 0
    bodies = encoded(Message(kafka_wire, cls, (version,)), version)
    plain, tagged = header().encode(head[1]), header().with_unknown_tags({9: b"x"})
    heads = [plain, tagged.encode(head[1])] if head[1] > (not of_requests) else [plain]
    frames = [first + body for first in heads for body in bodies]
    short = [frame for frame in frames if len(frame) < 500]
    for frame in (*frames, *mutations(short, rng, 100)):
        data = b"xy" + len(frame).to_bytes(4, "big") + frame
        for prefix in (b"", b"blue.", b"t"):
            for ours, theirs in zip(usual, pure, strict=True):
                found = [_shown(change(data, 2, len(data), prefix)) for change in (ours, theirs)]
                assert found[0] == found[1], (data, prefix)
                changed += found[0] is not None and found[0][1] is not None
    assert changed


def _shown(changed: Any) -> Any:
    """What a change has found, with bytes instead of views."""
    if changed is None or changed[1] is None:
        return changed
    return changed[0], list(map(bytes, changed[1]))


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


@pytest.mark.parametrize(
    ("at", "wrong"),
    [
        (0, None),
        (1, "text"),
        (2, 37),
        (2, -1),
        (3, 41),
        (3, 2),
        (4, [3]),
        (5, [3]),
        (6, "b"),
        (7, 1),
    ],
)
def test_wrong_calls_of_change(at: int, wrong: Any) -> None:
    program = kafka_wire.FetchRequest._load_program(4)
    assert program is not None
    valid: tuple[Any, ...] = (program, DATA, 0, 40, NAMES, NAMES, b"b.", True, True)
    assert program.change(*valid) is None  # the bytes are no frame
    with pytest.raises(TypeError):
        program.change(*valid[:at], wrong, *valid[at + 1 :])  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        program.change(*valid[:at])
