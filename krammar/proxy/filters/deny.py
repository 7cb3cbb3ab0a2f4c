"""Deny: forbids APIs, versions, topics and groups, for all clients or for some users.

```python
from krammar.proxy import Proxy
from krammar.proxy.filters.deny import Deny

filters = [
    Deny(apis=["CreateTopics", "DeleteTopics"]),
    Deny(versions={"Produce": "0-8"}),
    Deny(topics=["secret-*"], groups=["payroll"], logins=["guest"]),
]
with Proxy.start(upstream="localhost:9092", filters=filters) as proxy:
    ...
```
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from functools import partial
from types import MethodType
from typing import Any

import kafka_wire
from kafka_wire import (
    ApiVersionsResponse,
    DescribeTopicPartitionsResponse,
    ErrorCode,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
    ShareFetchResponse,
)

from krammar.faults.answers import Selection, Subject, build, merge, place_for, subjects, without
from krammar.faults.errors import FaultError
from krammar.faults.shape import Schema
from krammar.proxy.filters.logins import SeesLogins
from krammar.proxy.filters.topics import Patterns, TopicIds
from krammar.proxy.interface import Close, Connection, Exchange, on
from krammar.util.diagnostics import did_you_mean
from krammar.wire.package import package_of

# Without them, no client can begin.
_ALWAYS = {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}
_TOPIC_CONFIGS = 2  # ConfigResource.Type.TOPIC
_FETCHED = (FetchResponse, ShareFetchResponse)


class Deny(SeesLogins):
    """Answers denied parts of a request with Kafka's authorization errors. The rest of the request passes.

    Args:
        apis: names of APIs, such as ``CreateTopics``. Clients get CLUSTER_AUTHORIZATION_FAILED.
        versions: versions by API, such as ``{"Produce": "0-8"}``. ApiVersions does not offer them, unless ``logins`` is
            given; a request of such a version closes the connection.
        topics: patterns of topics. Clients get TOPIC_AUTHORIZATION_FAILED, and lists of topics lack them.
        groups: patterns of groups. Clients get GROUP_AUTHORIZATION_FAILED.
        logins: patterns of the users who are denied it (``connection.principal``). Default: all clients.

    Raises:
        ValueError: an argument is invalid; the text begins with its name.
    """

    def __init__(
        self,
        apis: Iterable[str] = (),
        versions: Mapping[str, str] | None = None,
        topics: Iterable[str] = (),
        groups: Iterable[str] = (),
        logins: Iterable[str] | None = None,
    ) -> None:
        self._schema = Schema(package_of(kafka_wire))
        self._apis = {self._key("apis", name) for name in Patterns("apis", apis)}
        self._topics = Patterns("topics", topics)
        self._groups = Patterns("groups", groups)
        self._logins = None if logins is None else Patterns("logins", logins)
        self._ids = TopicIds()
        self._denied: dict[int, tuple[int, int]] = {}
        if not isinstance(versions or {}, Mapping):
            raise ValueError(f'versions = {versions!r}: write a table, such as {{Produce = "0-8"}}')
        for name, text in (versions or {}).items():
            key = self._key("versions", name)
            try:
                close = on(self._schema.package.request_class(key), versions=str(text))(_close)
            except ValueError as error:
                raise ValueError(f"versions: {name}: {error}") from error
            named = close._krammar_on[-1]  # type: ignore[attr-defined]
            self._denied[key] = named.low, named.high
        package = self._schema.package
        checked = [
            package.request_class(key)
            for name, key in self._schema.names().items()
            if name not in _ALWAYS and package.response_class(key) and self._can_deny(key)
        ]
        if not checked:
            raise ValueError("apis, versions, topics, groups: give at least one of them")

        # Functions of this instance: `on` notes in them what it names.
        def check(self: Deny, request: Any, exchange: Exchange) -> Awaitable[Any] | Any:
            return _check(self, request, exchange)

        def add(self: Deny, response: Any, exchange: Exchange) -> Awaitable[None] | None:
            return _add(self, response, exchange)

        self.check = MethodType(on(*checked)(check), self)
        self.add = MethodType(on(*(each.response_class for each in checked))(add), self)

    def _key(self, setting: str, name: Any) -> int:
        keys = self._schema.names()
        if name not in keys or name in _ALWAYS:
            hint = did_you_mean(str(name), keys) or "see docs/messages.md for the names of APIs"
            raise ValueError(f"{setting}: no API {name!r} can be denied; {hint}")
        return keys[name]

    def _can_deny(self, key: int) -> bool:
        """Whether requests of an API can be denied, at least some."""
        if key in self._apis or key in self._denied:
            return True
        low, high = self._schema.package.versions()[key]
        roles = self._schema.request(key, low).roles | self._schema.request(key, high).roles
        topics = roles & {"topic", "topic_id", "resource_name"}
        return bool((self._topics and topics) or (self._groups and roles & {"group"}))

    def _is_denied(self, exchange: Exchange) -> bool:
        """Whether this client is denied anything."""
        return self._logins is None or exchange.connection.principal in self._logins

    def _denies_topic(self, about: Subject, connection: Connection) -> bool:
        if about.get("resource_type") == _TOPIC_CONFIGS:
            return about.get("resource_name") in self._topics
        topic = about.get("topic")
        if not topic and (topic_id := about.get("topic_id")):
            topic = self._ids.name(connection, topic_id)
        return topic in self._topics

    def answer(self, request: Any, exchange: Exchange) -> Any:
        """Return the answer to a request that is denied, and None for one that passes, or passes in part."""
        key, version = exchange.api_key, exchange.version
        shape = self._schema.request(key, version)
        about = list(subjects(request, shape))
        if key in self._apis:
            return self._refusal(exchange, about, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        if any(each.get("group") in self._groups for each in about):
            return self._refusal(exchange, about, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        denied = [each for each in about if self._denies_topic(each, exchange.connection)]
        if not denied:
            return None
        selection = Selection({"topic": self._topics})
        rest = without(request, shape, selection, partial(self._ids.name, exchange.connection))
        if rest is None and isinstance(request, MetadataRequest):
            # Only the broker can add the other brokers, without which clients do not accept an error.
            request.topics = []
            rest = request
        elif rest is None or rest is request:
            return self._refusal(exchange, about, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        exchange.state[self] = self._refusal(exchange, denied, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        return rest

    def _refusal(self, exchange: Exchange, about: list[Subject], code: ErrorCode) -> Any:
        cls = self._schema.package.response_class(exchange.api_key)
        shape = self._schema.response(exchange.api_key, exchange.version)
        assert shape is not None
        selection = Selection({"topic": self._topics} if "TOPIC" in code.name else {})
        try:
            place = place_for(shape, code.name, selection, None, cls.__name__)
        except FaultError as error:  # a response without errors
            raise Close(f"{cls.__name__}: {code.name}") from error
        return build(cls, shape, about, place, code)

    def merge(self, response: Any, exchange: Exchange) -> None:
        """Add what was denied to a broker's response, and leave denied topics out of lists."""
        refused = exchange.state.get(self)
        if isinstance(response, MetadataResponse | DescribeTopicPartitionsResponse):
            topics: list[Any] = [each for each in response.topics if each.name not in self._topics]
            response.topics = topics
        if isinstance(response, _FETCHED):  # of a session that another client has begun
            kept: list[Any] = [
                each
                for each in response.responses
                if (_name(each) or self._ids.name(exchange.connection, each.topic_id))
                not in self._topics
            ]
            response.responses = kept
        if refused is not None:
            shape = self._schema.response(exchange.api_key, exchange.version)
            assert shape is not None
            merge(response, refused, shape)

    @on(ApiVersionsResponse)
    def offer(self, response: ApiVersionsResponse, exchange: Exchange) -> None:
        if self._logins is not None:  # the login follows
            return
        offered = []
        for each in response.api_keys:
            low, high = self._denied.get(each.api_key, (0, -1))
            if low <= each.min_version <= high:
                each.min_version = high + 1
            if low <= each.max_version <= high:
                each.max_version = low - 1
            if each.min_version <= each.max_version:
                offered.append(each)
        response.api_keys = offered


def _close() -> None:
    """Stands for a method, so that ``on`` reads the versions."""


def _check(self: Deny, request: Any, exchange: Exchange) -> Awaitable[Any] | Any:
    if self._logins is not None:
        self.check_login_decided(exchange.connection)
    if not self._is_denied(exchange):
        return None
    low, high = self._denied.get(exchange.api_key, (0, -1))
    if low <= exchange.version <= high:
        raise Close(f"{type(request).__name__} v{exchange.version} is denied")
    shape = self._schema.request(exchange.api_key, exchange.version)
    ids = {each.get("topic_id") for each in subjects(request, shape)} - {None}
    names, connection = self._ids, exchange.connection
    if self._topics and any(
        each.int and names.name(connection, each) is None for each in ids if each
    ):
        return _check_later(self, request, exchange, ids)
    return self.answer(request, exchange)


async def _check_later(self: Deny, request: Any, exchange: Exchange, ids: set[Any]) -> Any:
    await self._ids.ask(exchange, ids)
    return self.answer(request, exchange)


def _add(self: Deny, response: Any, exchange: Exchange) -> Awaitable[None] | None:
    if not self._is_denied(exchange):
        return None
    if isinstance(response, _FETCHED) and self._topics:
        ids = {each.topic_id for each in response.responses if not _name(each)}
        if any(self._ids.name(exchange.connection, each) is None for each in ids):
            return _add_later(self, response, exchange, ids)
    self.merge(response, exchange)
    return None


def _name(topic: Any) -> str:
    return str(getattr(topic, "topic", ""))


async def _add_later(self: Deny, response: Any, exchange: Exchange, ids: set[Any]) -> None:
    await self._ids.ask(exchange, ids)
    self.merge(response, exchange)


__all__ = ["Deny"]
