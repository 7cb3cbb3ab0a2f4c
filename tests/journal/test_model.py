"""The sequencer against a model that has no buffer, no replays and no restarts.

The model stores everything, and predicts for each written message what is returned. The sequencer
reads the same journals with buffers of any size, is restarted from checkpoints, taken when it is
drained, and has messages come twice, late and out of order. Both must hand out the same.
"""

from __future__ import annotations

import random

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from krammar.journal import (
    Checkpoint,
    Envelope,
    MustStartReplayError,
    ProducerID,
    Sequencer,
    build_uuid,
)
from tests.journal.streams import ACK, CONTINUE, OUTSIDE, Note

STEPS = 10_000
PRODUCERS = [ProducerID(bytes([1, 0, 0, 0, 0, n])) for n in range(4)]
JOURNALS = ["x", "y"]

producers = st.sampled_from(PRODUCERS)
journals = st.sampled_from(JOURNALS)


class Known:
    """What the model knows of a producer in a journal: its last acknowledgement, and all that waits."""

    def __init__(self) -> None:
        self.acknowledged: int | None = None
        self.waiting: list[tuple[int, str]] = []

    def take(self, clock: int, flags: int, text: str) -> list[str]:
        """What comes out when this message is read."""
        if self.acknowledged is None:
            self.acknowledged = clock - 1
        if flags == OUTSIDE:
            if clock <= self.acknowledged:
                return []
            self.acknowledged = clock
            self.waiting = []
            return [text]
        if flags == CONTINUE:
            if clock > max([self.acknowledged, *(one[0] for one in self.waiting)]):
                self.waiting.append((clock, text))
            return []
        out = []
        if clock > self.acknowledged:
            out = [text for at, text in self.waiting if at < clock]
        # A producer that has ended is unknown.
        self.acknowledged = clock or None
        self.waiting = []
        return out


class Machine(RuleBasedStateMachine):
    """Writes to two journals; one sequencer reads both, now and then."""

    steps = 0

    def __init__(self) -> None:
        super().__init__()
        self.written: dict[str, list[Envelope]] = {journal: [] for journal in JOURNALS}
        self.known = {(j, p): Known() for j in JOURNALS for p in PRODUCERS}
        # What has come out by the end of each message, and must.
        self.expected: dict[str, list[str]] = {journal: [] for journal in JOURNALS}
        self.counts: dict[str, list[int]] = {journal: [0] for journal in JOURNALS}
        self.seen: dict[str, list[str]] = {journal: [] for journal in JOURNALS}
        self.read = dict.fromkeys(JOURNALS, 0)
        self.clock = 100
        self.last = {(j, p): 100 for j in JOURNALS for p in PRODUCERS}
        self.whole_replays = False

    @initialize(buffer=st.sampled_from([1, 2, 3, 5, 50]))
    def begin(self, buffer: int) -> None:
        self.sequencer = Sequencer((), buffer)
        self.saved = Checkpoint(dict.fromkeys(JOURNALS, 0)).encode()

    def write(self, journal: str, producer: ProducerID, clock: int, flags: int) -> None:
        log = self.written[journal]
        text = f"{len(log)}"
        uuid = build_uuid(producer, clock, flags)
        log.append(Envelope(journal, len(log), len(log) + 1, Note(text, uuid)))
        out = self.known[journal, producer].take(clock, flags, text)
        self.expected[journal] += out
        self.counts[journal].append(len(self.expected[journal]))

    # What producers do.

    @rule(journal=journals, producer=producers, count=st.integers(1, 6))
    def publish_uncommitted(self, journal: str, producer: ProducerID, count: int) -> None:
        for _ in range(count):
            self.clock += 1
            self.write(journal, producer, self.clock, CONTINUE)

    @rule(journal=journals, producer=producers)
    def publish_committed(self, journal: str, producer: ProducerID) -> None:
        self.clock += 1
        self.write(journal, producer, self.clock, OUTSIDE)

    @rule(journal=journals, producer=producers)
    def commit(self, journal: str, producer: ProducerID) -> None:
        self.clock += 1
        self.last[journal, producer] = self.clock
        self.write(journal, producer, self.clock, ACK)

    @rule(producer=producers)
    def commit_everywhere(self, producer: ProducerID) -> None:
        self.clock += 1
        for journal in JOURNALS:
            self.last[journal, producer] = self.clock
            self.write(journal, producer, self.clock, ACK)

    @rule(journal=journals, producer=producers)
    def roll_back(self, journal: str, producer: ProducerID) -> None:
        """A producer that recovers writes its last acknowledgement again."""
        self.write(journal, producer, self.last[journal, producer], ACK)

    @rule(journal=journals, producer=producers)
    def end_producer(self, journal: str, producer: ProducerID) -> None:
        self.last[journal, producer] = 0
        self.write(journal, producer, 0, ACK)

    @rule(journal=journals, producer=producers, back=st.integers(1, 8))
    def acknowledge_earlier(self, journal: str, producer: ProducerID, back: int) -> None:
        """In the middle of what is pending, or before the last acknowledgement."""
        self.write(journal, producer, self.clock - back, ACK)

    @rule(journal=journals, back=st.integers(1, 12), count=st.integers(1, 4))
    def repeat(self, journal: str, back: int, count: int) -> None:
        """Messages that were written before come again."""
        log = self.written[journal]
        for envelope in log[-back:][:count]:
            number = envelope.message.uuid.int
            clock = self.clock_of(envelope)
            node = ProducerID((number & (1 << 48) - 1).to_bytes(6, "big"))
            self.write(journal, node, clock, number >> 48 & 0x3FF)

    @rule(
        journal=journals,
        producer=producers,
        back=st.integers(0, 9),
        flags=st.sampled_from([OUTSIDE, CONTINUE]),
    )
    def write_late(self, journal: str, producer: ProducerID, back: int, flags: int) -> None:
        self.write(journal, producer, self.clock - back, flags)

    @staticmethod
    def clock_of(envelope: Envelope) -> int:
        uuid = envelope.message.uuid
        return int(uuid.time << 4 | uuid.clock_seq >> 10)

    # What the reader does.

    @rule(journal=journals, count=st.integers(1, 20))
    def catch_up(self, journal: str, count: int) -> None:
        log = self.written[journal]
        for envelope in log[self.read[journal] :][:count]:
            self.sequencer.queue_uncommitted(envelope)
            self.drain()
            self.read[journal] += 1

    def drain(self) -> None:
        while True:
            try:
                envelope = self.sequencer.deque_committed()
            except MustStartReplayError:
                journal = self.sequencer.replay_journal
                begin, end = self.sequencer.replay_range()
                assert 0 <= begin < end
                log = self.written[journal]
                # Either is enough, and which one is given must make no difference.
                whole = self.whole_replays = not self.whole_replays
                ranges = [(begin, end)] if whole else self.sequencer.replay_ranges()
                self.sequencer.start_replay([one for b, e in ranges for one in log[b:e]])
                continue
            if envelope is None:
                return
            self.seen[envelope.journal].append(envelope.message.text)

    @rule()
    def save(self) -> None:
        self.saved = Checkpoint(dict(self.read), self.sequencer.producer_states()).encode()

    @rule(buffer=st.sampled_from([1, 2, 4, 20]))
    def restart(self, buffer: int) -> None:
        """All that was done since the checkpoint is lost, results too."""
        found = Checkpoint.decode(self.saved)
        self.sequencer = Sequencer(found.states, buffer)
        self.read = dict(found.read_through)
        for journal in JOURNALS:
            del self.seen[journal][self.counts[journal][self.read[journal]] :]

    @rule(seed=st.integers(0, 2**32), count=st.integers(5, 40))
    def mingle(self, seed: int, count: int) -> None:
        """Many of the above at once, in an order of chance."""
        chance = random.Random(seed)
        for _ in range(count):
            journal, producer = chance.choice(JOURNALS), chance.choice(PRODUCERS)
            flags = chance.choices([OUTSIDE, CONTINUE, ACK], [1, 8, 2])[0]
            self.clock += 1
            self.write(journal, producer, self.clock - chance.choice([0] * 9 + [3]), flags)
            self.catch_up(chance.choice(JOURNALS), chance.randint(1, 3))
            if chance.random() < 0.1:
                self.save()
            if chance.random() < 0.1:
                self.restart(chance.choice([1, 3, 9]))

    @invariant()
    def nothing_is_known_of_producers_that_have_ended(self) -> None:
        assert all(s.last_ack or s.begin >= 0 for s in self.sequencer.producer_states())

    @invariant()
    def the_same_comes_out(self) -> None:
        type(self).steps += 1
        for journal in JOURNALS:
            count = self.counts[journal][self.read[journal]]
            assert self.seen[journal] == self.expected[journal][:count]

    def teardown(self) -> None:
        for journal in JOURNALS:
            self.catch_up(journal, len(self.written[journal]))
        self.the_same_comes_out()


def test_the_sequencer_does_what_the_model_says() -> None:
    Machine.steps = 0
    run = Machine.TestCase()
    run.settings = settings(
        max_examples=125,
        stateful_step_count=100,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
        phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    )
    run.runTest()
    assert Machine.steps >= STEPS
