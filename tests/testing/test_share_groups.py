"""The share groups of a broker in a test: the state of each record."""

from __future__ import annotations

import pytest

from krammar.testing import KafkaBroker, ShareRecord
from tests.broker.requests import create_topic
from tests.broker.share.support import ACCEPT, GROUP, OK, REJECT, RELEASE, Member
from tests.broker.support import RawClient


@pytest.mark.parametrize("process", [False, True])
def test_each_record_has_a_state(process: bool) -> None:
    with KafkaBroker.start(process=process) as broker:
        assert broker.share_groups == {}
        port = int(broker.bootstrap_servers.rpartition(":")[2])
        with RawClient(port) as client:
            member = Member(client, create_topic(client, "t"))
            assert member.acquire() == []
            broker.produce("t", [b"1", b"2", b"3", b"4", b"5"])
            assert member.acquire(max_records=4) == [(0, 3, 1)]
            assert member.acknowledge((1, 3, ACCEPT, REJECT, RELEASE)) == OK
            (partition,) = broker.share_groups[GROUP].partitions.values()
            first, *others = partition.records
            assert partition.start_offset == 0
            assert (first.state, first.deliveries, first.member_id) == ("acquired", 1, "member")
            assert first.locked_until is not None
            assert others == [
                ShareRecord("t", 0, 1, "acknowledged", 1),
                ShareRecord("t", 0, 2, "archived", 1),
                ShareRecord("t", 0, 3, "available", 1),
            ]
            group = broker.share_groups[GROUP]
            assert group.records("t", state="acquired") == [first]
            broker.advance_clock(30_000)
            broker.wait_until(lambda: not broker.share_groups[GROUP].records("t", state="acquired"))
            # The end of the session has the broker forget the partition: its state is stored.
            assert member.ask(epoch=-1).error_code == OK
            states = [each.state for each in broker.share_groups[GROUP].records("t")]
            assert states == ["available", "acknowledged", "archived", "available"]
