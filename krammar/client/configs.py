"""The settings of topics and brokers: described, and changed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import kafka_wire as kw

from krammar.client.cluster import Cluster
from krammar.client.deadline import Deadline
from krammar.client.errors import raise_code
from krammar.client.routing import call_controller


@dataclass(frozen=True, slots=True)
class Config:
    """A setting of a topic or broker.

    ``value``       None if the value is secret or not set
    ``source``      which configuration contains the value
    ``is_default``  whether the value was not set for this topic or broker itself
    """

    name: str
    value: str | None
    source: kw.ConfigSource | int
    read_only: bool
    sensitive: bool
    is_default: bool


def describe_configs(
    cluster: Cluster, kind: kw.ConfigResourceType, name: str, timeout_ms: float | None
) -> dict[str, Config]:
    """Return the settings of a topic or broker by name."""
    deadline = cluster.deadline(f"describing the settings of {name}", timeout_ms)
    resource = kw.DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )

    def check(response: Any) -> None:
        for result in response.results:
            raise_code(result.error_code, f"settings of {name}", result.error_message)

    node_id = _owner(cluster, kind, name, deadline)
    response = cluster.call(
        kw.DescribeConfigsRequest(resources=[resource]),
        deadline,
        node_id=node_id,
        low=1,
        check=check,
    )
    own = (
        kw.ConfigSource.TOPIC_CONFIG
        if kind == kw.ConfigResourceType.TOPIC
        else kw.ConfigSource.DYNAMIC_BROKER_CONFIG
    )
    return {
        c.name: Config(
            c.name,
            c.value,
            c.config_source,
            c.read_only,
            c.is_sensitive,
            c.config_source != own,
        )
        for result in response.results
        for c in result.configs
    }


def _owner(
    cluster: Cluster, kind: kw.ConfigResourceType, name: str, deadline: Deadline
) -> int | None:
    """Return the broker that must handle a request for settings; None means any."""
    if kind != kw.ConfigResourceType.BROKER or not name:
        return None
    node_id = int(name)
    if node_id not in cluster.metadata.nodes:
        cluster.refresh([], deadline)
    return node_id


def alter_configs(
    cluster: Cluster,
    kind: kw.ConfigResourceType,
    name: str,
    changes: Mapping[str, str | None],
    timeout_ms: float | None,
) -> None:
    """Change settings of a topic or broker. None restores a default."""
    deadline = cluster.deadline(f"changing the settings of {name}", timeout_ms)
    resource = kw.IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            kw.IncrementalAlterConfigsRequest.AlterableConfig(
                name=key,
                config_operation=(
                    kw.AlterConfigOp.DELETE if value is None else kw.AlterConfigOp.SET
                ),
                value=value,
            )
            for key, value in changes.items()
        ],
    )

    def check(response: Any) -> None:
        for result in response.responses:
            raise_code(result.error_code, f"settings of {name}", result.error_message)

    request = kw.IncrementalAlterConfigsRequest(resources=[resource])
    node_id = _owner(cluster, kind, name, deadline)
    if node_id is None:
        call_controller(cluster, request, deadline, check)
    else:
        cluster.call(request, deadline, node_id=node_id, check=check)
