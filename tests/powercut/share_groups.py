"""A share group and its broker, and what must be true after a power cut.

``python -m tests.powercut.share_groups FOLDER always`` (or ``interval`` or ``never``) writes records, which a member
of the group accepts, rejects and releases.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from kafka_wire import ShareGroupDescribeRequest, ShareGroupHeartbeatRequest

from krammar.broker import Broker
from tests.broker.requests import batch, create_topic, list_offset, produce
from tests.broker.share.support import ACCEPT, GROUP, OK, REJECT, RELEASE, Member, configure
from tests.broker.support import RawClient
from tests.powercut.disk import State

STEPS = 5
EACH = 4


def _start(folder: Path, fsync: str) -> Broker:
    return Broker.start(
        data_dir=folder,
        properties={
            "krammar.fsync": fsync,
            "krammar.fsync.interval.ms": "20",
            "log.segment.delete.delay.ms": "0",
            # Few folders, and snapshots that come often.
            "offsets.topic.num.partitions": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "share.coordinator.snapshot.update.records.per.snapshot": "3",
            "share.coordinator.state.topic.prune.interval.ms": "10",
        },
    )


def _say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    folder, fsync = Path(sys.argv[1]), sys.argv[2]
    with _start(folder, fsync) as broker, RawClient(broker.port) as client:
        configure(broker, auto_offset_reset="earliest")
        create_topic(client, "t")
        _say("topic")
        heartbeat = ShareGroupHeartbeatRequest(
            group_id=GROUP, member_id="member", subscribed_topic_names=["t"]
        )
        assert client.call(heartbeat).error_code == OK
        _say("joined")
        _run(broker, client, range(STEPS - 1))
    # Another start, which loads the states.
    with _start(folder, fsync) as broker, RawClient(broker.port) as client:
        _run(broker, client, range(STEPS - 1, STEPS))


def _run(broker: Broker, client: RawClient, steps: range) -> None:
    member = Member(client, broker.cluster.topics["t"].topic_id)
    for step in steps:
        answer = produce(client, "t", batch(*(b"%d" % (step * EACH + at) for at in range(EACH))))
        assert answer.error_code == OK
        _say(f"record {step * EACH + EACH - 1}")
        for first, last, deliveries in member.acquire():
            for at in range(first, last + 1):
                # The record that is released comes again, and is accepted then.
                kind = (ACCEPT, REJECT, RELEASE, ACCEPT)[at % 4] if deliveries == 1 else ACCEPT
                _say(f"try {at}" if kind != RELEASE else f"release {at}")
                assert member.acknowledge((at, at, kind)) == OK
                _say(f"done {at}" if kind != RELEASE else f"released {at}")


def problems(folder: Path, state: State, *, fsync: str) -> Iterator[str]:
    """Yield what contradicts docs/durability.md if the broker starts after a power cut."""
    told: dict[str, list[int]] = {}
    for mark in state.marks:
        word, _, number = mark.partition(" ")
        told.setdefault(word, []).append(int(number or 0))
    with _start(folder, fsync) as broker, RawClient(broker.port) as client:
        if "t" not in broker.cluster.topics:
            if "topic" in told:
                yield "topic t is lost"
            return
        end = list_offset(client, "t", -1).offset
        if fsync == "always" and end <= max(told.get("record", [-1])):
            yield f"the records from {end} on are lost"
        if "joined" in told and fsync == "always":
            (group,) = client.call(ShareGroupDescribeRequest(group_ids=[GROUP])).groups
            if group.error_code != OK or not group.members:
                yield f"the group is lost: {group}"
        tried, done = set(told.get("try", [])), set(told.get("done", []))
        # The configuration of the group is metadata, which is always forced to the disk.
        member = Member(client, broker.cluster.topics["t"].topic_id, "another")
        found = _all(member)
        if lost := set(range(end)) - tried - found.keys():
            yield f"the group never gets {sorted(lost)}"
        if fsync == "always":
            if again := done & found.keys():
                yield f"the group gets {sorted(again)} again"
            for at in told.get("released", []):
                if at in found and found[at] < 2:
                    yield f"{at} was released, and comes as if for the first time"
        yield from _continues(client, member, max(tried, default=-1))


def _all(member: Member) -> dict[int, int]:
    """Accept all records that the group gets. Returns their deliveries."""
    found: dict[int, int] = {}
    while acquired := member.acquire():
        for first, last, deliveries in acquired:
            found |= dict.fromkeys(range(first, last + 1), deliveries)
            code = member.acknowledge((first, last, ACCEPT))
            assert code == OK, code
    return found


def _continues(client: RawClient, member: Member, last_tried: int) -> Iterator[str]:
    """Yield whether a new record does not reach the group."""
    answer = produce(client, "t", batch(b"new"))
    if answer.error_code != OK:
        yield f"no record can be written: {answer}"
        return
    found = _all(member)
    # If the partition has lost records with which the group was done, it goes on after them, as Kafka does.
    if list(found) != [answer.base_offset] and answer.base_offset > last_tried:
        yield f"the group gets {found} instead of the new record {answer.base_offset}"


if __name__ == "__main__":
    main()
