"""What the filters of records have in common: topics by pattern, and names of topics that messages give by id."""

from __future__ import annotations

import fnmatch
import re
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any
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


def remember(where: OrderedDict[Any, Any], key: Any, value: Any, limit: int) -> None:
    """Store a value; the oldest one is forgotten if there are more than ``limit``."""
    where[key] = value
    where.move_to_end(key)
    if len(where) > limit:
        where.popitem(last=False)


class TopicIds:
    """The names of topics by their ids, as far as they are known. Those that were not used for the longest time go first."""

    def __init__(self) -> None:
        self._names: OrderedDict[bytes, str] = OrderedDict()

    def name(self, topic_id: UUID) -> str | None:
        """Return the name of a topic, or None if it is not known."""
        return self.name_of_bytes(topic_id.bytes)

    def name_of_bytes(self, topic_id: bytes) -> str | None:
        """Return the name of a topic for the 16 bytes of its id, or None if it is not known."""
        found = self._names.get(topic_id)
        if found is not None:
            self._names.move_to_end(topic_id)
        return found

    def learn(self, topic_id: UUID, name: str) -> None:
        """Remember the name of a topic."""
        remember(self._names, topic_id.bytes, name, _MOST)

    async def ask(self, exchange: Exchange, ids: Iterable[UUID]) -> None:
        """Ask the broker for the names of topics that are not known. Errors are those of ``exchange.send``."""
        unknown = [each for each in dict.fromkeys(ids) if each.int and self.name(each) is None]
        if not unknown:
            return
        request = MetadataRequest(
            topics=[MetadataRequest.Topic(topic_id=each, name=None) for each in unknown],
            allow_auto_topic_creation=False,
        )
        response: MetadataResponse = await exchange.send(request, METADATA_BY_ID)
        for topic in response.topics:
            if topic.name and not topic.error_code:
                self.learn(topic.topic_id, topic.name)


__all__ = ["INTERNAL_TOPICS", "METADATA_BY_ID", "Patterns", "TopicIds", "remember"]
