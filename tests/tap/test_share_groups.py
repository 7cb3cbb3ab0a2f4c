"""A share consumer through the tap: all of its frames are read, and their descriptions say what became of the records."""

from __future__ import annotations

import kafka_wire
from confluent_kafka import AcknowledgeType, ShareConsumer
from kafka_wire import ConfigResourceType

from krammar.proxy.addresses import Address
from krammar.tap.describe import Describer
from krammar.testing import KafkaBroker
from krammar.wire.package import package_of
from tests.support.waiting import until
from tests.tap.support import TapThread


def test_a_share_consumer() -> None:
    with KafkaBroker.start(records={"orders": [b"1", b"2", b"3"]}) as broker:
        broker.broker.call(
            broker.broker.cluster.set_configs,
            ConfigResourceType.GROUP,
            "packers",
            {"share.auto.offset.reset": "earliest"},
        )
        with TapThread(Address(broker.host, broker.port), stay=True) as tap:
            consumer = ShareConsumer(
                {
                    "bootstrap.servers": str(tap.address),
                    "group.id": "packers",
                    "share.acknowledgement.mode": "explicit",
                    "log_level": 0,
                }
            )
            consumer.subscribe(["orders"])
            found = []

            def poll() -> bool:
                found.extend(consumer.poll(0.2))
                return len(found) == 3

            until(poll)
            for message, kind in zip(
                found,
                (AcknowledgeType.ACCEPT, AcknowledgeType.ACCEPT, AcknowledgeType.REJECT),
                strict=True,
            ):
                consumer.acknowledge(message, kind)
            assert set(consumer.commit_sync().values()) == {None}
            consumer.close()
            frames = list(tap.recorder.frames)
    bad = [(each.api, each.version, each.status, each.error) for each in frames if not each.is_good]
    assert bad == []
    assert {each.api for each in frames} >= {
        "ShareGroupHeartbeat",
        "ShareFetch",
        "ShareAcknowledge",
    }
    describe = Describer(package_of(kafka_wire))
    told = [describe(each).text for each in frames]
    assert [each for each in told if "orders[0]" in each and each.endswith(", 3 acquired")]
    assert [each for each in told if each.endswith("orders[0], 2 accepted, 1 rejected")]
