"""Every filter before and after Tenants and Encrypt, for clients that name topics and for those that send ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kafka_wire as kw
import pytest
from kafka_wire import ErrorCode

from krammar.client import Client as KrammarClient
from krammar.faults import Faults
from krammar.proxy import Filter, Proxy
from krammar.proxy.addresses import Address
from krammar.proxy.filters.deny import Deny
from krammar.proxy.filters.encrypt import Encrypt
from krammar.proxy.filters.limit import Limit
from krammar.proxy.filters.mask import Mask
from krammar.proxy.filters.tenants import Tenants
from krammar.proxy.filters.validate import Validate
from tests.proxy.filters.encrypted import stored
from tests.proxy.filters.support import Client, address, fetch, produce, through, topic_id

GOOD, BAD = b'{"id": 1, "card": "4711"}', b"no JSON"
# Versions of Produce and of Fetch. The first one with ids is the same for both.
BY_ID = 13
VERSIONS = {"names, oldest": (3, 4), "names": (12, 12), "ids": (13, 13), "ids, newest": (13, 18)}
TOPICS = ("orders", "secret", "other")


class Setting:
    """A chain of filters, and how its filters name the topics of the tenant.

    ``encrypted``  whether the records at the broker are encrypted
    """

    def __init__(self, names: tuple[str, ...], keys: Path) -> None:
        self.names = names
        self.encrypted = "Encrypt" in names
        self.filters: list[Filter] = [self._create(name, keys) for name in names]

    def _topic(self, name: str, topic: str) -> str:
        """Return what a filter calls a topic: behind Tenants, with the tenant's prefix."""
        after = "Tenants" in self.names[: self.names.index(name)]
        return f"blue.{topic}" if after else topic

    def _create(self, name: str, keys: Path) -> Filter:
        topics = [self._topic(name, "orders")]
        if name == "Tenants":
            return Tenants("blue")
        if name == "Encrypt":
            return Encrypt(topics=topics, keys=keys)
        if name == "Validate":
            return Validate(topics=topics)
        if name == "Mask":
            return Mask(topics=topics, fields=["card"])
        if name == "Deny":
            return Deny(topics=[self._topic(name, "secret")])
        if name == "Limit":
            return Limit(produce=1 << 30, fetch=1 << 30)
        faults = Faults(kw)
        rule = faults.on(kw.ProduceRequest, topic=self._topic(name, "secret"))
        rule.answer("NOT_LEADER_OR_FOLLOWER")
        return faults


def chains() -> list[tuple[str, ...]]:
    """Return each filter before and after Tenants, Encrypt and both; and chains of all of them."""
    others = ("Validate", "Mask", "Deny", "Limit", "Faults")
    found = {("Tenants", "Encrypt"), ("Encrypt", "Tenants")}
    for each in others:
        for base in (("Tenants",), ("Encrypt",), ("Tenants", "Encrypt"), ("Encrypt", "Tenants")):
            if each in ("Validate", "Mask"):  # after Encrypt, they would see encrypted values
                last = len(base) if "Encrypt" not in base else base.index("Encrypt")
            else:
                last = len(base)
            for position in range(last + 1):
                found.add((*base[:position], each, *base[position:]))
    found.add((*others, "Encrypt", "Tenants"))
    found.add(("Tenants", *others, "Encrypt"))
    found.add(("Deny", "Validate", "Tenants", "Limit", "Faults", "Mask", "Encrypt"))
    return sorted(found)


def results(setting: Setting, proxy: Proxy, ids: dict[str, Any], version: str) -> dict[str, Any]:
    """Produce and fetch, and return what the client sees."""
    produces, fetches = VERSIONS[version]
    names = setting.names
    found: dict[str, Any] = {}

    def send(topic: str, value: bytes) -> int:
        (result,) = produce(proxy, produces, {(topic, 0): [value]}, ids=ids).values()
        return int(result.error_code)

    found["good"] = send("orders", GOOD)
    found["bad"] = send("orders", BAD)
    found["both"] = [
        (place, int(each.error_code))
        for place, each in sorted(
            produce(proxy, produces, {("orders", 0): [GOOD], ("other", 0): [BAD]}, ids=ids).items()
        )
    ]
    found["secret"] = send("secret", GOOD)
    read = fetch(proxy, fetches, "orders", ids=ids)
    found["read"] = (
        read.error_code,
        b"4711" in (read.records or b""),
        b"***" in (read.records or b""),
    )
    found["fetch secret"] = int(fetch(proxy, fetches, "secret", ids=ids).error_code)
    assert found["good"] == 0
    assert found["bad"] == (ErrorCode.INVALID_RECORD if "Validate" in names else 0)
    assert found["read"] == (0, "Mask" not in names, "Mask" in names)
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if produces >= BY_ID and "Tenants" in names[: names.index("Deny") if "Deny" in names else 0]:
        denied = ErrorCode.UNKNOWN_TOPIC_ID  # Tenants cannot learn whose topic it is
    assert found["fetch secret"] == (denied if "Deny" in names else 0)
    by_faults = ErrorCode.NOT_LEADER_OR_FOLLOWER if "Faults" in names else 0
    assert found["secret"] == (denied if "Deny" in names else by_faults)
    if "Deny" in names:
        found["secret"] = found["fetch secret"] = "denied"
    return found


@pytest.mark.parametrize("names", chains(), ids=", ".join)
def test_clients_with_names_and_with_ids_get_the_same(names: tuple[str, ...], keys: Path) -> None:
    setting = Setting(names, keys)
    prefix = "blue." if "Tenants" in names else ""
    with through(*setting.filters, topics=()) as (broker, proxy):
        for _ in range(2):  # the second time, the topics have other ids
            ids = {}
            with KrammarClient(broker.bootstrap_servers) as client:
                for name in TOPICS:
                    client.admin.create_topic(f"{prefix}{name}")
            with Client(Address.parse(broker.bootstrap_servers)) as direct:
                ids = {name: topic_id(direct, f"{prefix}{name}") for name in TOPICS}
            with Client(address(proxy)) as known:
                known.ask(kw.MetadataRequest(topics=None), 12)  # from which rules of faults learn
            seen = [results(setting, proxy, ids, version) for version in VERSIONS]
            assert seen[1:] == seen[:-1]
            values = stored(broker, f"{prefix}orders")
            assert (GOOD in values) == (not setting.encrypted)
            assert len(values) == len(VERSIONS) * (2 if "Validate" in names else 3)
            with KrammarClient(broker.bootstrap_servers) as client:
                for name in TOPICS:
                    client.admin.delete_topic(f"{prefix}{name}")
