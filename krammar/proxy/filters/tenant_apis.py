"""The APIs that tenants may use, and the answers to those that they may not.

It is an allow list: other APIs, and versions after the ones here, are refused until someone has decided
which of its fields name things of others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kafka_wire as kw
from kafka_wire import ErrorCode

from krammar.wire.reflection import fields

REASON = "a tenant of this proxy cannot use it"
_DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

# Requests whose names are changed, and the newest version whose fields were examined.
ALLOWED: dict[Any, int] = {
    kw.ProduceRequest: 13,
    kw.FetchRequest: 18,
    kw.ListOffsetsRequest: 11,
    kw.MetadataRequest: 13,
    kw.OffsetCommitRequest: 10,
    kw.OffsetFetchRequest: 10,
    kw.FindCoordinatorRequest: 6,
    kw.JoinGroupRequest: 9,
    kw.HeartbeatRequest: 4,
    kw.LeaveGroupRequest: 5,
    kw.SyncGroupRequest: 5,
    kw.DescribeGroupsRequest: 6,
    kw.ListGroupsRequest: 5,
    kw.CreateTopicsRequest: 7,
    kw.DeleteTopicsRequest: 6,
    kw.DeleteRecordsRequest: 2,
    kw.InitProducerIdRequest: 6,
    kw.OffsetForLeaderEpochRequest: 4,
    kw.AddPartitionsToTxnRequest: 5,
    kw.AddOffsetsToTxnRequest: 4,
    kw.EndTxnRequest: 5,
    kw.TxnOffsetCommitRequest: 6,
    kw.DescribeConfigsRequest: 4,
    kw.AlterConfigsRequest: 2,
    kw.CreatePartitionsRequest: 3,
    kw.DeleteGroupsRequest: 3,
    kw.IncrementalAlterConfigsRequest: 1,
    kw.ListPartitionReassignmentsRequest: 0,
    kw.OffsetDeleteRequest: 0,
    kw.DescribeClusterRequest: 2,
    kw.DescribeProducersRequest: 0,
    kw.DescribeTransactionsRequest: 0,
    kw.ListTransactionsRequest: 2,
    kw.ConsumerGroupHeartbeatRequest: 1,
    kw.ConsumerGroupDescribeRequest: 1,
    kw.ListConfigResourcesRequest: 1,
    kw.DescribeTopicPartitionsRequest: 0,
    kw.ShareGroupHeartbeatRequest: 1,
    kw.ShareGroupDescribeRequest: 1,
    kw.ShareFetchRequest: 2,
    kw.ShareAcknowledgeRequest: 2,
    kw.StreamsGroupHeartbeatRequest: 1,
    kw.StreamsGroupDescribeRequest: 1,
    kw.DescribeShareGroupOffsetsRequest: 1,
    kw.AlterShareGroupOffsetsRequest: 0,
    kw.DeleteShareGroupOffsetsRequest: 0,
    kw.StreamsGroupTopologyDescriptionUpdateRequest: 0,
}

# Logins, and versions: they come before the tenant is known, and name nothing of tenants.
PASSED: dict[Any, int] = {
    kw.SaslHandshakeRequest: 1,
    kw.ApiVersionsRequest: 5,
    kw.SaslAuthenticateRequest: 2,
}


def _top(request: Any, version: int) -> Any:
    """Answer with the error of the whole response."""
    response = request.response_class()
    names = {item.name for item in fields(type(response)) if version in item.versions}
    if "error_code" in names:
        response.error_code = _DENIED
    if "error_message" in names:
        response.error_message = REASON
    return response


def _create_acls(request: Any, version: int) -> Any:
    result = kw.CreateAclsResponse.AclCreationResult
    return kw.CreateAclsResponse(
        results=[result(error_code=_DENIED, error_message=REASON) for _ in request.creations]
    )


def _delete_acls(request: Any, version: int) -> Any:
    result = kw.DeleteAclsResponse.DeleteAclsFilterResult
    return kw.DeleteAclsResponse(
        filter_results=[result(error_code=_DENIED, error_message=REASON) for _ in request.filters]
    )


def _alter_quotas(request: Any, version: int) -> Any:
    entry, entity = kw.AlterClientQuotasResponse.EntryData, kw.AlterClientQuotasResponse.EntityData
    return kw.AlterClientQuotasResponse(
        entries=[
            entry(
                error_code=_DENIED,
                error_message=REASON,
                entity=[
                    entity(entity_type=one.entity_type, entity_name=one.entity_name)
                    for one in each.entity
                ],
            )
            for each in request.entries
        ]
    )


def _alter_users(request: Any, version: int) -> Any:
    result = kw.AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
    return kw.AlterUserScramCredentialsResponse(
        results=[
            result(user=each.name, error_code=_DENIED, error_message=REASON)
            for each in (*request.deletions, *request.upsertions)
        ]
    )


def _alter_log_dirs(request: Any, version: int) -> Any:
    response = kw.AlterReplicaLogDirsResponse
    return response(
        results=[
            response.AlterReplicaLogDirTopicResult(
                topic_name=topic.name,
                partitions=[
                    response.AlterReplicaLogDirPartitionResult(
                        partition_index=number, error_code=_DENIED
                    )
                    for number in topic.partitions
                ],
            )
            for each in request.dirs
            for topic in each.topics
        ]
    )


def _elect(request: Any, version: int) -> Any:
    response = kw.ElectLeadersResponse
    results = [
        response.ReplicaElectionResult(
            topic=topic.topic,
            partition_result=[
                response.PartitionResult(
                    partition_id=number, error_code=_DENIED, error_message=REASON
                )
                for number in topic.partitions
            ],
        )
        for topic in request.topic_partitions or ()
    ]
    return response(error_code=_DENIED if version >= 1 else 0, replica_election_results=results)


Refusal = Callable[[Any, int], Any]

# Requests that are answered with an error. Those in neither table close the connection.
REFUSED: dict[Any, Refusal] = {
    kw.DescribeAclsRequest: _top,
    kw.CreateAclsRequest: _create_acls,
    kw.DeleteAclsRequest: _delete_acls,
    kw.AlterReplicaLogDirsRequest: _alter_log_dirs,
    kw.DescribeLogDirsRequest: _top,
    kw.CreateDelegationTokenRequest: _top,
    kw.RenewDelegationTokenRequest: _top,
    kw.ExpireDelegationTokenRequest: _top,
    kw.DescribeDelegationTokenRequest: _top,
    kw.ElectLeadersRequest: _elect,
    kw.AlterPartitionReassignmentsRequest: _top,
    kw.DescribeClientQuotasRequest: _top,
    kw.AlterClientQuotasRequest: _alter_quotas,
    kw.DescribeUserScramCredentialsRequest: _top,
    kw.AlterUserScramCredentialsRequest: _alter_users,
    kw.DescribeQuorumRequest: _top,
    kw.UpdateFeaturesRequest: _top,
    kw.UnregisterBrokerRequest: _top,
}
