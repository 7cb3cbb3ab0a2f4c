"""Patterns of consumer groups match no topic that a member may not describe, over sockets."""

from __future__ import annotations

from typing import Any

import kafka_wire as kw
import pytest

from krammar.testing import KafkaBroker
from tests.authorization.support import log_in

pytest.importorskip("re2")

_RULES: list[dict[str, Any]] = [
    {"allow": "alice", "operation": "all", "group": "*"},
    {"allow": "bob", "operation": "all", "group": "*"},
    {"allow": "alice", "operation": "describe", "topic": "t-open*"},
    {"allow": "bob", "operation": "all", "topic": "*"},
]


class Member:
    """A member of the group ``g`` that subscribes to the topics ``t-…``."""

    def __init__(self, broker: KafkaBroker, user: str) -> None:
        self.broker, self.user, self.epoch = broker, user, 0
        self.client = log_in(int(broker.bootstrap_servers.rpartition(":")[2]), user)
        self.owned: list[Any] = []

    def heartbeat(self) -> None:
        """Send a heartbeat, and take over the assignment of the response."""
        joins = self.epoch == 0
        response = self.client.call(
            kw.ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id=self.user,
                member_epoch=self.epoch,
                rebalance_timeout_ms=10_000 if joins else -1,
                subscribed_topic_names=[] if joins else None,
                subscribed_topic_regex="t-.*" if joins else None,
                topic_partitions=self.owned,
            )
        )
        assert response.error_code == 0, response
        self.epoch = response.member_epoch
        if response.assignment is not None:
            kind = kw.ConsumerGroupHeartbeatRequest.TopicPartitions
            self.owned = [
                kind(topic_id=each.topic_id, partitions=each.partitions)
                for each in response.assignment.topic_partitions
            ]

    def topics(self) -> set[str]:
        """The topics that the member gets when nothing changes any more."""
        for _ in range(4):
            self.heartbeat()
        request = kw.ConsumerGroupDescribeRequest(group_ids=["g"])
        with log_in(int(self.broker.bootstrap_servers.rpartition(":")[2]), "bob") as client:
            (group,) = client.call(request).groups
        assert not group.error_code, group
        return {
            part.topic_name
            for member in group.members
            if member.member_id == self.user
            for part in member.assignment.topic_partitions
        }


@pytest.fixture
def broker() -> Any:
    with KafkaBroker.start(
        topics=["t-open", "t-secret", "other"],
        sasl="plain",
        plain_any_password=True,
        acls=_RULES,
        group_consumer_assignment_interval_ms=0,
    ) as broker:
        yield broker


def test_a_member_gets_no_topic_that_it_may_not_describe(broker: KafkaBroker) -> None:
    alice = Member(broker, "alice")
    assert alice.topics() == {"t-open"}
    broker.create_topic("t-open-2", 1)
    broker.create_topic("t-secret-2", 1)
    assert alice.topics() == {"t-open", "t-open-2"}


def test_a_new_right_adds_topics_and_a_lost_one_removes_them(broker: KafkaBroker) -> None:
    alice = Member(broker, "alice")
    assert alice.topics() == {"t-open"}
    broker.allow("alice", "describe", topic="t-secret")
    assert alice.topics() == {"t-open", "t-secret"}
    broker.deny("alice", topic="t-open")
    assert alice.topics() == {"t-secret"}


def test_who_may_describe_all_topics_gets_those_that_match(broker: KafkaBroker) -> None:
    assert Member(broker, "bob").topics() == {"t-open", "t-secret"}


def test_the_end_of_a_member_matches_nothing_anew(broker: KafkaBroker) -> None:
    """It has no rights that could be asked for."""
    alice, bob = Member(broker, "alice"), Member(broker, "bob")
    assert alice.topics() == {"t-open"}
    bob.heartbeat()
    broker.create_topic("t-secret-2", 1)
    bob.client.call(
        kw.ConsumerGroupHeartbeatRequest(group_id="g", member_id="bob", member_epoch=-1)
    )
    assert alice.topics() == {"t-open"}
