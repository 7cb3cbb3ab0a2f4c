"""What the filters of records have in common: topics by pattern, and names of topics that messages give by id."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable
from uuid import UUID

from kafka_wire import MetadataRequest, MetadataResponse

from krammar.proxy.interface import Exchange

# Names that are remembered. A topic id never gets another name, so names do not become outdated.
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


async def ask_by_id(exchange: Exchange, ids: Iterable[UUID]) -> MetadataResponse:
    """Ask the broker for topics by id. Errors are those of ``exchange.send``."""
    request = MetadataRequest(
        topics=[MetadataRequest.Topic(topic_id=each, name=None) for each in ids],
        allow_auto_topic_creation=False,
    )
    response: MetadataResponse = await exchange.send(request, METADATA_BY_ID)
    return response


class TopicIds:
    """The names of topics by their ids, as far as they are known."""

    def __init__(self) -> None:
        self._names: dict[UUID, str] = {}

    def __call__(self, topic_id: UUID) -> str | None:
        """Return the name of a topic, or None if it is not known."""
        return self._names.get(topic_id)

    async def ask(self, exchange: Exchange, ids: Iterable[UUID]) -> None:
        """Ask the broker for the names of topics that are not known. Errors are those of ``exchange.send``."""
        unknown = [each for each in dict.fromkeys(ids) if each.int and each not in self._names]
        if not unknown:
            return
        response = await ask_by_id(exchange, unknown)
        while len(self._names) > _MOST:
            del self._names[next(iter(self._names))]
        for topic in response.topics:
            if topic.name and not topic.error_code:
                self._names[topic.topic_id] = topic.name


__all__ = ["INTERNAL_TOPICS", "METADATA_BY_ID", "Patterns", "TopicIds", "ask_by_id"]
