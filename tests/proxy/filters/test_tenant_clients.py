"""Two tenants with the same names at the same time, with real clients: nothing crosses."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import (
    AcknowledgeType,
    Consumer,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer

from krammar.client import At, Client
from krammar.proxy import Proxy
from krammar.proxy.filters.tenants import Tenants
from krammar.testing import KafkaBroker, KafkaCluster
from tests.proxy.test_logins import USERS, own
from tests.proxy.test_tls import Certificates, connect
from tests.support.waiting import PATIENCE, until

COUNT = 50
TENANTS = ("blue", "red")


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    with KafkaBroker.start() as broker:
        yield broker


@pytest.fixture
def servers(broker: KafkaBroker) -> Iterator[dict[str, str]]:
    """The addresses of the proxies of two tenants."""
    with (
        Proxy.start(broker.bootstrap_servers, [Tenants(TENANTS[0])]) as one,
        Proxy.start(broker.bootstrap_servers, [Tenants(TENANTS[1])]) as two,
    ):
        yield dict(zip(TENANTS, (one.bootstrap_servers, two.bootstrap_servers), strict=True))


def values(tenant: str) -> list[bytes]:
    return [b"%s %d" % (tenant.encode(), number) for number in range(COUNT)]


def both(servers: dict[str, str], talk: Callable[[str], list[bytes]]) -> None:
    """Let both tenants do the same at the same time; each must find exactly its own records."""

    def one(tenant: str) -> None:
        assert sorted(talk(tenant)) == sorted(values(tenant))

    with ThreadPoolExecutor(len(servers)) as pool:
        list(pool.map(one, servers))


@pytest.mark.parametrize("secure", [False, True], ids=["plain", "TLS"])
def test_large_frames(broker: KafkaBroker, tmp_path: Path, secure: bool) -> None:
    """Their bytes are views of collected frames until the client has them."""
    files = Certificates(tmp_path)
    sent = [Random(number).randbytes(900_000) for number in range(5)]
    with Proxy.start(
        broker.bootstrap_servers, [Tenants("blue")], clients=files.clients if secure else {}
    ) as proxy:
        settings = {"bootstrap.servers": proxy.bootstrap_servers, **(files.own if secure else {})}
        topic = f"large-{secure}"
        producer = Producer(settings)
        for value in sent:
            producer.produce(topic, value)
        assert producer.flush(PATIENCE) == 0
        consumer = Consumer({**settings, "group.id": topic, "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        found = consumer.consume(len(sent), PATIENCE)
        consumer.close()
    assert [message.value() for message in found] == sent


def create(bootstrap: str, *names: str) -> AdminClient:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, 3) for name in names]).values():
        future.result(PATIENCE)
    return admin


def consume(settings: dict[str, Any], topics: list[str], **more: Any) -> list[bytes]:
    consumer = Consumer({"group.id": "g", "auto.offset.reset": "earliest"} | settings | more)
    consumer.subscribe(topics)
    found: list[bytes] = []
    while len(found) < COUNT:
        message = consumer.poll(PATIENCE)
        assert message is not None
        assert message.error() is None, message.error()
        assert message.topic() in ("confluent", "classic", "consumer", "pattern", "copied")
        found.append(message.value() or b"")
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("pattern", [False, True])
def test_confluent_kafka(servers: dict[str, str], protocol: str, pattern: bool) -> None:
    def talk(tenant: str) -> list[bytes]:
        settings = {"bootstrap.servers": servers[tenant]}
        name = "pattern" if pattern else protocol
        if pattern and protocol == "consumer":
            create(servers[tenant], "copied")  # the other half of the parameters made "pattern"
            name = "copied"
        else:
            create(servers[tenant], name)
        producer = Producer(settings | {"enable.idempotence": True})
        for value in values(tenant):
            producer.produce(name, value)
        assert producer.flush(PATIENCE) == 0
        return consume(
            settings,
            [f"^{name[:4]}.*" if pattern else name],
            **{"group.protocol": protocol, "group.id": f"g-{name}"},
        )

    both(servers, talk)


def test_share_consumers(servers: dict[str, str], broker: KafkaBroker) -> None:
    """Groups of the same name, whose records are accepted, rejected and released."""

    def talk(tenant: str) -> list[bytes]:
        settings = {"bootstrap.servers": servers[tenant]}
        admin = create(servers[tenant], "work")
        early = ConfigEntry(
            "share.auto.offset.reset",
            "earliest",
            incremental_operation=AlterConfigOpType.SET,
        )
        resource = ConfigResource("GROUP", "workers", incremental_configs=[early])
        admin.incremental_alter_configs([resource])[resource].result(PATIENCE)
        producer = Producer(settings)
        for value in values(tenant):
            producer.produce("work", value)
        assert producer.flush(PATIENCE) == 0
        member = ShareConsumer(
            settings | {"group.id": "workers", "share.acknowledgement.mode": "explicit"}
        )
        member.subscribe(["work"])
        done: list[bytes] = []
        released: set[bytes] = set()

        def poll() -> bool:
            for message in member.poll(0.2):
                assert message.error() is None, message.error()
                assert message.topic() == "work"
                value = message.value() or b""
                if value not in released and len(released) < 5:
                    released.add(value)
                    member.acknowledge(message, AcknowledgeType.RELEASE)
                    continue
                done.append(value)
                is_even = len(done) % 2 == 0
                member.acknowledge(
                    message, AcknowledgeType.REJECT if is_even else AcknowledgeType.ACCEPT
                )
            return len(done) >= COUNT

        until(poll)
        assert set(member.commit_sync().values()) <= {None}
        member.close()
        return done

    both(servers, talk)
    groups = broker.share_groups
    assert groups.keys() == {"blue.workers", "red.workers"}
    for tenant in TENANTS:
        assert groups[f"{tenant}.workers"].records(f"{tenant}.work") == []
        assert {topic for topic, _ in groups[f"{tenant}.workers"].partitions} == {f"{tenant}.work"}


def test_transactions(servers: dict[str, str], broker: KafkaBroker) -> None:
    def talk(tenant: str) -> list[bytes]:
        settings = {"bootstrap.servers": servers[tenant]}
        create(servers[tenant], "confluent")
        producer = Producer(settings | {"transactional.id": "t"})
        producer.init_transactions(PATIENCE)
        producer.begin_transaction()
        producer.produce("confluent", b"aborted")
        producer.flush(PATIENCE)
        producer.abort_transaction(PATIENCE)
        producer.begin_transaction()
        for value in values(tenant):
            producer.produce("confluent", value)
        reader = Consumer(settings | {"group.id": "offsets"})
        reader.list_topics(timeout=PATIENCE)
        producer.send_offsets_to_transaction(
            [TopicPartition("confluent", 0, 3)], reader.consumer_group_metadata(), PATIENCE
        )
        producer.commit_transaction(PATIENCE)
        (committed,) = reader.committed([TopicPartition("confluent", 0)], timeout=PATIENCE)
        assert committed.offset == 3
        reader.close()
        return consume(settings, ["confluent"], **{"isolation.level": "read_committed"})

    both(servers, talk)


def test_kafka_python(servers: dict[str, str]) -> None:
    def talk(tenant: str) -> list[bytes]:
        bootstrap = servers[tenant]
        create(bootstrap, "python")
        producer = KafkaProducer(bootstrap_servers=bootstrap)
        for value in values(tenant):
            producer.send("python", value)
        producer.flush(PATIENCE)
        producer.close()
        consumer = KafkaConsumer(
            "python",
            bootstrap_servers=bootstrap,
            group_id="python",
            auto_offset_reset="earliest",
            consumer_timeout_ms=PATIENCE * 1000,
        )
        found = [next(consumer) for _ in range(COUNT)]
        assert {record.topic for record in found} == {"python"}
        consumer.close()
        admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        assert not [name for name in admin.list_topics() if "blue" in name or "red" in name]
        admin.close()
        return [record.value for record in found]

    both(servers, talk)


def test_aiokafka(servers: dict[str, str]) -> None:
    async def talk(tenant: str) -> list[bytes]:
        bootstrap = servers[tenant]
        async with (
            AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="aio") as producer,
            producer.transaction(),
        ):
            for value in values(tenant):
                await producer.send("aio", value)
        consumer = AIOKafkaConsumer(
            "aio", bootstrap_servers=bootstrap, group_id="aio", auto_offset_reset="earliest"
        )
        async with consumer, asyncio.timeout(PATIENCE):
            return [(await consumer.getone()).value for _ in range(COUNT)]

    for bootstrap in servers.values():
        create(bootstrap, "aio")
    both(servers, lambda tenant: asyncio.run(talk(tenant)))


def test_krammar(servers: dict[str, str]) -> None:
    def talk(tenant: str) -> list[bytes]:
        with Client(servers[tenant]) as client:
            client.admin.create_topic("own", partitions=2)
            with client.producer({"transactional.id": "own"}) as producer:
                producer.init_transactions()
                with producer.transaction():
                    for value in values(tenant):
                        producer.send("own", value)
            records = client.records("own", begin=At.EARLIEST, end=At.LATEST)
            found = [record.value or b"" for _, record in records]
            client.admin.alter_topic_configs("own", {"retention.ms": "5000"})
            assert client.admin.topic_configs("own")["retention.ms"].value == "5000"
            client.admin.delete_topic("own")
            assert "own" not in client.topics()
        return found

    both(servers, talk)


def test_administration(servers: dict[str, str], broker: KafkaBroker) -> None:
    admin = create(servers["blue"], "only-blue")
    other = create(servers["red"], "only-red")
    seen = set(admin.list_topics(timeout=PATIENCE).topics)
    assert "only-blue" in seen
    assert not [name for name in seen if re.search("only-red|^blue|^red|^__", name)]
    producer = Producer({"bootstrap.servers": servers["red"]})
    producer.produce("only-red", b"x")
    assert producer.flush(PATIENCE) == 0
    for name in ("only-red", "red.only-red"):
        with pytest.raises(Exception, match="UNKNOWN_TOPIC_OR_PART"):
            admin.delete_topics([name])[name].result(PATIENCE)
    resource = ConfigResource("TOPIC", "only-blue")
    configs = admin.describe_configs([resource])[resource].result(PATIENCE)
    assert configs["cleanup.policy"].value == "delete"
    groups = admin.list_consumer_groups().result(PATIENCE).valid
    assert not [each for each in groups if each.group_id.startswith(("blue", "red"))]
    assert "only-red" in other.list_topics(timeout=PATIENCE).topics


@pytest.mark.parametrize("mechanism", ["plain", "scram"])
def test_logins_choose_the_tenant(mechanism: str) -> None:
    users = {"alice": "a-secret", "bob": "b-secret", "eve": "e-secret"}
    with (
        KafkaBroker.start(sasl=mechanism, users=users) as broker,
        Proxy.start(
            broker.bootstrap_servers, [Tenants(principals={"alice": "blue", "bob": "red"})]
        ) as proxy,
    ):
        settings = broker.clients.confluent_kafka | {"bootstrap.servers": proxy.bootstrap_servers}
        found = {}
        for user in ("alice", "bob"):
            own = settings | {"sasl.username": user, "sasl.password": users[user]}
            admin = AdminClient(own)
            admin.create_topics([NewTopic(f"of-{user}", 1)])[f"of-{user}"].result(PATIENCE)
            found[user] = set(admin.list_topics(timeout=PATIENCE).topics)
        assert found == {"alice": {"of-alice"}, "bob": {"of-bob"}}
        eve = AdminClient(settings | {"sasl.username": "eve", "sasl.password": users["eve"]})
        with pytest.raises(Exception, match=r"_TRANSPORT|_TIMED_OUT"):
            eve.list_topics(timeout=3)


def test_certificates_choose_the_tenant(tmp_path: Path) -> None:
    files = Certificates(tmp_path)
    rules = files.ask | {"ssl.principal.mapping.rules": "RULE:^CN=([^,]*),.*$/$1/"}
    with (
        KafkaBroker.start(topics=["blue.orders", "red.bills"]) as broker,
        Proxy.start(
            broker.bootstrap_servers, [Tenants(principals={"alice": "blue"})], clients=rules
        ) as proxy,
        connect({"bootstrap.servers": proxy.bootstrap_servers, **files.own}) as client,
    ):
        assert set(client.topics()) == {"orders"}


def test_logins_at_the_proxy_choose_the_tenant() -> None:
    with (
        KafkaBroker.start(topics=["blue.orders", "red.bills"]) as broker,
        Proxy.start(
            broker.bootstrap_servers,
            [Tenants(principals={"carol": "blue", "dave": "red"})],
            clients={"security.protocol": "SASL_PLAINTEXT"},
            users=USERS,
        ) as proxy,
    ):
        seen = {}
        for user, password in USERS.items():
            settings = own("SCRAM-SHA-512", user, password)
            with connect({"bootstrap.servers": proxy.bootstrap_servers, **settings}) as client:
                seen[user] = set(client.topics())
        assert seen == {"carol": {"orders"}, "dave": {"bills"}}


def test_a_cluster_of_three_nodes() -> None:
    listen = dict.fromkeys(TENANTS, "127.0.0.1:0")
    with (
        KafkaCluster.start(nodes=3) as cluster,
        Proxy.start(
            cluster.bootstrap_servers.split(",")[0],
            [Tenants(listeners={name: name for name in TENANTS})],
            listen=listen,
        ) as proxy,
    ):

        def talk(tenant: str) -> list[bytes]:
            settings = {"bootstrap.servers": proxy.addresses[tenant]}
            create(settings["bootstrap.servers"], "classic")
            producer = Producer(settings | {"transactional.id": "t"})
            producer.init_transactions(PATIENCE)
            producer.begin_transaction()
            for number, value in enumerate(values(tenant)):
                producer.produce("classic", value, partition=number % 3)
            producer.commit_transaction(PATIENCE)
            return consume(settings, ["classic"], **{"group.protocol": "consumer"})

        both(proxy.addresses, talk)
