"""Reading journals, by one task or by many; Spark itself is in test_journal_write.py."""

from __future__ import annotations

import logging
import pickle
import random
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")

import journal_wire as wire
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from krammar.broker import Broker
from krammar.client import Client
from krammar.journal import (
    FIXED_CONTENT_TYPE,
    JSON_CONTENT_TYPE,
    Envelope,
    FileJournals,
    FrameError,
    JournalSpec,
    ProducerID,
    ReadCommittedIter,
    ReadUncommittedIter,
    TopicJournals,
    build_uuid,
    framing_by_content_type,
    get_clock,
    get_flags,
    time_of,
)
from krammar.journal.fixed_framing import MAGIC_WORD
from krammar.spark.datasource import KrammarDataSource
from krammar.spark.errors import (
    BrokerError,
    MalformedRecordError,
    MissingDataError,
    OptionError,
    SparkSourceError,
)
from krammar.spark.journal.committed import CommittedPart, Filter, Scan
from krammar.spark.journal.row_columns import RowColumns
from krammar.spark.journal.runs import MessageColumns, MessageRun
from krammar.spark.journal.source import JournalReader
from krammar.spark.journal.splits import boundary
from krammar.spark.journal.uuid_columns import UuidColumns

Found = list[tuple[str, int, int]]
NEVER = timedelta(days=100_000)


def reader_of(path: Path | None, **options: object) -> tuple[JournalReader, list[Any]]:
    """A reader and its tasks, as they get to executors."""
    given = {name.replace("__", "."): str(value) for name, value in options.items()}
    if path is not None:
        given["path"] = str(path)
    source = KrammarDataSource({"source": "journal", **given})
    reader = source.reader(source.schema())
    assert isinstance(reader, JournalReader)
    tasks = reader.partitions()
    return pickle.loads(pickle.dumps(reader)), pickle.loads(pickle.dumps(tasks))


def rows(path: Path | None, **options: object) -> list[dict[str, Any]]:
    reader, tasks = reader_of(path, **options)
    return [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]


def places(path: Path | None, **options: object) -> Found:
    return [(row["journal"], row["beginOffset"], row["endOffset"]) for row in rows(path, **options)]


def uuid(producer: int, clock: int, flags: int) -> UUID:
    return build_uuid(ProducerID(producer.to_bytes(6, "big")), clock, flags)


def message(producer: int, clock: int, flags: int, value: bytes = b"") -> wire.Row:
    """Return a message with these parts of a UUID."""
    return wire.Row(uuid=uuid(producer, clock, flags), value=value)


def fill(journals: FileJournals | TopicJournals, journal: str, messages: Iterable[Any]) -> None:
    """Append messages to a journal."""
    framing = journals.spec(journal).framing
    for each in messages:
        journals.append(journal, framing.marshal(each))
    journals.flush()


# Which messages are committed.

Action = tuple[int, int, int]  # the producer, clock and flags of a message

producers, clocks = st.integers(1, 3), st.integers(0, 9)
single = st.tuples(producers, clocks, st.sampled_from([0, 1, 1, 1, 1, 2, 2, 3])).map(
    lambda action: [action]
)
ascending = st.builds(
    lambda producer, chosen: [(producer, clock, 1) for clock in sorted(chosen)],
    producers,
    st.sets(clocks, min_size=2, max_size=5),
)
actions: st.SearchStrategy[list[Action]] = st.lists(st.one_of(single, ascending), max_size=30).map(
    lambda groups: [action for group in groups for action in group]
)


def runs_of(envelopes: Sequence[Envelope], size: int) -> Iterator[MessageRun]:
    """Yield messages as runs; ``size`` of them were read together."""
    for at in range(0, len(envelopes), size):
        some = envelopes[at : at + size]
        begins = pa.array([each.begin for each in some], pa.int64())
        ends = pa.array([each.end for each in some], pa.int64())
        uuids = UuidColumns.of(each.message.uuid for each in some)
        yield from MessageColumns(begins, ends, uuids).runs()


def passing(part: CommittedPart, envelopes: Sequence[Envelope], size: int) -> list[int]:
    """Return the offsets of the messages of a part that are committed, decided one by one and in runs."""
    part, again = pickle.loads(pickle.dumps((part, part)))
    inside = [each for each in envelopes if part.begin <= each.begin < part.end]
    passes, chosen = Filter(part).passes, Filter(again)
    found = [each.begin for each in inside if passes(each.begin, each.message.uuid.int)]
    in_runs = []
    for run in runs_of(inside, size):
        offsets = [begin for begin, _, _ in run.messages()]
        for first, stop in chosen.passing(run):
            in_runs += offsets[first - run.first : stop - run.first]
    assert in_runs == found
    return found


@given(actions, st.integers(1, 20))
def test_runs_have_all_messages(sent: list[Action], size: int) -> None:
    every = [Envelope("j", n, n + 1, message(*action)) for n, action in enumerate(sent)]
    found = [
        (run, list(run.messages()), [get_clock(each.message.uuid) for each in every])
        for run in runs_of(every, size)
    ]
    assert [each for _, messages, _ in found for each in messages] == [
        (each.begin, each.end, each.message.uuid.int) for each in every
    ]
    for run, messages, of_all in found:
        assert (run.begin, run.end, run.last) == (messages[0][0], messages[-1][1], messages[-1][0])
        assert (run.number, run.count) == (messages[0][2], len(messages))
        clocks = of_all[run.begin : run.end]
        assert (run.lowest, run.highest) == (clocks[0], clocks[-1])
        assert clocks == sorted(set(clocks))
        for offset in range(run.begin, run.last + 1):
            before, rest = run.split(offset)
            parts = [rest] if before is None else [before, rest]
            assert rest.begin == offset
            assert [each for part in parts for each in part.messages()] == messages
            assert (parts[0].lowest, rest.highest) == (clocks[0], clocks[-1])


@given(actions, st.sets(st.integers(0, 40)), st.integers(1, 20))
@settings(max_examples=200)
def test_parts_have_what_the_sequencer_gives(sent: list[Action], cuts: set[int], size: int) -> None:
    """Producers write any messages in any order, and the journal is split anywhere."""
    with tempfile.TemporaryDirectory() as folder, FileJournals(folder) as journals:
        journals.create("j")
        fill(journals, "j", [message(*each) for each in sent])
        expected = sorted(
            envelope.begin for envelope in ReadCommittedIter(journals.reader("j"), wire.Row)
        )
        every = list(ReadUncommittedIter(journals.reader("j"), wire.Row))
    scan = Scan(0)
    in_runs = Scan(0)
    marks = [0, *sorted(cut for cut in cuts if 0 < cut < len(every)), len(every)]
    for begin, end in pairwise(marks):
        if begin:
            scan.cut(every[begin].begin)
            in_runs.cut(every[begin].begin)
        for envelope in every[begin:end]:
            scan.add(envelope.begin, envelope.end, envelope.message.uuid.int)
        for run in runs_of(every[begin:end], size):
            in_runs.add_run(run)
    parts = scan.take()
    assert in_runs.take() == parts
    assert in_runs.producers(NEVER, 0) == scan.producers(NEVER, 0)
    assert [offset for part in parts for offset in passing(part, every, size)] == expected


# Rows as columns.

FIXED = framing_by_content_type(FIXED_CONTENT_TYPE)
some_bytes = st.one_of(st.none(), st.binary(max_size=20))


@given(
    st.lists(st.tuples(st.uuids(), some_bytes, some_bytes), min_size=1, max_size=8),
    st.integers(0, 7),
)
def test_rows_as_columns(
    given_rows: list[tuple[UUID, bytes | None, bytes | None]], cut: int
) -> None:
    """Arrow decodes them; the framing decodes the same one by one. Batches of topics are slices of larger ones."""
    frames = [FIXED.marshal(wire.Row(uuid=u, key=k, value=v)) for u, k, v in given_rows]
    first = min(cut, len(frames) - 1)
    rows = RowColumns.of(pa.array(frames, pa.binary())[first:])
    assert rows is not None
    mask = pa.array([index % 2 == 0 for index in range(len(frames) - first)])
    for found, wanted in ((rows, given_rows[first:]), (rows.filter(mask), given_rows[first::2])):
        assert found.uuids.texts().to_pylist() == [str(u) for u, _, _ in wanted]
        assert found.keys().to_pylist() == [k for _, k, _ in wanted]
        assert found.values().to_pylist() == [v for _, _, v in wanted]


edits = st.lists(
    st.tuples(st.integers(0, 60), st.sampled_from([0, 1, 2, 8, 0x66, 0x7F, 0x80, 0xFE, 0xFF])),
    max_size=3,
)


@given(some_bytes, some_bytes, edits, st.integers(-60, 3), st.integers(0, 1))
@settings(max_examples=500)
def test_rows_as_columns_are_never_wrong(
    key: bytes | None, value: bytes | None, edits: list[tuple[int, int]], size: int, headers: int
) -> None:
    """If Arrow decodes damaged frames, the framing decodes the same. Frames that it cannot decode are left to it."""
    added = [wire.Row.Header(key="h", value=b"1")] * headers
    good = FIXED.marshal(wire.Row(uuid=UUID(int=7), key=key, value=value, headers=added))
    data = bytearray(good)
    for at, octet in edits:
        data[at % len(data)] = octet
    frame = bytes(data[:size] if size < 0 else data + bytes(size))
    rows = RowColumns.of(pa.array([good, frame, good], pa.binary()))
    try:
        decoded = FIXED.unmarshal(frame, wire.Row)
    except FrameError:
        assert rows is None
        return
    if decoded.headers or rows is None:
        assert rows is None and frame != FIXED.marshal(
            wire.Row(uuid=UUID(int=7), key=key, value=value)
        )
    else:
        assert rows.uuids.texts()[1].as_py() == str(decoded.uuid)
        assert rows.keys()[1].as_py() == decoded.key
        assert rows.values()[1].as_py() == decoded.value


# Where frames begin.

payloads = st.lists(
    st.one_of(
        st.binary(max_size=30),
        st.sampled_from([MAGIC_WORD, MAGIC_WORD + b"\x00\x00\x00\x00", MAGIC_WORD * 3, b"\n{}\n"]),
        st.binary(max_size=9).map(lambda data: MAGIC_WORD + len(data).to_bytes(4, "little") + data),
    ),
    min_size=1,
    max_size=6,
)


@given(payloads, st.sampled_from([FIXED_CONTENT_TYPE, JSON_CONTENT_TYPE]), st.integers(20, 200))
@settings(max_examples=60)
def test_files_are_split_at_every_byte(
    values: list[bytes], content_type: str, fragment_bytes: int
) -> None:
    """With messages that look like frames; what two tasks read is what one reads."""
    with (
        tempfile.TemporaryDirectory() as folder,
        FileJournals(folder, fragment_bytes=fragment_bytes) as journals,
    ):
        journals.create(JournalSpec("a/0", content_type))
        for clock, value in enumerate(values, 1):
            fill(journals, "a/0", [message(1, clock, 0, value)])
        expected = [
            (envelope.begin, envelope.end)
            for envelope in ReadUncommittedIter(journals.reader("a/0"), wire.Row)
        ]
        assert len(expected) == len(values)
        begins = {begin for begin, _ in expected}
        end = journals.offsets("a/0")[1]
        framing = framing_by_content_type(content_type)
        last = 0
        for target in range(end + 2):
            found = boundary(Path(folder, "a/0"), framing, wire.Row, target, end)
            assert found in begins | {end} and found >= min(target, end) and found >= last
            last = found


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_tasks_have_each_message_once(tmp_path: Path, level: str) -> None:
    chance = random.Random(3)
    with FileJournals(tmp_path, fragment_bytes=3000) as journals:
        for number in range(3):
            journals.create(f"orders/part-{number}")
            fill(
                journals,
                f"orders/part-{number}",
                [
                    message(
                        chance.randrange(5),
                        clock,
                        chance.choice([0, 1, 1, 1, 2]),
                        b"v" * (clock % 50),
                    )
                    for clock in range(1, 200)
                ],
            )
    whole = places(tmp_path, kafka__isolation__level=level)
    assert len(whole) > 100
    for split in (90, 1000, 10_000):
        options = {"kafka__isolation__level": level, "splitBytes": split}
        assert sorted(places(tmp_path, **options)) == sorted(whole)
    _, tasks = reader_of(tmp_path, kafka__isolation__level=level, minPartitions=12)
    assert len(tasks) >= 12
    assert sorted(places(tmp_path, kafka__isolation__level=level, minPartitions=12)) == sorted(
        whole
    )


def test_a_boundary_is_not_a_frame_in_a_message(tmp_path: Path) -> None:
    """A message consists of whole frames."""
    inner = framing_by_content_type(FIXED_CONTENT_TYPE).marshal(message(9, 9, 0, b"inner"))
    with FileJournals(tmp_path) as journals:
        journals.create("a/0")
        fill(journals, "a/0", [message(1, n, 0, inner * 20) for n in range(1, 4)])
        expected = places(tmp_path)
    assert len(expected) == 3
    assert places(tmp_path, kafka__isolation__level="read_uncommitted", splitBytes=50) == expected


# Columns and options.

version_1 = st.builds(
    uuid, st.integers(0, 2**48 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**10 - 1)
)


@given(st.lists(st.one_of(st.uuids(), version_1, st.just(uuid(1, 0, 2)), st.just(UUID(int=0)))))
def test_columns_of_uuids(uuids: list[UUID]) -> None:
    """Arrow computes them; ``krammar.journal`` computes the same one by one."""
    columns = UuidColumns.of(uuids)
    are = [found.version == 1 for found in uuids]
    times = [
        time_of(get_clock(found)) // 1000 if known and get_clock(found) else None
        for found, known in zip(uuids, are, strict=True)
    ]
    flags = [
        int(get_flags(found)) if known else None for found, known in zip(uuids, are, strict=True)
    ]
    assert columns.texts().to_pylist() == [str(found) for found in uuids]
    assert columns.timestamps().to_pylist() == times
    assert columns.flags().to_pylist() == flags


def test_columns(tmp_path: Path) -> None:
    with FileJournals(tmp_path) as journals:
        journals.create("t/0")
        first = wire.Row(
            uuid=UUID("1b9d6bcd-bbfd-11ec-8004-010203040506"),
            key=b"k",
            value=None,
            headers=[wire.Row.Header(key="h", value=b"1"), wire.Row.Header(key="n")],
        )
        fill(journals, "t/0", [first, wire.Row(value=b"no uuid")])
    one, two = rows(tmp_path, includeHeaders=True)
    assert one.pop("timestamp").timestamp() == pytest.approx(1649930000, abs=1e7)
    assert one == {
        "uuid": "1b9d6bcd-bbfd-11ec-8004-010203040506",
        "key": b"k",
        "value": None,
        "headers": [{"key": "h", "value": b"1"}, {"key": "n", "value": None}],
        "journal": "t/0",
        "beginOffset": 0,
        "endOffset": two["beginOffset"],
        "flags": 4,
    }
    assert (two["value"], two["headers"], two["timestamp"], two["flags"]) == (
        b"no uuid",
        None,
        None,
        None,
    )
    assert "headers" not in rows(tmp_path)[0]


def test_topics_and_patterns_choose_journals(tmp_path: Path) -> None:
    with FileJournals(tmp_path) as journals:
        for name in ("a/part-10", "a/part-2", "b/0", "b/c/0"):
            journals.create(name)
            fill(journals, name, [message(1, 1, 0)])

    def names(**options: object) -> list[str]:
        return [row["journal"] for row in rows(tmp_path, **options)]

    assert names() == ["a/part-2", "a/part-10", "b/0", "b/c/0"]
    assert names(subscribe="b,a") == ["a/part-2", "a/part-10", "b/0"]
    assert names(subscribePattern="^b/c$|^a$") == ["a/part-2", "a/part-10", "b/c/0"]
    with pytest.raises(MissingDataError, match="topic 'nothing' has no journals"):
        names(subscribe="nothing")
    with pytest.raises(MissingDataError, match="does not exist"):
        rows(tmp_path / "nowhere")


@pytest.mark.parametrize("messages", [0, 1, 40])
def test_a_journal_that_is_created_again_after_planning(tmp_path: Path, messages: int) -> None:
    for number, options in enumerate(
        (
            {},
            {"splitBytes": 400},
            {"splitBytes": 400, "kafka__isolation__level": "read_uncommitted"},
        )
    ):
        root = tmp_path / f"{number}"
        with FileJournals(root) as journals:
            journals.create("a/0")
            fill(journals, "a/0", [message(1, clock, 0, b"old") for clock in range(1, 21)])
            reader, tasks = reader_of(root, **options)
            assert len(tasks) > number // 2
            shutil.rmtree(journals.folder("a/0"))
        with FileJournals(root) as journals:
            journals.create("a/0")
            fill(journals, "a/0", [message(2, clock, 0, b"new") for clock in range(1, messages)])
        for task in tasks:
            with pytest.raises(SparkSourceError, match="the journal was deleted and created again"):
                list(reader.read(task))


def test_damaged_frames_are_skipped_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with FileJournals(tmp_path) as journals:
        journals.create("a/0")
        framing = journals.spec("a/0").framing
        good = [framing.marshal(message(1, n, 0, b"%d" % n)) for n in (1, 2, 3)]
        bad = MAGIC_WORD + b"\x03\x00\x00\x00bad"
        for data in (good[0], bad, good[1], b"what is this", good[2]):
            journals.append("a/0", data)
    for options in ({}, {"splitBytes": 40}, {"kafka__isolation__level": "read_uncommitted"}):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "krammar.journal"):
            assert [row["value"] for row in rows(tmp_path, **options)] == [b"1", b"2", b"3"]
        at = len(good[0])
        assert f"a/0: skipping offsets {at} to {at + len(bad)}" in caplog.text
    with pytest.raises(MalformedRecordError, match=f"a/0, offsets {at} to {at + len(bad)}"):
        rows(tmp_path, mode="FAILFAST")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"mode": "PERMISSIVE"}, "option 'mode': source=journal needs DROPMALFORMED or FAILFAST"),
        ({"decode": "JournalHead"}, "option 'decode'"),
        (
            {"decode": "journal_wire.JournalHead"},
            "JournalHead is not a message: its definition has no field UUID",
        ),
        ({"decode": "journal_wire.Row", "includeHeaders": "true"}, "'includeHeaders'"),
        ({"kafka.bootstrap.servers": "x:1"}, "journals in files need no broker"),
        ({"contentType": "application/x-ndjson"}, "has no meaning for journals in files"),
        ({"maxRecordsPerPartition": "5"}, "has no meaning for journals in files"),
        ({"startingOffsets": "earliest"}, "has no meaning with source=journal"),
        ({"delivery": "journal"}, "has no meaning with source=journal"),
    ],
)
def test_options_that_do_not_fit(tmp_path: Path, options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError) as failure:
        rows(tmp_path, **options)
    assert text in str(failure.value)


# Topics.


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker.start() as broker, Client(broker.bootstrap_servers) as client:
        client.admin.create_topic("orders", 2)
        with TopicJournals(str(broker.bootstrap_servers)) as journals:
            for number in range(2):
                fill(
                    journals,
                    f"orders/{number}",
                    [
                        message(1, 5 * n + 1 + k, (1, 1, 0, 1, 2)[k])
                        for n in range(20)
                        for k in range(5)
                    ],
                )
        yield broker


@pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
def test_topics(broker: Broker, level: str) -> None:
    servers = {
        "kafka__bootstrap__servers": broker.bootstrap_servers,
        "kafka__isolation__level": level,
    }
    whole = places(None, **servers, subscribe="orders")
    assert len(whole) == {"read_committed": 80, "read_uncommitted": 200}[level]
    assert {journal for journal, _, _ in whole} == {"orders/0", "orders/1"}
    for most in (1, 7, 1000):
        split = places(None, **servers, subscribe="orders", maxRecordsPerPartition=most)
        assert sorted(split) == sorted(whole)
    assert places(None, **servers, subscribePattern="^ord") == whole


def test_errors_of_brokers(broker: Broker) -> None:
    servers = {"kafka__bootstrap__servers": broker.bootstrap_servers}
    with pytest.raises(MissingDataError, match="topic 'nothing' has no journals"):
        rows(None, **servers, subscribe="nothing")
    with pytest.raises(OptionError, match="subscribe"):
        rows(None, **servers)
    with pytest.raises(OptionError, match="splitBytes"):
        rows(None, **servers, subscribe="orders", splitBytes=5)
    with pytest.raises(OptionError, match="contentType"):
        rows(None, **servers, subscribe="orders", contentType="text/plain")
    with pytest.raises(BrokerError, match=r"127\.0\.0\.1:1"):
        rows(
            None,
            kafka__bootstrap__servers="127.0.0.1:1",
            subscribe="orders",
            kafka__default__api__timeout__ms=100,
        )
    # Their own records are no messages.
    assert issubclass(BrokerError, SparkSourceError)
