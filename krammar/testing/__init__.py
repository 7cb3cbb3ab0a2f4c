"""A broker for tests: settings as keywords, users and certificates made on the spot, and results as plain Python.

```python
from krammar.testing import KafkaBroker

with KafkaBroker.start(topics={"orders": 4}) as broker:
    ...  # run the program under test with broker.bootstrap_servers
    assert [record.value for record in broker.records("orders")] == [b"one"]
```

pytest's fixtures, such as ``kafka_broker``, return the same objects; see docs/fixtures.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from krammar.testing.broker import KafkaBroker as KafkaBroker
    from krammar.testing.certificates import TlsFiles as TlsFiles
    from krammar.testing.client_metrics import ClientMetric as ClientMetric
    from krammar.testing.client_metrics import ClientMetricsPush as ClientMetricsPush
    from krammar.testing.clients import ClientSettings as ClientSettings
    from krammar.testing.cluster import KafkaCluster as KafkaCluster
    from krammar.testing.groups import Group as Group
    from krammar.testing.groups import Member as Member
    from krammar.testing.records import Record as Record
    from krammar.testing.share_groups import ShareGroup as ShareGroup
    from krammar.testing.share_groups import SharePartitionState as SharePartitionState
    from krammar.testing.share_groups import ShareRecord as ShareRecord
    from krammar.testing.waits import NotInTime as NotInTime

_MODULES = {
    "ClientMetric": "client_metrics",
    "ClientMetricsPush": "client_metrics",
    "ClientSettings": "clients",
    "Group": "groups",
    "KafkaBroker": "broker",
    "KafkaCluster": "cluster",
    "Member": "groups",
    "NotInTime": "waits",
    "Record": "records",
    "ShareGroup": "share_groups",
    "SharePartitionState": "share_groups",
    "ShareRecord": "share_groups",
    "TlsFiles": "certificates",
}

__all__ = [
    "ClientMetric",
    "ClientMetricsPush",
    "ClientSettings",
    "Group",
    "KafkaBroker",
    "KafkaCluster",
    "Member",
    "NotInTime",
    "Record",
    "ShareGroup",
    "SharePartitionState",
    "ShareRecord",
    "TlsFiles",
]


def __getattr__(name: str) -> Any:
    # The process of a broker needs few of the modules.
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)
