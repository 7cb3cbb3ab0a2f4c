"""Changing names in the bytes of a frame: the engine and pure Python write the same frames."""

from __future__ import annotations

from random import Random
from typing import Any

import kafka_wire
import pytest

from krammar.wire import skip
from krammar.wire import splice as splicing
from krammar.wire.skip import TAGGED
from tests.generated.catalogue import Message
from tests.generated.mutations import mutations
from tests.support.groups import in_groups
from tests.wire.both import needs_engine
from tests.wire.test_engine import encoded

pytestmark = needs_engine

NAMES = ("topicName", "groupId")


HEADERS = {True: (kafka_wire.RequestHeader, 2), False: (kafka_wire.RequestHeader, 1)}
# The first flexible version of Produce, and the one before.
VERSIONS = {True: 9, False: 8}


def pair(monkeypatch: pytest.MonkeyPatch, *arguments: Any) -> list[Any]:
    """A change with the engine, and one in pure Python."""
    usual = splicing.change_of(*arguments)
    with monkeypatch.context() as patch:
        patch.setattr(skip, "program_of", lambda *_: None)
        patch.setattr(splicing, "program_of", lambda *_: None)
        return [usual, splicing.change_of(*arguments)]


def both(changes: list[Any], *arguments: Any) -> list[bytes] | None:
    """The pieces that both give, as bytes."""
    found = [change(*arguments) for change in changes]
    assert None not in found
    pieces = [each[1] for each in found]
    shown = [None if each is None else [bytes(piece) for piece in each] for each in pieces]
    assert shown[0] == shown[1], arguments
    ours, theirs = ([type(piece) for piece in each or ()] for each in pieces)
    assert ours == theirs
    assert found[0][0] == found[1][0]
    return shown[0]


def frame(rng: Random, compact: bool, prefix: bytes) -> bytes:
    """A frame after two other bytes, with names of many sizes that are not all null."""
    topic, partition = (
        kafka_wire.ProduceRequest.TopicProduceData,
        kafka_wire.ProduceRequest.PartitionProduceData,
    )

    def name() -> str:
        size = rng.choice((0, 1, 5, 121, 122, 126, 127, 16_378, 32_567 - 200 * bool(prefix)))
        return prefix.decode() * (rng.random() < 0.9) + "n" * size

    def records() -> bytes:
        return rng.randbytes(rng.choice((0, 1, 30, 3000, 4096, 4097, 5000)))

    request = kafka_wire.ProduceRequest(
        transactional_id=None if rng.random() < 0.3 else name(),
        topic_data=[
            topic(name=name(), partition_data=[partition(records=records())])
            for _ in range(rng.randrange(4))
        ],
    )
    data = HEADERS[compact][0]().encode(HEADERS[compact][1]) + request.encode(VERSIONS[compact])
    return b"xy" + len(data).to_bytes(4, "big") + data


@pytest.mark.parametrize("number", [1000, pytest.param(30_000, marks=pytest.mark.sweep)])
def test_random_frames(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng, names = Random(number), ("topicName", "transactionalId")
    changes = {
        (compact, adds): pair(
            monkeypatch,
            HEADERS[compact],
            (kafka_wire.ProduceRequest, VERSIONS[compact]),
            names,
            names,
            adds,
            compact,
        )
        for compact in (True, False)
        for adds in (True, False)
    }
    refused = changed = viewed = 0
    for _ in range(number):
        compact, adds = rng.random() < 0.5, rng.random() < 0.5
        prefix = rng.choice((b"blue.", b"a" * 200, b"a" * 201))
        data = frame(rng, compact, b"" if adds else prefix)
        found = both(changes[compact, adds], bytearray(data + b"z" * 9), 2, len(data), prefix)
        if found is None:
            refused += 1
            continue
        changed += 1
        viewed += len(found) == 2
        whole = b"".join(found)
        assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    assert min(refused, changed, viewed) > number / 20


def test_a_name_gets_and_loses_its_prefix() -> None:
    """The reference writes these bytes."""
    splice = splicing.splice
    data = b"\0\0\0\x08" + b"ab\x04abc" + b"zz"
    added = splice(data, 0, len(data), [("topicName", 6, 7, 10)], NAMES, b"blue.", True, True)
    assert added == [b"\0\0\0\x0d" + b"ab\x09blue.abc" + b"zz"]
    whole = bytes(added[0])
    again = splice(whole, 0, len(whole), [("topicName", 6, 7, 15)], NAMES, b"blue.", False, True)
    assert again == [data]
    assert splice(data, 0, len(data), [("topicName", 6, 7, 10)], NAMES, b"b.", False, True) is None


CHANGED: list[tuple[Any, int]] = [
    (cls, version)
    for request in (
        kafka_wire.ProduceRequest,
        kafka_wire.FetchRequest,
        kafka_wire.OffsetCommitRequest,
    )
    for cls in (request, request.response_class)
    for version in range(cls.min_version, cls.max_version + 1)
]


@in_groups(("cls", "version"), CHANGED, ids=lambda case: f"{case[0].__name__} v{case[1]}")
def test_whole_frames(cls: Any, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames as they are, with mutated bytes, and with a prefix that their names have or lack."""
    of_requests = hasattr(cls, "response_class")
    headers = kafka_wire.header_versions(cls.api_key, version)
    header: Any = kafka_wire.RequestHeader if of_requests else kafka_wire.ResponseHeader
    head = (header, headers.request if of_requests else headers.response)
    compact = kafka_wire.layout(cls, version).flexible
    marks = (*NAMES, "brokerId", "errorMessage", TAGGED)
    changes = [
        pair(monkeypatch, head, (cls, version), marks, NAMES, adds, compact)
        for adds in (True, False)
    ]
    rng, changed = Random(f"{cls} {version}"), 0
    bodies = encoded(Message(kafka_wire, cls, (version,)), version)
    plain, tagged = header().encode(head[1]), header().with_unknown_tags({9: b"x"})
    heads = [plain, tagged.encode(head[1])] if head[1] > (not of_requests) else [plain]
    frames = [first + body for first in heads for body in bodies]
    short = [frame for frame in frames if len(frame) < 500]
    for frame in (*frames, *mutations(short, rng, 100)):
        data = b"xy" + len(frame).to_bytes(4, "big") + frame
        for prefix in (b"", b"blue.", b"t"):
            for each in changes:
                found = [_shown(change(data, 2, len(data), prefix)) for change in each]
                assert found[0] == found[1], (data, prefix)
                changed += found[0] is not None and found[0][1] is not None
    assert changed


def _shown(changed: Any) -> Any:
    """What a change has found, with bytes instead of views."""
    if changed is None or changed[1] is None:
        return changed
    return changed[0], list(map(bytes, changed[1]))


DATA = bytes(40)


@pytest.mark.parametrize(
    ("at", "wrong"),
    [
        (0, None),
        (1, "text"),
        (2, 37),
        (2, -1),
        (3, 41),
        (3, 2),
        (4, [3]),
        (5, [3]),
        (6, "b"),
        (7, 1),
    ],
)
def test_wrong_calls_of_change(at: int, wrong: Any) -> None:
    program = kafka_wire.FetchRequest._load_program(4)
    assert program is not None
    valid: tuple[Any, ...] = (program, DATA, 0, 40, NAMES, NAMES, b"b.", True, True)
    assert program.change(*valid) is None  # the bytes are no frame
    with pytest.raises(TypeError):
        program.change(*valid[:at], wrong, *valid[at + 1 :])  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        program.change(*valid[:at])
