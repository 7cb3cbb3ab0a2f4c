"""Where journals are, files below a folder or topics of brokers, and which of them belong to a topic.

A topic ``orders`` has the journals ``orders/0``, ``orders/1`` …: partitions, where brokers have them, and
journals with names that begin with ``orders/`` and have no further ``/``, where they are files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from krammar.client import Client, ClientError, Settings
from krammar.journal import (
    ContentTypeError,
    FileJournals,
    JournalError,
    JournalSpec,
    TopicJournals,
    UnknownJournalError,
    framing_by_content_type,
)
from krammar.spark.brokers import brokers_text, settings_of
from krammar.spark.errors import BrokerError, OptionError, SparkSourceError
from krammar.spark.kafka.plan import is_chosen
from krammar.spark.options import Options
from krammar.spark.paths import local_path

AnyJournals: TypeAlias = FileJournals | TopicJournals

# Tasks write much at once. What nobody waits for is written when so much of it is there, in bytes, or
# after this time in milliseconds.
_BUFFER = 4 << 20
_LINGER = 500


@dataclass(frozen=True, slots=True)
class Place:
    """Sent to tasks. ``root`` is the folder of journals in files; without, ``settings`` are the client's.

    ``content_type`` is that of topics, and of files that are made.
    """

    root: str | None
    settings: Settings | None
    content_type: str

    @classmethod
    def of(cls, options: Options) -> Place:
        """Raises OptionError."""
        content_type = options["contentType"]
        try:
            framing_by_content_type(content_type)
        except ContentTypeError as error:
            raise OptionError("contentType", str(error)) from None
        if not options.given("path"):
            return cls(None, settings_of(options), content_type)
        for name in options.client:
            if name != "isolation.level":
                raise OptionError(
                    f"kafka.{name}", "has no meaning with a path: journals in files need no broker"
                )
        return cls(local_path(options["path"]), None, content_type)

    @property
    def is_files(self) -> bool:
        return self.root is not None

    @property
    def name(self) -> str:
        """For messages."""
        if self.settings is None:
            return f"journals in {self.root}"
        return brokers_text(self.settings)

    def open(self) -> AnyJournals:
        """To be closed. Files are written so that they survive a power cut, as intents do."""
        if self.root is not None:
            return FileJournals(self.root, fsync=True, linger_ms=_LINGER, buffer_bytes=_BUFFER)
        assert self.settings is not None
        return TopicJournals(self.settings, content_type=self.content_type)

    def make(self, journals: AnyJournals, topic: str, count: int) -> list[JournalSpec]:
        """The journals of a topic in the order of their numbers. In files, ``count`` are made where there
        are fewer; brokers make topics by themselves. Raises JournalError and ClientError."""
        try:
            found = partitions(journals, topic)
        except UnknownJournalError:
            found = []
        if isinstance(journals, FileJournals):
            if len(found) >= count:
                return found
            # All of them, whatever is there: other tasks make them too, and all have to see the same.
            for number in range(count):
                journals.create(JournalSpec(f"{topic}/{number}", self.content_type))
        elif found:
            return found
        else:
            assert self.settings is not None
            with Client(self.settings) as client, client.producer() as producer:
                producer.partition_count(topic)
        return partitions(journals, topic)

    def topics(self, options: Options) -> list[str]:
        """The topics of brokers that a pattern chooses. Raises ClientError."""
        assert self.settings is not None
        with Client(self.settings) as client:
            return sorted(t.name for t in client.topics().values() if is_chosen(options, t))

    @contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """Makes what Spark shows of what journals and clients raise."""
        try:
            yield
        except SparkSourceError:
            raise
        except (JournalError, ClientError, OSError) as error:
            kind = SparkSourceError if self.is_files else BrokerError
            raise kind(f"{doing}, {self.name}: {error}") from error


def partitions(journals: AnyJournals, topic: str) -> list[JournalSpec]:
    """The journals of a topic in the order of their numbers; of names without a number, by name. Raises
    UnknownJournalError, of brokers, and ClientError."""
    if isinstance(journals, FileJournals):
        found = [spec for spec in journals.list(f"{topic}/") if topic_of(spec.name) == topic]
    else:
        found = journals.list(topic)
    return sorted(found, key=lambda spec: number_and_name(spec.name))


def topic_of(journal: str) -> str:
    return journal.rpartition("/")[0]


def number_and_name(journal: str) -> tuple[str, int, str]:
    """What journals are ordered by: ``orders/part-2`` is before ``orders/part-10``."""
    topic, _, last = journal.rpartition("/")
    digits = re.search(r"\d+$", last)
    return topic, int(digits[0]) if digits else -1, last
