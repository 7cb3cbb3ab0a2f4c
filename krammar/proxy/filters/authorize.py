"""Authorize: lets each user do only what ACLs allow, in front of any Kafka.

```python
from krammar.proxy import Proxy
from krammar.proxy.filters.authorize import Authorize

rules = [
    {"allow": "alice", "operation": ["read", "describe"], "topic": "orders-*"},
    {"allow": "alice", "operation": "read", "group": "billing"},
    {"deny": "*", "operation": "delete", "topic": "*"},
]
with Proxy.start(upstream="localhost:9092", filters=[Authorize(rules)]) as proxy:
    ...
```
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Iterable, Mapping
from pathlib import Path
from types import MethodType
from typing import Any
from uuid import UUID

import kafka_wire
from kafka_wire import MetadataRequest

from krammar.authorization.acls import CLUSTER_NAME, Authorizer, Requester
from krammar.authorization.gate import Gate
from krammar.authorization.rules import all_acls
from krammar.authorization.table import CLUSTER, CREATE, TOPIC
from krammar.faults.answers import subjects
from krammar.faults.shape import Schema
from krammar.proxy.filters.logins import SeesLogins
from krammar.proxy.filters.topics import TopicIds
from krammar.proxy.interface import Connection, Exchange, on
from krammar.wire.package import package_of

# Without them, no client can begin.
_ALWAYS = {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}
_ANONYMOUS = "ANONYMOUS"


class Authorize(SeesLogins):
    """Answers what a user may not do with Kafka's authorization errors. The rest of the request passes.

    APIs that it does not know, such as those between brokers, need ``cluster_action`` on the cluster. A client that has
    not logged in is ``User:ANONYMOUS``.

    Args:
        rules: who may do what: tables with ``allow`` or ``deny``, ``operation``, one of ``topic``, ``group``, ``transactional_id``
            and ``cluster``, and ``host``
        super_users: users who may do everything
        open_without_rule: whether a resource that no rule is about is open to everyone
        audit: the file that gets a line of JSON for each request: who has asked for what, and what was refused

    Raises:
        OSError: the file cannot be opened.
        ValueError: an argument is invalid; the text begins with its name.
    """

    def __init__(
        self,
        rules: Iterable[Mapping[str, Any]],
        super_users: Iterable[str] = (),
        open_without_rule: bool = False,
        audit: str | None = None,
    ) -> None:
        try:
            acls = all_acls(rules)
        except ValueError as error:
            raise ValueError(f"rules: {error}") from error
        if isinstance(super_users, str):
            raise ValueError(f'super_users = {super_users!r}: write a list, such as ["admin"]')
        users = [each if ":" in each else f"User:{each}" for each in super_users]
        self._authorizer = Authorizer(users, allow_without_acl=open_without_rule)
        for acl in acls:
            self._authorizer.add(acl)
        self._schema = Schema(package_of(kafka_wire))
        self._ids = TopicIds()
        self._audit = None
        if audit is not None:
            self._audit = Path(audit).open("a", encoding="utf-8")  # noqa: SIM115 — see close()
        package = self._schema.package
        checked = [
            package.request_class(key)
            for name, key in self._schema.names().items()
            if name not in _ALWAYS and package.response_class(key)
        ]

        # Functions of this instance: `on` notes in them what it names.
        def check(self: Authorize, request: Any, exchange: Exchange) -> Awaitable[Any] | Any:
            return _check(self, request, exchange)

        def add(self: Authorize, response: Any, exchange: Exchange) -> Awaitable[Any] | Any:
            return _add(self, response, exchange)

        self.check = MethodType(on(*checked)(check), self)
        self.add = MethodType(on(*(each.response_class for each in checked))(add), self)

    def decide(self, request: Any, exchange: Exchange) -> Any:
        """Return the answer to a request that is refused, what remains of it, or None if all of it is allowed."""
        connection = exchange.connection
        client = Requester(
            f"User:{connection.principal or _ANONYMOUS}", connection.client.rpartition(":")[0]
        )
        gate = Gate(self._authorizer, self._schema, _Topics(self._ids, connection))
        if isinstance(request, MetadataRequest):
            self._forbid_creation(client, request)
        decision = gate.decide(client, request, exchange.version)
        if self._audit is not None:
            self._write(client, exchange, {} if decision is None else decision.refused)
        if decision is None:
            return None
        if decision.response is not None:
            return decision.finish(decision.response)
        exchange.state[self] = decision
        return decision.request

    def _forbid_creation(self, client: Requester, request: MetadataRequest) -> None:
        """The proxy does not know which topics exist, so the broker must not create what the client may not."""
        may = self._authorizer.allows
        if not may(client, CREATE, CLUSTER, CLUSTER_NAME) and not all(
            topic.name is None or may(client, CREATE, TOPIC, topic.name)
            for topic in request.topics or ()
        ):
            request.allow_auto_topic_creation = False

    def close(self) -> None:
        if self._audit is not None:
            self._audit.close()

    def _write(self, client: Requester, exchange: Exchange, refused: dict[str, list[str]]) -> None:
        assert self._audit is not None
        line = {
            "connection": exchange.connection.number,
            "principal": client.principal,
            "host": client.host,
            "api": self._schema.name(exchange.api_key),
            "version": exchange.version,
            "refused": refused,
        }
        self._audit.write(json.dumps(line, ensure_ascii=True) + "\n")
        self._audit.flush()

    def unknown_ids(self, message: Any, exchange: Exchange, *, response: bool) -> set[UUID]:
        """Return the ids of topics in a message whose names must be asked for."""
        schema, key, version = self._schema, exchange.api_key, exchange.version
        shape = schema.response(key, version) if response else schema.request(key, version)
        if shape is None or "topic_id" not in shape.roles:
            return set()
        ids = {
            about.get("topic_id") for about in subjects(message, shape) if not about.get("topic")
        }
        known = self._ids.name
        return {
            each for each in ids if each and each.int and known(exchange.connection, each) is None
        }

    async def ask(self, exchange: Exchange, ids: set[UUID]) -> None:
        """Ask the broker for the names of topics."""
        await self._ids.ask(exchange, ids)


class _Topics:
    """What the proxy knows about topics on a connection."""

    def __init__(self, ids: TopicIds, connection: Connection) -> None:
        self._ids, self._connection = ids, connection

    def name_of(self, topic_id: UUID) -> str | None:
        return self._ids.name(self._connection, topic_id)

    def names(self) -> None:
        return None

    def would_create(self, request: MetadataRequest, version: int, name: str) -> bool:
        return False


def _check(self: Authorize, request: Any, exchange: Exchange) -> Awaitable[Any] | Any:
    self.check_login_decided(exchange.connection)
    ids = self.unknown_ids(request, exchange, response=False)
    if ids:
        return _check_later(self, request, exchange, ids)
    return self.decide(request, exchange)


async def _check_later(self: Authorize, request: Any, exchange: Exchange, ids: set[UUID]) -> Any:
    await self.ask(exchange, ids)
    return self.decide(request, exchange)


def _add(self: Authorize, response: Any, exchange: Exchange) -> Awaitable[Any] | Any:
    decision = exchange.state.get(self)
    if decision is None:
        return None
    ids = self.unknown_ids(response, exchange, response=True)
    if ids:
        return _add_later(self, response, exchange, ids)
    return decision.finish(response)


async def _add_later(self: Authorize, response: Any, exchange: Exchange, ids: set[UUID]) -> Any:
    await self.ask(exchange, ids)
    return exchange.state[self].finish(response)


__all__ = ["Authorize"]
