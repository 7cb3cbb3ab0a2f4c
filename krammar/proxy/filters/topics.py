"""What the filters of records have in common: topics by pattern, and names of topics that messages give by id."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from uuid import UUID

from kafka_wire import MetadataRequest, MetadataResponse

from krammar.proxy.interface import Connection, Exchange
from krammar.util.remembered import Remembered

# Names that are remembered, of all connections. A topic id never gets another name, so names do not become outdated.
_MOST = 100_000
# Metadata by topic id is served from this version on (KIP-516). Brokers with topic ids in Produce or Fetch have it.
METADATA_BY_ID = 12

# Kafka's own topics. Clients read them with tools, and cannot write them.
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__share_group_state", "__transaction_state"})


class Patterns(tuple[str, ...]):
    """Names with wildcards, such as ``orders`` and ``team-*``. A name is in them if a pattern matches.

    ``*`` means any text, ``?`` one character, and ``[ab]`` one of these characters.
    """

    _match: re.Pattern[str]

    def __new__(cls, key: str, patterns: Iterable[str]) -> Patterns:
        """Create patterns from the setting ``key``. Raises ValueError, which names the key."""
        if isinstance(patterns, str) or not isinstance(patterns, Iterable):
            raise ValueError(f'{key} = {patterns!r}: write a list, such as ["orders", "team-*"]')
        found = super().__new__(cls, patterns)
        for each in found:
            if not isinstance(each, str) or not each:
                raise ValueError(f"{key}: {each!r} is no pattern (write text, such as 'team-*')")
        # \Z alone matches nothing but the empty text, so that no pattern matches no name.
        found._match = re.compile("|".join(map(fnmatch.translate, found)) or r"(?!)")
        return found

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._match.match(name) is not None


class TopicIds:
    """The names of topics by their ids, as far as they are known. Those that were not used for the longest time go first.

    Each connection has names of its own: filters between this one and the broker can show users different names, or
    deny them a topic.
    """

    def __init__(self) -> None:
        # By an object that stands for the connection, and the 16 bytes of the id.
        self._names: Remembered[tuple[object, bytes], str] = Remembered(_MOST)

    def name(self, connection: Connection, topic_id: UUID) -> str | None:
        """Return the name of a topic for a connection, or None if it is not known."""
        return self._names.use((connection.state.get(self), topic_id.bytes))

    async def ask(self, exchange: Exchange, ids: Iterable[UUID]) -> dict[UUID, int]:
        """Ask for the names of topics that are not known, and return the error codes of those that have none.

        Errors are those of ``exchange.send``.
        """
        connection = exchange.connection
        unknown = [
            each for each in dict.fromkeys(ids) if each.int and self.name(connection, each) is None
        ]
        if not unknown:
            return {}
        names, errors = await ask_names(exchange, unknown)
        mark = connection.state.setdefault(self, object())
        for topic_id, name in names.items():
            self._names[mark, topic_id.bytes] = name
        return errors


async def ask_names(
    exchange: Exchange, ids: Iterable[UUID]
) -> tuple[dict[UUID, str], dict[UUID, int]]:
    """Return the names of topics by their ids, and the error codes of the others.

    The request passes the filters after the one that asks. Errors are those of ``exchange.send``.
    """
    request = MetadataRequest(
        topics=[MetadataRequest.Topic(topic_id=each, name=None) for each in ids],
        allow_auto_topic_creation=False,
    )
    response: MetadataResponse = await exchange.send(request, METADATA_BY_ID)
    named = {
        each.topic_id: each.name for each in response.topics if each.name and not each.error_code
    }
    errors = {each.topic_id: each.error_code for each in response.topics if each.error_code}
    return named, errors


__all__ = ["INTERNAL_TOPICS", "METADATA_BY_ID", "Patterns", "TopicIds", "ask_names"]
