"""Quotas of the test kit, with the broker in this process and in one of its own."""

from __future__ import annotations

import pytest

from krammar.broker import ConfigError
from krammar.testing import KafkaBroker
from tests.broker.quotas.support import describe
from tests.broker.support import RawClient


@pytest.mark.parametrize("process", [False, True])
def test_quotas_are_set_and_removed(process: bool) -> None:
    with KafkaBroker.start(process=process) as broker:
        broker.set_quotas(user="alice", client_id="*", producer_byte_rate=1000)
        broker.set_quotas(client_id="app", consumer_byte_rate=2000, request_percentage=50)
        broker.set_quotas(client_id="app", request_percentage=None)
        broker.set_quotas(ip="*", connection_creation_rate=1000)
        with RawClient(int(broker.bootstrap_servers.rpartition(":")[2])) as client:
            assert describe(client) == {
                (("user", "alice"), ("client-id", None)): {"producer_byte_rate": 1000},
                (("client-id", "app"),): {"consumer_byte_rate": 2000},
                (("ip", None),): {"connection_creation_rate": 1000},
            }
        with pytest.raises(ConfigError, match="quotas: Invalid configuration key speed"):
            broker.set_quotas(user="alice", speed=1)
        with pytest.raises(ConfigError, match="quotas: Invalid empty client quota entity"):
            broker.set_quotas(producer_byte_rate=1)
