"""Every served request in every version gets a response: no handler sets fields that the version lacks.

The requests are made from the definitions, about topics, groups and transactions that exist, so that handlers fill
in what they know.
"""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

import kafka_wire
import pytest

from krammar.broker import Broker
from krammar.wire.layout import Array, Layout, Nested, Scalar, Text
from krammar.wire.representation import kinds_of, named
from tests.broker.groups.support import GROUP, as_member, commit_request, stable_member
from tests.broker.requests import batch, create_topic, open_transaction, produce
from tests.broker.support import RawClient

TRANSACTION = "id"
# They change the user of a connection, or stop the broker.
LEFT_OUT = {"SaslHandshake", "SaslAuthenticate"}


def filled(cls: Any, layout: Layout, topic: str, topic_id: UUID, group: str = GROUP) -> Any:
    """A request with one element in each array, about what exists."""
    entities = {"topicName": topic, "groupId": group, "transactionalId": TRANSACTION}

    def value(item: Any, type_: Any, default: Any) -> Any:
        if isinstance(type_, Array):
            return [value(item, type_.element, None)]
        if isinstance(type_, Nested):
            inner = named(cls, kinds_of(cls)[item.name])
            return filled(inner, type_.layout, topic, topic_id, group)
        if item.entity in entities and isinstance(type_, Text):
            return entities[item.entity]
        if isinstance(type_, Scalar) and type_.code == "16s":
            return topic_id
        if default is not None and not isinstance(default, str):
            return default
        if isinstance(type_, Text):
            return b"" if type_.kind == "bytes" else topic
        return 0

    fresh = cls()
    for item in layout.fields:
        setattr(fresh, item.name, value(item, item.type, getattr(fresh, item.name)))
    return fresh


@pytest.mark.parametrize(
    "topic",
    [
        "orders",
        pytest.param("__cluster_metadata", marks=pytest.mark.sweep),
        pytest.param("nothing", marks=pytest.mark.sweep),
    ],
)
def test_every_request_in_every_version(
    broker: Broker, client: RawClient, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic_id = create_topic(client, "orders")
    assert produce(client, "orders", batch(b"a", b"b")).error_code == 0
    open_transaction(client, TRANSACTION)
    joined = stable_member(client)
    client.call(commit_request({0: 1}, topic_id, **as_member(joined)))
    served = {
        each.api_key: each for each in client.call(kafka_wire.ApiVersionsRequest(), 2).api_keys
    }
    caplog.set_level(logging.ERROR)
    answered = 0
    for info in kafka_wire.requests():
        limits = served.get(info.key)
        if limits is None or info.api_name in LEFT_OUT:
            continue
        cls = kafka_wire.request_class(info.key)
        for version in range(limits.min_version, limits.max_version + 1):
            layout = kafka_wire.layout(cls, version)
            for request in (cls(), filled(cls, layout, topic, topic_id)):
                with RawClient(broker.port) as other:
                    other.socket.settimeout(0.2)
                    try:
                        other.call(request, version)
                        answered += 1
                    except (ConnectionError, TimeoutError):
                        pass  # refused with a line in the log, or it waits for others
    failed = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert not failed
    assert answered > 400
