"""Frames: streams in pieces of any size, memory of the caller or of the reader, and limits."""

from __future__ import annotations

import random
from mmap import mmap

import pytest
from kafka_wire import HeartbeatRequest, RequestHeader

from krammar.wire.errors import EncodeError
from krammar.wire.framing import (
    MAX_FRAME,
    FrameError,
    FrameReader,
    body_frame,
    frame_size,
    join_frame,
    message_frame,
)
from tests.support.frames import framed


def test_the_size_of_a_frame() -> None:
    assert frame_size(b"\0\0\0\0") == 0
    assert frame_size(b"\0\0\1\2 and more") == 258
    assert frame_size(MAX_FRAME.to_bytes(4, "big")) == MAX_FRAME
    assert frame_size(b"\0\0\0\7", max_frame=7) == 7


@pytest.mark.parametrize(
    ("prefix", "message"),
    [
        (b"\0\0\0\x08", "^a frame of 8 bytes: 7 are accepted at most$"),
        (b"\xff\xff\xff\xff", "^a negative frame length: -1$"),
        (b"\x16\x03\x03\0", r"\(it looks like TLS\)$"),
        (b"\x15\x03\x03\0", r"\(it looks like TLS\)$"),
        (b"PUT ", r"\(it looks like HTTP\)$"),
    ],
)
def test_a_size_that_is_refused(prefix: bytes, message: str) -> None:
    with pytest.raises(FrameError, match=message) as caught:
        frame_size(prefix, max_frame=7)
    assert caught.value.size == int.from_bytes(prefix, "big", signed=True)
    assert caught.value.limit == 7


def test_after_a_frame_that_is_refused_no_other_is_cut() -> None:
    reader = FrameReader(max_frame=3)
    reader.feed(framed(b"abc") + framed(b"abcd"))
    assert reader.next_frame() == b"abc"
    for _ in range(2):
        with pytest.raises(FrameError, match="a frame of 4 bytes"):
            reader.next_frame()
        reader.feed(framed(b"x"))


def test_frames_are_joined() -> None:
    assert join_frame([]) == b"\0\0\0\0"
    assert join_frame([b"a", b"", b"bc"]) == b"\0\0\0\3abc"


def test_a_message_in_its_frame() -> None:
    header = RequestHeader(request_api_key=12, request_api_version=0, correlation_id=7)
    body = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    frame = message_frame(header, 1, body, 0)
    assert frame == framed(header.encode(1) + body.encode(0))
    head = header.encode(1)
    assert body_frame(head, body, 0) == frame
    assert body_frame(head, body, 0, b"more") == framed(head + body.encode(0) + b"more")


def test_frames_of_any_size_from_pieces_of_any_size() -> None:
    rng = random.Random(5)
    frames = [rng.randbytes(rng.choice((0, 1, 5, 100, 5000, 70_000))) for _ in range(200)]
    stream = b"".join(map(framed, frames))
    reader = FrameReader()
    found = []
    pos = 0
    while pos < len(stream):
        size = rng.choice((1, 3, 64, 4096, 65536, 200_000))
        reader.feed(memoryview(stream)[pos : pos + size])
        pos += size
        # Taking only some leaves whole frames in the buffer, which later pieces must not disturb.
        for _ in range(rng.choice((0, 1, 1000))):
            if (got := reader.next_frame()) is None:
                break
            found.append(got)
    while (got := reader.next_frame()) is not None:
        found.append(got)
    assert found == frames
    assert reader.buffered == 0


@pytest.mark.parametrize("mapped", [1 << 20, 32 << 20])
def test_frames_received_in_any_way(mapped: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fed, lent, or received into the reader's memory, which others overwrite as soon as they may."""
    monkeypatch.setattr(FrameReader, "mapped_frame", mapped)
    kinds = set()
    rng = random.Random(6)
    sizes = (0, 1, 5, 100, 5000, 16_000, 33_000, 70_000, 300_000, 3_000_000)
    frames = [rng.randbytes(rng.choice(sizes)) for _ in range(150)]
    stream = memoryview(b"".join(map(framed, frames)))
    reader = FrameReader()
    scratch = memoryview(bytearray(65_536))
    found = []
    pos = own = lent = kept = 0
    while pos < len(stream):
        room = reader.get_buffer()
        size = rng.choice((1, 64, 4096, 30_000, 65_536))
        if room is not None and rng.random() < 0.9:
            assert 0 < len(room) <= reader.buffered
            piece = stream[pos : pos + min(size, len(room))]
            room[: len(piece)] = piece
            reader.received(len(piece))
            kinds.add((type(room.obj), reader.expected > mapped))
            own += 1
        else:
            piece = stream[pos : pos + size]
            scratch[: len(piece)] = piece
            is_lent = rng.random() < 0.8
            reader.feed(scratch[: len(piece)], lent=is_lent)
            lent += is_lent
        pos += len(piece)
        for _ in range(rng.choice((0, 1, 1000))):
            peeked, left, expected = reader.peek(4), reader.buffered, reader.expected
            if (got := reader.next_frame()) is None:
                assert left < expected
                break
            assert peeked == len(got).to_bytes(4, "big")
            assert expected == 4 + len(got) == left - reader.buffered
            found.append(got)
        if reader.give_back():
            scratch[:] = bytes(len(scratch))
        else:
            kept += 1
            scratch = memoryview(bytearray(65_536))
    while (got := reader.next_frame()) is not None:
        found.append(got)
    assert found == frames
    assert reader.buffered == 0
    assert own > 100 and lent > 100 and kept > 2
    assert kinds == {(bytearray, False), *([(mmap, True)] if mapped < max(sizes) else [])}


def test_a_claimed_length_gives_no_buffer() -> None:
    """The receive buffer is only for accepted frames, and no larger than the bytes that have arrived."""
    for size in (-1, -0x80000000, 10_000_001, 0x7FFFFFFF):
        reader = FrameReader(10_000_000)
        reader.feed(size.to_bytes(4, "big", signed=True) + bytes(100_000))
        assert reader.get_buffer() is None
        with pytest.raises(FrameError):
            reader.next_frame()
    reader = FrameReader(10_000_000)
    reader.feed((10_000_000).to_bytes(4, "big") + bytes(16_000))
    assert reader.get_buffer() is None
    reader.feed(bytes(4_000))
    room = reader.get_buffer()
    assert room is not None and len(room) == 20_004
    reader.received(len(room))
    assert (reader.buffered, reader.expected) == (40_008, 10_000_004)
    assert reader.next_frame() is None


def test_a_frame_too_large_to_be_said() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return 0x80000000

    with pytest.raises(EncodeError, match="2147483648 bytes: 2147483647 can be written"):
        join_frame([Huge()])
