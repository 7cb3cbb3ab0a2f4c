"""Appends records to the batches of a producer, as far as ``buffer.memory`` has room."""

from __future__ import annotations

import time
from bisect import bisect_right
from itertools import accumulate

from krammar.client.accumulator import Accumulator
from krammar.client.deadline import Deadline
from krammar.client.delivery import Callback, Delivery, Waiter
from krammar.client.metadata import TopicPartition
from krammar.client.sender import Sender
from krammar.client.settings import Settings
from krammar.wire.batches import Record


class Outbox:
    """Where a producer puts records. Batches are sent when they are full."""

    def __init__(self, settings: Settings, accumulator: Accumulator, sender: Sender) -> None:
        self._settings = settings
        self._accumulator = accumulator
        self._sender = sender

    def append(
        self,
        producer: Waiter,
        at: TopicPartition,
        record: Record,
        size: int,
        on_delivery: Callback | None,
    ) -> Delivery:
        """Append a record of ``size`` bytes."""
        now = time.monotonic()
        if self._accumulator.is_full(size):
            self._make_room(size)
        queue = self._accumulator.queue(at)
        batch = queue.waiting[-1] if queue.waiting else None
        full = False
        if batch is None or not batch.has_room(size, self._settings.batch_size, with_delivery=True):
            full = batch is not None
            batch = self._accumulator.new_batch(queue, now)
        delivery = batch.add(producer, record, size)
        if on_delivery is not None:
            batch.callbacks[delivery.index] = on_delivery
        self._accumulator.buffered += size
        if full or now >= self._accumulator.due or batch.size >= self._settings.batch_size:
            self._sender.work()
        return delivery

    def append_all(self, at: TopicPartition, records: list[Record], sizes: list[int]) -> None:
        """Append records without deliveries, and send batches as they get full."""
        queue = self._accumulator.queue(at)
        most = self._settings.batch_size
        ends = list(accumulate(sizes))
        begin = done = 0
        while begin < len(records):
            # This comes first, because making room may send the open batch.
            need = max(sizes[begin], min(most, ends[-1] - done))
            if self._accumulator.is_full(need):
                self._make_room(need)
            now = time.monotonic()
            batch = queue.waiting[-1] if queue.waiting else None
            full = batch is not None and not batch.has_room(sizes[begin], most, with_delivery=False)
            if batch is None or full:
                batch = self._accumulator.new_batch(queue, now)
            # At least one record: it may be larger than ``batch.size``.
            end = max(bisect_right(ends, done + most - batch.size, begin), begin + 1)
            size = ends[end - 1] - done
            batch.records += records[begin:end]
            batch.size += size
            self._accumulator.buffered += size
            begin, done = end, ends[end - 1]
            if full or begin < len(records) or now >= self._accumulator.due:
                self._sender.work()

    def _make_room(self, size: int) -> None:
        """Send until ``buffer.memory`` has room for a record of ``size`` bytes."""
        deadline = Deadline(self._settings.max_block_ms, "waiting for buffer.memory")
        while self._accumulator.is_full(size):
            self._sender.work(force=True, within=deadline)
            if self._accumulator.is_full(size):
                deadline.check(self._accumulator.unreported)
                self._sender.wait(deadline.left)
