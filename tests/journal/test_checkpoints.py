"""What is persisted: intents and checkpoints, as bytes by hand and round trip."""

from __future__ import annotations

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
    data = bytes.fromhex("0000 00000001 0003 782f30 00000002 abcd")
    assert encode_intents([AckIntent("x/0", b"\xab\xcd")]) == data
    assert decode_intents(data) == [AckIntent("x/0", b"\xab\xcd")]


@given(INTENTS)
def test_intents(intents: list[AckIntent]) -> None:
    assert decode_intents(encode_intents(intents)) == intents


def test_a_checkpoint_by_hand() -> None:
    checkpoint = Checkpoint({"x/0": 7}, [ProducerState("x/0", A, 2**64 - 2, 5)])
    data = bytes.fromhex(
        "0000 00000001 0003 782f30 0000000000000007"
        "00000001 0003 782f30 00000006 01000000000a fffffffffffffffe 0000000000000005"
        "00000000"
    )
    assert checkpoint.encode() == data
    assert Checkpoint.decode(data) == checkpoint


@given(st.dictionaries(NAMES, st.integers(0, 2**63 - 1), max_size=3), STATES, INTENTS)
def test_checkpoints(
    read_through: dict[str, int], states: list[ProducerState], intents: list[AckIntent]
) -> None:
    checkpoint = Checkpoint(read_through, states, intents)
    again = Checkpoint.decode(checkpoint.encode())
    assert again == checkpoint
    assert all(type(state.producer) is ProducerID for state in again.states)


def test_what_is_none() -> None:
    with pytest.raises(CheckpointError, match=r"not intents: AckIntents .*intents"):
        decode_intents(b"\0\0\0")
    with pytest.raises(CheckpointError, match="not intents: AckIntents has no version 1"):
        decode_intents(b"\0\1\0\0\0\0")
    with pytest.raises(CheckpointError, match="not a checkpoint: Checkpoint"):
        Checkpoint.decode(b"\0\0")
    wrong = bytes.fromhex(
        "0000 00000000 00000001 0001 78 00000005 0100000000 0000000000000000 0000000000000005 00000000"
    )
    with pytest.raises(
        CheckpointError, match="not a checkpoint: a producer's id has 6 bytes, not 5"
    ):
        Checkpoint.decode(wrong)
