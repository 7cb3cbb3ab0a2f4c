"""Random scenarios of producers that follow the protocol, with restarts and horizons, against a model that has
no sequencer: a transaction comes out when it is acknowledged, whole and once."""

from __future__ import annotations

import random
from datetime import timedelta

from krammar.journal import ProducerID
from tests.journal.streams import ACK, CONTINUE, OUTSIDE, Stream

SCENARIOS = 2_000
SECOND = 10_000_000 << 4


class Writer:
    """A producer that follows the protocol; ``open`` are the texts that it has not acknowledged."""

    def __init__(self, number: int, ahead: int) -> None:
        self.producer = ProducerID(bytes([1, 0, 0, 0, 0, number]))
        self.ahead = ahead
        self.clock = 0
        self.last_ack = 0
        self.sent: list[tuple[int, str]] = []
        self.open: list[str] = []

    def at(self, now: int) -> int:
        self.clock = max(self.clock + 1, now + self.ahead)
        return self.clock


def scenario(seed: int) -> list[str]:
    """What came out other than it should."""
    chance = random.Random(seed)
    stream = Stream(buffer=chance.choice([1, 3, 100]))
    horizon = timedelta(seconds=chance.choice([1, 1, 60, 7 * 86400]))
    writers = [
        Writer(n, chance.choice([0, 0, 0, 5 * SECOND, 8 * 86400 * SECOND]))
        for n in range(chance.randint(2, 4))
    ]
    now = 10**8 * SECOND
    wrong = []
    for step in range(chance.randint(20, 60)):
        now += chance.choice([1, SECOND // 100, SECOND // 2, 3 * SECOND])
        w = chance.choice(writers)
        text = f"{seed}-{step}"
        expected = ""
        kind = chance.choices(
            ("continue", "duplicate", "ack", "roll back", "outside", "restart", "states", "end"),
            (8, 2, 3, 1, 2, 2, 2, 1),
        )[0]
        if kind == "continue":
            clock = w.at(now)
            w.sent.append((clock, text))
            w.open.append(text)
            came = stream.write(w.producer, clock, CONTINUE, text)
        elif kind == "duplicate" and w.sent:
            # An append that was repeated, of the open transaction.
            clock, text = chance.choice(w.sent)
            came = stream.write(w.producer, clock, CONTINUE, text)
        elif kind == "ack":
            expected = " ".join(w.open)
            w.last_ack = w.at(now)
            w.open, w.sent = [], []
            came = stream.write(w.producer, w.last_ack, ACK)
        elif kind == "roll back" and w.last_ack:
            w.open, w.sent = [], []
            came = stream.write(w.producer, w.last_ack, ACK)
        elif kind == "outside" and not w.open:
            w.last_ack = w.at(now)
            expected = text
            came = stream.write(w.producer, w.last_ack, OUTSIDE, text)
        elif kind == "end" and not w.open:
            w.last_ack = 0
            came = stream.write(w.producer, 0, ACK)
        elif kind == "restart":
            stream.restart(chance.choice([1, 3, 100]))
            continue
        elif kind == "states":
            stream.sequencer.producer_states(horizon)
            continue
        else:
            continue
        if came != expected:
            wrong.append(f"scenario {seed}, step {step}, {kind}: {came!r}, not {expected!r}")
    return wrong


def test_transactions_of_producers_that_follow_the_protocol() -> None:
    assert [wrong for seed in range(SCENARIOS) for wrong in scenario(seed)] == []
