"""``readStream`` of ``source=journal``: micro-batches of committed messages, restarts, limits, and lost messages."""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

pytest.importorskip("pyspark", reason="PySpark is not installed")
pytest.importorskip("pyspark.sql.streaming.datasource", reason="PySpark 4.2 is not installed")

import journal_wire as wire
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from krammar.broker import Broker
from krammar.client import Client
from krammar.journal import (
    FIXED_CONTENT_TYPE,
    JSON_CONTENT_TYPE,
    FileJournals,
    JournalSpec,
    Publisher,
    ReadCommittedIter,
    ReadUncommittedIter,
    TopicJournals,
    append_intents,
    clock_at,
    framing_by_content_type,
)
from krammar.spark import limits
from krammar.spark.errors import (
    BrokerError,
    DataLossError,
    MalformedRecordError,
    MissingDataError,
    OptionError,
    SparkSourceError,
)
from krammar.spark.journal import source as source_module
from krammar.spark.journal.committed import Scan
from krammar.spark.journal.stream import planner as planner_module
from krammar.spark.journal.stream.positions import JournalPosition, positions_of, positions_to_json
from krammar.spark.options import Options
from tests.spark.journal_stream_support import JournalRun, running
from tests.spark.stream_support import Checkpoint
from tests.spark.test_journal_read import NEVER, Action, actions, fill, message, passing, runs_of
from tests.spark.test_stream_ends import answers, lower_ends, no_topics

FRAMING = framing_by_content_type(FIXED_CONTENT_TYPE)
JOURNAL_ID = UUID(int=7)


# Which messages are committed.


@given(
    actions,
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from("cttr")), max_size=30),
    st.integers(1, 20),
)
@settings(max_examples=300)
def test_micro_batches_have_what_the_sequencer_gives(
    sent: list[Action], steps: list[tuple[int, str]], size: int
) -> None:
    """Producers write any messages in any order. After some of them, a part is cut, or a micro-batch is taken, which may
    be the last one before a restart."""
    with tempfile.TemporaryDirectory() as folder, FileJournals(folder) as journals:
        journals.create("j")
        fill(journals, "j", [message(*each) for each in sent])
        every = list(ReadUncommittedIter(journals.reader("j"), wire.Row))
        committed = [each.begin for each in ReadCommittedIter(journals.reader("j"), wire.Row)]
    scan = Scan(0)
    scanned = 0
    found = []

    def take() -> None:
        for part in scan.take():
            found.extend(passing(part, every, size))

    for count, step in [*steps, (len(every), "t")]:
        for run in runs_of(every[scanned : scanned + count], size):
            scan.add_run(run)
        scanned = min(scanned + count, len(every))
        if step == "c" and scanned < len(every):
            scan.cut(every[scanned].begin)
        elif step in "tr":
            take()
        if step == "r":
            end = JournalPosition(JOURNAL_ID, scan.end, tuple(scan.producers(NEVER, 0)))
            again = positions_of(json.loads(json.dumps(positions_to_json({"j": end}))))["j"]
            assert again == end
            scan = Scan(again.offset, again.producers)
            scanned = sum(each.begin < again.offset for each in every)
    assert sorted(found) == sorted(committed)


# Files and topics.


class Place:
    """Journals ``orders/0`` and ``orders/1``, in files or in a topic, and a writer."""

    def __init__(self, journals: FileJournals | TopicJournals, options: dict[str, object]) -> None:
        self.journals = journals
        self.options = options

    def publisher(self) -> Publisher:
        return Publisher(self.journals)

    def publish(self, publisher: Publisher, *values: str, journal: str = "orders/0") -> None:
        """Publish values, uncommitted."""
        for value in values:
            publisher.publish_uncommitted(
                lambda _: (journal, FRAMING), wire.Row(value=value.encode())
            ).result()

    def acknowledge(self, publisher: Publisher) -> None:
        append_intents(self.journals, publisher.build_ack_intents())

    def committed(self, *values: str, journal: str = "orders/0") -> None:
        """Publish and acknowledge values, with a producer of their own."""
        publisher = self.publisher()
        self.publish(publisher, *values, journal=journal)
        self.acknowledge(publisher)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker.start() as broker:
        yield broker


@pytest.fixture(params=["files", "topics"])
def place(request: pytest.FixtureRequest, tmp_path: Path, broker: Broker) -> Iterator[Place]:
    if request.param == "files":
        with FileJournals(tmp_path / "journals") as files:
            for number in range(2):
                files.create(f"orders/{number}")
            yield Place(files, {"path": tmp_path / "journals"})
        return
    servers = str(broker.bootstrap_servers)
    with Client(servers) as client, TopicJournals(servers) as topics:
        client.admin.create_topic("orders", 2)
        # Answers that are doubtful, such as a missing topic, are asked for again, without long pauses.
        quick = {"kafka.retry.backoff.ms": 10}
        yield Place(topics, {"kafka.bootstrap.servers": servers, "subscribe": "orders", **quick})
        client.admin.delete_topic("orders")


def test_a_micro_batch_has_acknowledged_transactions(place: Place) -> None:
    """One is open while others are acknowledged, and across a restart."""
    long, other = place.publisher(), place.publisher()
    with running(place.options) as run:
        assert run.all() == []
        place.publish(long, "a1", "a2")
        place.publish(other, "b1")
        assert run.all() == []
        place.acknowledge(other)
        assert run.all() == [[b"b1"]]
        place.publish(long, "a3")
        place.committed("c1", "c2")
        place.committed("d1", journal="orders/1")
        assert run.batch(commit=False) == [b"c1", b"c2", b"d1"]
    with running(place.options, run.checkpoint) as run:
        assert run.batch() == [b"c1", b"c2", b"d1"]
        assert run.batch() is None
        place.publish(long, "a4")
        place.acknowledge(long)
        place.publish(other, "b2")
        assert run.batch(commit=False) == [b"a1", b"a2", b"a3", b"a4"]
    with running(place.options, run.checkpoint) as run:
        assert run.batch() == [b"a1", b"a2", b"a3", b"a4"]
        assert run.batch() is None
        place.acknowledge(other)
        assert run.all() == [[b"b2"]]


def test_rows_are_those_of_batches(place: Place) -> None:
    place.committed("a", "b")
    with running({**place.options, "includeHeaders": "true"}) as run:
        tasks = run.plan()
        assert tasks is not None and len(tasks) == 1
        row = run.read(tasks)[0]
    assert row["journal"] == "orders/0" and row["flags"] == 1 and row["headers"] is None
    assert row["beginOffset"] == 0 < row["endOffset"]
    with running({**place.options, "decode": "journal_wire.Row"}) as run:
        tasks = run.plan()
        assert tasks is not None
        assert run.read(tasks)[1]["value"]["value"] == b"b"


@pytest.mark.parametrize("decode", ["", "journal_wire.Row"])
def test_rows_that_differ(place: Place, decode: str) -> None:
    """Some have headers, one is damaged, and another producer's are in between: most are decoded one by one."""
    writer, other = place.publisher(), place.publisher()

    def publish(publisher: Publisher, value: bytes | None, *headers: str) -> None:
        row = wire.Row(value=value, headers=[wire.Row.Header(key=key) for key in headers])
        publisher.publish_uncommitted(lambda _: ("orders/0", FRAMING), row).result()

    options = {**place.options, **({"decode": decode} if decode else {"includeHeaders": "true"})}
    with running(options) as run:
        for value, headers in ((b"a", ()), (None, ()), (b"c", ("h", "i")), (b"d", ())):
            publish(writer, value, *headers)
            publish(other, b"x")
        damaged = FRAMING.marshal(message(1, 1, 1, b"damaged"))
        place.journals.append("orders/0", damaged[:8] + b"\x00\x07" + damaged[10:]).result()
        place.acknowledge(writer)
        place.committed("e", "f")
        tasks = run.plan()
        assert tasks is not None
        rows = run.read(tasks)
    if decode:
        rows = [{**row, **row["value"]} for row in rows]
    assert [row["value"] for row in rows] == [b"a", None, b"c", b"d", b"e", b"f"]
    names = [[header["key"] for header in row["headers"] or []] for row in rows]
    assert names == [[], [], ["h", "i"], [], [], []]


def test_journals_of_json(tmp_path: Path) -> None:
    """The UUIDs of their messages are known only after decoding."""
    with FileJournals(tmp_path) as journals:
        spec = journals.create(JournalSpec("orders/0", JSON_CONTENT_TYPE))
        target = spec.name, spec.framing
        publisher = Publisher(journals)
        for number in range(3):
            row = wire.Row(value=b"%d" % number)
            publisher.publish_uncommitted(lambda _: target, row)
        journals.append("orders/0", b"damaged\n")
        append_intents(journals, publisher.build_ack_intents())
        with running({"path": tmp_path}) as run:
            assert run.all() == [[b"0", b"1", b"2"]]


def test_messages_outside_of_transactions(place: Place) -> None:
    publisher = place.publisher()

    def publish(value: bytes) -> None:
        publisher.publish_committed(lambda _: ("orders/0", FRAMING), wire.Row(value=value)).result()

    with running(place.options) as run:
        for value in (b"1", b"2"):
            publish(value)
            assert run.batch() == [value]
    with running(place.options, run.checkpoint) as run:
        assert run.batch() is None
        publish(b"3")
        assert run.batch() == [b"3"]


def test_rolled_back_transactions_have_no_micro_batch(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But after many messages, one without rows stores the position."""
    publisher = place.publisher()
    with running(place.options) as run:
        for _ in range(2):
            place.publish(publisher, "x")
            append_intents(place.journals, publisher.build_rollback_intents())
        assert run.batch() is None
        monkeypatch.setattr(planner_module, "_MOST_UNSTORED", 4)
        assert run.batch() == []
        assert run.batch() is None
        assert run.checkpoint.ends[0]["orders/0"]["offset"] > 0


def test_producers_are_pruned(place: Place) -> None:
    """Those that have ended at once, old ones after the horizon; open transactions never."""
    day = 86_400 * 10**9
    begin = 1_700_000_000 * 10**9
    messages = [
        message(1, clock_at(begin), 0, b"old"),
        message(2, clock_at(begin), 1, b"open"),
        message(3, clock_at(begin + 6 * day), 0, b"newer"),
        message(4, clock_at(begin + 7 * day), 0, b"ended"),
        message(4, 0, 2),
        message(5, clock_at(begin + 8 * day), 0, b"newest"),
    ]
    fill(place.journals, "orders/0", messages)
    for horizon, expected in (("7d", [2, 3, 5]), ("36 hours", [2, 5]), ("30d", [1, 2, 3, 5])):
        with running({**place.options, "pruneHorizon": horizon}) as run:
            assert run.batch() == [b"ended", b"newer", b"newest", b"old"]
            producers = run.checkpoint.ends[0]["orders/0"]["producers"]
            assert [int(node, 16) for node in producers] == expected


def test_a_checkpoint_stays_small(place: Place) -> None:
    """Writers that end their producers, as delivery=journal does, leave nothing."""
    with running(place.options) as run:
        for number in range(20):
            publisher = place.publisher()
            place.publish(publisher, f"{number:02}")
            place.acknowledge(publisher)
            append_intents(place.journals, publisher.build_end_intents())
            assert run.batch() == [b"%02d" % number]
        assert len(json.dumps(run.checkpoint.ends[-1])) < 300


# Limits.


def test_max_offsets_per_trigger(place: Place) -> None:
    """It is exceeded by what a transaction has."""
    for number in range(6):
        place.committed(f"{number}a", f"{number}b")
    place.committed(*(f"9{letter}" for letter in "abcdefgh"))
    with running({**place.options, "maxOffsetsPerTrigger": 4}) as run:
        batches = run.all()
    assert [len(batch) for batch in batches] == [4, 4, 4, 8]
    with running(place.options) as run:
        assert [len(batch) for batch in run.all()] == [20]


def test_max_offsets_per_trigger_are_shared(place: Place) -> None:
    for number in range(8):
        place.committed(f"a{number}", journal="orders/0")
        if number % 2:
            place.committed(f"b{number}", journal="orders/1")
    with running({**place.options, "maxOffsetsPerTrigger": 6}) as run:
        batches = run.all()
    assert sorted(batches[0]) == [b"a0", b"a1", b"b1"]
    assert sum(map(len, batches)) == 12


def test_min_offsets_per_trigger(place: Place) -> None:
    options = {**place.options, "minOffsetsPerTrigger": 6}
    place.committed("a")
    with running(options) as run:
        assert run.batch() == [b"a"]  # the first one does not wait
        place.committed("b")
        assert run.batch() is None
        place.committed("c", "d", "e")
        assert run.batch() == [b"b", b"c", b"d", b"e"]
        place.committed("f")
    with running({**options, "maxTriggerDelay": "0ms"}, run.checkpoint) as run:
        assert run.batch() == [b"f"]
        place.committed("g")
        assert run.batch() == [b"g"]


def test_available_now_ends(place: Place) -> None:
    place.committed("a")
    place.committed("b")
    options = {**place.options, "maxOffsetsPerTrigger": 2}
    with running(options, available_now=True) as run:
        assert run.batch() == [b"a"]
        place.committed("c")
        assert run.batch() == [b"b"]
        assert run.batch() is None
    with running(options, run.checkpoint, available_now=True) as run:
        assert run.all() == [[b"c"]]


def test_tasks_of_a_micro_batch(place: Place) -> None:
    """Small journals share one; options divide large ones."""
    for number in range(40):
        place.committed(f"{number:02}", journal=f"orders/{number % 2}")
    name = "splitBytes" if isinstance(place.journals, FileJournals) else "maxRecordsPerPartition"
    for options, least in (({}, 1), ({"minPartitions": "6"}, 6), ({name: "8"}, 10)):
        with running({**place.options, **options}) as run:
            tasks = run.plan()
            assert tasks is not None
            assert len(tasks) >= least and (options or len(tasks) == 1)
            values = sorted(row["value"] for row in run.read(tasks))
        assert values == [b"%02d" % number for number in range(40)]


# Journals that appear, disappear, or lose messages.


def test_new_journals(place: Place, broker: Broker) -> None:
    place.committed("a")
    with running(place.options) as run:
        assert run.batch() == [b"a"]
        if isinstance(place.journals, FileJournals):
            place.journals.create("orders/2")
        else:
            with Client(broker.bootstrap_servers) as client:
                client.admin.create_partitions("orders", 3)
        place.committed("b", journal="orders/2")
        assert run.batch() == [b"b"]
    assert set(run.checkpoint.ends[-1]) == {"orders/0", "orders/1", "orders/2"}


def create_again(place: Place, broker: Broker, *, delete: bool = True) -> None:
    if isinstance(place.journals, FileJournals):
        root = place.journals.root
        place.journals.close()
        if delete:
            shutil.rmtree(root)
        place.journals = FileJournals(root)
        for number in range(2):
            place.journals.create(f"orders/{number}")
        return
    with Client(broker.bootstrap_servers) as client:
        if delete:
            client.admin.delete_topic("orders")
        client.admin.create_topic("orders", 2)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_journal_is_created_again(place: Place, broker: Broker, restarted: bool) -> None:
    place.committed("old 1", "old 2")
    place.committed("old 3", journal="orders/1")
    with running(place.options) as run:
        assert len(run.batch() or []) == 3
        create_again(place, broker)
        place.committed("new 1")
        place.committed("new 2")
        text = "orders/0: read up to offset .* but the journal was deleted and created again"
        if not restarted:
            with pytest.raises(DataLossError, match=text):
                run.batch()
    with running(place.options, run.checkpoint) as run, pytest.raises(DataLossError, match=text):
        run.batch()
    assert len(run.checkpoint.ends) == 1
    with running({**place.options, "failOnDataLoss": "false"}, run.checkpoint) as run:
        assert run.batch(commit=False) == [b"new 1", b"new 2"]
    with running({**place.options, "failOnDataLoss": "false"}, run.checkpoint) as run:
        assert run.batch() == [b"new 1", b"new 2"]
    with running(place.options, run.checkpoint) as run:
        place.committed("new 3")
        assert run.batch() == [b"new 3"]


def test_a_journal_is_created_again_after_planning(place: Place, broker: Broker) -> None:
    place.committed("old")
    with running(place.options) as run:
        tasks = run.plan()
        assert tasks is not None
        create_again(place, broker)
        place.committed("new", "newer")
        with pytest.raises(DataLossError, match="deleted and created again"):
            run.read(tasks)
    with (
        running(place.options, run.checkpoint) as run,
        pytest.raises(DataLossError, match=r"orders/0: deleted before offsets up to \d+ were"),
    ):
        run.plan()
    with running({**place.options, "failOnDataLoss": "false"}, run.checkpoint) as run:
        assert run.read(tasks) == []
        assert run.batch() == []
        assert run.batch() == [b"new", b"newer"]


def test_a_journal_is_deleted(
    place: Place, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """A topic loses all of its journals, and files lose one."""
    place.committed("a")
    place.committed("b", journal="orders/1")
    is_topic = not isinstance(place.journals, FileJournals)
    with running(place.options) as run:
        assert run.batch() == [b"a", b"b"]
        if isinstance(place.journals, FileJournals):
            shutil.rmtree(place.journals.folder("orders/1"))
            place.committed("c")
        else:
            with Client(broker.bootstrap_servers) as client:
                client.admin.delete_topic("orders")
        with pytest.raises(DataLossError, match=r"orders/[01]: read up to offset .* was deleted"):
            run.batch()
        assert len(run.checkpoint.ends) == 1
    with running({**place.options, "failOnDataLoss": "false"}, run.checkpoint) as run:
        with caplog.at_level(logging.WARNING, "krammar.spark.loss"):
            assert run.batch() == (None if is_topic else [b"c"])
            if not is_topic:
                place.committed("d")
            assert run.batch() == (None if is_topic else [b"d"])
        assert caplog.text.count("orders/1: read up to offset") == 1
        # Its position is stored, in case that it returns.
        assert run.checkpoint.ends[-1]["orders/1"] == run.checkpoint.ends[0]["orders/1"]
        create_again(place, broker, delete=False)
        place.committed("e", journal="orders/1")
        assert run.batch() == [b"e"]


def test_a_journal_returns_with_a_lower_end(broker: Broker) -> None:
    """Brokers report a topic as missing, and then its end too low for a moment: nothing is read twice."""
    servers = str(broker.bootstrap_servers)
    hasty = {"kafka.retry.backoff.ms": 1, "kafka.retry.backoff.max.ms": 10}
    with Client(servers) as client, TopicJournals(servers) as topics:
        client.admin.create_topic("returning", 1)
        options = {"kafka.bootstrap.servers": servers, "subscribe": "returning", **hasty}
        place = Place(topics, {**options, "failOnDataLoss": "false"})
        place.committed("a", "b", journal="returning/0")
        with running(place.options) as run:
            assert run.batch() == [b"a", b"b"]
            with answers(broker, no_topics):
                assert run.batch() is None
            with answers(broker, lower_ends, times=2):
                assert run.batch() is None
            place.committed("c", journal="returning/0")
            assert run.batch() == [b"c"]
        client.admin.delete_topic("returning")


def delete_before(place: Place, broker: Broker, journal: str, offset: int) -> int:
    """Delete messages; return the first offset that is left."""
    if isinstance(place.journals, FileJournals):
        return place.journals.prune(journal, offset)
    topic, _, partition = journal.rpartition("/")
    with Client(broker.bootstrap_servers) as client:
        client.admin.delete_records({(topic, int(partition)): offset})
    return place.journals.offsets(journal)[0]


@pytest.fixture
def small_fragments(place: Place) -> Place:
    """A place whose messages can be deleted one by one."""
    if isinstance(place.journals, FileJournals):
        place.journals.close()
        place.journals = FileJournals(place.journals.root, fragment_bytes=1)
    return place


def test_messages_are_deleted_before_they_are_read(small_fragments: Place, broker: Broker) -> None:
    place = small_fragments
    place.committed("a")
    with running(place.options) as run:
        assert run.batch() == [b"a"]
        for value in ("b", "c", "d"):
            place.committed(value)
        end = place.journals.offsets("orders/0")[1]
        middle = run.checkpoint.ends[0]["orders/0"]["offset"]
        first = delete_before(place, broker, "orders/0", middle + (end - middle) // 3 + 1)
        assert middle < first
        text = rf"orders/0: offsets {middle} to {first - 1} were deleted before they were read"
        with pytest.raises(DataLossError, match=text):
            run.batch()
        assert len(run.checkpoint.ends) == 1
    with running({**place.options, "failOnDataLoss": "false"}, run.checkpoint) as run:
        assert (run.batch() or [])[-1] == b"d"
        assert run.batch() is None


def test_messages_are_deleted_after_planning(small_fragments: Place, broker: Broker) -> None:
    place = small_fragments
    for value in ("a", "b", "c"):
        place.committed(value)
    with running(place.options) as run:
        tasks = run.plan()
        assert tasks is not None
        delete_before(place, broker, "orders/0", place.journals.offsets("orders/0")[1] // 3 + 1)
        with pytest.raises(DataLossError, match=r"orders.0.* failOnDataLoss=false reads what"):
            run.read(tasks)
    with running({**place.options, "failOnDataLoss": "false"}) as run:
        assert [row["value"] for row in run.read(tasks)][-1] == b"c"


def test_a_new_journal_has_lost_messages(small_fragments: Place, broker: Broker) -> None:
    place = small_fragments
    place.committed("a")
    with running(place.options) as run:
        assert run.batch() == [b"a"]
        if isinstance(place.journals, FileJournals):
            place.journals.create("orders/2")
        else:
            with Client(broker.bootstrap_servers) as client:
                client.admin.create_partitions("orders", 3)
        for value in ("b", "c"):
            place.committed(value, journal="orders/2")
        first = delete_before(place, broker, "orders/2", place.journals.offsets("orders/2")[1] // 2)
        assert first > 0
        text = f"orders/2: new, but its offsets before {first} were already deleted"
        with pytest.raises(DataLossError, match=text):
            run.batch()


def test_an_end_that_the_journal_does_not_reach(place: Place) -> None:
    """Both after a restart: the end of the last micro-batch, and of one that is read again."""
    place.committed("a")
    with running(place.options) as run:
        assert run.batch() == [b"a"]
    (end,) = run.checkpoint.ends
    ahead = {**end, "orders/0": {**end["orders/0"], "offset": end["orders/0"]["offset"] + 10_000}}
    with (
        running(place.options, Checkpoint([end, ahead], 1)) as run,
        pytest.raises(DataLossError, match=r"orders/0: offsets \d+ to \d+ do not exist any"),
    ):
        run.batch()
    with running(place.options, Checkpoint([ahead], 1)) as run:
        if isinstance(place.journals, FileJournals):
            # A power cut has taken what was read; the next append begins after it.
            assert run.batch() is None
            return
        with pytest.raises(DataLossError, match=r"orders/0: read up to offset .* ends at"):
            run.batch()
    with running({**place.options, "failOnDataLoss": "false"}, Checkpoint([ahead], 1)) as run:
        assert run.batch() is None
        place.committed("b")
        assert run.batch() == [b"b"]


def test_malformed_frames(place: Place) -> None:
    for data in (FRAMING.marshal(message(1, 1, 0, b"good")), b"what is this"):
        place.journals.append("orders/0", data)
    place.journals.flush()
    with running(place.options) as run:
        assert run.batch() == [b"good"]
    with (
        running({**place.options, "mode": "FAILFAST"}) as run,
        pytest.raises(MalformedRecordError, match=r"orders/0, offsets"),
    ):
        run.batch()


# Options and checkpoints.


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"kafka.isolation.level": "read_uncommitted"},
            "a stream of journals has committed messages",
        ),
        ({"mode": "PERMISSIVE"}, "source=journal needs DROPMALFORMED or FAILFAST"),
        ({"startingOffsets": "earliest"}, "has no meaning with source=journal"),
        ({"maxTriggerDelay": "1s"}, "has no meaning without minOffsetsPerTrigger"),
        ({"maxOffsetsPerTrigger": "1", "minOffsetsPerTrigger": "2"}, "2 is more than"),
        ({"pruneHorizon": "soon"}, "needs a time such as 15m or 200ms"),
        ({"contentType": "application/x-ndjson"}, "has no meaning for journals in files"),
    ],
)
def test_options_that_do_not_fit(tmp_path: Path, options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError) as failure:
        JournalRun({"path": tmp_path, **options})
    assert text in str(failure.value)


def test_options_of_other_uses(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"subscribe.* is missing: set it, or subscribePattern"):
        JournalRun({"kafka.bootstrap.servers": "x:1"})
    options = Options({"source": "journal", "path": str(tmp_path), "failOnDataLoss": "true"})
    with pytest.raises(OptionError, match="'failOnDataLoss': is for streams of journals"):
        source_module.reader(options, source_module.schema(options))


def test_an_older_pyspark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HAS_LIMITS", False)
    with pytest.raises(OptionError, match=r"streams of journals need PySpark 4.2 or later"):
        JournalRun({"path": tmp_path})


def test_what_does_not_exist(tmp_path: Path, broker: Broker) -> None:
    with (
        running({"path": tmp_path / "nowhere"}) as run,
        pytest.raises(MissingDataError, match="nowhere does not exist"),
    ):
        run.batch()
    (tmp_path / "empty").mkdir()
    with (
        running({"path": tmp_path / "empty", "subscribe": "nothing"}) as run,
        pytest.raises(MissingDataError, match="topic 'nothing' has no journals"),
    ):
        run.batch()
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    with (
        running({**servers, "subscribe": "nothing"}) as run,
        pytest.raises(MissingDataError, match="topic 'nothing' does not exist"),
    ):
        run.batch()
    with running({**servers, "subscribePattern": "nothing.*"}) as run:
        assert run.batch() is None
    dead = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": 100}
    with (
        running({**dead, "subscribe": "x"}) as run,
        pytest.raises(BrokerError, match=r"finding journals, brokers 127\.0\.0\.1:1"),
    ):
        run.batch()


@pytest.mark.parametrize(
    "offset",
    [
        {"orders": {"0": 5}},
        {"orders/0": {"id": "x", "offset": 5, "producers": {}}},
        {"orders/0": {"id": str(JOURNAL_ID), "offset": -1, "producers": {}}},
        {"orders/0": {"id": str(JOURNAL_ID), "offset": 1, "producers": {"node": [1]}}},
        [1],
    ],
)
def test_a_checkpoint_of_another_source(place: Place, offset: Any) -> None:
    with (
        running(place.options, Checkpoint([offset], 1)) as run,
        pytest.raises(SparkSourceError, match="another source has written it") as failure,
    ):
        run.batch()
    assert json.dumps(offset) in str(failure.value)


def test_equal_positions_are_the_same_text() -> None:
    position = JournalPosition(JOURNAL_ID, 7)

    def text(found: dict[str, JournalPosition]) -> str:
        return json.dumps(positions_to_json(found))

    assert text({"b": position, "a": position}) == text({"a": position, "b": position})


# Spark itself.


def test_queries_pass_rows_to_each_other(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """A query writes journals in files, another one reads them and writes to a topic, and a third one reads that.
    All run twice."""
    files = {"path": str(tmp_path / "journals")}
    topics = {"kafka.bootstrap.servers": str(broker.bootstrap_servers)}
    with Client(broker.bootstrap_servers) as client:
        client.admin.create_topic("checked", 2)
    (tmp_path / "in").mkdir()

    def write(rows: DataFrame, options: dict[str, str], topic: str) -> list[int]:
        query = (
            rows.writeStream.format("krammar")
            .options(**options, delivery="journal", topic=topic)
            .option("checkpointLocation", str(tmp_path / f"checkpoint-{topic}"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [progress.numInputRows for progress in query.recentProgress]

    def read(options: dict[str, str], topic: str) -> DataFrame:
        stream = spark.readStream.format("krammar").options(source="journal", subscribe=topic)
        return stream.options(**options, maxOffsetsPerTrigger="10").load()

    expected = []
    for number in range(2):
        texts = [f"{number}-{line}" for line in range(30)]
        expected += texts
        (tmp_path / "in" / f"{number}.txt").write_text("\n".join(texts))
        lines = spark.readStream.format("text").load(str(tmp_path / "in")).repartition(2)
        write(lines.selectExpr("value AS key", "value"), files, "orders")
        checked = read(files, "orders").selectExpr("key", "upper(string(value)) AS value")
        counts = write(checked, topics, "checked")
        assert sum(counts) == 30 and len(counts) > 1
        counts = write(read(topics, "checked").select("key", "value"), files, "stored")
        assert sum(counts) == 30 and len(counts) > 1
    found = (
        spark.read.format("krammar")
        .options(**files, source="journal", subscribe="stored")
        .load()
        .collect()
    )
    assert sorted(row.value.decode() for row in found) == sorted(expected)
    with Client(broker.bootstrap_servers) as client:
        client.admin.delete_topic("checked")


def test_an_error_of_a_stream_names_its_cause(spark: SparkSession, tmp_path: Path) -> None:
    read = spark.readStream.format("krammar").options(source="journal")
    query = read.load(str(tmp_path / "nowhere")).writeStream.format("noop").start()
    with pytest.raises(StreamingQueryException, match="nowhere does not exist"):
        query.processAllAvailable()
