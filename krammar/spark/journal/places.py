"""The place of journals (a folder of files, or topics of brokers), and the journals of a topic.

A topic ``orders`` has the journals ``orders/0``, ``orders/1``, and so on. On brokers they are the topic's partitions.
In files they are all journals whose names begin with ``orders/`` and have no further ``/``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeAlias

from krammar.client import Client, ClientError, Settings
from krammar.client.errors import UnknownTopicOrPartition
from krammar.journal import (
    ContentTypeError,
    FileJournals,
    JournalError,
    JournalSpec,
    TopicJournals,
    UnknownJournalError,
    framing_by_content_type,
)
from krammar.spark.brokers import brokers_text, recheck, settings_of
from krammar.spark.errors import BrokerError, OptionError, SparkSourceError
from krammar.spark.kafka.plan import is_chosen
from krammar.spark.options import Options
from krammar.spark.paths import local_path

AnyJournals: TypeAlias = FileJournals | TopicJournals

# Tasks write many messages at once. Messages that nobody waits for are written when the buffer has this many bytes,
# or after this time in milliseconds.
_BUFFER = 4 << 20
_LINGER = 500


@dataclass(frozen=True, slots=True)
class JournalPlace:
    """Where the journals of a query are. It is sent to the tasks.

    Attributes:
        root: the folder of journals in files, or None
        settings: the client's settings for journals on brokers, or None
        content_type: the content type of topics, and of new journals in files
    """

    root: str | None
    settings: Settings | None
    content_type: str

    @classmethod
    def of(cls, options: Options) -> JournalPlace:
        """Read the place from options.

        Raises:
            OptionError: the content type is unknown, or a client setting does not fit.
        """
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
        """Whether the journals are files, and not topics."""
        return self.root is not None

    @property
    def name(self) -> str:
        """The place, for messages."""
        if self.settings is None:
            return f"journals in {self.root}"
        return brokers_text(self.settings)

    def open(self) -> AnyJournals:
        """Open the journals; the caller closes them.

        Files survive a power cut, as intents do.
        """
        if self.root is not None:
            return FileJournals(self.root, fsync=True, linger_ms=_LINGER, buffer_bytes=_BUFFER)
        assert self.settings is not None
        return TopicJournals(self.settings, content_type=self.content_type)

    def make(self, journals: AnyJournals, topic: str, count: int) -> list[JournalSpec]:
        """Return the journals of a topic, ordered by number, and create missing ones.

        In files, ``count`` journals are created if there are fewer. Brokers create the topic.

        Raises:
            JournalError: a journal cannot be created.
            ClientError: the brokers do not create the topic.
        """
        try:
            found = partitions(journals, topic)
        except UnknownJournalError:
            found = []
        if isinstance(journals, FileJournals):
            if len(found) >= count:
                return found
            # Create all, also existing ones: other tasks do the same, and all tasks must see the same journals.
            for number in range(count):
                journals.create(JournalSpec(f"{topic}/{number}", self.content_type))
        elif found:
            return found
        else:
            assert self.settings is not None
            with Client(self.settings) as client, client.producer() as producer:
                producer.partition_count(topic)
        return partitions(journals, topic)

    def missing(self, journals: AnyJournals, names: Iterable[str]) -> set[str]:
        """Return which of these journals do not exist.

        Raises:
            ClientError: the brokers cannot be asked.
        """
        if isinstance(journals, FileJournals):
            # If the root does not exist either, the file system may not be mounted.
            found = journals.root.is_dir()
            return {name for name in names if found and not journals.folder(name).is_dir()}
        assert self.settings is not None
        wanted = set(names)
        with Client(self.settings) as client:

            def ask() -> set[str]:
                missing = set(wanted)
                for topic in {topic_of(name) for name in wanted}:
                    with suppress(UnknownTopicOrPartition):
                        found = client.partitions(topic)
                        missing -= {f"{at.topic}/{at.partition}" for at in found}
                return missing

            return recheck(client, ask, bool)

    def topics(self, options: Options) -> list[str]:
        """Return the topics of the brokers that ``subscribePattern`` matches, sorted.

        Raises:
            ClientError: the brokers cannot be asked.
        """
        assert self.settings is not None
        with Client(self.settings) as client:
            return sorted(t.name for t in client.topics().values() if is_chosen(options, t))

    @contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """Convert errors of journals and clients to errors that Spark shows.

        Args:
            doing: describes the operation, for the message.
        """
        try:
            yield
        except SparkSourceError:
            raise
        except (JournalError, ClientError, OSError) as error:
            kind = SparkSourceError if self.is_files else BrokerError
            raise kind(f"{doing}, {self.name}: {error}") from None


def partitions(journals: AnyJournals, topic: str) -> list[JournalSpec]:
    """Return the journals of a topic, ordered by number, or by name if names end without a number.

    Raises:
        UnknownJournalError: the brokers have no such topic.
        ClientError: the brokers cannot be asked.
    """
    if isinstance(journals, FileJournals):
        found = [spec for spec in journals.list(f"{topic}/") if topic_of(spec.name) == topic]
    else:
        found = journals.list(topic)
    return sorted(found, key=lambda spec: number_and_name(spec.name))


def topic_of(journal: str) -> str:
    """Return the topic of a journal: ``orders`` for ``orders/0``."""
    return journal.rpartition("/")[0]


def number_and_name(journal: str) -> tuple[str, int, str]:
    """Return the sort key of a journal: ``orders/part-2`` is before ``orders/part-10``."""
    topic, _, last = journal.rpartition("/")
    digits = re.search(r"\d+$", last)
    return topic, int(digits[0]) if digits else -1, last
