"""Tenants share a cluster through the proxy, and none of them sees or changes anything of another.

Each tenant has a prefix for its topics, groups and transactional ids, which its clients never see. See docs/tenants.md.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import kafka_wire
from kafka_wire import ApiVersionsResponse, ErrorCode, MetadataRequest, SaslHandshakeRequest

from krammar.proxy.filters.logins import SeesLogins
from krammar.proxy.filters.tenant_apis import ALLOWED, PASSED, REFUSED
from krammar.proxy.filters.tenant_calls import REQUESTS, RESPONSES, Memory, TenantCall
from krammar.proxy.filters.tenant_fields import (
    ENTITIES,
    ERROR_MESSAGE,
    PATTERN,
    TOPIC_ID,
    NamePlan,
    plan_of,
    restore,
    with_ids,
)
from krammar.proxy.filters.tenant_names import Tenant
from krammar.proxy.filters.topics import ask_names
from krammar.proxy.interface import Close, Connection, Exchange, Method, Patch, on
from krammar.wire.package import package_of
from krammar.wire.reflection import UNKNOWN_TAGS, Walker, walker
from krammar.wire.skip import TAGGED
from krammar.wire.splice import change_of

# The entities of numbers that are checked: a function decides whether the frame can be passed on. In a request, the id of
# a broker is the broker that sends it.
_BROKER_ID, _SESSION_ID = "brokerId", "fetchSessionId"

_PACKAGE = package_of(kafka_wire)
_FREQUENT = (
    kafka_wire.ProduceRequest,
    kafka_wire.ProduceResponse,
    kafka_wire.FetchRequest,
    kafka_wire.FetchResponse,
)


def _on_all(method: Method) -> Method:
    """Call a method for all requests that tenants may use, and for their responses."""
    for request, newest in ALLOWED.items():
        versions = f"{request.min_version}-{newest}"
        method = on(request, request.response_class, versions=versions)(method)
    return method


def _on_others(method: Method) -> Method:
    """Call a method for all requests, and all versions, that tenants may not use."""
    for key in _PACKAGE.requests:
        cls: Any = _PACKAGE.request_class(key)
        newest = ALLOWED.get(cls, PASSED.get(cls))
        if newest is None:
            method = on(cls)(method)
        elif newest < cls.max_version:
            method = on(cls, versions=f"{newest + 1}-")(method)
    return method


class _Kind(NamedTuple):
    """What to do with the messages of a class and a version. Walkers visit names, patterns and unknown tagged fields."""

    plan: NamePlan
    names: Walker
    patterns: Walker
    tags: Walker
    special: Callable[[Any, TenantCall], Any] | None


def _kind(message: Any, version: int) -> _Kind:
    cls: Any = type(message)  # mypy does not accept that classes have hashes
    return _kind_of(cls, version)


@cache
def _kind_of(cls: Any, version: int) -> _Kind:
    names = walker(cls, version, *ENTITIES)
    patterns = walker(cls, version, PATTERN)
    tags = walker(cls, version, UNKNOWN_TAGS)
    special = REQUESTS.get(cls) or RESPONSES.get(cls)
    return _Kind(plan_of(cls, version), names, patterns, tags, special)


def _no_tags(tags: dict[int, bytes]) -> dict[int, bytes]:
    """Replace tagged fields that the definitions do not have: a newer broker could find names in them."""
    return {}


class Tenants(SeesLogins):
    """Separates tenants by a prefix of their topics, groups and transactional ids.

    A tenant's prefix is its name and a dot. Choose the tenant of a connection in one of these ways:

    Args:
        tenant: one tenant for all connections of this proxy, which has a port of its own.
        listeners: tenants by the name of a listener. Each has a port of its own.
        principals: tenants by the name of a login, or of a client certificate.

    Connections to other listeners, and of other principals, are closed.

    Raises:
        ValueError: not exactly one of them is given, or the name of a tenant is not valid.
    """

    refuse_unknown = True

    def __init__(
        self,
        tenant: str | None = None,
        *,
        listeners: Mapping[str, str] | None = None,
        principals: Mapping[str, str] | None = None,
    ) -> None:
        if [tenant is not None, bool(listeners), bool(principals)].count(True) != 1:
            raise ValueError(
                'set one of tenant = "name", listeners = { listener = "name" } and '
                'principals = { login = "name" }'
            )
        by_name: Mapping[str, Any] = listeners or principals or {"": tenant}
        names = set(by_name.values())
        tenants = {name: Tenant(name, names) for name in names}
        self._tenant = None if tenant is None else tenants[tenant]
        self._listeners = {name: tenants[each] for name, each in (listeners or {}).items()}
        self._principals = {name: tenants[each] for name, each in (principals or {}).items()}
        self._memory = Memory()

    def _find(self, connection: Connection) -> Tenant:
        if self._tenant is not None:
            return self._tenant
        if self._listeners:
            found = self._listeners.get(connection.listener)
            if found is None:
                raise Close(f"the listener {connection.listener!r} has no tenant")
            return found
        if connection.principal is None:
            raise Close("the client has not logged in, so it has no tenant")
        found = self._principals.get(connection.principal)
        if found is None:
            raise Close(f"{connection.principal!r} has no tenant")
        return found

    # -- what tenants may not do

    @_on_others
    def _refuse(self, request: Any, exchange: Exchange) -> Any:
        self._find(exchange.connection)
        answer = REFUSED.get(type(request))
        if answer is None or type(request) in ALLOWED:
            raise Close(f"a tenant cannot send {type(request).__name__} v{exchange.version}")
        return answer(request, exchange.version)

    @on(ApiVersionsResponse)
    def _versions(self, response: ApiVersionsResponse, exchange: Exchange) -> None:
        offered = []
        for entry in response.api_keys:
            known = entry.api_key in _PACKAGE.requests
            cls: Any = _PACKAGE.request_class(entry.api_key) if known else None
            newest = ALLOWED.get(cls, PASSED.get(cls))
            if newest is None:
                if cls in REFUSED:
                    offered.append(entry)
                continue
            entry.max_version = min(entry.max_version, newest)
            if cls is SaslHandshakeRequest:
                entry.min_version = max(entry.min_version, 1)
            if entry.min_version <= entry.max_version:
                offered.append(entry)
        response.api_keys = offered

    # -- what they may

    @_on_all
    def _message(self, message: Any, exchange: Exchange) -> Any:
        if hasattr(message, "response_class"):
            return self._request(message, exchange)
        return self._response(message, exchange)

    def _call(self, exchange: Exchange) -> TenantCall:
        connection = exchange.connection
        return TenantCall(
            self._find(connection), self._memory, exchange.version, connection.upstream
        )

    def _request(self, request: Any, exchange: Exchange) -> Any:
        call = exchange.state[self] = self._call(exchange)
        tenant = call.tenant
        kind = _kind(request, exchange.version)
        if kind.special is not None and (answer := kind.special(request, call)) is not None:
            return answer
        try:
            kind.patterns(request, tenant.add_pattern)
        except ValueError as error:
            return _invalid_pattern(request, str(error))
        kind.names(request, tenant.add)
        kind.tags(request, _no_tags)
        plan = kind.plan
        if isinstance(request, kafka_wire.DescribeTopicPartitionsRequest) and not request.topics:
            return self._name_topics(request, exchange, tenant)
        if plan.ids:
            return self._knowing(
                plan, request, exchange, lambda: self._stand_in(plan, request, tenant)
            )
        return None

    def _stand_in(self, plan: NamePlan, request: Any, tenant: Tenant) -> None:
        ids = self._memory.ids
        for struct, _ in with_ids(plan, request):
            name = ids.name(struct.topic_id)
            if name is None or not tenant.owns(name):
                struct.topic_id = ids.stand_in(struct.topic_id)

    async def _name_topics(self, request: Any, exchange: Exchange, tenant: Tenant) -> Any:
        """Name all topics of the tenant; otherwise the broker fills pages with the topics of other tenants."""
        metadata = await exchange.send(MetadataRequest(topics=None))
        request.topics = [
            type(request).TopicRequest(name=topic.name)
            for topic in metadata.topics
            if topic.name is not None and tenant.owns(topic.name)
        ]
        return None if request.topics else request.response_class()

    def _response(self, response: Any, exchange: Exchange) -> Any:
        plan = _kind(response, exchange.version).plan
        if plan.ids:
            for struct, name in with_ids(plan, response):
                if name:
                    self._memory.ids.learn(struct.topic_id, name)
        return self._knowing(
            plan, response, exchange, lambda: self._restore(plan, response, exchange)
        )

    def _restore(self, plan: NamePlan, response: Any, exchange: Exchange) -> None:
        call: TenantCall | None = exchange.state.get(self)
        if call is None:  # the request was changed as bytes
            call = self._call(exchange)
        if not restore(plan, response, call.tenant, self._memory.ids):
            raise Close(f"the broker's {type(response).__name__} names something of others")
        kind = _kind(response, exchange.version)
        if kind.special is not None:
            kind.special(response, call)
        kind.tags(response, _no_tags)

    # -- frames

    def patch(self, message: Any, version: int) -> Patch | None:
        if message not in _FREQUENT:
            return None
        if version > ALLOWED[getattr(message, "request_class", message)]:
            return None  # it is refused
        check = self._allows if hasattr(message, "response_class") else self._notes
        return _patch_of(message, version, self._find, self._owns, check)

    def _owns(self, tenant: Tenant, topic_id: bytes) -> bool:
        name = self._memory.ids.name_of_bytes(topic_id)
        return name is not None and tenant.owns(name)

    def _allows(self, tenant: Tenant, connection: Connection, number: str, value: int) -> bool:
        """Return whether a number in a request can be passed on."""
        if number == _BROKER_ID:
            return value == -1
        return not value or (self._memory.sessions.get((connection.upstream, value)) == tenant.name)

    def _notes(self, tenant: Tenant, connection: Connection, number: str, value: int) -> bool:
        """Remember a fetch session of a response."""
        if value:
            self._memory.add_session(connection.upstream, value, tenant)
        return True

    # -- topic ids

    def _knowing(
        self, plan: NamePlan, message: Any, exchange: Exchange, then: Callable[[], None]
    ) -> Awaitable[None] | None:
        """Call a function when the names of all topic ids in a message are known. Ids of no topic stay unknown."""
        ids = self._memory.ids
        unknown = {
            struct.topic_id
            for struct, _ in with_ids(plan, message)
            if ids.name(struct.topic_id) is None and ids.original(struct.topic_id) is None
        }

        async def ask() -> None:
            names, _ = await ask_names(exchange, unknown)
            for topic_id, name in names.items():
                ids.learn(topic_id, name)
            then()

        if unknown:
            return ask()
        then()
        return None


def _invalid_pattern(request: Any, text: str) -> Any:
    response = request.response_class(error_code=ErrorCode.INVALID_REGULAR_EXPRESSION)
    if hasattr(response, "error_message"):
        response.error_message = f"invalid regular expression: {text}"
    return response


# Names are changed in the bytes of frequent messages, Produce and Fetch, without decoding a frame.
#
# A walk finds the places of names by the entities in the definitions. A frame with anything else that concerns a tenant,
# such as error messages, tagged fields or ids of others, and an invalid frame, is left to the method for decoded messages.


def _patch_of(
    cls: Any,
    version: int,
    find: Callable[[Connection], Tenant],
    owned: Callable[[Tenant, bytes], bool],
    allowed: Callable[[Tenant, Connection, str, int], bool],
) -> Patch:
    """Return the function for a class of messages: it adds the prefix in requests, and removes it in responses.

    Args:
        find: returns the tenant of a connection.
        owned: returns whether a topic id is the tenant's.
        allowed: returns whether a number, given with its entity, can be passed on.
    """
    adds = hasattr(cls, "response_class")
    headers = _PACKAGE.header_versions(cls.api_key, version)
    if adds:
        header: tuple[Any, int] = kafka_wire.RequestHeader, headers.request
        checked: tuple[str, ...] = (_BROKER_ID, _SESSION_ID)
    else:
        header = kafka_wire.ResponseHeader, headers.response
        checked = (_SESSION_ID,)
    marks = (*ENTITIES, TOPIC_ID, ERROR_MESSAGE, PATTERN, TAGGED, *checked)
    compact = kafka_wire.layout(cls, version).flexible
    change = change_of(header, (cls, version), marks, ENTITIES, adds, compact)

    def patch(data: Any, begin: int, end: int, connection: Connection) -> Any:
        tenant = find(connection)
        changed = change(data, begin, end, tenant.prefix_bytes)
        if changed is None:
            return None  # decoding says what is wrong
        places, pieces = changed
        for mark, _, content, after in places:
            if mark == TOPIC_ID:
                if not owned(tenant, bytes(data[content:after])):
                    return None
            elif mark in checked:
                number = int.from_bytes(data[content:after], "big", signed=True)
                if not allowed(tenant, connection, mark, number):
                    return None
            else:
                return None
        return pieces

    return patch
