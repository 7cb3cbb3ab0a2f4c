"""A cluster of answers, without data: a process with a port for each node, which knows three requests.

Each partition has 10 records when its ends are asked for the first time, and 10 more each further time.
"""

from __future__ import annotations

import asyncio
import resource
import socket
import sys
from typing import Any
from uuid import UUID

import kafka_wire
from kafka_wire import (
    ApiVersionsRequest,
    FetchRequest,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
)

from krammar.wire.negotiation import api_versions_response

IN_TOPIC = 100
RECORDS = 10
_LATEST = -1
# Stands for latest offsets in encoded responses.
_LATER = bytes.fromhex("5ea10ff5e75ea10f")
# Clients look for Fetch before they send it; nobody reads here.
_SERVES = [
    each.api_key for each in (ApiVersionsRequest, MetadataRequest, ListOffsetsRequest, FetchRequest)
]


class AnsweringCluster:
    """The answers of all nodes."""

    def __init__(self, ports: list[int], partitions: int) -> None:
        nodes = len(ports)
        part = MetadataResponse.Partition
        self.metadata = MetadataResponse(
            brokers=[
                MetadataResponse.Broker(node_id=node, host="127.0.0.1", port=port)
                for node, port in enumerate(ports)
            ],
            cluster_id="answers",
            controller_id=0,
            topics=[
                MetadataResponse.Topic(
                    name=f"topic-{topic:05}",
                    topic_id=UUID(int=topic + 1),
                    partitions=[
                        part(
                            partition_index=index,
                            leader_id=(topic + index) % nodes,
                            leader_epoch=1,
                            replica_nodes=(
                                replicas := [(topic + index + n) % nodes for n in range(3)]
                            ),
                            isr_nodes=replicas,
                        )
                        for index in range(IN_TOPIC)
                    ],
                )
                for topic in range(partitions // IN_TOPIC)
            ],
        )
        # By question: the header after the correlation id, the body, and whether it has latest offsets.
        self.answers: dict[bytes, tuple[bytes, bytes, bool]] = {}

    def respond(self, request: Any, version: int) -> tuple[bytes, bool]:
        """Return the body of a response, and whether it has latest offsets."""
        if isinstance(request, MetadataRequest):
            return bytes(self._metadata(request).encode(version)), False
        if isinstance(request, ListOffsetsRequest):
            is_latest = request.topics[0].partitions[0].timestamp == _LATEST
            return bytes(_offsets(request, is_latest).encode(version)), is_latest
        return bytes(api_versions_response(kafka_wire, _SERVES).encode(version)), False

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        known = self.metadata
        if request.topics is None:
            return known
        names = {topic.name for topic in request.topics}
        return MetadataResponse(
            brokers=known.brokers,
            cluster_id=known.cluster_id,
            controller_id=0,
            topics=[topic for topic in known.topics if topic.name in names],
        )


def _offsets(request: ListOffsetsRequest, is_latest: bool) -> ListOffsetsResponse:
    offset = int.from_bytes(_LATER, "big") if is_latest else 0
    of = ListOffsetsResponse
    return ListOffsetsResponse(
        topics=[
            of.ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    of.ListOffsetsPartitionResponse(
                        partition_index=at.partition_index,
                        timestamp=-1,
                        offset=offset,
                        leader_epoch=1,
                    )
                    for at in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


class AnsweringNode(asyncio.Protocol):
    """A connection to one node; ``asked`` counts how often its ends were asked for."""

    def __init__(self, cluster: AnsweringCluster, asked: list[int]) -> None:
        self._cluster = cluster
        self._asked = asked
        self._data = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= 4:
            end = 4 + int.from_bytes(self._data[:4], "big")
            if end > len(self._data):
                return
            frame = bytes(self._data[4:end])
            del self._data[:end]
            head, body = self._answer(frame)
            size = 4 + len(head) + len(body)
            self._transport.writelines([size.to_bytes(4, "big"), frame[4:8], head, body])

    def _answer(self, frame: bytes) -> tuple[bytes, bytes]:
        """Return the response after its correlation id, in two parts."""
        known = self._cluster.answers
        # Without the correlation id, the same question has the same bytes.
        question = frame[:4] + frame[8:]
        if question not in known:
            header, request = kafka_wire.parse_request(frame)
            key, version = header.request_api_key, header.request_api_version
            head = kafka_wire.ResponseHeader().encode(
                kafka_wire.header_versions(key, version).response
            )
            known[question] = bytes(head[4:]), *self._cluster.respond(request, version)
        head, body, is_latest = known[question]
        if is_latest:
            self._asked[0] += 1
            body = body.replace(_LATER, (RECORDS * self._asked[0]).to_bytes(8, "big"))
        return head, body


async def serve(nodes: int, partitions: int) -> None:
    """Run the cluster; print the first node's port."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (limits[1], limits[1])
    )  # each node has several connections
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(nodes)]
    ports = [each.getsockname()[1] for each in sockets]
    cluster = AnsweringCluster(ports, partitions)
    loop = asyncio.get_running_loop()
    for each in sockets:
        asked = [0]
        await loop.create_server(lambda asked=asked: AnsweringNode(cluster, asked), sock=each)  # type: ignore[misc]
    print(ports[0], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))
