"""The checks of a ConsumerGroupHeartbeat that need no group (KIP-848)."""

from __future__ import annotations

from collections.abc import Sequence

import kafka_wire as kw

from krammar.broker.errors import ApiError, invalid_request
from krammar.broker.groups.matching import matcher
from krammar.broker.groups.member import AWAY
from krammar.broker.groups.records import fits


def check_heartbeat(request: kw.ConsumerGroupHeartbeatRequest, assignors: Sequence[str]) -> None:
    """Raise ApiError if a request is invalid for any group.

    Args:
        assignors: the names of those that the broker supports
    """
    for name, text in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
        ("MemberId", request.member_id),
    ):
        if text is not None and not text.strip():
            raise invalid_request(f"{name} can't be empty.")
        if not fits(text):
            raise invalid_request(f"{name} can't be longer than 32767 bytes.")
    epoch = request.member_epoch
    if epoch == 0:
        if request.rebalance_timeout_ms == -1:
            raise invalid_request("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions != []:
            raise invalid_request("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise invalid_request(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                "(re-)joining."
            )
    elif epoch == AWAY and request.instance_id is None:
        raise invalid_request("InstanceId can't be null.")
    elif epoch < AWAY:
        raise invalid_request("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise ApiError(
            kw.ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: "
            f"{', '.join(assignors)}.",
        )
    if request.subscribed_topic_regex:
        matcher(request.subscribed_topic_regex)
