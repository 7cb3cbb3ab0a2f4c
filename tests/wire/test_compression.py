"""The codecs: against other implementations of them, bounded, and on bytes that are not theirs."""

from __future__ import annotations

import contextlib
import gzip
import random
import struct
import tracemalloc

import cramjam
import pytest
import xxhash
from aiokafka import codec as aiokafka_codec
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka import codec as kafka_codec

from krammar.wire.batches.compression import (
    Compression,
    _xxh32,
    compress,
    compress_in_pieces,
    decompress,
    lz4_bound,
    zstd_bound,
)
from krammar.wire.errors import DecodeError, EncodeError

CODECS = [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD]
PEERS = {
    "kafka-python": {
        Compression.GZIP: (kafka_codec.gzip_encode, kafka_codec.gzip_decode),
        Compression.SNAPPY: (kafka_codec.snappy_encode, kafka_codec.snappy_decode),
        Compression.LZ4: (kafka_codec.lz4_encode, kafka_codec.lz4_decode),
        Compression.ZSTD: (kafka_codec.zstd_encode, kafka_codec.zstd_decode),
    },
    "aiokafka": {
        Compression.GZIP: (aiokafka_codec.gzip_encode, aiokafka_codec.gzip_decode),
        Compression.SNAPPY: (aiokafka_codec.snappy_encode, aiokafka_codec.snappy_decode),
        Compression.LZ4: (aiokafka_codec.lz4_encode, aiokafka_codec.lz4_decode),
        Compression.ZSTD: (aiokafka_codec.zstd_encode, aiokafka_codec.zstd_decode),
    },
}


def text(size: int, seed: int = 0) -> bytes:
    """Bytes that compress, but not to nothing."""
    rng = random.Random(seed)
    words = [rng.randbytes(rng.randint(1, 9)) for _ in range(300)]
    out = bytearray()
    while len(out) < size:
        out += rng.choice(words)
    return bytes(out[:size])


# One byte, one block of each codec (32, 64 and 128 KiB) and one more byte, several blocks.
SIZES = [1, 10, 1000, 1 << 15, (1 << 15) + 1, 1 << 16, (1 << 16) + 1, (1 << 17) + 1, 1_000_000]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("peer", PEERS)
def test_peers(peer: str, codec: Compression, size: int) -> None:
    encode, decode = PEERS[peer][codec]
    for data in (text(size), bytes(size), random.Random(size).randbytes(size)):
        assert decompress(encode(data), codec) == data
        assert bytes(decode(compress(data, codec))) == data


@pytest.mark.parametrize("codec", [*CODECS, Compression.NONE])
@settings(max_examples=100)
@given(data=st.binary(max_size=500))
def test_round_trip(codec: Compression, data: bytes) -> None:
    compressed = compress(data, codec)
    assert decompress(compressed, codec) == data
    assert decompress(memoryview(bytearray(compressed)), codec) == data
    assert compress(data, codec) == compressed


@pytest.mark.parametrize(
    ("codec", "levels"),
    [
        (Compression.GZIP, (-1, 0, 1, 9)),
        (Compression.LZ4, (1, 3, 9, 12, 17)),
        (Compression.ZSTD, (-131072, -5, 1, 3, 22)),
    ],
)
def test_levels(codec: Compression, levels: tuple[int, ...]) -> None:
    data = text(100_000)
    for level in levels:
        assert decompress(compress(data, codec, level), codec) == data
    for level in (levels[0] - 1, levels[-1] + 1):
        with pytest.raises(EncodeError) as caught:
            compress(data, codec, level)
        assert caught.value.path == "compression_level"


def test_unknown_codecs() -> None:
    for codec in (5, 7, -1):
        with pytest.raises(EncodeError):
            compress(b"", codec)
        with pytest.raises(DecodeError):
            decompress(b"", codec)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [0, 1 << 20, (1 << 20) + 1, 5 << 20])
def test_pieces_are_what_compress_returns(codec: Compression, size: int) -> None:
    data = random.Random(size).randbytes(size)
    pieces = compress_in_pieces(data, codec)
    assert b"".join(pieces) == compress(data, codec)
    assert len(pieces) == 1 or max(map(len, pieces)) < 1.1 * (1 << 20)
    if codec == Compression.GZIP and size > 1 << 20:
        assert gzip.decompress(b"".join(compress_in_pieces(data, codec, 1))) == data
        with pytest.raises(EncodeError, match="gzip has no level 10"):
            compress_in_pieces(data, codec, 10)


# Frames that other writers make.


def test_gzip_members_end_to_end() -> None:
    data = gzip.compress(b"one, ") + gzip.compress(b"") + gzip.compress(b"two")
    assert decompress(data, Compression.GZIP) == b"one, two"


def test_snappy_without_blocks() -> None:
    """As librdkafka writes it."""
    data = text(100_000)
    assert decompress(bytes(cramjam.snappy.compress_raw(data)), Compression.SNAPPY) == data


def test_snappy_blocks() -> None:
    ours = compress(text(100_000), Compression.SNAPPY)
    assert ours == kafka_codec.snappy_encode(text(100_000))
    assert ours[:16] == bytes.fromhex("82534e41505059000000000100000001")
    assert decompress(ours[:16], Compression.SNAPPY) == b""
    # Some writers have the versions in little-endian.
    swapped = ours[:8] + struct.pack("<ii", 1, 1) + ours[16:]
    assert decompress(swapped, Compression.SNAPPY) == text(100_000)
    assert decompress(ours + ours, Compression.SNAPPY) == text(100_000) * 2


@pytest.mark.parametrize("linked", [True, False])
@pytest.mark.parametrize("block_checksum", [True, False])
@pytest.mark.parametrize("content_checksum", [True, False])
@pytest.mark.parametrize("store_size", [True, False])
@pytest.mark.parametrize("block_size", [4, 5, 6, 7])
def test_lz4_frames(
    linked: bool, block_checksum: bool, content_checksum: bool, store_size: bool, block_size: int
) -> None:
    import lz4.frame

    for data in (text(300_000), random.Random(0).randbytes(70_000), b"x", b""):
        frame = lz4.frame.compress(
            data,
            block_linked=linked,
            block_checksum=block_checksum,
            content_checksum=content_checksum,
            store_size=store_size,
            block_size=block_size,
        )
        assert decompress(frame, Compression.LZ4) == data
        assert decompress(frame + frame, Compression.LZ4) == data * 2
        assert len(data) <= lz4_bound(memoryview(frame)) <= len(data) + (4 << 20)


def test_lz4_of_old_kafka() -> None:
    """In message sets v0 the header's checksum covers the magic too (KIP-57)."""
    data = text(100_000)
    frame = kafka_codec.lz4_encode_old_kafka(data)
    assert decompress(frame, Compression.LZ4, broken_lz4_checksum=True) == data
    right = compress(data, Compression.LZ4)
    assert decompress(right, Compression.LZ4, broken_lz4_checksum=True) == data
    with pytest.raises(DecodeError):
        decompress(frame, Compression.LZ4)


def test_xxh32() -> None:
    rng = random.Random(0)
    for size in range(16):
        for _ in range(20):
            data = rng.randbytes(size)
            assert _xxh32(data) == xxhash.xxh32_intdigest(data)


@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("content_size", [True, False])
@pytest.mark.parametrize("level", [1, 3, 19])
def test_zstd_frames(checksum: bool, content_size: bool, level: int) -> None:
    import zstandard

    compressor = zstandard.ZstdCompressor(
        level=level, write_checksum=checksum, write_content_size=content_size
    )
    skippable = struct.pack("<II", 0x184D2A53, 5) + b"12345"
    for data in (
        text(300_000),
        random.Random(0).randbytes(70_000),
        bytes(500_000),
        b"x" * 300,
        b"",
    ):
        stream = compressor.compressobj()
        streamed = stream.compress(data) + stream.flush()
        for frame in (compressor.compress(data), streamed):
            assert decompress(frame, Compression.ZSTD) == data
            assert decompress(frame + frame, Compression.ZSTD) == data * 2
            assert decompress(skippable + frame, Compression.ZSTD) == data
            bound = zstd_bound(memoryview(frame))
            assert len(data) <= bound <= 4 * len(data) + (128 << 10)
            if frame is not streamed and content_size:
                assert bound == len(data)


# Bounds.


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("size", [1, 1000, 100_000, 1_000_000])
def test_the_limit_is_exact(codec: Compression, size: int) -> None:
    data = text(size)
    compressed = compress(data, codec)
    assert decompress(compressed, codec, max_uncompressed=size) == data
    with pytest.raises(DecodeError, match=rf"max_uncompressed, {size - 1} bytes"):
        decompress(compressed, codec, max_uncompressed=size - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_bombs_stop_at_the_limit(codec: Compression) -> None:
    bomb = compress(bytes(1 << 26), codec)
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="max_uncompressed"):
            decompress(bomb, codec, max_uncompressed=1 << 20)
        # Once in the buffer, once in the bytes that are returned; gzip has pieces and their sum.
        assert tracemalloc.get_traced_memory()[1] < 5 << 20
    finally:
        tracemalloc.stop()


def test_snappy_that_claims_gigabytes() -> None:
    claim = b"\xff\xff\xff\xff\x0f" + bytes(20)
    tracemalloc.start()
    try:
        with pytest.raises(DecodeError, match="expand more than 1000 times"):
            decompress(claim, Compression.SNAPPY)
        with pytest.raises(DecodeError, match="cannot expand"):
            decompress(b"\xff\xff\xff\x07" + bytes(20), Compression.SNAPPY)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_many_empty_members() -> None:
    """The time to find each fault does not grow with the bytes after it."""
    assert decompress(gzip.compress(b"", mtime=0) * 5000, Compression.GZIP) == b""
    import zstandard

    frame = zstandard.ZstdCompressor().compress(b"")
    assert decompress(frame * 5000, Compression.ZSTD) == b""
    assert decompress(compress(b"", Compression.LZ4) * 5000, Compression.LZ4) == b""


# Bytes that are not compressed.


@pytest.mark.parametrize("codec", CODECS)
def test_every_truncation(codec: Compression) -> None:
    compressed = compress(text(3000), codec)
    accepted = {}
    for size in range(len(compressed)):
        try:
            accepted[size] = decompress(compressed[:size], codec)
        except DecodeError:
            continue
    # Blocks of snappy have no end mark: without the last of them there is less.
    assert accepted == ({16: b""} if codec == Compression.SNAPPY else {})


@pytest.mark.parametrize("codec", CODECS)
def test_mutations(codec: Compression) -> None:
    rng = random.Random(codec)
    samples = [compress(text(3000), codec), compress(bytes(3000), codec), compress(b"x", codec)]
    errors = 0
    for _ in range(3000):
        data = bytearray(rng.choice(samples))
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        if rng.random() < 0.3:
            del data[rng.randrange(len(data)) :]
        for broken in (False, True):
            try:
                out = decompress(data, codec, max_uncompressed=1 << 17, broken_lz4_checksum=broken)
                assert len(out) <= 1 << 17
            except DecodeError:
                errors += 1
    assert errors > 100


@pytest.mark.parametrize("codec", CODECS)
def test_noise(codec: Compression) -> None:
    rng = random.Random(codec)
    heads = [b"", b"\x1f\x8b\x08", b"\x82SNAPPY\0", b"\x04\x22\x4d\x18", b"\x28\xb5\x2f\xfd"]
    for size in range(400):
        data = rng.choice(heads) + rng.randbytes(size)
        with contextlib.suppress(DecodeError):
            assert len(decompress(data, codec, max_uncompressed=1 << 17)) <= 1 << 17
