"""A member of a share group that sends exactly the requests of a test."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kafka_wire import (
    ConfigResourceType,
    ErrorCode,
    IncrementalAlterConfigsRequest,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
)

from krammar.broker import Broker
from tests.broker.support import RawClient

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
GROUP = "g"
OK = ErrorCode.NONE


def configure(broker: Broker, **settings: str) -> None:
    """Set settings of the group; names have underscores."""
    changes = {f"share.{name.replace('_', '.')}": value for name, value in settings.items()}
    broker.call(broker.cluster.set_configs, ConfigResourceType.GROUP, GROUP, changes)


def begin_early(client: RawClient, group: str = GROUP, **settings: str) -> None:
    """Let a group begin at the first record, by a request; names of other settings have underscores.

    ``dead_letters`` is the group's dead-letter topic.
    """
    dead_letters = settings.pop("dead_letters", "")
    names = {
        f"share.{name.replace('_', '.')}": value
        for name, value in {"auto_offset_reset": "earliest", **settings}.items()
    }
    if dead_letters:
        names["errors.deadletterqueue.topic.name"] = dead_letters
    kind = IncrementalAlterConfigsRequest
    resource = kind.AlterConfigsResource(
        resource_type=ConfigResourceType.GROUP,
        resource_name=group,
        configs=[kind.AlterableConfig(name=name, value=value) for name, value in names.items()],
    )
    response = client.call(kind(resources=[resource]))
    assert response.responses[0].error_code == OK, response


class Member:
    """A member of a share group, which reads partitions of one topic."""

    def __init__(self, client: int | RawClient, topic: UUID, name: str = "member") -> None:
        """``client`` is a port, or a connection."""
        self.client = RawClient(client) if isinstance(client, int) else client
        self.topic, self.name = topic, name
        self.epoch = 0

    def request(self, *acks: tuple[int, ...], **options: Any) -> ShareFetchRequest:
        """The next ShareFetch of partition 0; each acknowledgement is a first and a last offset, and types."""
        fields = {
            "max_wait_ms": 0,
            "min_bytes": 1,
            "max_bytes": 1 << 20,
            "max_records": 500,
            "batch_size": 500,
            "partitions": [0],
        } | options
        partitions = [
            ShareFetchRequest.FetchPartition(
                partition_index=index,
                acknowledgement_batches=[
                    ShareFetchRequest.AcknowledgementBatch(
                        first_offset=first, last_offset=last, acknowledge_types=types
                    )
                    for first, last, *types in acks
                ],
            )
            for index in fields.pop("partitions")
        ]
        topic = ShareFetchRequest.FetchTopic(topic_id=self.topic, partitions=partitions)
        return ShareFetchRequest(
            group_id=GROUP,
            member_id=self.name,
            share_session_epoch=fields.pop("epoch", self.epoch),
            topics=[topic],
            forgotten_topics_data=[],
            **fields,
        )

    def send(self, *acks: tuple[int, ...], **options: Any) -> None:
        self.client.send(self.request(*acks, **options))
        self.epoch += 1

    def ask(self, *acks: tuple[int, ...], version: int = 2, **options: Any) -> Any:
        """Send a ShareFetch, and return the response."""
        response = self.client.call(self.request(*acks, **options), version)
        if response.error_code == 0:
            self.epoch += 1
        return response

    def part(self, *acks: tuple[int, ...], **options: Any) -> Any:
        """Send a ShareFetch, and return its answer for the only partition."""
        response = self.ask(*acks, **options)
        assert response.error_code == 0, response
        ((part,),) = [topic.partitions for topic in response.responses]
        return part

    def acquire(self, *acks: tuple[int, ...], **options: Any) -> list[tuple[int, int, int]]:
        """Send a ShareFetch, and return what was acquired."""
        response = self.ask(*acks, **options)
        assert response.error_code == 0, response
        return acquired(response)

    def acknowledge(self, *acks: tuple[int, ...], version: int = 2, **options: Any) -> Any:
        """Send a ShareAcknowledge, and return its answer for the only partition, or the error of all."""
        batches = [
            ShareAcknowledgeRequest.AcknowledgementBatch(
                first_offset=first, last_offset=last, acknowledge_types=types
            )
            for first, last, *types in acks
        ]
        part = ShareAcknowledgeRequest.AcknowledgePartition(
            partition_index=options.pop("partition", 0), acknowledgement_batches=batches
        )
        request = ShareAcknowledgeRequest(
            group_id=GROUP,
            member_id=self.name,
            share_session_epoch=options.pop("epoch", self.epoch),
            topics=[
                ShareAcknowledgeRequest.AcknowledgeTopic(topic_id=self.topic, partitions=[part])
            ],
            **options,
        )
        response = self.client.call(request, version)
        if response.error_code:
            return response.error_code
        self.epoch += 1
        if not acks:
            return response.responses
        return response.responses[0].partitions[0].error_code

    def close(self) -> None:
        self.client.close()


def acquired(response: Any) -> list[tuple[int, int, int]]:
    """What a ShareFetch has acquired: first offset, last offset and deliveries of each run."""
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in response.responses
        for part in topic.partitions
        for each in part.acquired_records
    ]
