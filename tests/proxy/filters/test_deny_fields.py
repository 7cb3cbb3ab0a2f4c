"""Deny and the definitions: no request of any version reaches the broker with the name of a denied topic or group."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import kafka_wire as kw
import pytest

from krammar.proxy import Close, Connection, Exchange
from krammar.proxy.chain import Chain
from krammar.proxy.exchange import Settled, run_at_once, run_request
from krammar.proxy.filters.deny import Deny
from krammar.wire.layout import Scalar
from krammar.wire.package import package_of
from tests.proxy.filters.test_tenant_fields import build

PACKAGE = package_of(kw)
SECRET = UUID(int=7)


def versions() -> Iterator[tuple[Any, int]]:
    for key, (low, high) in PACKAGE.versions().items():
        for version in range(low, high + 1):
            if PACKAGE.response_class(key) is not None:
                yield PACKAGE.request_class(key), version


class Built:
    """A request with one element in each array, which names a topic and a group. ``named`` are what it names."""

    def __init__(self, cls: Any, version: int) -> None:
        self.named: set[str] = set()
        self.request = build(cls, PACKAGE.layout(cls, version), self._leaf, cls.__name__)
        # What Kafka's brokers do not accept together: an id, and a name that the version lacks.
        if getattr(self.request, "resources", None):
            self.named.add("topicName")

    def _leaf(self, path: str, item: Any, type_: Any) -> Any:
        if item.entity in ("topicName", "groupId"):
            self.named.add(item.entity)
            return "secret"
        if item.name == "topic_id":
            self.named.add("topicName")
        if isinstance(type_, Scalar):
            return SECRET
        if item.name == "resource_name":
            return "secret"
        if item.name in ("key", "coordinator_keys"):
            self.named.add("groupId")
            return "secret"
        return "x" if type_.kind == "string" else b"x"


async def asked(exchange: Exchange, request: Any, version: int | None) -> Any:
    topic = kw.MetadataResponse.Topic(topic_id=SECRET, name="secret")
    return kw.MetadataResponse(topics=[topic])


def run(deny: Deny, request: Any, version: int) -> tuple[Settled | None, Exchange]:
    """Return what the chain decides about a request, or None if it closes the connection."""
    chain = Chain(kw, [deny])
    exchange = Exchange(Connection(1, "c", "b"), request.api_key, version, 1, "test", asked)
    route = chain.routes.get(request.api_key << 16 | version)
    assert route is not None
    try:
        _, settled = run_at_once(run_request(route, request, exchange))
    except Close:
        return None, exchange
    assert settled is not None
    return settled, exchange


@pytest.mark.parametrize("what", ["topicName", "groupId", "both"])
def test_every_message_version(what: str) -> None:
    deny = Deny(
        topics=["secret"] if what != "groupId" else [],
        groups=["secret"] if what != "topicName" else [],
    )
    checked = 0
    wrong = []
    for cls, version in versions():
        built = Built(cls, version)
        wanted = {"topicName", "groupId"} if what == "both" else {what}
        if not built.named & wanted:
            continue
        checked += 1
        name = f"{cls.__name__} v{version}"
        settled, exchange = run(deny, built.request, version)
        if settled is None:
            continue
        if settled.answer is not None:
            settled.answer.encode(version)
            continue
        kept = exchange.state.get(deny)
        if kept is None:
            wrong.append(name)
            continue
        data = settled.request.encode(version)
        if b"secret" in data or SECRET.bytes in data:
            wrong.append(f"{name} in part")
        response = cls.response_class()
        deny.merge(response, exchange)
        response.encode(version)
    assert wrong == []
    assert checked > 100


@pytest.mark.sweep
def test_an_api_is_denied_in_every_version() -> None:
    answered = set()
    for cls, version in versions():
        name = cls.__name__.removesuffix("Request")
        if name in ("ApiVersions", "SaslHandshake", "SaslAuthenticate"):
            continue
        settled, _ = run(Deny(apis=[name]), Built(cls, version).request, version)
        if settled is not None:  # an answer, or the connection is closed
            assert settled.answer is not None, name
            settled.answer.encode(version)
            answered.add(name)
    assert len(answered) > 50
