"""What a broker says to transactional producers, as lists that can be compared."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kafka_wire import ErrorCode, ListTransactionsRequest

from tests.broker.requests import create_topic
from tests.broker.support import RawClient
from tests.broker.transactions.support import (
    Producer,
    Where,
    committed_offset,
    find_coordinators,
    producers,
)

T: Where = ("t", 0)
# What Kafka says while it is getting ready, or markers are on their way.
_PASSING = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
    }
)


def patient(ask: Callable[[], Any]) -> Any:
    """Ask until the answer is one to stay. Kafka's markers are written behind its answers."""
    deadline = time.monotonic() + 30
    while True:
        answer = ask()
        codes = answer.values() if isinstance(answer, dict) else [answer]
        if not _PASSING.intersection(codes) or time.monotonic() > deadline:
            return answer
        time.sleep(0.01)


class Noted(Producer):
    """A producer that notes all responses, with ids as differences to the first one."""

    def __init__(self, client: RawClient, name: str, notes: list[Any]) -> None:
        super().__init__(client, name)
        self.notes = notes
        self._ids: dict[int, int] = {}

    def tell(self, method: str, *args: Any, **options: Any) -> Any:
        """Call a method of Producer, note the answer and the identity, and wait for the markers."""
        answer = patient(lambda: getattr(self, method)(*args, **options))
        return self.note(method, args, options, answer)

    def once(self, method: str, *args: Any, **options: Any) -> Any:
        """The same, but without patience; for what makes the broker end a transaction."""
        return self.note(method, args, options, getattr(self, method)(*args, **options))

    def note(self, method: str, args: Any, options: Any, answer: Any) -> Any:
        if self.name:
            while self.state.startswith("Prepare"):
                time.sleep(0.01)
        number = self._ids.setdefault(self.id, len(self._ids))
        options = {key: value for key, value in options.items() if "id" not in key.split("_")}
        if "known" in options:
            known = options["known"]
            options["known"] = (self._ids.get(known[0]), known[1])
        self.notes.append((method, args, options, answer, number, self.epoch))
        return answer

    def look(self) -> None:
        """Note what DescribeTransactions says."""
        found = self.describe()
        topics = sorted((topic.topic, sorted(topic.partitions)) for topic in found.topics)
        begun = found.transaction_start_time_ms
        self.notes.append(
            (
                found.error_code,
                found.transaction_state,
                found.transaction_timeout_ms,
                self._ids.get(found.producer_id),
                found.producer_epoch,
                "begun" if begun > 0 else begun,
                topics,
            )
        )


Make = Callable[..., Noted]
Case = Callable[[Make, RawClient, list[Any]], None]
CASES: dict[str, Case] = {}


def _case(function: Case) -> Case:
    CASES[function.__name__] = function
    return function


@contextmanager
def prepared(port: int) -> Iterator[RawClient]:
    """A client of a broker that has the coordinators at work, and the topic ``t``."""
    with RawClient(port) as client:
        deadline = time.monotonic() + 30
        while True:
            try:
                find_coordinators(client)
                break
            except AssertionError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        create_topic(client, "t", 16)
        probe = Producer(client, "probe")
        patient(probe.init)
        for partition in range(16):
            patient(lambda partition=partition: probe.add(("t", partition))[("t", partition)])
        patient(probe.end)
        yield client


@_case
def init(make: Make, client: RawClient, notes: list[Any]) -> None:
    for version in range(6):
        producer = make(str(version))
        for timeout in (60000, 60000, 0, -5, 900001, 900000):
            producer.tell("init", timeout=timeout, version=version)
        make("", bare=True).tell("init", version=version)
        producer.look()


@_case
def resume(make: Make, client: RawClient, notes: list[Any]) -> None:
    for version in (3, 4, 5):
        producer = make(str(version))
        for known in ((5, -1), (-1, 5), (999999, 3)):
            producer.tell("init", known=known, version=version)
        used = producer.id
        for epoch in (0, 0, 1, 0, 9):
            producer.tell("init", known=(used, epoch), version=version)
        producer.tell("init", known=(used + 12345, 2), version=version)
        producer.tell("init", version=version)
        producer.tell("init", known=(used, 2), version=version)


@_case
def add(make: Make, client: RawClient, notes: list[Any]) -> None:
    producer = make("id")
    producer.tell("init")
    producer.tell("init")
    for version in range(6):
        producer.tell("add", T, ("t", 99), ("nope", 0), version=version)
        for epoch in (0, 2):
            producer.tell("add", T, version=version, epoch=epoch)
        producer.tell("add", T, version=version, producer_id=producer.id + 1)
        make("unknown").tell("add", T, version=version)
        make("", bare=True).tell("add", T, version=version)
    producer.look()
    for version in (4, 5):
        producer.tell("add", T, ("t", 1), version=version, verify_only=True)
    for version in range(6):
        producer.tell("add", ("t", version), version=version)
        producer.tell("add", T, ("t", 9), version=max(version, 4), verify_only=True)
        producer.look()
    for version in range(5):
        producer.tell("add_offsets", "group", version=version)
        producer.tell("add_offsets", "group", version=version, epoch=0)
        make("unknown").tell("add_offsets", "group", version=version)
        make("", bare=True).tell("add_offsets", "group", version=version)


@_case
def produce(make: Make, client: RawClient, notes: list[Any]) -> None:
    producer = make("id")
    producer.tell("init")
    for version in range(3, 13):
        where = ("t", version)
        producer.tell("produce", where, version=version, producer_id=producer.id + 1)
        producer.tell("produce", where, version=version, epoch=1)
        make("unknown").tell("produce", where, version=version, producer_id=producer.id, epoch=0)
        producer.tell("produce", where, version=version)
        if version < 12:
            producer.tell("add", where)
        producer.tell("produce", where, version=version)
        producer.tell("produce", where, version=version)
    producer.look()
    for commit in (True, False):
        producer.tell("end", commit)
        producer.tell("produce", ("t", 12), epoch=producer.epoch - 1, sequence=2)
        producer.tell("produce", ("t", 12), sequence=5)
        producer.tell("produce", ("t", 12))
        active = producers(client, "t", 12).active_producers
        notes.append(
            [
                (one.producer_epoch, one.last_sequence, one.coordinator_epoch)
                for one in active
                if one.producer_id == producer.id
            ]
        )


@_case
def end(make: Make, client: RawClient, notes: list[Any]) -> None:
    for version in range(6):
        make("unknown").tell("end", version=version)
        make("", bare=True).tell("end", version=version)
        producer = make(str(version))
        producer.tell("init")
        for commit in (True, False):
            producer.tell("end", commit, version=version)
        for outcome in (True, False):
            producer.tell("add", T, version=5 if version == 5 else 3)
            used = producer.epoch
            for epoch in (used - 1, used + 1):
                producer.tell("end", outcome, version=version, epoch=epoch)
            producer.tell("end", outcome, version=version, producer_id=producer.id + 1)
            producer.tell("end", outcome, version=version)
            producer.look()
            for epoch in (used - 1, used, used + 1, used + 2):
                for commit in (True, False):
                    producer.tell("end", commit, version=version, epoch=epoch)
            producer.look()


@_case
def fence(make: Make, client: RawClient, notes: list[Any]) -> None:
    for version in (1, 2, 4, 5):
        first, second = make(str(version)), make(str(version))
        first.tell("init")
        first.tell("add", T)
        first.tell("produce", T, version=11)
        second.once("init")
        second.look()
        first.tell("end", True, version=version)
        first.tell("end", False, version=version)
        second.tell("init")
        second.look()
        first.tell("end", False, version=version, epoch=0)
        first.tell("add", T, version=min(version, 3), epoch=0)
        for produce in (11, 12):
            first.tell("produce", T, version=produce, epoch=0)


@_case
def offsets(make: Make, client: RawClient, notes: list[Any]) -> None:
    for commit in (True, False):
        producer = make(f"commit {commit}")
        producer.tell("init")
        for version in range(6):
            group = f"{commit} {version}"
            producer.tell("commit_offset", group, "t", version, version=version)
            if version < 5:
                producer.tell("add_offsets", group)
                producer.tell("commit_offset", group, "t", version, version=version)
            producer.tell("commit_offset", group, "t", 9, version=version, epoch=5)
            make("unknown").tell("commit_offset", group, "t", 9, version=version)
            producer.tell("commit_offset", "", "t", 9, version=version)
            producer.tell("commit_offset", group, "nope", 9, version=version)
            notes.append(committed_offset(client, group, "t"))
        producer.tell("end", commit)
        notes.append([committed_offset(client, f"{commit} {version}", "t") for version in range(6)])


@_case
def listing(make: Make, client: RawClient, notes: list[Any]) -> None:
    for name in ("open", "fresh", "done"):
        producer = make(name)
        producer.tell("init")
        if name != "fresh":
            producer.tell("add", T)
        if name == "done":
            producer.tell("end", True)
    everything: list[dict[str, Any]] = [{}]
    everything += [{"state_filters": [state]} for state in ("Ongoing", "ongoing", "Dead", "Bogus")]
    everything += [{"duration_filter": age} for age in (-1, 0, 10**6)]
    patterns = [
        "",
        ".*open",
        "open",
        "(",
        "(?=o).*",
        r"(.)\1.*",
        ".*[[:alpha:]]{4}",
        r"\PN*",
        "a**",
    ]
    everything += [{"transactional_id_pattern": pattern} for pattern in patterns]
    for filters in everything:
        versions = [0, 1, 2]
        if "duration_filter" in filters:
            versions = [1, 2]
        elif "transactional_id_pattern" in filters:
            versions = [2]
        for version in versions:
            response = client.call(ListTransactionsRequest(**filters), version)
            found = [
                (state.transactional_id, state.transaction_state)
                for state in response.transaction_states
                if state.transactional_id.startswith("listing")
            ]
            unknown = sorted(response.unknown_state_filters)
            notes.append((filters, version, response.error_code, unknown, sorted(found)))
    for topic, partition in (("t", 99), ("nope", 0)):
        answer = producers(client, topic, partition)
        notes.append((topic, answer.error_code, answer.error_message))
    for name in ("none", ""):
        make(name, bare=True).look()
