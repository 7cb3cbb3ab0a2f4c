"""Java's clients through a proxy with Encrypt, in front of Apache Kafka."""

from __future__ import annotations

import base64
import os
from collections.abc import Iterator

import pytest

from krammar.client import Client
from krammar.proxy import Proxy
from krammar.proxy.filters.encrypt import HEADER, Encrypt
from krammar.proxy.filters.envelope import is_sealed
from krammar.proxy.filters.topics import INTERNAL_TOPICS
from tests.interop.apache import apache_kafka
from tests.interop.processes import Through
from tests.interop.test_java_clients import (
    program,
    say,
    test_a_consumer_group_of_two,
    test_a_group_of_two,
    test_a_producer_of_defaults,
    test_codecs,
    test_offsets_in_transactions,
    test_positions,
    test_transactions,
    topic,
)

__all__ = [
    "program",
    "say",
    "test_a_consumer_group_of_two",
    "test_a_group_of_two",
    "test_a_producer_of_defaults",
    "test_codecs",
    "test_offsets_in_transactions",
    "test_positions",
    "test_transactions",
    "topic",
]


@pytest.fixture(scope="module")
def broker(kafka_jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Through]:
    folder = tmp_path_factory.mktemp("encrypted")
    (folder / "keys.txt").write_text(f"key {base64.b64encode(os.urandom(32)).decode()}\n")
    encrypt = Encrypt(keys=folder / "keys.txt", headers=True)
    with (
        apache_kafka(folder / "kafka") as kafka,
        Proxy.start(kafka.bootstrap, [encrypt]) as proxy,
    ):
        yield Through(proxy.bootstrap_servers)
        # What Kafka itself has.
        with Client(kafka.bootstrap) as client:
            for name in set(client.topics()) - INTERNAL_TOPICS:
                for _, record in client.records(name):
                    assert record.value is None or is_sealed(record.value), name
                    assert {each for each, _ in record.headers} <= {HEADER}
