"""Keys of headers that are not UTF-8: readers show what Java's client shows, and the bytes survive."""

from __future__ import annotations

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krammar.wire import engine_loading
from krammar.wire.batches import (
    Compression,
    HeaderKey,
    Record,
    encode_batch,
    read_batches,
    read_headers,
)
from krammar.wire.batches.arrow import iter_records
from krammar.wire.batches.records.model import header_key, header_key_bytes

# Bytes, and new String(bytes, StandardCharsets.UTF_8) of Java 17.
JAVA = {
    b"h\xe9": "h\ufffd",
    b"\xff\xfeab": "\ufffd\ufffdab",
    b"a\xc3": "a\ufffd",
    b"\xc0\x80": "\ufffd\ufffd",
    b"\xe2\x82": "\ufffd",
    b"\xe2\x82A": "\ufffdA",
    b"\xe0\x80\x80": "\ufffd\ufffd\ufffd",
    b"\xf0\x9f\x98": "\ufffd",
    b"\xf4\x90\x80\x80": "\ufffd\ufffd\ufffd\ufffd",
    b"\x80\xbf": "\ufffd\ufffd",
    # A surrogate is replaced as a whole.
    b"\xed\xa0\x80": "\ufffd",
    b"\xed\xa0\xbd\xed\xb8\x80": "\ufffd\ufffd",
    b"\xed\xbf": "\ufffd",
    b"\xed\xa0x": "\ufffdx",
    b"\xe1\xed\xa0\x80": "\ufffd\ufffd",
}
KEYS = [*JAVA, b"", b"plain", "größe\ufffd".encode()]


@pytest.fixture(params=["engine", "pure"], autouse=True)
def reader(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "pure":
        monkeypatch.setattr(engine_loading, "ENGINE", None)


def batch(codec: Compression, keys: list[bytes]) -> bytes:
    """A batch whose records have these keys of headers, which are written over others of the same length."""
    records = [
        Record(value=b"v%d" % number, headers=[("k" * len(key), b"x"), ("plain", None)])
        for number, key in enumerate(keys)
    ]
    data = bytearray(encode_batch(records))
    at = 0
    for number, key in enumerate(keys):
        at = data.index(b"v%d" % number, at)
        place = data.index(b"k" * len(key), at)
        data[place : place + len(key)] = key
    (again,) = read_batches(bytes(data), validate_crc=False)
    return encode_batch(list(again), compression=codec)


@pytest.mark.parametrize(("raw", "text"), JAVA.items())
def test_as_java(raw: bytes, text: str) -> None:
    key = header_key(raw)
    assert (key, key.encode()) == (text, text.encode())
    assert isinstance(key, HeaderKey) and key.raw == raw


@given(st.binary(max_size=20))
def test_bytes_survive(raw: bytes) -> None:
    key = header_key(raw)
    assert header_key_bytes(key) == raw
    for other in (copy.copy(key), copy.deepcopy(key), pickle.loads(pickle.dumps(key))):
        assert (other, type(other), header_key_bytes(other)) == (key, type(key), raw)


@pytest.mark.parametrize("codec", list(Compression))
def test_records_are_encoded_as_they_were(codec: Compression) -> None:
    data = batch(codec, KEYS)
    (read,) = read_batches(data)
    records = list(read)
    assert [header_key_bytes(record.headers[0][0]) for record in records] == KEYS
    assert encode_batch(records, compression=codec) == data
    if codec is Compression.NONE:
        assert all(key in data for key in KEYS)
    changed = [Record(-1, r.timestamp, r.key, b"other", r.headers) for r in records]
    (again,) = read_batches(encode_batch(changed))
    assert [header_key_bytes(record.headers[0][0]) for record in again] == KEYS


@pytest.mark.parametrize("codec", list(Compression))
def test_arrow(codec: Compression) -> None:
    data = batch(codec, KEYS)
    (found,) = iter_records(data, read_headers(data), rows=100)
    headers = found.column("headers").to_pylist()
    assert [row[0]["key"] for row in headers] == [
        JAVA.get(key, key.decode(errors="replace")) for key in KEYS
    ]
    assert found.column("value").to_pylist() == [b"v%d" % number for number in range(len(KEYS))]
