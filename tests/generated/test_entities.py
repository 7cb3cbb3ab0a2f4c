"""Entities of every message-version: a walker finds and replaces exactly the fields that the layout marks."""

from __future__ import annotations

from typing import Any

from krammar.wire.layout import Array, Layout, Nested
from krammar.wire.reflection import entity_paths, walker
from tests.generated.catalogue import Message, messages
from tests.generated.parameters import every_message
from tests.generated.strategies import samples
from tests.generated.values import build

ENTITIES = ("topicName", "groupId", "transactionalId")


def marked(value: Any, layout: Layout) -> list[str]:
    """The values of the entities in an object, in the order of the layout."""
    found: list[str] = []

    def visit(value: Any, type_: Any, entity: str) -> None:
        if value is None:
            return
        if isinstance(type_, Array):
            for element in value:
                visit(element, type_.element, entity)
        elif isinstance(type_, Nested):
            found.extend(marked(value, type_.layout))
        elif entity in ENTITIES:
            found.append(value)

    for item in (*layout.fields, *layout.tags):
        visit(getattr(value, item.name), item.type, item.entity)
    return found


@every_message
def test_rename_and_rename_back(message: Message) -> None:
    assert message.versions
    for version in message.versions:
        layout = message.layout(version)
        walk = walker(message.cls, version, *ENTITIES)
        for plain in samples(message, version, seed=8)[:4]:
            value = build(message, layout, plain)
            data = message.encode(value, version)
            expected = marked(value, layout)
            seen: list[str] = []

            walk(value, seen.append)
            assert seen == expected
            walk(value, lambda name: f"tenant.{name}")
            assert marked(value, layout) == [f"tenant.{name}" for name in expected]
            walk(value, lambda name: name.removeprefix("tenant."))
            assert message.encode(value, version) == data


def test_many_messages_have_entities() -> None:
    found = {
        message.name
        for message in messages()
        for version in message.versions
        if entity_paths(message.cls, version, *ENTITIES)
    }
    assert len(found) > 100
    assert {
        "ProduceRequest",
        "FetchResponse",
        "OffsetCommitRequest",
        "AddOffsetsToTxnRequest",
    } <= found
