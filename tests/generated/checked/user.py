"""What users write with generated classes. Type checkers read it; nothing runs it."""

from __future__ import annotations

import copy

import kafka_wire as kw
import names
import rich
from kafka_wire import MetadataRequest, MetadataResponse, ProduceRequest
from krammar.wire.reflection import fields, walker

topic = ProduceRequest.TopicProduceData(name="orders")
topic.partition_data.append(ProduceRequest.PartitionProduceData(index=0, records=b""))
request = ProduceRequest(acks=-1, topic_data=[topic])
data: bytes = request.encode(9)
again: ProduceRequest = ProduceRequest.decode(data, 9)
size: int = len(again.topic_data[0].partition_data)


def topic_names(response: MetadataResponse) -> list[str]:
    """The names of a response's topics."""
    match response:
        case MetadataResponse(topics=[MetadataResponse.Topic(name=name)]) if name is not None:
            return [name]
        case _:
            return [each.name for each in response.topics if each.name is not None]


def describe(topic: kw.MetadataRequest.Topic) -> str:
    """A nested struct as the type of a parameter."""
    return f"{topic.name} {topic.topic_id.hex}"


found: type[MetadataRequest] = kw.request_class(3)
made: kw.MetadataResponse = kw.response_class(3)(controller_id=1)
paired: type[MetadataResponse] = MetadataRequest.response_class
copied: ProduceRequest = copy.copy(request)
seen: set[str] = set()
walker(MetadataResponse, 12, "topicName")(made, seen.add)
entities: list[str] = [info.entity for info in fields(ProduceRequest) if info.struct is None]

odd = names.ImportRequest(int=1, str="", list=["a"], bytes=b"", self_="x", tuple=[1])
number: int = odd.int
text: str = odd.str
inner: names.ImportRequest.Type = odd.type
listed: list[str] = odd.list
stamped: rich.Stamped = rich.EverythingRequest().stamp
point: rich.EverythingRequest.Point = rich.EverythingRequest.Point(x=1)
