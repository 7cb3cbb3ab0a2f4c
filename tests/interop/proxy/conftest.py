"""The tests of clients get the address of a proxy as their broker: for each cluster and each chain of filters."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from krammar.client import Client
from krammar.proxy import Filter, Proxy
from krammar.proxy.filters.encrypt import HEADER, Encrypt
from krammar.proxy.filters.envelope import is_sealed
from krammar.proxy.filters.tenant_names import Tenant
from krammar.proxy.filters.tenants import Tenants
from krammar.proxy.filters.topics import INTERNAL_TOPICS
from krammar.testing import KafkaCluster
from tests.interop.processes import Through, unwind_on_sigterm
from tests.interop.spark.cluster import Cluster
from tests.interop.spark.conftest import connector_jars, spark

__all__ = ["Through", "broker", "cluster", "connector_jars", "spark"]

TENANT = "blue"
# So that members of consumer groups learn of a new assignment soon.
OFTEN = {
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "1",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture(scope="session", params=["krammar", "apache"])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The address of the first node of three."""
    if request.param == "krammar":
        with KafkaCluster.start(OFTEN, nodes=3) as ours:
            yield ours.bootstrap_servers.partition(",")[0]
        return
    request.getfixturevalue("kafka_jars")
    # The nodes start in threads, which cannot set the handler.
    unwind_on_sigterm()
    theirs = Cluster(tmp_path_factory.mktemp("apache"))
    for node in theirs.brokers.values():
        node.properties |= OFTEN
    with theirs:
        yield theirs.bootstrap.partition(",")[0]


def _sealed(name: str, cluster: str) -> None:
    """Assert that the brokers have no value and no header of a topic that Encrypt has not encrypted."""
    with Client(cluster) as client:
        records = [record for _, record in client.records(name)]
    assert all(record.value is None or is_sealed(record.value) for record in records), name
    assert {each for record in records for each, _ in record.headers} <= {HEADER}, name


@pytest.fixture(scope="module", params=["nothing", "tenants", "encrypt"])
def broker(
    request: pytest.FixtureRequest, cluster: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Through]:
    """The proxy. The topics that the tests have made through it are on the cluster as its chain promises."""
    filters: list[Filter] = []
    if request.param == "tenants":
        filters.append(Tenants(TENANT))
    if request.param == "encrypt":
        keys: Path = tmp_path_factory.mktemp("keys") / "keys.txt"
        keys.write_text(f"key {base64.b64encode(os.urandom(32)).decode()}\n")
        filters.append(Encrypt(keys=keys, headers=True))
    with Client(cluster) as client:
        before = set(client.topics())
    with Proxy.start(cluster, filters) as proxy:
        yield Through(proxy.bootstrap_servers)
        with Client(cluster) as client, Client(proxy.bootstrap_servers) as through:
            made = set(client.topics()) - before - INTERNAL_TOPICS
            seen = set(through.topics()) - INTERNAL_TOPICS
        if request.param == "tenants":
            tenant = Tenant(TENANT)
            assert {tenant.prefix + name for name in seen} >= made
            assert not any(name.startswith(tenant.prefix) for name in seen)
        if request.param == "encrypt":
            for name in made:
                _sealed(name, cluster)
        # The next chain gets the same names.
        with Client(cluster) as client:
            for name in made:
                client.admin.delete_topic(name)
