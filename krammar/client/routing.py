"""Sends requests to the broker that must handle them: leaders of partitions, the controller, coordinators."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from kafka_wire import CoordinatorType, ErrorCode, FindCoordinatorRequest

from krammar.client.cluster import Cluster
from krammar.client.deadline import Deadline
from krammar.client.errors import (
    AdvertisedAddressError,
    ClientError,
    KafkaError,
    TransportError,
    kafka_error,
    raise_code,
)
from krammar.client.in_flight import ByVersion
from krammar.client.metadata import Node, TopicPartition

T = TypeVar("T")
V = TypeVar("V")

# Errors after which the coordinator must be looked up again.
_OTHER_COORDINATOR = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
_KIND = {CoordinatorType.GROUP: "group", CoordinatorType.TRANSACTION: "transactional id"}


def call_controller(
    cluster: Cluster,
    request: Any,
    deadline: Deadline,
    check: Callable[[Any], None] | None = None,
    *,
    low: int = 0,
    lost: list[ClientError] | None = None,
) -> Any:
    """Send a request to the controller, or to the broker that metadata names as such.

    A topic that the controller does not know does not exist, so UnknownTopicOrPartition is not retried.

    Args:
        check: raises the error that a response contains.
        lost: receives the errors of attempts that the controller may have processed.
    """

    def attempt() -> Any:
        controller = cluster.metadata.controller_id
        if controller not in cluster.metadata.nodes:
            cluster.refresh_once([], deadline, auto_create=False)
            controller = cluster.metadata.controller_id
        try:
            connection = (
                cluster.node(controller, deadline) if controller >= 0 else cluster.any(deadline)
            )
            pending = cluster.send(connection, request, deadline, low=low)
        except ClientError as error:
            _other_controller(cluster, controller, error)
            raise
        try:
            response = cluster.wait_for(pending, deadline)
        except ClientError as error:
            _other_controller(cluster, controller, error)
            if lost is not None:
                lost.append(error)
            raise
        try:
            if check is not None:
                check(response)
        except KafkaError as error:
            _other_controller(cluster, controller, error)
            if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return error
            raise
        return response

    result = cluster.retrying(deadline, attempt)
    if isinstance(result, KafkaError):
        raise result
    return result


def _other_controller(cluster: Cluster, node_id: int, error: ClientError) -> None:
    if error.retriable:
        cluster.metadata.controller_id = -1
        if isinstance(error, TransportError):
            cluster.metadata.nodes.pop(node_id, None)


def by_leader(
    cluster: Cluster,
    wanted: Mapping[TopicPartition, V],
    deadline: Deadline,
    *,
    request: Callable[[dict[TopicPartition, V]], Any],
    answers: Callable[[Any], Iterable[tuple[TopicPartition, int, T]]],
    low: int = 0,
) -> dict[TopicPartition, T]:
    """Ask the leaders of all partitions at the same time, until each partition has a result.

    Args:
        wanted: an argument of ``request`` for each partition.
        request: builds the request for the partitions of one leader.
        answers: yields partition, error code and result from a response.

    Raises:
        ClientError: the first error that is not retriable.
    """
    left = dict(wanted)
    results: dict[TopicPartition, T] = {}
    backoff = cluster.backoff()
    while left:
        error = _ask_leaders(cluster, left, results, deadline, request, answers, low)
        if error is not None:
            cluster.metadata.outdate({at.topic for at in left})
            backoff.pause(deadline, error)
    return results


def _ask_leaders(
    cluster: Cluster,
    left: dict[TopicPartition, V],
    results: dict[TopicPartition, T],
    deadline: Deadline,
    request: Callable[[dict[TopicPartition, V]], Any],
    answers: Callable[[Any], Iterable[tuple[TopicPartition, int, T]]],
    low: int,
) -> ClientError | None:
    """Ask each leader once, and move partitions with a result from ``left`` to ``results``.

    Returns the error of a partition that is still left, if any.
    """
    failure: ClientError | None = None
    try:
        cluster.update_topics((at.topic for at in left), deadline)
    except ClientError as error:
        if not error.retriable:
            raise
        return error
    groups: dict[int, dict[TopicPartition, V]] = {}
    for at, value in left.items():
        try:
            groups.setdefault(cluster.partition(at).leader, {})[at] = value
        except ClientError as error:
            failure = error
    pending = []
    for leader, group in groups.items():
        try:
            connection = cluster.node(leader, deadline)
            pending.append(cluster.send(connection, request(group), deadline, low=low))
        except AdvertisedAddressError:
            raise
        except TransportError as error:
            failure = error
    for sent in pending:
        try:
            response = cluster.wait_for(sent, deadline)
        except TransportError as error:
            failure = error
            continue
        for at, code, result in answers(response):
            if not code:
                results[at] = result
                left.pop(at, None)
            else:
                refused = kafka_error(code, str(at))
                if not refused.retriable:
                    raise refused
                failure = refused
    if left and failure is None:
        failure = TransportError("cluster", f"no answer for {', '.join(map(str, left))}")
    return failure


def _coordinator(cluster: Cluster, kind: CoordinatorType, key: str, deadline: Deadline) -> int:
    """Return the id of the broker that coordinates a group or a transactional id; it is cached."""
    known = cluster.metadata.coordinators.get((kind, key))
    if known is not None and known in cluster.metadata.nodes:
        return known
    connection = cluster.any(deadline)

    def build(version: int) -> FindCoordinatorRequest:
        if version < 4:
            return FindCoordinatorRequest(key=key, key_type=kind)
        return FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])

    request = ByVersion(FindCoordinatorRequest, build)
    low = 0 if kind == CoordinatorType.GROUP else 1
    found = cluster.wait_for(cluster.send(connection, request, deadline, low=low, high=5), deadline)
    for answer in found.coordinators:
        if answer.key == key:
            found = answer
    raise_code(found.error_code, f"coordinator of {_KIND[kind]} {key}", found.error_message)
    cluster.metadata.nodes[found.node_id] = Node(found.node_id, found.host, found.port)
    cluster.metadata.coordinators[kind, key] = found.node_id
    return int(found.node_id)


def call_coordinator(
    cluster: Cluster,
    kind: CoordinatorType,
    key: str,
    request: Any,
    deadline: Deadline,
    check: Callable[[Any], None],
    *,
    low: int = 0,
    high: int = 32767,
) -> Any:
    """Send a request to a coordinator; after retriable errors, retry with the current coordinator.

    Args:
        check: raises the error that a response contains.
    """

    def attempt() -> Any:
        try:
            connection = cluster.node(_coordinator(cluster, kind, key, deadline), deadline)
            pending = cluster.send(connection, request, deadline, low=low, high=high)
            response = cluster.wait_for(pending, deadline)
            check(response)
        except ClientError as error:
            code = getattr(error, "code", None)
            if isinstance(error, TransportError) or code in _OTHER_COORDINATOR:
                cluster.metadata.coordinators.pop((kind, key), None)
            raise
        return response

    return cluster.retrying(deadline, attempt)
