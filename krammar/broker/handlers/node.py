"""DescribeCluster, and the APIs about the log folders, quorum and features of a node.

DescribeCluster, v0 to v2 (KIP-700): v1 names the kind of endpoint (KIP-919), and v2 asks for fenced
nodes (KIP-1073).

DescribeLogDirs, v1 to v5 (KIP-113): v3 has an error of the whole request (KIP-784), v4 the sizes of
volumes (KIP-827), and v5 says whether a folder is cordoned (KIP-1066).

AlterReplicaLogDirs, v1 to v2 (KIP-113).

DescribeQuorum, v0 to v2 (KIP-595): v1 has times (KIP-836), and v2 directory ids and addresses
(KIP-853).

UnregisterBroker, v0.

UpdateFeatures, v0 to v2 (KIP-584): v1 has kinds of updates and can validate only (KIP-778); v2 has
no results of single features.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import partial
from os import path
from pathlib import Path

import kafka_wire as kw

from krammar.authorization.operations import NOT_ASKED
from krammar.broker.cluster import ClusterMetadata
from krammar.broker.config import BrokerConfig
from krammar.broker.errors import ApiError, errors_in
from krammar.broker.metadata_records import (
    KRAFT_VERSION,
    METADATA_VERSION,
    SHARE_VERSION,
    SUPPORTED_FEATURES,
    feature_problem,
)
from krammar.broker.nodes import Logs, Nodes
from krammar.broker.session import CLUSTER_OPERATIONS, Session
from krammar.broker.timers import Timers
from krammar.util.turns import Steps, one_by_one

LogDir = dict[str, list[kw.DescribeLogDirsResponse.DescribeLogDirsPartition]]  # by topic
_QUORUM = ("__cluster_metadata", [0])


@dataclass(eq=False)
class NodeHandlers:
    config: BrokerConfig
    timers: Timers
    nodes: Nodes
    cluster: ClusterMetadata
    logs: Logs

    def describe_cluster(
        self, session: Session, request: kw.DescribeClusterRequest, version: int
    ) -> kw.DescribeClusterResponse:
        """Describe the cluster (KIP-700). A request for controllers gets an error (KIP-919)."""
        if request.endpoint_type != kw.EndpointType.BROKER:
            code = kw.ErrorCode.UNSUPPORTED_ENDPOINT_TYPE
            if request.endpoint_type == kw.EndpointType.CONTROLLER:
                code = kw.ErrorCode.MISMATCHED_ENDPOINT_TYPE
            return kw.DescribeClusterResponse(
                error_code=code,
                error_message=f"This is a broker, not an endpoint of type {request.endpoint_type}.",
            )
        nodes = self.nodes
        shown = nodes if request.include_fenced_brokers else nodes.running
        operations = NOT_ASKED
        if request.include_cluster_authorized_operations:
            operations = CLUSTER_OPERATIONS
        return kw.DescribeClusterResponse(
            cluster_id=self.cluster.cluster_id,
            controller_id=nodes.controller,
            brokers=[
                kw.DescribeClusterResponse.DescribeClusterBroker(
                    broker_id=node_id,
                    host=host,
                    port=port,
                    rack=rack,
                    is_fenced=node_id not in nodes.running,
                )
                for node_id, host, port, rack in (
                    nodes.endpoint(each, session.listener) for each in sorted(shown)
                )
            ],
            cluster_authorized_operations=operations,
        )

    def describe_log_dirs(
        self, session: Session, request: kw.DescribeLogDirsRequest, version: int
    ) -> Steps[kw.DescribeLogDirsResponse]:
        """Describe the log folders (KIP-113), with sizes in bytes. Unknown partitions are skipped.

        As in Kafka, a folder whose disk has failed has an error, and its offline partitions are
        skipped. The others of such a folder remain online here, and are described.
        """
        wanted: dict[str, set[int]] | None = None
        if request.topics is not None:
            wanted = {}
            for topic in request.topics:
                wanted.setdefault(topic.topic, set()).update(topic.partitions)
                yield None
        found: dict[Path, LogDir] = {path: {} for path in self.config.log_dirs}
        failed = set()
        for log in list(self.logs):
            yield None
            if log.offline:
                failed.add(log.path.parent)
            elif wanted is None or log.partition in wanted.get(log.topic, ()):
                partition = kw.DescribeLogDirsResponse.DescribeLogDirsPartition(
                    partition_index=log.partition, partition_size=log.size
                )
                topics = found.setdefault(log.path.parent, {})
                topics.setdefault(log.topic, []).append(partition)
        return kw.DescribeLogDirsResponse(
            results=[_log_dir(path, topics, path in failed) for path, topics in found.items()]
        )

    def alter_replica_log_dirs(
        self, session: Session, request: kw.AlterReplicaLogDirsRequest, version: int
    ) -> Steps[kw.AlterReplicaLogDirsResponse]:
        """Accept partitions where they are already (KIP-113). Partitions do not move between folders."""
        folders = {path.abspath(each) for each in self.config.log_dirs}
        results = []
        for folder in request.dirs:
            for topic in folder.topics:
                move = partial(self._move, folders, folder.path, topic.name)
                partitions = yield from one_by_one(move, topic.partitions)
                results.append(
                    kw.AlterReplicaLogDirsResponse.AlterReplicaLogDirTopicResult(
                        topic_name=topic.name, partitions=partitions
                    )
                )
        return kw.AlterReplicaLogDirsResponse(results=results)

    def _move(
        self, folders: set[str], folder: str, topic: str, index: int
    ) -> kw.AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult:
        result = kw.AlterReplicaLogDirsResponse.AlterReplicaLogDirPartitionResult(
            partition_index=index
        )
        with errors_in(result):
            if folder not in folders:
                raise ApiError(kw.ErrorCode.LOG_DIR_NOT_FOUND)
            log = self.logs.get(topic, index)
            if log is None:
                raise ApiError(kw.ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if path.abspath(log.path.parent) != folder:
                raise ApiError(kw.ErrorCode.UNSUPPORTED_VERSION)
        return result

    def describe_quorum(
        self, session: Session, request: kw.DescribeQuorumRequest, version: int
    ) -> Steps[kw.DescribeQuorumResponse]:
        """Describe the quorum of the metadata log (KIP-595, KIP-836): this node alone."""
        wanted = [
            (each.topic_name, [one.partition_index for one in each.partitions])
            for each in request.topics
        ]
        if wanted != [_QUORUM]:
            topics = []
            for name, indexes in wanted:
                partitions = yield from one_by_one(_unknown, indexes)
                topics.append(
                    kw.DescribeQuorumResponse.TopicData(topic_name=name, partitions=partitions)
                )
            return kw.DescribeQuorumResponse(topics=topics)
        cluster, node_id, now = self.cluster, self.cluster.node_id, self.timers.now_ms()
        end_offset = cluster.last_offset + 1
        voter = kw.DescribeQuorumResponse.ReplicaState(
            replica_id=node_id, log_end_offset=end_offset
        )
        if version >= 1:
            voter.last_fetch_timestamp = voter.last_caught_up_timestamp = now
        if version >= 2:
            voter.replica_directory_id = cluster.directory_ids[0]
        partition = kw.DescribeQuorumResponse.PartitionData(
            leader_id=node_id,
            leader_epoch=cluster.log.epoch,
            high_watermark=end_offset,
            current_voters=[voter],
        )
        listeners = [
            kw.DescribeQuorumResponse.Listener(name=name, host=host, port=port)
            for name, host, port in cluster.controller_listeners
        ]
        response = kw.DescribeQuorumResponse(
            topics=[
                kw.DescribeQuorumResponse.TopicData(topic_name=_QUORUM[0], partitions=[partition])
            ]
        )
        if version >= 2:
            node = kw.DescribeQuorumResponse.Node(node_id=node_id, listeners=listeners)
            response.nodes = [node]
        return response

    def unregister_broker(
        self, session: Session, request: kw.UnregisterBrokerRequest, version: int
    ) -> kw.UnregisterBrokerResponse:
        """Refuse to remove a broker (KIP-500). Kafka would remove even its only one, and serve nothing."""
        code, problem = kw.ErrorCode.BROKER_ID_NOT_REGISTERED, "is not currently registered"
        if request.broker_id in self.nodes:
            code, problem = kw.ErrorCode.INVALID_REQUEST, "belongs to a node of this process"
        return kw.UnregisterBrokerResponse(
            error_code=code, error_message=f"Broker ID {request.broker_id} {problem}"
        )

    def update_features(
        self, session: Session, request: kw.UpdateFeaturesRequest, version: int
    ) -> Steps[kw.UpdateFeaturesResponse]:
        """Change the levels of features (KIP-584): all of them, or none."""
        for update in request.feature_updates:
            yield None
            problem = self._check_feature(update)
            if problem is not None:
                return kw.UpdateFeaturesResponse(
                    error_code=kw.ErrorCode.INVALID_UPDATE_VERSION,
                    error_message="The update failed for all features since the following feature "
                    f"had an error: {problem}",
                )
        levels = {each.feature: each.max_version_level for each in request.feature_updates}
        changed = [
            kw.FeatureLevelRecord(name=name, feature_level=level)
            for name, level in levels.items()
            if level != self.cluster.features.get(name, 0) or name == SHARE_VERSION
        ]
        response = kw.UpdateFeaturesResponse(error_message=None)
        with errors_in(response):
            if not request.validate_only:
                self.cluster.append(changed)
            response.results = [
                kw.UpdateFeaturesResponse.UpdatableFeatureResult(
                    feature=each.feature, error_message="NONE"
                )
                for each in (request.feature_updates if version < 2 else ())
            ]
        return response

    def _check_feature(self, update: kw.UpdateFeaturesRequest.FeatureUpdateKey) -> str | None:
        """Return the problem of an update, in Kafka's words."""
        name, level, kind = update.feature, update.max_version_level, update.upgrade_type
        current = self.cluster.features.get(name, 0)
        node = f"Local controller {self.cluster.node_id}"
        reason = feature_problem(name, level, SUPPORTED_FEATURES, node)
        if not kw.FeatureUpdateType.UPGRADE <= kind <= kw.FeatureUpdateType.UNSAFE_DOWNGRADE:
            reason = "The controller does not support the given upgrade type."
        elif reason is not None:
            pass
        elif level < current and kind == kw.FeatureUpdateType.UPGRADE:
            reason = (
                "Can't downgrade the version of this feature without setting the upgrade type to "
                "either safe or unsafe downgrade."
            )
        elif level > current and kind != kw.FeatureUpdateType.UPGRADE:
            reason = "Can't downgrade to a newer version."
        elif level < current and name == KRAFT_VERSION:
            reason = "Can't downgrade the version of this feature."
        elif level < current and name == METADATA_VERSION:
            why = "Unsafe metadata downgrade is not supported in this version."
            if kind == kw.FeatureUpdateType.SAFE_DOWNGRADE:
                why = (
                    "Refusing to perform the requested downgrade because it might delete metadata "
                    "information."
                )
            return f"Unsupported metadata.version downgrade from {current} to {level}. {why}"
        return reason and f"Invalid update version {level} for feature {name}. {reason}"


def _unknown(partition: int) -> kw.DescribeQuorumResponse.PartitionData:
    return kw.DescribeQuorumResponse.PartitionData(
        partition_index=partition,
        error_code=kw.ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        error_message="This server does not host this topic-partition.",
    )


def _log_dir(
    path: Path, topics: LogDir, failed: bool
) -> kw.DescribeLogDirsResponse.DescribeLogDirsResult:
    result = kw.DescribeLogDirsResponse.DescribeLogDirsResult(log_dir=str(path.absolute()))
    if failed:
        result.error_code = kw.ErrorCode.KAFKA_STORAGE_ERROR
    try:
        result.total_bytes, _, result.usable_bytes = shutil.disk_usage(path)
    except OSError:
        result.error_code = kw.ErrorCode.KAFKA_STORAGE_ERROR
        return result
    result.topics = [
        kw.DescribeLogDirsResponse.DescribeLogDirsTopic(name=name, partitions=partitions)
        for name, partitions in topics.items()
    ]
    return result
