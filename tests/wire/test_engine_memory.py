"""The engine frees what it allocates, and survives every allocation that fails."""

from __future__ import annotations

import gc
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import kafka_wire
import pytest

from krammar.wire.errors import WireError
from krammar.wire.skip import TAGGED, check_elements, walk_of
from krammar.wire.splice import change_of
from tests.support.waiting import PATIENCE
from tests.wire.both import needs_engine

pytestmark = needs_engine

ROOT = Path(__file__).parents[2]
MARKS = ("topicName", "brokerId", "transactionalId", TAGGED)
TEXT, ID, UNKNOWN = "topic-é", UUID(int=5), {99: b"unknown"}


def values() -> list[tuple[Any, int]]:
    """Messages with all that the engine allocates memory for, and their versions."""
    topic, partition = kafka_wire.MetadataResponse.Topic, kafka_wire.MetadataResponse.Partition
    partitions = [partition(partition_index=n, replica_nodes=[1 << 30, 2, 3]) for n in range(30)]
    metadata = kafka_wire.MetadataResponse(
        cluster_id="cluster", topics=[topic(name=TEXT, topic_id=ID, partitions=partitions)]
    )
    metadata.topics[0].unknown_tags = dict(UNKNOWN)
    data = kafka_wire.ProduceRequest.TopicProduceData(topic_id=ID)
    data.partition_data = [kafka_wire.ProduceRequest.PartitionProduceData(records=b"records" * 400)]
    produce = kafka_wire.ProduceRequest(transactional_id=TEXT, topic_data=[data])
    versions = kafka_wire.ApiVersionsResponse(
        finalized_features_epoch=1 << 40, zk_migration_ready=True
    ).with_unknown_tags(UNKNOWN)
    return [(metadata, 13), (produce, 13), (versions, 5)]


def calls() -> list[Callable[[], Any]]:
    """Valid and invalid calls of each method."""
    found: list[Callable[[], Any]] = []
    for value, version in values():
        cls, data = type(value), value.encode(version)
        found += [
            partial(value.encode, version),
            partial(_encode_into, value, version),
            partial(cls.decode, data, version),
            partial(cls.decode, data, version, copy=False),
            partial(cls.decode_from, b"\0" + data, 1, version),
            partial(cls._decode_quietly, data + b"\0", 0, version),
            partial(walk_of(cls, version, MARKS), data, 0, len(data)),
            partial(check_elements, cls, version, data, 0, 1 << 20),
        ]
    # More names than the engine has room for without an allocation, and a rest that becomes a view.
    topics = [kafka_wire.MetadataRequest.Topic(name=TEXT) for _ in range(100)]
    produced = kafka_wire.ProduceRequest.TopicProduceData(name=TEXT)
    produced.partition_data = [kafka_wire.ProduceRequest.PartitionProduceData(records=bytes(5000))]
    for request in (
        kafka_wire.MetadataRequest(topics=topics),
        kafka_wire.ProduceRequest(topic_data=[produced]),
    ):
        frame = bytes(4) + kafka_wire.RequestHeader().encode(2) + request.encode(12)
        body = (type(request), 12)
        change = change_of((kafka_wire.RequestHeader, 2), body, MARKS, MARKS[:1], True, True)
        found.append(partial(_changed, change, frame))
    return found


def _changed(change: Any, frame: bytes) -> Any:
    found = change(frame, 0, len(frame), b"blue.")
    return found and [bytes(piece) for piece in found[1] or ()]


def _encode_into(value: Any, version: int) -> None:
    value.encode_into(bytearray(b"x"), version)


def damaged() -> list[Callable[[], Any]]:
    found: list[Callable[[], Any]] = []
    for value, version in values():
        cls, data = type(value), value.encode(version)
        for end in range(0, len(data), len(data) // 20 + 1):
            found.append(partial(cls._decode_quietly, data[:end], 0, version))
            found.append(partial(walk_of(cls, version, MARKS), data[:end], 0, end))
        setattr(value, cls._fields[-1], "wrong")
        found.append(partial(value.encode, version))
    return found


def _run(call: Callable[[], Any]) -> None:
    with suppress(WireError):
        call()


def references() -> list[int]:
    """The reference counts of objects that the engine gives away or holds for a moment."""
    fields = kafka_wire.MetadataResponse()
    held = [None, True, TEXT, ID, 1 << 30, fields.cluster_id, type(fields), UUID, UNKNOWN[99]]
    return [sys.getrefcount(each) for each in held]


def test_nothing_leaks() -> None:
    """After 50,000 runs, reference counts and memory are what they were."""
    valid, invalid = calls(), damaged()
    for call in (*valid, *invalid):
        _run(call)
    gc.collect()
    before = references()
    tracemalloc.start()
    try:
        for call in (*valid, *invalid):
            _run(call)
        began = tracemalloc.get_traced_memory()[0]
        for _ in range(50_000 // len(valid) // 10 + 1):
            for call in valid:
                _run(call)
        for _ in range(100):
            for call in invalid:
                _run(call)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] - began < 10_000
    finally:
        tracemalloc.stop()
    for _ in range(50_000 // len(valid)):
        for call in valid:
            call()
    gc.collect()
    after = references()
    assert max(abs(a - b) for a, b in zip(after, before, strict=True)) < 100, (before, after)


def test_decoded_cycles_are_collected() -> None:
    """Decoded objects are as visible to the garbage collector as others."""

    class Watched(kafka_wire.MetadataRequest):
        pass

    gc.collect()
    before = len([each for each in gc.get_objects() if type(each) is Watched])
    for _ in range(10):
        found = Watched.decode(kafka_wire.MetadataRequest().encode(12), 12)
        found.topics = [found]  # type: ignore[list-item]
    del found
    gc.collect()
    assert before == len([each for each in gc.get_objects() if type(each) is Watched]) == 0


# Each allocation fails once, alone or with the next two, until calls make no more of them.
_NO_MEMORY = """
import _testcapi
from tests.wire.test_engine_memory import calls
failures = 0
for call in calls():
    expected = call()
    for more in (1, 3):
        number = completed = 0
        while completed < 20:
            number += 1
            found = failed = None
            _testcapi.set_nomemory(number, number + more)
            try:
                found = call()
            except MemoryError:
                failed = True
            _testcapi.remove_mem_hooks()
            completed = 0 if failed else completed + 1
            failures += bool(failed)
            assert failed or found == expected, (found, expected)
            del found
print(failures)
"""


def test_allocations_that_fail() -> None:
    pytest.importorskip("_testcapi", reason="this Python has no module _testcapi")
    done = subprocess.run(
        [sys.executable, "-c", _NO_MEMORY],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert int(done.stdout) > 1000
