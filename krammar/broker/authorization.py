"""The authorizer of a broker: its ACLs are in the metadata log (KIP-801), and a gate checks requests before any handler gets them.

``protection.STANDARD_AUTHORIZER`` is Kafka's name for it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast
from uuid import UUID

import kafka_wire
from kafka_wire import (
    AccessControlEntryRecord,
    AclOperation,
    AclResourceType,
    MetadataRequest,
)

from krammar.authorization.acls import Acl, Authorizer, Requester
from krammar.authorization.gate import Decision, Gate
from krammar.broker.cluster import ClusterMetadata
from krammar.broker.config import BrokerConfig
from krammar.broker.config.definitions import ConfigError
from krammar.broker.errors import CloseConnection
from krammar.broker.session import Session
from krammar.faults.shape import Schema
from krammar.util.turns import Steps
from krammar.wire.package import package_of

SUPER_USERS = "super.users"
Handler = Callable[[Session, Any, int], Any]
# The first version of Metadata that says whether topics may be created.
_ASKS_TO_CREATE = 4


def super_users(config: BrokerConfig) -> frozenset[str]:
    """Return the principals of ``super.users``, which are separated by semicolons. Raises ConfigError."""
    users = frozenset(user.strip() for user in config.super_users.split(";") if user.strip())
    for user in users:
        if not all(user.partition(":")[::2]):
            raise ConfigError(
                SUPER_USERS,
                config.super_users,
                f"{user!r} is not a principal, such as User:alice",
                config.origins.get(SUPER_USERS, ""),
            )
    return users


class BrokerAuthorizer:
    """Decides requests by the ACLs in the metadata. All nodes of a broker share it.

    Raises ConfigError if ``super.users`` is invalid.

    Attributes:
        changes: of ACLs so far
    """

    def __init__(self, config: BrokerConfig, cluster: ClusterMetadata) -> None:
        self._config, self._cluster = config, cluster
        self.changes = 0
        self._authorizer = Authorizer(
            super_users(config), allow_without_acl=config.allow_everyone_if_no_acl_found
        )
        self._gate = Gate(self._authorizer, Schema(package_of(kafka_wire)), self)
        for record in cluster.acls.values():
            self._authorizer.add(Acl.of(record))
        cluster.watchers[AccessControlEntryRecord.__name__] = self._changed

    def _changed(self, record: AccessControlEntryRecord, added: bool) -> None:
        change = self._authorizer.add if added else self._authorizer.remove
        change(Acl.of(record))
        self.changes += 1

    def may_describe(self, session: Session, topic: str) -> bool:
        """Return whether a client may know a topic."""
        client = Requester(session.principal, session.host)
        return self._authorizer.allows(client, AclOperation.DESCRIBE, AclResourceType.TOPIC, topic)

    def __contains__(self, acl: Acl) -> bool:
        return acl in self._authorizer

    def guard(self, handler: Handler) -> Handler:
        """Return a handler that gets only what the client may do."""

        def guarded(session: Session, request: Any, version: int) -> Any:
            decision = self._decide(session, request, version)
            if decision is None:
                return handler(session, request, version)
            response = decision.response
            if response is None:
                response = handler(session, decision.request, version)
            if inspect.isgenerator(response):
                return _finished_in_steps(cast("Steps[Any]", response), decision, request)
            if inspect.isawaitable(response):
                return _finished(response, decision, request)
            return _finish(response, decision, request)

        return guarded

    def _decide(self, session: Session, request: Any, version: int) -> Decision | None:
        return self._gate.decide(Requester(session.principal, session.host), request, version)

    # What the gate asks about topics.

    def name_of(self, topic_id: UUID) -> str | None:
        topic = self._cluster.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def names(self) -> Iterable[str]:
        return list(self._cluster.topics)

    def would_create(self, request: MetadataRequest, version: int, name: str) -> bool:
        asked = version < _ASKS_TO_CREATE or request.allow_auto_topic_creation
        return asked and self._config.auto_create_topics_enable and name not in self._cluster.topics


def _finish(response: Any, decision: Decision, request: Any) -> Any:
    refused = decision.response is not None or decision.later
    if refused and getattr(request, "acks", None) == 0:
        # As in Kafka: there is no response that could say that something was refused.
        raise CloseConnection("the client may not write to a topic, and does not wait for answers")
    return decision.finish(response)


def _finished_in_steps(steps: Steps[Any], decision: Decision, request: Any) -> Steps[Any]:
    response = yield from steps
    if inspect.isawaitable(response):
        return _finished(response, decision, request)
    return _finish(response, decision, request)


async def _finished(response: Awaitable[Any], decision: Decision, request: Any) -> Any:
    return _finish(await response, decision, request)
