"""A broker process that is killed again and again: acknowledged records are not delivered again, and no others are lost."""

from __future__ import annotations

import random
from pathlib import Path

from tests.broker.requests import batch, create_topic, produce
from tests.broker.share.support import ACCEPT, OK, REJECT, RELEASE, Member, begin_early
from tests.broker.support import BrokerProcess, RawClient

# share.delivery.count.limit: a record that is released after so many deliveries is archived.
MOST = 5


def deliveries(acquired: list[tuple[int, int, int]]) -> dict[int, int]:
    """The deliveries of each record, by offset."""
    return {at: count for first, last, count in acquired for at in range(first, last + 1)}


def test_kills_lose_and_repeat_nothing(tmp_path: Path) -> None:
    source = random.Random(7)
    count = 60
    finished: set[int] = set()
    topic = None
    for _ in range(12):
        with BrokerProcess(["--data-dir", tmp_path, "--port", "0"]) as broker:
            with RawClient(broker.port) as client:
                if topic is None:
                    begin_early(client)
                    topic = create_topic(client, "t")
                    for _ in range(count // 4):
                        assert produce(client, "t", batch(*[b"v"] * 4)).error_code == 0
                member = Member(client, topic)
                for _ in range(3):
                    acquired = member.acquire(
                        max_records=source.randint(1, 8), share_acquire_mode=1
                    )
                    counts = deliveries(acquired)
                    assert not finished & counts.keys()
                    types = {at: source.choice([ACCEPT, REJECT, RELEASE]) for at in counts}
                    chosen = [at for at in counts if source.random() < 0.8]
                    if chosen:
                        assert member.acknowledge(*((at, at, types[at]) for at in chosen)) == OK
                        finished |= {
                            at for at in chosen if types[at] != RELEASE or counts[at] == MOST
                        }
            broker.kill()
    assert topic is not None
    left: set[int] = set()
    with (
        BrokerProcess(["--data-dir", tmp_path, "--port", "0"]) as broker,
        RawClient(broker.port) as client,
    ):
        member = Member(client, topic)
        while acquired := member.acquire():
            assert not finished & deliveries(acquired).keys()
            left |= deliveries(acquired).keys()
            acks = [(first, last, ACCEPT) for first, last, _ in acquired]
            assert member.acknowledge(*acks) == OK
    assert finished | left == set(range(count))
    assert finished
