"""ElectLeaders, AlterPartitionReassignments and ListPartitionReassignments: leaders and replicas of
partitions.

ElectLeaders, v0 to v2 (KIP-183): v1 has unclean elections, and an error of the whole request
(KIP-460).

AlterPartitionReassignments, v0 to v1 (KIP-455): v1 can forbid a change of the number of replicas
(KIP-860).

ListPartitionReassignments, v0 (KIP-455).
"""

from __future__ import annotations

from dataclasses import dataclass

import kafka_wire as kw

from krammar.broker.elections import Elections
from krammar.broker.errors import ApiError, errors_in
from krammar.broker.session import Session
from krammar.util.turns import Steps


@dataclass(eq=False)
class ElectionHandlers:
    elections: Elections

    def elect_leaders(
        self, session: Session, request: kw.ElectLeadersRequest, version: int
    ) -> Steps[kw.ElectLeadersResponse]:
        """Elect leaders. For all partitions, the response lists only those that need an election."""
        listed = request.topic_partitions
        wanted = [(topic.topic, topic.partitions) for topic in listed or ()]
        if listed is None:
            wanted = [(topic.name, list(topic.partitions)) for topic in self.elections.topics]
        response = kw.ElectLeadersResponse()
        kind = request.election_type
        if kind not in (kw.ElectionType.PREFERRED, kw.ElectionType.UNCLEAN):
            response.error_code = kw.ErrorCode.INVALID_REQUEST
        for name, indexes in wanted:
            result = kw.ElectLeadersResponse.ReplicaElectionResult(topic=name)
            for index in indexes:
                answer = kw.ElectLeadersResponse.PartitionResult(
                    partition_id=index, error_message=None
                )
                with errors_in(answer):
                    if response.error_code:
                        raise ApiError(
                            kw.ErrorCode.INVALID_REQUEST, f"Unknown election type {kind}"
                        )
                    place = self.elections.find(name, index)
                    self.elections.elect(*place, unclean=kind == kw.ElectionType.UNCLEAN)
                if listed is not None or answer.error_code != kw.ErrorCode.ELECTION_NOT_NEEDED:
                    result.partition_result.append(answer)
                yield None
            response.replica_election_results.append(result)
        return response

    def alter_partition_reassignments(
        self, session: Session, request: kw.AlterPartitionReassignmentsRequest, version: int
    ) -> Steps[kw.AlterPartitionReassignmentsResponse]:
        allow = request.allow_replication_factor_change
        response = kw.AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=allow, error_message=None
        )
        for topic in request.topics:
            result = kw.AlterPartitionReassignmentsResponse.ReassignableTopicResponse(
                name=topic.name
            )
            for wanted in topic.partitions:
                index = wanted.partition_index
                answer = kw.AlterPartitionReassignmentsResponse.ReassignablePartitionResponse(
                    partition_index=index, error_message=None
                )
                with errors_in(answer):
                    place = self.elections.find(topic.name, index)
                    self.elections.reassign(*place, wanted.replicas, allow_factor_change=allow)
                result.partitions.append(answer)
                yield None
            response.responses.append(result)
        return response

    def list_partition_reassignments(
        self, session: Session, request: kw.ListPartitionReassignmentsRequest, version: int
    ) -> Steps[kw.ListPartitionReassignmentsResponse]:
        """List reassignments that wait for a node. All others have completed at once."""
        wanted = None
        if request.topics is not None:
            wanted = {
                (each.name, index) for each in request.topics for index in each.partition_indexes
            }
        topics: dict[str, kw.ListPartitionReassignmentsResponse.OngoingTopicReassignment] = {}
        for topic, partition in self.elections.all():
            if partition.moving and (wanted is None or (topic.name, partition.index) in wanted):
                found = kw.ListPartitionReassignmentsResponse.OngoingTopicReassignment(
                    name=topic.name
                )
                topics.setdefault(topic.name, found).partitions.append(
                    kw.ListPartitionReassignmentsResponse.OngoingPartitionReassignment(
                        partition_index=partition.index,
                        replicas=partition.replicas,
                        adding_replicas=partition.adding_replicas,
                        removing_replicas=partition.removing_replicas,
                    )
                )
            yield None
        return kw.ListPartitionReassignmentsResponse(
            error_message=None, topics=list(topics.values())
        )
