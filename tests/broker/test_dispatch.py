"""The table of APIs and the handlers that it names."""

from __future__ import annotations

from krammar.broker import Broker
from krammar.broker.apis import APIS, UNSERVED


def test_every_api_has_a_handler(broker: Broker) -> None:
    assert len(APIS) > 50
    for key in (*APIS, *UNSERVED):
        assert callable(broker.call(broker.handlers.__getitem__, key)), key
