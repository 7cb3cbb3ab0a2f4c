"""Whether the topic of a task is still the one for which it was planned: a topic that is created again has another id."""

from __future__ import annotations

from uuid import UUID

from kafka_wire import FetchRequest

from krammar.client import Client
from krammar.client.errors import UnknownTopicOrPartition
from krammar.client.fetch import FETCH_BY_ID
from krammar.client.metadata import NO_ID
from krammar.spark.brokers import recheck
from krammar.spark.kafka.plan import Task, deleted_topic
from krammar.spark.loss import report_loss


def is_same_topic(client: Client, task: Task, fail: bool) -> bool:
    """Return whether the topic still has the id for which the task was planned.

    Brokers are not asked if the client knows the topic by this id and fetches by id: they refuse to fetch
    from another topic then. Otherwise, the metadata that this requests is not requested again for reading.

    Raises:
        DataLossError: the topic has another id or does not exist, and ``fail`` is true.
    """
    cluster = client.cluster
    known = cluster.metadata.topics.get(task.topic)
    if task.topic_id == NO_ID:
        return True
    fetches_by_id = cluster.connections and all(
        connection.versions.has(FetchRequest, FETCH_BY_ID) for connection in cluster.connections
    )
    if known is not None and known.topic_id == task.topic_id and fetches_by_id:
        return True
    found = current_id(client, task)
    if found == task.topic_id:
        return True
    report_loss(deleted_topic(task, created_again=found is not None), fail)
    return False


def current_id(client: Client, task: Task) -> UUID | None:
    """Return the id that the task's topic has now; None if the brokers have no such partition.

    They are asked again for a while if it is another id than the task's.
    """
    cluster = client.cluster

    def ask() -> UUID | None:
        cluster.metadata.outdate([task.topic])
        deadline = cluster.deadline(f"finding topic {task.topic}")
        try:
            topic = cluster.topic(task.topic, deadline, auto_create=False)
        except UnknownTopicOrPartition:
            return None
        return topic.topic_id if task.partition in topic.partitions else None

    return recheck(client, ask, lambda found: found != task.topic_id)
