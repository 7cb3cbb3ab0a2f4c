"""Messages and journals in memory, for tests of what does not care where they come from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from krammar.journal import (
    NULL_UUID,
    Checkpoint,
    Envelope,
    Flags,
    MustStartReplayError,
    ProducerID,
    Sequencer,
    build_uuid,
)

OUTSIDE, CONTINUE, ACK = Flags.OUTSIDE_TXN, Flags.CONTINUE_TXN, Flags.ACK_TXN

A, B, C = (ProducerID(bytes([1, 0, 0, 0, 0, n])) for n in (10, 11, 12))


class Note:
    """A message with a text."""

    def __init__(self, text: str, uuid: UUID = NULL_UUID) -> None:
        self.text = text
        self.uuid = uuid

    def get_uuid(self) -> UUID:
        return self.uuid

    def set_uuid(self, uuid: UUID) -> None:
        self.uuid = uuid

    def new_acknowledgement(self, journal: str) -> Note:
        return Note(f"acknowledged in {journal}")

    def __repr__(self) -> str:
        return f"Note({self.text!r})"


class Stream:
    """A journal in memory, and a sequencer that reads it. Messages take ten offsets each."""

    def __init__(self, buffer: int = 100, name: str = "notes/0") -> None:
        self.name = name
        self.written: list[Envelope] = []
        self.sequencer = Sequencer((), buffer)
        self.position = 0
        self.replays: list[tuple[int, int]] = []

    def write(self, producer: ProducerID, clock: int, flags: int, text: str = "") -> str:
        """Append a message and sequence it; returns the texts that come out."""
        return self.append(Note(text or str(clock), build_uuid(producer, clock, flags)))

    def append(self, message: Any) -> str:
        begin = len(self.written) * 10
        self.written.append(Envelope(self.name, begin, begin + 10, message))
        return self.catch_up()

    def catch_up(self) -> str:
        came = []
        for envelope in self.written[self.position :]:
            self.sequencer.queue_uncommitted(envelope)
            self.position += 1
            came += [one.message.text for one in self.drain()]
        return " ".join(came)

    def drain(self) -> Iterator[Envelope]:
        while True:
            try:
                envelope = self.sequencer.deque_committed()
            except MustStartReplayError:
                begin, end = self.sequencer.replay_range()
                self.replays.append((begin, end))
                assert self.sequencer.replay_journal == self.name
                self.sequencer.start_replay(self.written[begin // 10 : end // 10])
                continue
            if envelope is None:
                assert self.sequencer.drained
                return
            yield envelope

    def restart(self, buffer: int = 100) -> None:
        """Continue from a checkpoint."""
        stored = Checkpoint(
            {self.name: self.position * 10}, self.sequencer.producer_states()
        ).encode()
        found = Checkpoint.decode(stored)
        self.sequencer = Sequencer(found.states, buffer)
        self.position = found.read_through[self.name] // 10
