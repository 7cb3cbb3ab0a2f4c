"""The configs of topics and groups for tenants: which they may set, and the names in their values.

It is an allow list, as for APIs: keys that the tables do not have are refused, because their values could name things
of others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kafka_wire import ConfigResourceType

from krammar.proxy.filters.tenant_names import Tenant
from krammar.util.configs import config_rows

_TOPIC = "topicName"
# What the values of configs name, by the type of their resource and by key.
CONFIG_ENTITIES: dict[int, dict[str, str]] = {
    kind: {row["name"]: row["entity"] for row in config_rows(table)}
    for kind, table in ((ConfigResourceType.TOPIC, "topics"), (ConfigResourceType.GROUP, "groups"))
}


def add_to_configs(tenant: Tenant, kind: int, configs: Iterable[Any], key: str = "name") -> str:
    """Add the prefix to topics in the values of configs that a tenant sets.

    Args:
        kind: the type of the resource.
        key: the attribute with the key of a config.

    Returns:
        Why they are refused; empty if they are not.
    """
    for each in configs:
        name = getattr(each, key)
        entity = CONFIG_ENTITIES[kind].get(name)
        if entity is None:
            return f"a tenant cannot set the config {name!r}, which this proxy does not know"
        if entity == _TOPIC:
            if each.value and (problem := tenant.problem(each.value)):
                return f"config {name!r}: {problem}"
            each.value = each.value and tenant.add(each.value)
        elif entity:
            return f"a tenant cannot set the config {name!r}, because it is about brokers"
    return ""


def own_configs(tenant: Tenant, kind: int, configs: list[Any], key: str = "name") -> list[Any]:
    """Return the configs of a response that a tenant sees, with its own names; the arguments are as above."""
    own = []
    for each in configs:
        entity = CONFIG_ENTITIES[kind].get(getattr(each, key))
        if entity is None:
            continue
        if entity == _TOPIC:
            for place in (each, *getattr(each, "synonyms", ())):
                if place.value:
                    place.value = tenant.strip(place.value) if tenant.owns(place.value) else None
        own.append(each)
    return own
