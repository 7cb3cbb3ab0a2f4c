"""The table of APIs and the handlers that it names."""

from __future__ import annotations

import sys

from kafka_wire import request_class

from krammar.broker import Broker
from krammar.broker.apis import APIS, UNSERVED


def test_every_api_has_a_handler(broker: Broker) -> None:
    assert len(APIS) > 50
    for key in (*APIS, *UNSERVED):
        assert callable(broker.call(broker.handlers.__getitem__, key)), key


def test_each_module_of_handlers_names_its_apis_and_versions(broker: Broker) -> None:
    missing = []
    for key, api in APIS.items():
        handler = broker.call(broker.handlers.__getitem__, key)
        name = request_class(key).__name__.removesuffix("Request")
        versions = f"v{api.low}" + (f" to v{api.high}" if api.high > api.low else "")
        page = sys.modules[handler.__module__].__doc__ or ""
        if handler.__name__ != "refuse" and f"{name}, {versions}" not in page:
            missing.append(f"{handler.__module__}: {name}, {versions}")
    assert missing == []
