"""Stored intents and checkpoints: compared with bytes written manually, and round trips."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from uuid import UUID
from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from krammar.journal import (
    AckIntent,
    Checkpoint,
    CheckpointError,
    ProducerID,
    ProducerState,
    decode_intents,
    encode_intents,
    store_bytes,
)
from tests.journal.streams import A

NAMES = st.text("abc/", min_size=1, max_size=5)
INTENTS = st.lists(st.builds(AckIntent, NAMES, st.binary(max_size=9)), max_size=3)
STATES = st.lists(
    st.builds(
        ProducerState,
        NAMES,
        st.binary(min_size=6, max_size=6).map(ProducerID),
        st.integers(0, 2**64 - 1),
        st.integers(-1, 2**63 - 1),
    ),
    max_size=3,
)


def test_intents_by_hand() -> None:
    data = bytes.fromhex("0001 00000001 0003 782f30 00000002 abcd")
    data += crc32(data).to_bytes(4, "big")
    assert encode_intents([AckIntent("x/0", b"\xab\xcd")]) == data
    assert decode_intents(data) == [AckIntent("x/0", b"\xab\xcd")]
    # Earlier versions of krammar wrote no checksum.
    assert decode_intents(b"\0\0" + data[2:-4]) == [AckIntent("x/0", b"\xab\xcd")]


@given(INTENTS)
def test_intents(intents: list[AckIntent]) -> None:
    assert decode_intents(encode_intents(intents)) == intents


def test_a_checkpoint_by_hand() -> None:
    journal_id = UUID("89abcdef-4567-4123-a802-010203040506")
    checkpoint = Checkpoint(
        {"x/0": 7}, [ProducerState("x/0", A, 2**64 - 2, 5)], journal_ids={"x/0": journal_id}
    )
    data = bytes.fromhex(
        "0002 00000001 0003 782f30 0000000000000007 89abcdef45674123a802010203040506"
        "00000001 0003 782f30 00000006 01000000000a fffffffffffffffe 0000000000000005"
        "00000000"
    )
    data += crc32(data).to_bytes(4, "big")
    assert checkpoint.encode() == data
    assert Checkpoint.decode(data) == checkpoint
    # Earlier versions of krammar wrote no ids and no checksum.
    older = data[2:-4].replace(journal_id.bytes, b"")
    assert Checkpoint.decode(b"\0\0" + older) == replace(checkpoint, journal_ids={})


@given(
    st.dictionaries(NAMES, st.tuples(st.integers(0, 2**63 - 1), st.uuids()), max_size=3),
    STATES,
    INTENTS,
)
def test_checkpoints(
    read: dict[str, tuple[int, UUID]], states: list[ProducerState], intents: list[AckIntent]
) -> None:
    checkpoint = Checkpoint(
        {name: offset for name, (offset, _) in read.items()},
        states,
        intents,
        {name: journal_id for name, (_, journal_id) in read.items()},
    )
    again = Checkpoint.decode(checkpoint.encode())
    assert again == checkpoint
    assert all(type(state.producer) is ProducerID for state in again.states)


def test_what_is_none() -> None:
    with pytest.raises(CheckpointError, match=r"not intents: AckIntents .*intents"):
        decode_intents(b"\0\0\0")
    with pytest.raises(CheckpointError, match="not intents: AckIntents has no version 2"):
        decode_intents(b"\0\2\0\0\0\0")
    with pytest.raises(CheckpointError, match="not a checkpoint: Checkpoint"):
        Checkpoint.decode(b"\0\0")
    wrong = bytes.fromhex(
        "0000 00000000 00000001 0001 78 00000005 0100000000 0000000000000000 0000000000000005 00000000"
    )
    with pytest.raises(
        CheckpointError, match="not a checkpoint: a producer's id has 6 bytes, not 5"
    ):
        Checkpoint.decode(wrong)


def test_damage_is_noticed() -> None:
    """Bytes that are zero, as after a power cut, or any other ones."""
    intents = encode_intents([AckIntent("x/0", b"\xab" * 30)])
    checkpoint = Checkpoint({"x/0": 7}, [ProducerState("x/0", A, 2**64 - 2, 5)]).encode()
    for at in range(2, len(intents)):
        for damaged in (_changed(intents, at), intents[:at] + bytes(len(intents) - at)):
            with pytest.raises(CheckpointError, match="these bytes are not intents"):
                decode_intents(damaged)
    for at in range(2, len(checkpoint)):
        for damaged in (_changed(checkpoint, at), checkpoint[:at] + bytes(len(checkpoint) - at)):
            with pytest.raises(CheckpointError, match="these bytes are not a checkpoint"):
                Checkpoint.decode(damaged)
    with pytest.raises(CheckpointError, match="not intents: the checksum is wrong"):
        decode_intents(_changed(intents, 20))


def _changed(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_a_file_with_intents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file and its folder are forced to the disk, and a full disk leaves the old content."""
    path = tmp_path / "intents"
    store_bytes(path, b"old")
    real, synced = os.fsync, []

    def fsync(file: int) -> None:
        synced.append((os.path.samestat(os.fstat(file), os.stat(tmp_path)), path.read_bytes()))
        real(file)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        store_bytes(path, b"new")
    assert synced == [(False, b"old"), (True, b"new")]

    def pwrite(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", pwrite)
    with pytest.raises(OSError, match="No space left on device"):
        store_bytes(path, b"more")
    assert [p.name for p in tmp_path.iterdir()] == ["intents"]
    assert path.read_bytes() == b"new"
