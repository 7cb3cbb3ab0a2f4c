"""Two tenants run the same programs at the same time, with the same names, on one cluster: nothing crosses."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from krammar.client import Client
from krammar.proxy import Proxy
from krammar.proxy.filters.tenant_names import Tenant
from krammar.proxy.filters.tenants import Tenants
from tests.interop import content, test_java_clients
from tests.interop.apache import java
from tests.interop.test_java_clients import program
from tests.support.waiting import PATIENCE

__all__ = ["program"]

TOPIC = "same"
TENANTS = ("one", "two")
Say = Callable[[str], Any]
SCENARIOS: dict[str, Callable[[Say], None]] = {
    "eager": lambda say: test_java_clients.test_a_group_of_two(say, "eager", "range"),
    "consumer": lambda say: test_java_clients.test_a_consumer_group_of_two(
        say, "consumer", "uniform"
    ),
    "offsets": test_java_clients.test_offsets_in_transactions,
    "transactions": test_java_clients.test_transactions,
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_nothing_crosses(cluster: str, program: Path, scenario: str) -> None:
    def run(tenant: str) -> None:
        with Proxy.start(cluster, [Tenants(tenant)]) as proxy:
            bootstrap = proxy.bootstrap_servers
            content.create(content.admin(bootstrap), TOPIC, 2)

            def say(words: str) -> Any:
                arguments = ("Clients", words, bootstrap, TOPIC)
                command = java("broker", *arguments, level="error", classes=program)
                done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
                assert done.returncode == 0, done.stderr
                return json.loads(done.stdout)

            SCENARIOS[scenario](say)
            with Client(bootstrap) as client:
                assert TOPIC in client.topics()
                assert not any(
                    name.startswith(Tenant(each).prefix)
                    for name in client.topics()
                    for each in TENANTS
                )
                for name in client.topics():
                    client.admin.delete_topic(name)

    with ThreadPoolExecutor(len(TENANTS)) as pool:
        list(pool.map(run, TENANTS))
