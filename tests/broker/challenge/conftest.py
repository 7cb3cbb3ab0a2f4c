"""The folder that the challenge's broker starts with, and the broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest

from tests.broker.challenge.disk import NOW, KafkaFolder, TopicFolder, batch
from tests.broker.challenge.server import BrokerProcess
from tests.broker.challenge.wire import Connection
from tests.ports import free_port

EMPTY = TopicFolder("empty", UUID("00000000-0000-4000-8000-000000000091"))
ONE = TopicFolder(
    "one-batch",
    UUID("00000000-0000-4000-8000-000000000042"),
    [batch([b"Hello Kafka!"], timestamp=NOW)],
)
TWO = TopicFolder(
    "two-batches",
    UUID("00000000-0000-4000-8000-000000000061"),
    [
        batch([b"Hello World!"], timestamp=NOW)
        + batch([b"one", None, b""], base_offset=1, timestamp=NOW + 5, headers=[("h", b"x")])
    ],
)
# Batches with content that a broker does not use but must return: gaps after a compaction, leader
# epochs, the fields of an idempotent producer.
MANY = TopicFolder(
    "many-batches",
    UUID("00000000-0000-4000-8000-000000000077"),
    [
        b"".join(
            batch(
                [b"%d-%d" % (number, index) for index in range(5)],
                base_offset=number * 7,
                leader_epoch=number // 10,
                timestamp=NOW + number,
                keys=[b"key-%d" % index for index in range(5)],
                producer_id=4711,
                producer_epoch=3,
                base_sequence=number * 5,
            )
            for number in range(40)
        )
    ],
    leader_epoch=3,
)
PARTITIONED = TopicFolder(
    "partitioned",
    UUID("00000000-0000-4000-8000-000000000013"),
    [batch([b"partition %d" % index], timestamp=NOW) for index in range(3)],
    leader_epoch=2,
)
# A test appends to it.
TAIL = TopicFolder(
    "tail", UUID("00000000-0000-4000-8000-000000000015"), [batch([b"there"], timestamp=NOW)]
)
# The metadata log does not list the topics in the order of their names.
TOPICS = [TAIL, PARTITIONED, EMPTY, TWO, MANY, ONE]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that was started on the folder of ``TOPICS``."""
    folder = tmp_path_factory.mktemp("challenge")
    KafkaFolder(folder / "data", TOPICS, timestamp=NOW).write()
    with BrokerProcess(folder, free_port()) as process:
        yield process


@pytest.fixture
def connection(broker: BrokerProcess) -> Iterator[Connection]:
    with Connection(broker.port) as opened:
        yield opened


@pytest.fixture
def data(broker: BrokerProcess) -> Path:
    """The broker's log directory."""
    return broker.data
