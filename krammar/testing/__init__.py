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

from krammar.testing.broker import KafkaBroker
from krammar.testing.certificates import TlsFiles
from krammar.testing.client_metrics import ClientMetric, ClientMetricsPush
from krammar.testing.clients import ClientSettings
from krammar.testing.cluster import KafkaCluster
from krammar.testing.groups import Group, Member
from krammar.testing.records import Record
from krammar.testing.share_groups import ShareGroup, SharePartitionState, ShareRecord
from krammar.testing.waits import NotInTime

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
