"""Rules for a topic find it by its id, after a response has named it. What is learned is bounded."""

from __future__ import annotations

from uuid import UUID

import pytest
from kafka_wire import MetadataResponse

from krammar.faults.engine import LearnedNames
from krammar.faults.shape import Schema
from tests.faults.support import PACKAGE

SHAPE = Schema(PACKAGE).shape(MetadataResponse, 12)


def metadata(*topics: tuple[int, str]) -> MetadataResponse:
    return MetadataResponse(
        topics=[MetadataResponse.Topic(name=name, topic_id=UUID(int=n)) for n, name in topics]
    )


def known(learned: LearnedNames) -> list[str | None]:
    return [learned(UUID(int=number)) for number in range(1, 6)]


def test_names_are_learned_with_their_ids() -> None:
    learned = LearnedNames()
    learned.learn(metadata((1, "a"), (2, ""), (0, "nobody")), SHAPE)
    assert known(learned) == ["a", None, None, None, None]
    assert learned(UUID(int=0)) is None
    learned.learn(metadata((1, "b")), SHAPE)
    assert learned(UUID(int=1)) == "b"


def test_the_names_that_were_learned_first_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LearnedNames, "MOST", 3)
    learned = LearnedNames()
    learned.learn(metadata((1, "a"), (2, "b"), (3, "c")), SHAPE)
    assert known(learned) == ["a", "b", "c", None, None]
    # Naming a topic again makes it the last one.
    learned.learn(metadata((1, "a")), SHAPE)
    learned.learn(metadata((4, "d")), SHAPE)
    assert known(learned) == ["a", None, "c", "d", None]
    learned.learn(metadata(*((n, f"t{n}") for n in range(1, 1_000))), SHAPE)
    assert known(learned) == [None] * 5
    assert [learned(UUID(int=n)) for n in (996, 997, 998, 999)] == [None, "t997", "t998", "t999"]


def test_names_that_are_known_otherwise_are_not_stored() -> None:
    topics = {UUID(int=1): "a"}
    learned = LearnedNames(topics.get)
    assert (learned.learns, LearnedNames().learns) == (False, True)
    assert known(learned) == ["a", None, None, None, None]
