"""Share groups (KIP-932): their members, and their start offsets.

ShareGroupHeartbeat, v1, and ShareGroupDescribe, v1. Version 0 was a preview of Kafka 4.0.

DescribeShareGroupOffsets, v0 to v1: v1 has the lag (KIP-1226).

AlterShareGroupOffsets, v0, and DeleteShareGroupOffsets, v0.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

import kafka_wire as kw

from krammar.authorization.operations import NOT_ASKED
from krammar.broker.errors import ApiError, errors_in
from krammar.broker.groups.host import GroupClient
from krammar.broker.groups.member import by_topic
from krammar.broker.groups.share_group import ShareGroup, ShareMember
from krammar.broker.metadata_records import SHARE_VERSION
from krammar.broker.session import GROUP_OPERATIONS
from krammar.broker.share.dead_letters import DEAD_LETTERS, DeadLetters
from krammar.broker.share.records import UNKNOWN
from krammar.broker.share.state import ShareStates
from krammar.util.turns import Steps

if TYPE_CHECKING:
    from krammar.broker.cluster import ClusterMetadata, Topic
    from krammar.broker.groups.coordinator import GroupCoordinator
    from krammar.broker.session import Session
    from krammar.broker.topics import Topics

# An error and its text, for partitions of topics that do not exist.
_NO_TOPIC = ApiError(
    kw.ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition."
)

_NO_OFFSETS = ApiError(
    kw.ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is no offset information to delete."
)


@dataclass(eq=False)
class ShareGroupHandlers:
    cluster: ClusterMetadata
    topics: Topics
    groups: GroupCoordinator
    share_states: ShareStates
    dead_letters: DeadLetters

    def share_group_heartbeat(
        self, session: Session, request: kw.ShareGroupHeartbeatRequest, version: int
    ) -> kw.ShareGroupHeartbeatResponse:
        response = kw.ShareGroupHeartbeatResponse()
        with errors_in(response):
            self._check_enabled(request.group_id)
            client = GroupClient(session.client_id or "", f"/{session.host}", version)
            return self.groups.share_heartbeat(request, client)
        return response

    def _check_enabled(self, group_id: str) -> None:
        """Raise ApiError if the cluster's features leave share groups off.

        A folder without a level of the feature, such as every new one, gets it with the first
        request: Kafka 4.0 does not know the feature, and could not read the folder before. A group
        with a dead-letter topic raises it, because Kafka 4.3 does not know level 2.
        """
        level = self.cluster.features.get(SHARE_VERSION)
        if level == 0:
            raise ApiError(kw.ErrorCode.UNSUPPORTED_VERSION)
        wanted = DEAD_LETTERS if self.dead_letters.wants(group_id) else 1
        if level is None or level < wanted:
            self.cluster.append([kw.FeatureLevelRecord(name=SHARE_VERSION, feature_level=wanted)])

    def share_group_describe(
        self, session: Session, request: kw.ShareGroupDescribeRequest, version: int
    ) -> Steps[kw.ShareGroupDescribeResponse]:
        operations = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
        groups = []
        for group_id in dict.fromkeys(request.group_ids):
            described = kw.ShareGroupDescribeResponse.DescribedGroup(group_id=group_id)
            groups.append(described)
            with errors_in(described):
                group = self.groups.share_offsets.named(group_id)
                described.group_state = group.state.value
                described.group_epoch = group.group_epoch
                described.assignment_epoch = group.assignment_epoch
                described.assignor_name = group.assignor
                described.members = [self._described(each) for each in group.members.values()]
                described.authorized_operations = operations
            yield None
        return kw.ShareGroupDescribeResponse(groups=groups)

    def _described(self, member: ShareMember) -> kw.ShareGroupDescribeResponse.Member:
        """Describe a member. Partitions of deleted topics have no name, and are left out."""
        topics = self.cluster.topics_by_id
        return kw.ShareGroupDescribeResponse.Member(
            member_id=member.member_id,
            rack_id=member.rack_id,
            member_epoch=member.epoch,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=[*member.topics],
            assignment=kw.ShareGroupDescribeResponse.Assignment(
                topic_partitions=[
                    kw.ShareGroupDescribeResponse.TopicPartitions(
                        topic_id=topic_id, topic_name=topics[topic_id].name, partitions=numbers
                    )
                    for topic_id, numbers in by_topic(member.assigned).items()
                    if topic_id in topics
                ]
            ),
        )

    # -- start offsets

    def describe_share_group_offsets(
        self, session: Session, request: kw.DescribeShareGroupOffsetsRequest, version: int
    ) -> Steps[kw.DescribeShareGroupOffsetsResponse]:
        response = kw.DescribeShareGroupOffsetsResponse()
        for asked in request.groups:
            described = kw.DescribeShareGroupOffsetsResponse.Group(group_id=asked.group_id)
            response.groups.append(described)
            with errors_in(described):
                if asked.topics is None:
                    wanted = self._initialized(asked.group_id)
                else:
                    wanted = [(each.topic_name, each.partitions) for each in asked.topics]
                for name, numbers in wanted:
                    topic = yield from self._describe(asked.group_id, name, numbers)
                    described.topics.append(topic)
        return response

    def _initialized(self, group_id: str) -> list[tuple[str, list[int]]]:
        """Return the topics of a share group with a position, and the partitions; none if it does not exist."""
        group = self.groups.find(group_id)
        if not isinstance(group, ShareGroup):
            return []
        topics = self.cluster.topics_by_id
        return [
            (topics[topic_id].name, sorted(each.partitions))
            for topic_id, each in group.initialized.items()
            if topic_id in topics
        ]

    def _describe(
        self, group_id: str, name: str, numbers: Iterable[int]
    ) -> Steps[kw.DescribeShareGroupOffsetsResponse.Topic]:
        topic = self.cluster.topics.get(name)
        described = kw.DescribeShareGroupOffsetsResponse.Topic(topic_name=name)
        if topic is not None:
            described.topic_id = topic.topic_id
        for number in numbers:
            found = kw.DescribeShareGroupOffsetsResponse.Partition(
                partition_index=number, start_offset=UNKNOWN
            )
            described.partitions.append(found)
            with errors_in(found):
                stored = None
                if topic is not None:  # as in Kafka, others only have no position
                    stored = self.share_states.read_summary(group_id, topic.topic_id, number)
                if stored is not None:
                    found.start_offset = stored.state.start_offset
                    found.leader_epoch = stored.leader_epoch
                    end = self.topics.end_offset(name, number)
                    complete = stored.state.delivery_complete_count
                    if UNKNOWN not in (end, complete, found.start_offset):
                        # Negative beyond the end, as in Kafka.
                        found.lag = end - found.start_offset - complete
            yield None
        return described

    def alter_share_group_offsets(
        self, session: Session, request: kw.AlterShareGroupOffsetsRequest, version: int
    ) -> Steps[kw.AlterShareGroupOffsetsResponse]:
        response = kw.AlterShareGroupOffsetsResponse()
        offsets: list[tuple[Topic, int, int]] = []
        changed: list[kw.AlterShareGroupOffsetsResponse.Partition] = []
        for asked in request.topics:
            topic = self.cluster.topics.get(asked.topic_name)
            result = kw.AlterShareGroupOffsetsResponse.Topic(topic_name=asked.topic_name)
            response.responses.append(result)
            if topic is not None:
                result.topic_id = topic.topic_id
            for each in asked.partitions:
                number = each.partition_index
                partition = kw.AlterShareGroupOffsetsResponse.Partition(partition_index=number)
                result.partitions.append(partition)
                if topic is None or number not in topic.partitions:
                    _NO_TOPIC.put_into(partition)
                else:
                    offsets.append((topic, number, each.start_offset))
                    changed.append(partition)
                yield None
        try:
            errors = yield from self.groups.share_offsets.resetting(request.group_id, offsets)
        except ApiError as error:
            return kw.AlterShareGroupOffsetsResponse(
                error_code=error.code, error_message=error.message
            )
        for partition, problem in zip(changed, errors, strict=True):
            if problem is not None:
                problem.put_into(partition)
        return response

    def delete_share_group_offsets(
        self, session: Session, request: kw.DeleteShareGroupOffsetsRequest, version: int
    ) -> Steps[kw.DeleteShareGroupOffsetsResponse]:
        response = kw.DeleteShareGroupOffsetsResponse()
        known: dict[UUID, Topic] = {}
        for asked in request.topics:
            topic = self.cluster.topics.get(asked.topic_name)
            if topic is None:
                result = kw.DeleteShareGroupOffsetsResponse.Topic(topic_name=asked.topic_name)
                _NO_TOPIC.put_into(result)
                response.responses.append(result)
            else:
                known[topic.topic_id] = topic
            yield None
        try:
            deleted = yield from self.groups.share_offsets.forgetting(
                request.group_id, known.values()
            )
        except ApiError as error:
            return kw.DeleteShareGroupOffsetsResponse(
                error_code=error.code, error_message=error.message
            )
        for each in known.values():
            result = kw.DeleteShareGroupOffsetsResponse.Topic(topic_name=each.name)
            response.responses.append(result)
            if each in deleted:
                result.topic_id = each.topic_id
            else:
                _NO_OFFSETS.put_into(result)
        return response
