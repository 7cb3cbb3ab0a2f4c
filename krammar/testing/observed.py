"""What a test asks a running broker: records, groups, who produced what, and to wait for it."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakKeyDictionary

from krammar.testing.groups import Group, groups_of
from krammar.testing.records import Batch, Record, batch_within, batches_of
from krammar.util.diagnostics import did_you_mean

if TYPE_CHECKING:
    from krammar.broker import Broker
    from krammar.broker.log.log import Appended, PartitionLog

T = TypeVar("T")

# The shortest pause between two looks at a condition, in seconds.
PAUSE = 0.002
# How many topics an error message names.
_NAMED = 20


class NotInTime(AssertionError):
    """A condition did not become true in time."""


@dataclass(frozen=True, slots=True)
class _Produced:
    """A batch that a client has produced."""

    client_id: str | None
    log: PartitionLog
    first: int
    last: int


class Observed(ABC):
    """The questions of tests. Answers come from the broker's own state: no client is involved, so rules of
    faults do not apply to them."""

    def __init__(self) -> None:
        self._produced: list[_Produced] = []

    @abstractmethod
    def _one(self) -> Broker:
        """Return a running broker that has all logs and groups. Raises RuntimeError if none is running."""

    def _observe(self, broker: Broker) -> None:
        """Note what clients produce from now on."""
        from krammar.broker.handlers.produce import ProduceHandlers

        ends: WeakKeyDictionary[PartitionLog, int] = WeakKeyDictionary()

        def note(client_id: str | None, log: PartitionLog, appended: Appended) -> None:
            if not appended.duplicate:
                last = appended.last_offset
                if appended.base_offset < ends.get(log, 0):  # the log was truncated
                    self._produced = [
                        each
                        for each in self._produced
                        if each.log is not log or each.last < appended.base_offset
                    ]
                ends[log] = last + 1
                self._produced.append(_Produced(client_id, log, appended.base_offset, last))

        for node in broker.nodes.values():
            node.handlers.of(ProduceHandlers).appended.append(note)

    def records(
        self, topic: str, *, partition: int | None = None, isolation_level: str = "read_committed"
    ) -> list[Record]:
        """Return the records of a topic, by partition and offset; none if it does not exist.

        Args:
            topic: the topic's name
            partition: only this partition
            isolation_level: as for consumers, but by default ``read_committed``: records of open and aborted
                transactions are left out. ``read_uncommitted`` includes them.
        """
        if isolation_level not in ("read_committed", "read_uncommitted"):
            raise ValueError(
                f"isolation_level: {isolation_level!r} is neither 'read_committed' nor 'read_uncommitted'"
            )
        broker = self._one()

        def read() -> list[Batch]:
            found = broker.cluster.topics.get(topic)
            indexes = sorted(found.partitions) if found is not None else []
            logs = (broker.logs.get(topic, at) for at in indexes if partition in (None, at))
            committed = isolation_level == "read_committed"
            return [
                b for log in logs if log is not None for b in batches_of(log, committed=committed)
            ]

        # Records are decoded here, not in the broker's loop, so that clients need not wait.
        return [record for batch in broker.call(read) for record in batch.records()]

    def produced_by(self, client_id: str) -> list[Record]:
        """Return the records that a client has produced, in the order of arrival.

        Records of open and aborted transactions are included, deleted records and topics are not.

        Args:
            client_id: the client's ``client.id``
        """
        broker = self._one()

        def read() -> list[tuple[_Produced, Batch | None]]:
            return [
                (each, batch_within(each.log, each.first, each.last))
                for each in self._produced
                if each.client_id == client_id
            ]

        return [
            record
            for produced, batch in broker.call(read)
            if batch is not None
            for record in batch.records()
            if produced.first <= record.offset <= produced.last
        ]

    @property
    def groups(self) -> dict[str, Group]:
        """The groups, by id, with members and committed offsets."""
        broker = self._one()
        coordinators = [node.groups for node in broker.nodes.values()]
        return broker.call(groups_of, coordinators, broker.cluster)

    @property
    def topics(self) -> dict[str, int]:
        """The number of partitions of each topic, by name, without internal topics."""
        topics = self._one().cluster.topics
        return self._one().call(
            lambda: {t.name: len(t.partitions) for t in topics.values() if not t.internal}
        )

    def wait_until(self, condition: Callable[[], T], *, timeout: float = 10.0) -> T:
        """Wait until a function returns something true, and return that.

        The calling thread waits. In asyncio code, where clients need the event loop, call it with
        ``await asyncio.to_thread(broker.wait_until, condition)``.

        Args:
            condition: is called again and again, such as ``lambda: "billing" in broker.groups``
            timeout: in seconds

        Raises:
            NotInTime: the condition is still false.
        """
        deadline = time.monotonic() + timeout
        while True:
            begin = time.monotonic()
            found = condition()
            if found:
                return found
            now = time.monotonic()
            if now > deadline:
                raise NotInTime(
                    f"the condition is still false after {timeout:g} s; it returned {found!r}"
                    + _loop_hint()
                )
            # A condition that reads many records leaves half of the time to others.
            time.sleep(min(max(PAUSE, now - begin), max(deadline - now, 0)))

    def wait_for_records(
        self,
        topic: str,
        count: int,
        *,
        partition: int | None = None,
        isolation_level: str = "read_committed",
        timeout: float = 10.0,
    ) -> list[Record]:
        """Wait until a topic has at least ``count`` records, and return all of them.

        The arguments and the order are as in ``records``; about asyncio, see ``wait_until``.

        Raises:
            NotInTime: there are fewer after ``timeout`` seconds.
        """

        def enough() -> list[Record] | None:
            found = self.records(topic, partition=partition, isolation_level=isolation_level)
            return found if len(found) >= count else None

        if count < 1:
            raise ValueError(f"count: {count} records are there at once; wait for 1 or more")
        try:
            return self.wait_until(enough, timeout=timeout) or []
        except NotInTime:
            raise NotInTime(
                self._too_few(topic, count, partition, isolation_level, timeout) + _loop_hint()
            ) from None

    def _too_few(
        self, topic: str, count: int, partition: int | None, isolation_level: str, timeout: float
    ) -> str:
        topics = self.topics
        waited = f"after {timeout:g} s"
        if topic not in topics:
            names = sorted(topics)
            others = ", ".join(names[:_NAMED]) + (", …" if len(names) > _NAMED else "")
            near = did_you_mean(topic, names)
            hint = near or (f"the topics are {others}" if names else "there are no topics")
            return f"topic {topic!r} does not exist {waited}; {hint}"
        stored = self.records(topic, partition=partition, isolation_level="read_uncommitted")
        found = self.records(topic, partition=partition, isolation_level=isolation_level)
        where = f"topic {topic!r}" if partition is None else f"partition {partition} of {topic!r}"
        hidden = len(stored) - len(found)
        more = f"; {hidden} more belong to open or aborted transactions, or follow an open one"
        return f"{where} has {len(found)} of {count} records {waited}" + (more if hidden else "")


def _loop_hint() -> str:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return ""
    return (
        "; the wait blocked the event loop of this thread, and clients that run in it: "
        "use `await asyncio.to_thread(…)`"
    )
