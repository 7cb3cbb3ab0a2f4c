"""Sequencer and CSV framing beside Gazette's own, on random streams and records."""

from __future__ import annotations

import json
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from krammar.journal import (
    CSVFraming,
    CSVRecord,
    FrameError,
    ProducerID,
    Sequencer,
    build_uuid,
)
from krammar.journal.messages import Envelope
from tests.interop.go import go_program
from tests.interop.processes import Unavailable
from tests.journal.streams import ACK, CONTINUE, OUTSIDE, Note

CSV = CSVFraming()
UUID = "c0ffee00-0000-1000-8000-000000000000"


class Row(list[str]):
    """A message of any fields; CSVRecord demands a UUID."""

    from_csv = staticmethod(list[str])


Ask = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def ask() -> Iterator[Ask]:
    """Ask Gazette: one request and its response."""
    try:
        program = go_program(Path(__file__).parent / "gazette")
    except Unavailable as missing:
        pytest.skip(str(missing))
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        given, taken = process.stdin, process.stdout

        def asked(**request: Any) -> dict[str, Any]:
            given.write(json.dumps(request).encode() + b"\n")
            given.flush()
            return dict(json.loads(taken.readline()))

        yield asked
        given.close()
        assert process.wait(10) == 0


sent = st.lists(
    st.tuples(
        st.integers(0, 2),
        # Clock 0 has another meaning here, see "What differs from Gazette" in docs/journal.md.
        st.integers(1, 12),
        st.sampled_from([OUTSIDE, CONTINUE, CONTINUE, CONTINUE, ACK]),
    ),
    max_size=30,
)


@given(sent)
@settings(max_examples=3000, deadline=None, suppress_health_check=list(HealthCheck))
def test_streams(ask: Ask, stream: list[tuple[int, int, int]]) -> None:
    # An acknowledgement with the clock of a message commits it in Gazette, and not here.
    for producer in range(3):
        clocks = {flags: set[int]() for flags in (OUTSIDE, CONTINUE, ACK)}
        for number, clock, flags in stream:
            if number == producer:
                clocks[flags].add(clock)
        assume(not clocks[CONTINUE] & clocks[ACK])
    sequencer = Sequencer()
    committed = []
    for begin, (producer, clock, flags) in enumerate(stream):
        uuid = build_uuid(ProducerID(bytes([1, 0, 0, 0, 0, producer])), clock, flags)
        sequencer.queue_uncommitted(Envelope("j", begin, begin + 1, Note("", uuid)))
        committed.append([each.begin for each in iter(sequencer.deque_committed, None)])
    theirs = ask(
        Stream=[{"Producer": p, "Clock": clock, "Flags": int(flags)} for p, clock, flags in stream]
    )
    assert committed == (theirs["Committed"] or [])
    states = {(s.producer[5], s.last_ack, s.begin) for s in sequencer.producer_states()}
    assert states == {(s["Producer"], s["LastAck"], s["Begin"]) for s in theirs["States"] or []}


fields = st.text(st.sampled_from('ab,"\n\r \t\\.é\u00a0\u2003\x1c') | st.characters(codec="utf-8"))


@given(st.lists(st.lists(fields, max_size=4), min_size=1, max_size=4))
@settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))
def test_records_as_csv(ask: Ask, records: list[list[str]]) -> None:
    assume(not any("\r\n" in field for record in records for field in record))
    rows = [[UUID, *record[: len(records[0])]] for record in records]
    ours = b"".join(CSV.marshal(CSVRecord(row)) for row in rows)
    theirs = ask(Records=rows, CSV=b64encode(ours).decode())
    assert ours == b64decode(theirs["CSV"])
    if len({len(row) for row in rows}) == 1:  # Gazette's readers demand it
        assert theirs["Records"] == rows and not theirs["Error"]


pieces = st.lists(
    st.sampled_from([b",", b'"', b'""', b"\n", b"\r\n", b"\r", b"a", b" ", b"\xc3\xa9"]),
    max_size=16,
)


@given(pieces)
@settings(max_examples=3000, deadline=None, suppress_health_check=list(HealthCheck))
def test_csv_that_others_wrote(ask: Ask, parts: list[bytes]) -> None:
    """Up to the first record that one of them refuses; Gazette does not read on after that."""
    data = b"".join(parts)
    theirs = ask(CSV=b64encode(data).decode())
    ours = []
    begin = 0
    while (end := CSV.unpack(data, begin)) > begin:
        try:
            ours.append(CSV.unmarshal(data[begin:end], Row))
        except FrameError:
            break
        begin = end
        if len(ours[-1]) != len(ours[0]):  # Gazette refuses another number of fields
            del ours[-1]
            break
    # The last record may lack its newline in Gazette. Here it is not complete.
    found = theirs["Records"] or []
    assert ours == found[: len(ours)]
    assert len(found) - len(ours) <= (not theirs["Error"] and not data.endswith(b"\n"))
