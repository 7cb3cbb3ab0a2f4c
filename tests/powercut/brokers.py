"""The broker and its clients, and what must be true after a power cut.

``python -m tests.powercut.brokers FOLDER always`` (or ``interval`` or ``never``) writes records, transactions,
offsets, topics and settings.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

from krammar.broker import Broker
from krammar.client import At, Client, TopicPartition
from tests.powercut.disk import State

GROUP = "group"
STEPS = 6
# A topic that is compacted while it is written: each record that comes later begins a segment.
COMPACTED = {
    "cleanup.policy": "compact,delete",
    "segment.ms": "1",
    "min.cleanable.dirty.ratio": "0",
    "file.delete.delay.ms": "0",
}
KEYS = (b"a", b"b", b"c")
PARTITION = TopicPartition("t", 0)


def _start(folder: Path, fsync: str) -> Broker:
    return Broker.start(
        data_dir=folder,
        properties={
            "krammar.fsync": fsync,
            "krammar.fsync.interval.ms": "20",
            "auto.create.topics.enable": "false",
            "log.cleaner.backoff.ms": "5",
            "log.segment.delete.delay.ms": "0",
        },
    )


def _say(text: str) -> None:
    print(text, flush=True)


def main() -> None:
    folder, fsync = Path(sys.argv[1]), sys.argv[2]
    with _start(folder, fsync) as broker, Client(broker.bootstrap_servers) as client:
        _say(f"cluster {client.admin.describe_cluster().cluster_id}")
        client.admin.create_topic("t", 1)
        _say("topic t")
        client.admin.create_topic("again", 1)
        client.admin.create_topic("c", 1, configs=COMPACTED)
        _run(client, range(STEPS - 1))
        # Wait until a compaction has ended, which leaves fewer segments than records.
        while len(list((folder / "c-0").glob("*.log"))) > len(KEYS) + 1:
            time.sleep(0.001)
    # Another start, which loads all checkpoints.
    with _start(folder, fsync) as broker, Client(broker.bootstrap_servers) as client:
        _run(client, range(STEPS - 1, STEPS))


def _run(client: Client, steps: range) -> None:
    with (
        client.producer() as producer,
        client.producer(transactional_id="transactions") as transactions,
    ):
        transactions.init_transactions()
        for step in steps:
            producer.send("t", b"%d" % (10 * step), partition=0)
            producer.flush()
            _say(f"t {10 * step}")
            with transactions.transaction():
                for number in (1, 2):
                    transactions.send("t", b"%d" % (10 * step + number), partition=0)
                transactions.send_offsets({PARTITION: step}, GROUP)
            _say(f"offset {step}\nt {10 * step + 1}\nt {10 * step + 2}")
            for key in KEYS[step % 3 :]:
                producer.send("c", b"%d" % step, key, partition=0)
                producer.flush()
                _say(f"c {key.decode()} {step}")
            producer.send("again", b"%d" % step, partition=0)
            producer.flush()
            _say(f"again {step}")
            if step == 2:
                client.admin.alter_topic_configs("t", {"retention.ms": "123456789"})
                _say("config")
                client.admin.delete_records({TopicPartition("again", 0): 2})
                _say("deleted again 2")
                client.admin.delete_topic("again")
                client.admin.create_topic("again", 1)
                _say("created again")


def problems(folder: Path, state: State, *, fsync: str) -> Iterator[str]:
    """Yield what contradicts docs/durability.md if the broker starts after a power cut."""
    marks = state.marks
    numbers = [int(mark.split()[1]) for mark in marks if mark.startswith("t ")]
    with _start(folder, fsync) as broker, Client(broker.bootstrap_servers) as client:
        cluster = [mark.split()[1] for mark in marks if mark.startswith("cluster ")]
        if cluster and client.admin.describe_cluster().cluster_id != cluster[0]:
            yield "the cluster has another id"
        topics = client.topics()
        if "t" not in topics:
            if "topic t" in marks:
                yield "topic t is lost"
            return
        found = _numbers(client, "t")
        if found != sorted(set(found)):
            yield f"t returns {found}"
        for number in found:
            if number % 10 and {number // 10 * 10 + 1, number // 10 * 10 + 2} - set(found):
                yield f"t returns a part of a transaction: {number}"
        if fsync == "always":
            yield from _lost(client, marks, set(numbers) - set(found))
        yield from _changed(client, marks, is_complete=fsync == "always")
        yield from _continues(client, found)


def _lost(client: Client, marks: tuple[str, ...], lost: set[int]) -> Iterator[str]:
    """Yield what is acknowledged and lost although everything is forced to the disk."""
    if lost:
        yield f"t has lost {sorted(lost)}"
    offsets = [int(mark.split()[1]) for mark in marks if mark.startswith("offset ")]
    if offsets:
        stored = client.groups.committed(GROUP).get(PARTITION)
        if stored is None or stored.offset < offsets[-1]:
            yield f"the group has offset {stored}, not {offsets[-1]}"
    newest = {}
    if any(mark.startswith("c ") for mark in marks):
        newest = {record.key: int(record.value or b"-1") for _, record in client.records("c")}
    for key, value in (mark.split()[1:] for mark in marks if mark.startswith("c ")):
        if newest.get(key.encode(), -1) < int(value):
            yield f"c has lost {value} of {key}: {newest}"


def _changed(client: Client, marks: tuple[str, ...], *, is_complete: bool) -> Iterator[str]:
    """Yield a problem if a setting is lost, or if something deleted exists again.

    Args:
        is_complete: whether all records of the topic must be there
    """
    if "config" in marks and client.admin.topic_configs("t")["retention.ms"].value != "123456789":
        yield "the setting of t is lost"
    created = marks.index("created again") if "created again" in marks else -1
    expected = [int(mark.split()[1]) for mark in marks[created + 1 :] if mark.startswith("again ")]
    found = _numbers(client, "again") if "again" in client.topics() else []
    # After the settings, records and the topic are deleted; each step may have happened before it is acknowledged.
    is_deleted = "config" in marks and created < 0
    # The next record may be stored before it is acknowledged.
    following = len(expected) + (3 if created >= 0 else 0)
    allowed = [expected, [*expected, following], *([[], expected[2:]] if is_deleted else [])]
    if not is_complete:
        allowed += [some[:end] for some in allowed for end in range(len(some))]
    if found not in allowed:
        yield f"again has {found}, not {expected}"
    if marks[-1:] == ("deleted again 2",) and set(found) & {0, 1}:
        yield f"again has deleted records: {found}"


def _continues(client: Client, found: list[int]) -> Iterator[str]:
    """Yield whether a new record or a transaction cannot be written, or is not read after the others."""
    with client.producer() as producer:
        producer.send("t", b"1000", partition=0)
        producer.flush()
    with client.producer(transactional_id="transactions") as transactions:
        transactions.init_transactions()
        with transactions.transaction():
            transactions.send("t", b"1001", partition=0)
    after = _numbers(client, "t")
    if after != [*found, 1000, 1001]:
        yield f"t returned {found}, and after more records {after}"


def _numbers(client: Client, topic: str) -> list[int]:
    """The committed values of a topic."""
    level = "read_committed"
    ends = client.list_offsets({TopicPartition(topic, 0): At.LATEST}, isolation_level=level)
    end = ends[TopicPartition(topic, 0)].offset
    servers = ",".join(f"{host}:{port}" for host, port in client.settings.bootstrap_servers)
    with Client(servers, isolation_level=level) as reader:
        return [int(record.value or b"-1") for _, record in reader.records(topic, end=end)]


if __name__ == "__main__":
    main()
