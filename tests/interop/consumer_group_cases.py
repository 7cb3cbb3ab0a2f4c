"""What a broker says to consumer groups (KIP-848): heartbeats, descriptions, commits, and migrations from and
to classic groups."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kafka_wire import (
    AlterConfigOp,
    ConfigResourceType,
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    IncrementalAlterConfigsRequest,
    ListConfigResourcesRequest,
    ListGroupsRequest,
)

from tests.interop.group_cases import (
    Case,
    Talk,
    beat,
    commit,
    delete_offsets,
    fetch,
    join,
    join_request,
    leave,
    stable,
    sync_request,
)

CONSUMER_CASES: dict[str, Case] = {}
A, B, C = (str(UUID(int=2**127 + n)) for n in (1, 2, 3))
ALL = (0, 1)


def case(function: Case) -> Case:
    CONSUMER_CASES[function.__name__] = function
    return function


def heartbeat(
    group: str,
    member: str,
    epoch: int,
    owned: tuple[UUID, tuple[int, ...]] | None = None,
    **changes: Any,
) -> ConsumerGroupHeartbeatRequest:
    """A heartbeat; ``owned`` is the topic and the partitions that the member says it owns."""
    if owned is not None:
        topic, partitions = owned
        changes["topic_partitions"] = [
            ConsumerGroupHeartbeatRequest.TopicPartitions(topic_id=topic, partitions=[*partitions])
        ]
    return ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, **changes
    )


def joining(group: str, member: str, **changes: Any) -> ConsumerGroupHeartbeatRequest:
    """Build the first heartbeat of a member that subscribes to the topic t."""
    return heartbeat(
        group,
        member,
        0,
        **{
            "rebalance_timeout_ms": 30_000,
            "topic_partitions": [],
            "subscribed_topic_names": ["t"],
            **changes,
        },
    )


def describe(talk: Talk, *groups: str) -> None:
    for version in (0, 1):
        talk.say(ConsumerGroupDescribeRequest(group_ids=[*groups]), version)


@case
def refused_heartbeats(talk: Talk, topic_id: UUID) -> None:
    group = "848-refused"
    for version in (0, 1):
        talk.say(heartbeat("", A, 1), version)
        talk.say(heartbeat(group, "", 1), version)
        talk.say(heartbeat(group, "", -1), version)
        talk.say(heartbeat(group, A, -2), version)
        talk.say(heartbeat(group, "", -2, instance_id="i"), version)
        talk.say(heartbeat(group, A, -3), version)
        talk.say(heartbeat(group, A, 1), version)
        talk.say(heartbeat(group, A, -1), version)
        talk.say(joining(group, A, rebalance_timeout_ms=-1), version)
        talk.say(joining(group, A, topic_partitions=None), version)
        talk.say(joining(group, A, owned=(topic_id, (0,))), version)
        talk.say(joining(group, A, subscribed_topic_names=None), version)
        talk.say(joining(group, A, instance_id=""), version)
        talk.say(joining(group, A, rack_id=" "), version)
        talk.say(joining(group, A, server_assignor="mine"), version)
        talk.say(joining("  ", A), version)
    talk.say(joining(group, ""), 1)
    describe(talk, group)


@case
def one_member(talk: Talk, topic_id: UUID) -> None:
    group = "848-one"
    talk.say(joining(group, A), 1)
    describe(talk, group)
    talk.say(heartbeat(group, A, 2), 1)
    talk.say(heartbeat(group, A, 2, owned=(topic_id, ALL)), 1)
    talk.say(heartbeat(group, A, 1), 1)
    talk.say(heartbeat(group, A, 3), 1)
    talk.say(heartbeat(group, B, 2), 1)
    talk.say(heartbeat(group, A, 2, subscribed_topic_names=["t"]), 1)
    talk.say(heartbeat(group, A, 2, subscribed_topic_names=["nothing"]), 1)
    talk.say(heartbeat(group, A, 2, owned=(topic_id, ALL)), 1)
    describe(talk, group)
    talk.say(heartbeat(group, A, 2, topic_partitions=[]), 1)
    talk.say(heartbeat(group, A, 3), 1)
    talk.say(heartbeat(group, A, 3, subscribed_topic_names=["t", "nothing"], rack_id="r"), 1)
    talk.say(
        heartbeat(
            group, A, 4, owned=(topic_id, ALL), rebalance_timeout_ms=5, subscribed_topic_names=["t"]
        ),
        1,
    )
    # The response with the new epoch was lost.
    talk.say(heartbeat(group, A, 4, owned=(topic_id, ALL)), 1)
    talk.say(heartbeat(group, A, 4, owned=(topic_id, (0, 5))), 1)
    talk.say(joining(group, A), 1)
    describe(talk, group)
    talk.say(heartbeat(group, A, -1), 1)
    describe(talk, group)
    talk.say(joining(group, A), 1)
    describe(talk, group)
    talk.say(heartbeat(group, A, -1), 1)


@case
def two_members(talk: Talk, topic_id: UUID) -> None:
    group = "848-two"
    talk.say(joining(group, A), 1)
    talk.say(joining(group, B), 1)
    describe(talk, group)
    talk.say(heartbeat(group, B, 3), 1)
    talk.say(heartbeat(group, A, 2), 1)
    describe(talk, group)
    talk.say(heartbeat(group, A, 2, owned=(topic_id, ALL)), 1)
    talk.say(heartbeat(group, B, 3), 1)
    talk.say(heartbeat(group, A, 2, owned=(topic_id, (0,))), 1)
    talk.say(heartbeat(group, B, 3), 1)
    talk.say(heartbeat(group, B, 3), 1)
    talk.say(heartbeat(group, A, 3), 1)
    describe(talk, group)
    talk.say(heartbeat(group, A, -1), 1)
    talk.say(heartbeat(group, B, 3), 1)
    talk.say(heartbeat(group, B, 4), 1)
    describe(talk, group)
    talk.say(heartbeat(group, B, -1), 1)


@case
def range_assignor(talk: Talk, topic_id: UUID) -> None:
    group = "848-range"
    talk.say(joining(group, B, server_assignor="range"), 1)
    describe(talk, group)
    talk.say(joining(group, A, server_assignor="range"), 1)
    talk.say(heartbeat(group, B, 2, owned=(topic_id, ALL)), 1)
    talk.say(heartbeat(group, B, 2, owned=(topic_id, (1,))), 1)
    talk.say(heartbeat(group, A, 3), 1)
    describe(talk, group)
    talk.say(heartbeat(group, A, 3, server_assignor="uniform"), 1)
    describe(talk, group)
    for member in (A, B):
        talk.say(heartbeat(group, member, -1), 1)


@case
def patterns(talk: Talk, topic_id: UUID) -> None:
    group = "848-pattern"
    for pattern in ("(", "[z-a]", "a**", "(?=a)", "\\1"):
        response = talk.client.call(
            joining(group, A, subscribed_topic_names=None, subscribed_topic_regex=pattern), 1
        )
        talk.heard.append((pattern, response.error_code))
    request = joining(group, A, subscribed_topic_names=None, subscribed_topic_regex="t|nothing")
    response = talk.client.call(request, 1)
    # Kafka resolves patterns in the background.
    while response.member_epoch < 2:
        response = talk.client.call(heartbeat(group, A, response.member_epoch), 1)
    describe(talk, group)
    talk.say(heartbeat(group, A, 2, subscribed_topic_regex="t|nothing"), 1)
    talk.say(heartbeat(group, A, 2, subscribed_topic_regex="", topic_partitions=[]), 1)
    talk.say(heartbeat(group, A, -1), 1)
    talk.say(joining(group, A, subscribed_topic_names=[]), 1)
    talk.say(joining(group, B, subscribed_topic_names=None, subscribed_topic_regex=""), 1)
    describe(talk, group)
    for member in (A, B):
        talk.say(heartbeat(group, member, -1), 1)


@case
def static_members(talk: Talk, topic_id: UUID) -> None:
    group = "848-static"
    talk.say(joining(group, A, instance_id="i"), 1)
    talk.say(joining(group, A, instance_id="i"), 1)
    talk.say(joining(group, B, instance_id="i"), 1)
    talk.say(heartbeat(group, A, 2, instance_id="i"), 1)
    talk.say(heartbeat(group, A, 2, instance_id="j"), 1)
    talk.say(heartbeat(group, B, 2, instance_id="i"), 1)
    talk.say(heartbeat(group, A, 1, instance_id="i"), 1)
    talk.say(heartbeat(group, B, -2, instance_id="i"), 1)
    talk.say(heartbeat(group, A, -2, instance_id="j"), 1)
    talk.say(heartbeat(group, A, -2, instance_id="i"), 1)
    describe(talk, group)
    talk.say(heartbeat(group, A, 2, instance_id="i"), 1)
    talk.say(joining(group, B, instance_id="i"), 1)
    describe(talk, group)
    talk.say(heartbeat(group, B, 2, instance_id="i"), 1)
    talk.say(heartbeat(group, A, 2, instance_id="i"), 1)
    talk.say(heartbeat(group, A, -1, instance_id="i"), 1)
    # With another subscription it returns to other partitions.
    talk.say(heartbeat(group, B, -2, instance_id="i"), 1)
    talk.say(joining(group, C, instance_id="i", subscribed_topic_names=["nothing"]), 1)
    describe(talk, group)
    talk.say(heartbeat(group, C, -1, instance_id="i"), 1)
    describe(talk, group)


def commits_of(talk: Talk, group: str, topic_id: UUID, member: str, epoch: int) -> None:
    for version in (8, 9, 10):
        topic = topic_id if version >= 10 else "t"
        for partition in (0, 1):
            talk.say(
                commit(
                    group,
                    {partition: 5},
                    topic,
                    member_id=member,
                    generation_id_or_member_epoch=epoch,
                ),
                version,
            )


@case
def offsets(talk: Talk, topic_id: UUID) -> None:
    group = "848-offsets"
    talk.say(joining(group, A), 1)
    for member, epoch in ((A, 2), (A, 1), (A, 3), (A, -1), (B, 2), ("", -1)):
        commits_of(talk, group, topic_id, member, epoch)
        for version in (8, 9, 10):
            topic = topic_id if version >= 10 else "t"
            who = {"member_id": member or None, "member_epoch": epoch} if version >= 9 else {}
            talk.say(fetch(version, group, topic, **who), version)
    talk.say(joining(group, B), 1)
    talk.say(heartbeat(group, A, 2), 1)
    commits_of(talk, group, topic_id, A, 2)
    talk.say(heartbeat(group, A, 2, owned=(topic_id, (0,))), 1)
    # The member may commit partitions that it has owned since the epoch of the commit.
    commits_of(talk, group, topic_id, A, 2)
    talk.say(heartbeat(group, B, 3), 1)
    commits_of(talk, group, topic_id, A, 2)
    commits_of(talk, group, topic_id, B, 2)
    talk.say(fetch(9, group, "t", member_id=A, member_epoch=2), 9)
    talk.say(delete_offsets(group, "t", 0), 0)
    both = {"member_id": A, "generation_id_or_member_epoch": 2}
    talk.say(commit(group, {0: 1, 1: 1}, **both), 9)
    talk.say(joining(group, A), 1)
    for member in (A, B):
        talk.say(heartbeat(group, member, -1), 1)
    commits_of(talk, group, topic_id, "", -1)
    commits_of(talk, group, topic_id, A, 3)
    talk.say(delete_offsets(group, "t", 0, 1), 0)


@case
def administration(talk: Talk, topic_id: UUID) -> None:
    group = "848-administration"
    describe(talk, group)
    talk.say(joining(group, A), 1)
    stable_group = "848-classic"
    stable(talk, stable_group)
    describe(talk, group, stable_group, "nothing")
    for version in (5, 6):
        talk.say(DescribeGroupsRequest(groups=[group, stable_group]), version)
    for types in ([], ["consumer"], ["Consumer"], ["classic"], ["share"], ["x"]):
        for states in ([], ["stable"], ["STABLE"], ["empty"]):
            response = talk.client.call(
                ListGroupsRequest(types_filter=types, states_filter=states), 5
            )
            response.groups = [g for g in response.groups if g.group_id in (group, stable_group)]
            talk.note(ListGroupsRequest(), 5, response)
    talk.say(DeleteGroupsRequest(groups_names=[group]), 2)
    talk.say(heartbeat(group, A, -1), 1)
    describe(talk, group)
    talk.say(DeleteGroupsRequest(groups_names=[group]), 2)
    describe(talk, group)


@case
def classic_requests_to_consumer_members(talk: Talk, topic_id: UUID) -> None:
    group = "848-mixed-up"
    talk.say(joining(group, A), 1)
    who = type("Joined", (), {"member_id": A, "generation_id": 2})
    talk.say(beat(group, who), 4)
    talk.say(sync_request(group, who), 5)
    talk.say(leave(group, (A, None)), 5)
    talk.say(join_request(group, "", protocol_type="connect"), 9)
    talk.say(join_request(group, "", names=[]), 9)
    talk.say(join_request(group, "nobody"), 9)
    talk.say(heartbeat(group, A, -1), 1)


@case
def upgrade_and_downgrade(talk: Talk, topic_id: UUID) -> None:
    group = "848-upgrade"
    share = _share("t", 0, 1)
    joined = join(talk, group)
    talk.say(sync_request(group, joined, shares={joined.member_id: share}), 5)
    talk.say(heartbeat(group, A, 1), 1)
    talk.say(joining(group, A), 1)
    describe(talk, group)
    talk.say(beat(group, joined), 4)
    # The classic member gives up a partition, which takes two rounds.
    owned = {"owned": [0, 1], "generation_id": joined.generation_id}
    again = talk.say(join_request(group, joined.member_id, **owned), 9)
    talk.say(sync_request(group, again), 5)
    talk.say(beat(group, again), 4)
    describe(talk, group)
    again = talk.say(join_request(group, joined.member_id, owned=[0]), 9)
    talk.say(sync_request(group, again, generation_id=99), 5)
    talk.say(sync_request(group, again, protocol_name="x"), 5)
    talk.say(sync_request(group, again), 5)
    talk.say(beat(group, again), 4)
    talk.say(heartbeat(group, A, 2), 1)
    describe(talk, group)
    for version in (8, 9):
        me = {"member_id": joined.member_id}
        talk.say(
            commit(group, {0: 1}, generation_id_or_member_epoch=again.generation_id, **me), version
        )
        talk.say(commit(group, {0: 1}, generation_id_or_member_epoch=7, **me), version)
    talk.say(join_request(group, names=["other"]), 9)
    talk.say(heartbeat(group, A, -1), 1)
    talk.say(DescribeGroupsRequest(groups=[group]), 6)
    describe(talk, group)
    talk.say(beat(group, again), 4)
    again = talk.say(join_request(group, joined.member_id), 9)
    talk.say(sync_request(group, again, shares={joined.member_id: share}), 5)
    talk.say(DescribeGroupsRequest(groups=[group]), 6)
    talk.say(leave(group, (joined.member_id, None)), 5)
    # An empty group takes either protocol.
    talk.say(joining(group, A), 1)
    describe(talk, group)
    talk.say(heartbeat(group, A, -1), 1)
    stable(talk, group)
    talk.say(DescribeGroupsRequest(groups=[group]), 6)


@case
def no_upgrade_of_other_groups(talk: Talk, topic_id: UUID) -> None:
    group = "848-connect"
    stable(talk, group, protocol_type="connect")
    talk.say(joining(group, A), 1)
    stable(talk, f"{group}-broken")  # its assignment is not a consumer's
    talk.say(joining(f"{group}-broken", A), 1)
    talk.say(DescribeGroupsRequest(groups=[group]), 6)
    talk.say(commit("848-offsets-only", {0: 5}), 9)
    talk.say(joining("848-offsets-only", A), 1)
    talk.say(fetch(9, "848-offsets-only", "t", member_id=A, member_epoch=2), 9)


@case
def group_configs(talk: Talk, topic_id: UUID) -> None:
    kind = ConfigResourceType.GROUP
    for name, configs in (
        ("", {"consumer.session.timeout.ms": "50000"}),
        ("848-configs", {"consumer.session.timeout.ms": "1"}),
        ("848-configs", {"consumer.session.timeout.ms": "x"}),
        ("848-configs", {"consumer.heartbeat.interval.ms": "15001"}),
        ("848-configs", {"consumer.assignment.interval.ms": "-1"}),
        ("848-configs", {"consumer.nothing": "1"}),
        ("848-configs", {"consumer.heartbeat.interval.ms": "6000"}),
        ("848-configs", {"consumer.session.timeout.ms": None}),
    ):
        talk.say(
            IncrementalAlterConfigsRequest(
                resources=[
                    IncrementalAlterConfigsRequest.AlterConfigsResource(
                        resource_type=kind,
                        resource_name=name,
                        configs=[
                            IncrementalAlterConfigsRequest.AlterableConfig(
                                name=key,
                                value=value,
                                config_operation=(
                                    AlterConfigOp.DELETE if value is None else AlterConfigOp.SET
                                ),
                            )
                            for key, value in configs.items()
                        ],
                    )
                ]
            ),
            1,
        )
    for name in ("", "848-configs", "848-none"):
        response = talk.client.call(
            DescribeConfigsRequest(
                resources=[
                    DescribeConfigsRequest.DescribeConfigsResource(
                        resource_type=kind, resource_name=name, configuration_keys=None
                    )
                ],
                include_synonyms=True,
            ),
            4,
        )
        (result,) = response.results
        result.configs = sorted(
            # An internal setting, which Kafka shows if it is set.
            (config for config in result.configs if "offload" not in config.name),
            key=lambda config: config.name,
        )
        talk.note(DescribeConfigsRequest(), 4, response)
    talk.say(ListConfigResourcesRequest(resource_types=[kind]), 1)
    talk.say(joining("848-configs", A), 1)
    talk.say(heartbeat("848-configs", A, -1), 1)


def _share(topic: str, *partitions: int) -> bytes:
    from kafka_wire import ConsumerProtocolAssignment

    return ConsumerProtocolAssignment(
        version=3,
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=topic, partitions=[*partitions])
        ],
    ).encode()
