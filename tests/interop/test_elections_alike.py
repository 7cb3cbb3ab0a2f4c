"""Elections and reassignments on one node: our broker says what Apache Kafka says."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_wire import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ListPartitionReassignmentsRequest,
)

from tests.broker.support import RawClient
from tests.interop.processes import Server


def elect(kind: int, *wanted: tuple[str, list[int]]) -> ElectLeadersRequest:
    topics = [
        ElectLeadersRequest.TopicPartitions(topic=name, partitions=parts) for name, parts in wanted
    ]
    return ElectLeadersRequest(election_type=kind, topic_partitions=topics)


def reassign(
    replicas: list[int] | None, *partitions: int, topic: str = "t", allow: bool = True
) -> AlterPartitionReassignmentsRequest:
    parts = [
        AlterPartitionReassignmentsRequest.ReassignablePartition(
            partition_index=index, replicas=replicas
        )
        for index in partitions
    ]
    return AlterPartitionReassignmentsRequest(
        allow_replication_factor_change=allow,
        topics=[AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=parts)],
    )


CASES: dict[str, tuple[Any, int]] = {
    "preferred, not needed": (elect(0, ("t", [0, 1])), 2),
    "preferred, v0": (elect(0, ("t", [0])), 0),
    "unclean, not needed": (elect(1, ("t", [0])), 1),
    "unknown type": (elect(7, ("t", [0])), 2),
    "unknown topic and partition": (elect(0, ("nowhere", [0]), ("t", [5, -1])), 2),
    "the same partition twice": (elect(0, ("t", [0, 0]), ("t", [0])), 2),
    "no topics": (elect(0), 2),
    "no partitions": (elect(0, ("t", [])), 2),
    "all": (ElectLeadersRequest(election_type=0, topic_partitions=None), 2),
    "reassign to itself": (reassign([1], 0, 1), 1),
    "reassign, v0": (reassign([1], 0), 0),
    "reassign to nobody": (reassign([], 0), 1),
    "reassign to an unknown broker": (reassign([1, 2], 0), 1),
    "reassign to an unknown broker, fixed factor": (reassign([1, 2], 0, allow=False), 1),
    "reassign to a negative broker": (reassign([-1], 0), 1),
    "reassign twice to one broker": (reassign([1, 1], 0), 1),
    "reassign an unknown topic": (reassign([1], 0, topic="nowhere"), 1),
    "reassign an unknown partition": (reassign([1], 9), 1),
    "cancel nothing": (reassign(None, 0), 1),
    "cancel an unknown partition": (reassign(None, 9), 1),
    "reassign one partition twice": (reassign([1], 0, 0), 1),
    "reassign no topics": (AlterPartitionReassignmentsRequest(topics=[]), 1),
    "list all": (ListPartitionReassignmentsRequest(topics=None), 0),
    "list some": (
        ListPartitionReassignmentsRequest(
            topics=[
                ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics(
                    name="t", partition_indexes=[0, 9]
                ),
                ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics(
                    name="nowhere", partition_indexes=[0]
                ),
            ]
        ),
        0,
    ),
}


def without_words(answer: Any) -> Any:
    """An answer, with messages replaced by whether there are any, and without internal topics."""
    if isinstance(answer, list):
        return [without_words(each) for each in answer if not _is_internal(each)]
    if isinstance(answer, dict):
        return {
            key: bool(value) if key == "error_message" else without_words(value)
            for key, value in answer.items()
        }
    return answer


def _is_internal(part: Any) -> bool:
    return isinstance(part, dict) and str(part.get("topic")).startswith("__")


@pytest.mark.parametrize("name", CASES)
def test_the_same_answers(brokers: list[Server], name: str) -> None:
    request, version = CASES[name]
    answers = []
    for server in brokers:
        with RawClient(server.port) as client:
            answers.append(without_words(client.call(request, version).to_dict()))
    ours, theirs = answers
    assert ours == theirs, f"{ours}\n{theirs}"
