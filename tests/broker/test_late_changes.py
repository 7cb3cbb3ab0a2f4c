"""Changes that clients see as late as in Kafka (``krammar.kafka.like.delays.ms``)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer
from kafka_wire import (
    AddPartitionsToTxnRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeTopicPartitionsRequest,
    EndTxnRequest,
    ErrorCode,
    FindCoordinatorRequest,
    InitProducerIdRequest,
    MetadataRequest,
)

from krammar.broker import ConfigError
from krammar.testing import KafkaBroker, KafkaCluster
from tests.broker.support import RawClient
from tests.support.waiting import PATIENCE

HOUR_MS = 3_600_000


@pytest.fixture(params=[False, True], ids=["in-process", "process"])
def broker(request: pytest.FixtureRequest) -> Iterator[KafkaBroker]:
    with KafkaBroker.start(
        topics={"old": 2}, process=request.param, kafka_like_delays=HOUR_MS
    ) as broker:
        yield broker


@pytest.fixture
def client(broker: KafkaBroker) -> Iterator[RawClient]:
    with RawClient(broker.port) as client:
        yield client


def create(client: RawClient, name: str, partitions: int = 2) -> None:
    topic = CreateTopicsRequest.CreatableTopic(
        name=name, num_partitions=partitions, replication_factor=1
    )
    assert client.call(CreateTopicsRequest(topics=[topic]), 5).topics[0].error_code == 0


def delete(client: RawClient, name: str) -> None:
    assert client.call(DeleteTopicsRequest(topic_names=[name]), 5).responses[0].error_code == 0


def described(
    client: RawClient, *names: str, version: int = 9, creates: bool = False
) -> dict[str | None, tuple[int, int]]:
    """Return error code and number of partitions by topic, of named topics or all."""
    wanted = [MetadataRequest.Topic(name=name) for name in names] if names else None
    request = MetadataRequest(topics=wanted, allow_auto_topic_creation=creates)
    response = client.call(request, version)
    return {each.name: (each.error_code, len(each.partitions)) for each in response.topics}


UNKNOWN = (int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), 0)


def test_new_topics_are_unknown_for_a_while(broker: KafkaBroker, client: RawClient) -> None:
    create(client, "new")
    assert broker.topics == {"old": 2, "new": 2}
    assert described(client, "new", "old") == {"new": UNKNOWN, "old": (0, 2)}
    assert described(client) == {"old": (0, 2)}
    pages = DescribeTopicPartitionsRequest.TopicRequest(name="new")
    (page,) = client.call(DescribeTopicPartitionsRequest(topics=[pages]), 0).topics
    assert (page.name, page.error_code, page.partitions) == ("new", UNKNOWN[0], [])
    broker.advance_clock(HOUR_MS)
    assert described(client, "new") == {"new": (0, 2)}
    assert described(client) == {"new": (0, 2), "old": (0, 2)}


def test_topics_that_are_created_on_use(broker: KafkaBroker, client: RawClient) -> None:
    for _ in range(2):
        assert described(client, "used", creates=True) == {"used": UNKNOWN}
    assert broker.topics == {"old": 2, "used": 1}
    broker.advance_clock(HOUR_MS)
    assert described(client, "used", creates=True) == {"used": (0, 1)}


def test_topics_of_the_test_are_there_at_once(broker: KafkaBroker, client: RawClient) -> None:
    broker.create_topic("mine", 3)
    assert described(client, "mine") == {"mine": (0, 3)}


def test_new_topics_are_unknown_by_their_ids(broker: KafkaBroker, client: RawClient) -> None:
    topic = CreateTopicsRequest.CreatableTopic(name="new", num_partitions=1, replication_factor=1)
    topic_id = client.call(CreateTopicsRequest(topics=[topic]), 7).topics[0].topic_id
    request = MetadataRequest(topics=[MetadataRequest.Topic(topic_id=topic_id, name=None)])
    (found,) = client.call(request, 12).topics
    assert (found.error_code, found.name) == (ErrorCode.UNKNOWN_TOPIC_ID, None)
    delete_it = DeleteTopicsRequest.DeleteTopicState(topic_id=topic_id, name=None)
    broker.advance_clock(HOUR_MS)
    (found,) = client.call(request, 12).topics
    assert (found.error_code, found.name, len(found.partitions)) == (0, "new", 1)
    (gone,) = client.call(DeleteTopicsRequest(topics=[delete_it]), 6).responses
    assert gone.error_code == 0
    (found,) = client.call(request, 12).topics
    assert (found.error_code, found.name, len(found.partitions)) == (0, "new", 1)
    broker.advance_clock(HOUR_MS)
    (found,) = client.call(request, 12).topics
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_deleted_topics_are_listed_for_a_while(broker: KafkaBroker, client: RawClient) -> None:
    delete(client, "old")
    assert broker.topics == {}
    for creates in (False, True):
        assert described(client, "old", creates=creates) == {"old": (0, 2)}
    assert described(client) == {"old": (0, 2)}
    pages = client.call(DescribeTopicPartitionsRequest(), 0).topics
    assert [(page.name, len(page.partitions)) for page in pages] == [("old", 2)]
    assert broker.topics == {}  # Metadata has not created it again
    broker.advance_clock(HOUR_MS)
    assert described(client, "old") == {"old": UNKNOWN}
    assert described(client) == {}


def test_a_topic_that_is_deleted_and_created_again(broker: KafkaBroker, client: RawClient) -> None:
    delete(client, "old")
    create(client, "old", 3)
    assert described(client, "old") == {"old": UNKNOWN}
    broker.advance_clock(HOUR_MS)
    assert described(client, "old") == {"old": (0, 3)}
    create(client, "new")
    delete(client, "new")
    assert described(client, "new") == {"new": (0, 2)}
    broker.advance_clock(HOUR_MS)
    assert described(client, "new") == {"new": UNKNOWN}


def test_new_partitions(broker: KafkaBroker, client: RawClient) -> None:
    more = CreatePartitionsRequest.CreatePartitionsTopic(name="old", count=5, assignments=None)
    assert client.call(CreatePartitionsRequest(topics=[more]), 3).results[0].error_code == 0
    assert broker.topics == {"old": 5}
    assert described(client, "old") == {"old": (0, 2)}
    broker.advance_clock(HOUR_MS)
    assert described(client, "old") == {"old": (0, 5)}


@pytest.mark.parametrize("version", [3, 4])
def test_coordinators(broker: KafkaBroker, client: RawClient, version: int) -> None:
    def find(kind: int) -> tuple[int, int]:
        request = FindCoordinatorRequest(key="a", key_type=kind)
        if version >= 4:
            request = FindCoordinatorRequest(coordinator_keys=["a"], key_type=kind)
        response = client.call(request, version)
        found = response.coordinators[0] if version >= 4 else response
        return found.error_code, found.node_id

    for kind in (0, 1):
        assert find(kind) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)
    broker.advance_clock(HOUR_MS)
    for kind in (0, 1):
        assert find(kind) == (0, 1)


def test_markers(broker: KafkaBroker, client: RawClient) -> None:
    broker.produce("old", [{"value": "one", "partition": 0}], transaction="committed")
    assert broker.records("old") == []
    broker.advance_clock(HOUR_MS)
    assert len(broker.wait_for_records("old", 1)) == 1

    begin = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
    producer = client.call(begin, 4)
    identity = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}

    def add() -> int:
        topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="old", partitions=[1])
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="t",
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=[topic],
        )
        response = client.call(request, 3)
        (partition,) = response.results_by_topic_v3_and_below[0].results_by_partition
        return int(partition.partition_error_code)

    assert add() == 0
    end = EndTxnRequest(transactional_id="t", committed=True, **identity)
    assert client.call(end, 3).error_code == 0
    assert add() == ErrorCode.CONCURRENT_TRANSACTIONS
    assert client.call(end, 3).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    broker.advance_clock(HOUR_MS)
    broker.wait_until(lambda: add() == 0)


@pytest.mark.parametrize("nodes", [1, 3])
def test_clients(nodes: int) -> None:
    """With the delays of the switch, real clients retry, and reach their goal."""
    if nodes == 1:
        broker: KafkaBroker | KafkaCluster = KafkaBroker.start(kafka_like_delays=True)
    else:
        broker = KafkaCluster.start(nodes=nodes, kafka_like_delays=True)
    with broker:
        settings = broker.clients.confluent_kafka
        producer = Producer({**settings, "transactional.id": "t"})
        producer.init_transactions(PATIENCE)
        for number in range(3):
            producer.begin_transaction()
            producer.produce("new", b"%d" % number)
            producer.commit_transaction(PATIENCE)
        group = {"group.id": "g", "auto.offset.reset": "earliest"}
        consumer = Consumer({**settings, **group})
        consumer.subscribe(["new"])
        messages = consumer.consume(3, PATIENCE)
        assert [message.value() for message in messages] == [b"0", b"1", b"2"]
        consumer.close()


def test_the_switch() -> None:
    for delays, ms in ((False, 0), (True, 100), (7, 7)):
        with KafkaBroker.start(kafka_like_delays=delays) as broker:
            assert broker.config.kafka_like_delays_ms == ms
    with pytest.raises(ConfigError, match="kafka_like_delays: '-1' is neither True nor a number"):
        KafkaBroker.start(kafka_like_delays=-1)
