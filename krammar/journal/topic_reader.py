"""Reads the records of a topic's partition as the frames of a journal."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence
from uuid import UUID

from krammar.client import Client, Settings, TopicPartition
from krammar.client.errors import OffsetOutOfRange, UnknownTopicId, UnknownTopicOrPartition
from krammar.journal.errors import UnknownJournalError, created_again
from krammar.journal.journals import Frame
from krammar.journal.specs import JournalSpec
from krammar.journal.uuids import NULL_UUID
from krammar.util.closing import Closing

log = logging.getLogger("krammar.journal")


class TopicReader(Closing):
    """Reads a partition's records as frames; see Reader.

    A reader has its own connection. Any thread may call ``close``; a ``read`` at that time is the last one.
    """

    # How long one request waits for records before ``close`` is noticed, in milliseconds.
    _PAUSE = 200

    def __init__(
        self,
        settings: Settings,
        spec: JournalSpec,
        journal_id: UUID,
        at: TopicPartition,
        begin: int,
        end: int | None,
    ) -> None:
        if begin < 0:
            raise ValueError(f"{spec.name}: offset {begin} is negative")
        self.spec = spec
        self.journal_id = journal_id
        self.offset = begin
        self._settings = settings
        self._at = at
        self._end = end
        self._client: Client | None = None
        self._closed = threading.Event()

    def read(self) -> list[Frame]:
        """Return the next records, or an empty list at the end.

        Raises:
            UnknownJournalError: the topic was deleted, or deleted and created again.
            ClientError: the brokers cannot be read.
        """
        if self._end is not None and self.offset >= self._end:
            return []
        if self._client is None:
            if self._closed.is_set():
                return []
            # The reader may connect while brokers restart.
            self._client = Client(self._settings, krammar_retry_bootstrap=True)
            self._reader = self._client.fetch(
                {self._at: self.offset},
                until=self._until(),
                topic_ids={self._at.topic: self.journal_id},
            )
        while not self._closed.is_set() and not self._reader.finished:
            try:
                results = self._reader.poll(self._PAUSE)
            except OffsetOutOfRange as error:
                if error.log_start_offset <= self.offset:
                    raise
                self._jump(error.log_start_offset)
                self._reader.seek(self._at, self.offset, until=self._end)
                continue
            except (UnknownTopicOrPartition, UnknownTopicId) as error:
                unknown = self._unknown()
                # The client would continue with the new topic.
                self._stop()
                raise unknown from error
            if self.journal_id == NULL_UUID:
                self.journal_id = self._current_id()
            frames: list[Frame] = []
            for fetched in results:
                for record in fetched:
                    offset = record.offset
                    if offset > self.offset:
                        self._jump(offset)
                    frames.append((offset, offset + 1, record.value or b""))
                    self.offset = offset + 1
            if frames:
                return frames
        self._stop()
        return []

    def _current_id(self) -> UUID:
        """Return the topic's id as far as the client knows it."""
        assert self._client is not None
        topic = self._client.cluster.metadata.topics.get(self._at.topic)
        return NULL_UUID if topic is None else topic.topic_id

    def _unknown(self) -> UnknownJournalError:
        current_id = self._current_id()
        if NULL_UUID != self.journal_id != current_id != NULL_UUID:
            return created_again(self.spec.name, current_id)
        return UnknownJournalError(f"journal {self.spec.name!r} does not exist")

    def _until(self) -> dict[TopicPartition, int] | None:
        return None if self._end is None else {self._at: self._end}

    def _jump(self, offset: int) -> None:
        log.warning(
            "%s: offsets %d to %d do not exist any more; skipping them",
            self.spec.name,
            self.offset,
            offset,
        )
        self.offset = offset

    def between(self, begin: int, end: int) -> TopicReader:
        """Return another reader of the same journal for these offsets."""
        return TopicReader(self._settings, self.spec, self.journal_id, self._at, begin, end)

    def ranges(self, ranges: Sequence[tuple[int, int]]) -> TopicReader:
        """Return another reader of the same journal for some ranges of offsets; see ``Reader``."""
        return _RangesReader(self._settings, self.spec, self.journal_id, self._at, ranges)

    def _stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def close(self) -> None:
        """End reading, and close the connection."""
        self._closed.set()
        self._stop()


class _RangesReader(TopicReader):
    """Reads the records in some ranges of offsets.

    If ranges are close together, it reads on instead of seeking, because brokers send complete batches anyway.
    """

    _FAR = 1000

    def __init__(
        self,
        settings: Settings,
        spec: JournalSpec,
        journal_id: UUID,
        at: TopicPartition,
        ranges: Sequence[tuple[int, int]],
    ) -> None:
        super().__init__(settings, spec, journal_id, at, ranges[0][0], ranges[-1][1])
        self._left = deque(ranges)

    def read(self) -> list[Frame]:
        left = self._left
        while frames := super().read():
            found: list[Frame] = []
            for frame in frames:
                while left and left[0][1] <= frame[0]:
                    left.popleft()
                if left and left[0][0] <= frame[0]:
                    found.append(frame)
            while left and left[0][1] <= self.offset:
                left.popleft()
            if left and left[0][0] - self.offset > self._FAR:
                self.offset = left[0][0]
                self._reader.seek(self._at, self.offset, until=self._end)
            if found:
                return found
        return []
