"""The tenant blue attacks the tenant red at krammar's broker: with every field of every API, and with producer ids."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import kafka_wire as kw
import pytest
from kafka_wire import ConfigResourceType, CoordinatorType, ErrorCode

from krammar.broker.apis import SERVED
from krammar.proxy import Proxy
from krammar.proxy.addresses import Address
from krammar.proxy.filters.tenant_apis import ALLOWED
from krammar.proxy.filters.tenant_calls import CONFIG_ENTITIES
from krammar.proxy.filters.tenants import Tenants
from krammar.testing import KafkaBroker
from krammar.wire.batches import Record, encode_batch
from krammar.wire.connection import ResponseReceived
from krammar.wire.errors import EncodeError
from krammar.wire.layout import Scalar
from tests.proxy.filters.test_tenant_configs import NAMELESS
from tests.proxy.filters.test_tenant_fields import CONSUMERS, build, consumer, leaves, values
from tests.proxy.support import Client, address
from tests.support.waiting import PATIENCE

# What red has, by its names at the broker.
TOPIC, HIDDEN, GROUP, TRANSACTION = "red.orders", "red.hidden", "red.g", "red.t"
# A share group of red, and its member, which has acquired the record of the topic.
SHARED, MEMBER = "red.s", "member-of-red"
HOSTILE = (
    *(TOPIC, GROUP, TRANSACTION, SHARED, MEMBER),
    *("../red.orders", "blue.orders|red.orders", ".*"),
)
# So that the member and its lock outlast the tests.
LONG = {
    f"group_share_{limit}{name}": "3600000"
    for name in ("record_lock_duration_ms", "session_timeout_ms")
    for limit in ("", "max_")
}
# The APIs that both tenants and krammar's broker have, with their newest versions.
NEWEST = {
    cls: min(newest, SERVED[cls.api_key][1])
    for cls, newest in ALLOWED.items()
    if cls.api_key in SERVED
}


class Tenancy:
    """A broker with the tenants red and blue, and what red has."""

    def __init__(self, broker: KafkaBroker, blue: Proxy, red: Proxy) -> None:
        self.broker = broker
        self._places = {
            "": Address.parse(broker.bootstrap_servers),
            "blue": address(blue),
            "red": address(red),
        }
        self._clients: dict[str, Client] = {}
        self.producer: Any = None
        self.session_epoch = 0

    def ask(self, who: str, request: Any, version: int | None = None) -> Any:
        """Return the response to a request; None if the connection is closed instead."""
        if who not in self._clients:
            self._clients[who] = Client(self._places[who])
            self._clients[who].socket.settimeout(PATIENCE)
        newest = NEWEST.get(type(request), type(request).max_version)
        try:
            event = self._clients[who].ask(request, newest if version is None else version)
        except ConnectionError:
            event = None
        if isinstance(event, ResponseReceived):
            return event.response
        self._clients.pop(who).socket.close()
        return None

    def close(self) -> None:
        for each in self._clients.values():
            each.socket.close()

    def id_of(self, name: str) -> UUID:
        topics = self.ask("", kw.MetadataRequest(topics=None)).topics
        (found,) = [each.topic_id for each in topics if each.name == name]
        assert isinstance(found, UUID)
        return found

    def begin(self) -> None:
        """Let red begin a transaction with a record and an offset."""
        for who in ("red", "blue"):
            for kind in (CoordinatorType.GROUP, CoordinatorType.TRANSACTION):
                find = kw.FindCoordinatorRequest(key_type=kind, coordinator_keys=["t"])
                assert self.ask(who, find).coordinators[0].error_code == 0
        request = kw.InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000)
        self.producer = self.ask("red", request)
        assert self.producer.error_code == 0
        assert self.produce("red", "t", self.producer.producer_epoch).error_code == 0
        assert self.commit_offset("red", "t", self.producer.producer_epoch, 1) == 0
        self.join()
        assert [each.deliveries for each in self.shared()] == [1]

    def join(self) -> None:
        """Let a member of red's share group acquire the record of the topic."""
        config = kw.IncrementalAlterConfigsRequest.AlterableConfig(
            name="share.auto.offset.reset", value="earliest"
        )
        resource = kw.IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=ConfigResourceType.GROUP, resource_name="s", configs=[config]
        )
        altered = self.ask("red", kw.IncrementalAlterConfigsRequest(resources=[resource]))
        assert altered.responses[0].error_code == 0
        heartbeat = kw.ShareGroupHeartbeatRequest(
            group_id="s", member_id=MEMBER, subscribed_topic_names=["orders"]
        )
        assert self.ask("red", heartbeat).assignment.topic_partitions
        assert self.share_fetch("red", MEMBER).acquired_records

    def share_fetch(
        self, who: str, member: str, group: str = "s", *acks: Any, topic: str = TOPIC
    ) -> Any:
        """Let a member of a share group fetch; return the answer for the topic, or for the whole request."""
        kind = kw.ShareFetchRequest
        part = kind.FetchPartition(partition_index=0, acknowledgement_batches=[*acks])
        request = kind(
            group_id=group,
            member_id=member,
            share_session_epoch=self.session_epoch if who == "red" else 0,
            max_bytes=1 << 20,
            max_records=10,
            batch_size=10,
            topics=[kind.FetchTopic(topic_id=self.id_of(topic), partitions=[part])],
        )
        response = self.ask(who, request)
        if response.error_code or not response.responses:
            return response
        if who == "red":
            self.session_epoch += 1
        return response.responses[0].partitions[0]

    def shared(self) -> list[Any]:
        """Return the records of red's share group."""
        return self.broker.share_groups[SHARED].records(TOPIC)

    def ids(self, transactional_id: str, epoch: int) -> dict[str, Any]:
        return {
            "transactional_id": transactional_id,
            "producer_id": self.producer.producer_id,
            "producer_epoch": epoch,
        }

    def produce(
        self, who: str, transactional_id: str | None, epoch: int, topic: str = "orders"
    ) -> Any:
        """Write a batch with the producer id of red; in a transaction if there is a transactional id."""
        data = encode_batch(
            [Record(value=b"v")],
            producer_id=self.producer.producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            is_transactional=transactional_id is not None,
        )
        request = kw.ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=1_000,
            topic_data=[
                kw.ProduceRequest.TopicProduceData(
                    name=topic,
                    partition_data=[kw.ProduceRequest.PartitionProduceData(records=data)],
                )
            ],
        )
        return self.ask(who, request, 12).responses[0].partition_responses[0]

    def commit_offset(
        self,
        who: str,
        transactional_id: str,
        epoch: int,
        offset: int,
        group: str = "g",
        version: int = 5,
    ) -> int:
        part = kw.TxnOffsetCommitRequest.Partition(committed_offset=offset)
        topic = kw.TxnOffsetCommitRequest.Topic(name="orders", partitions=[part])
        request = kw.TxnOffsetCommitRequest(
            group_id=group, topics=[topic], **self.ids(transactional_id, epoch)
        )
        return int(self.ask(who, request, version).topics[0].partitions[0].error_code)

    def of_red(self) -> list[Any]:
        """Return what the broker has of red: topics, configs, offsets, groups, transactions and ends of logs."""
        resource = kw.DescribeConfigsRequest.DescribeConfigsResource
        kinds = ConfigResourceType
        named = [(kinds.TOPIC, TOPIC), (kinds.TOPIC, HIDDEN)]
        named += [(kinds.GROUP, GROUP), (kinds.GROUP, SHARED)]
        part = kw.ListOffsetsRequest.ListOffsetsPartition(timestamp=-1)
        ends = [
            kw.ListOffsetsRequest.ListOffsetsTopic(name=each, partitions=[part])
            for each in (TOPIC, HIDDEN)
        ]
        asked: list[Any] = [
            kw.DescribeConfigsRequest(
                resources=[resource(resource_type=kind, resource_name=name) for kind, name in named]
            ),
            kw.ListOffsetsRequest(topics=ends),
            kw.OffsetFetchRequest(
                groups=[kw.OffsetFetchRequest.Group(group_id=GROUP, topics=None)]
            ),
            kw.DescribeGroupsRequest(groups=[GROUP]),
            kw.DescribeTransactionsRequest(transactional_ids=[TRANSACTION]),
            kw.ShareGroupDescribeRequest(group_ids=[SHARED]),
            kw.DescribeShareGroupOffsetsRequest(
                groups=[kw.DescribeShareGroupOffsetsRequest.Group(group_id=SHARED, topics=None)]
            ),
            kw.DescribeProducersRequest(
                topics=[kw.DescribeProducersRequest.TopicRequest(name=TOPIC, partition_indexes=[0])]
            ),
        ]
        found = [self.ask("", each) for each in asked]
        found.append(self.broker.share_groups[SHARED])
        topics = self.ask("", kw.MetadataRequest(topics=None)).topics
        found.append([each for each in topics if (each.name or "").startswith("red.")])
        for listed in (kw.ListGroupsRequest(), kw.ListTransactionsRequest()):
            response = self.ask("", listed)
            found.append([each for each in names_in(response) if each.startswith("red.")])
        assert found[-2:] == [[GROUP, SHARED], [TRANSACTION]]
        return found

    def configs_of_blue(self) -> list[str]:
        """Return the values of the configs of a topic and a group of blue, at the broker."""
        resource = kw.DescribeConfigsRequest.DescribeConfigsResource
        kinds = (ConfigResourceType.TOPIC, ConfigResourceType.GROUP)
        asked = [resource(resource_type=kind, resource_name="blue.orders") for kind in kinds]
        results = self.ask("", kw.DescribeConfigsRequest(resources=asked)).results
        return [
            config.value or ""
            for result in results
            for config in result.configs
            if config.name not in NAMELESS
        ]


def names_in(response: Any) -> list[str]:
    if isinstance(response, kw.ListGroupsResponse):
        return sorted(each.group_id for each in response.groups)
    return sorted(each.transactional_id for each in response.transaction_states)


@pytest.fixture(scope="module")
def tenancy() -> Iterator[Tenancy]:
    with (
        KafkaBroker.start(topics={"blue.orders": 1, TOPIC: 1, HIDDEN: 1}, **LONG) as broker,
        Proxy.start(broker.bootstrap_servers, [Tenants("blue")]) as blue,
        Proxy.start(broker.bootstrap_servers, [Tenants("red")]) as red,
    ):
        found = Tenancy(broker, blue, red)
        offset = kw.OffsetCommitRequest.Partition(committed_offset=1)
        topic = kw.OffsetCommitRequest.Topic(name="orders", partitions=[offset])
        committed = found.ask("red", kw.OffsetCommitRequest(group_id="g", topics=[topic]), 9)
        assert committed.topics[0].partitions[0].error_code == 0
        found.begin()
        yield found
        found.close()


def attacks(cls: Any, version: int, own: UUID, other: UUID) -> Iterator[tuple[str, Any]]:
    """Yield requests that name something of red in one field each, and the path of the field."""
    layout, usual = kw.layout(cls, version), values("", own)

    def hostile(path: str, item: Any, type_: Any, name: str) -> Any:
        if isinstance(type_, Scalar):
            return other
        if path in CONSUMERS:
            return consumer(path, name)
        return name if type_.kind == "string" else name.encode()

    for target, _, kind in leaves(layout, cls.__name__):
        for name in HOSTILE[:1] if isinstance(kind, Scalar) else HOSTILE:

            def leaf(
                path: str, item: Any, type_: Any, name: str = name, place: str = target
            ) -> Any:
                if path == place:
                    return hostile(path, item, type_, name)
                return usual(path, item, type_)

            request = build(cls, layout, leaf, cls.__name__)
            if hasattr(request, "acks"):
                request.acks = -1
            yield target, request


def attack(tenancy: Tenancy, cls: Any, version: int) -> None:
    """Send all attacks of a version, and assert that red has what it had, and that blue has read nothing of it."""
    create = kw.CreateTopicsRequest
    own_topic = create.CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
    before = tenancy.of_red()
    other = tenancy.id_of(TOPIC)
    secrets = [HIDDEN.partition(".")[2].encode(), tenancy.id_of(HIDDEN).bytes]
    answered = 0
    tenancy.ask(
        "blue", create(topics=[own_topic], timeout_ms=1_000)
    )  # an attack may have deleted it
    for target, request in attacks(cls, version, tenancy.id_of("blue.orders"), other):
        kinds = (ConfigResourceType.TOPIC, ConfigResourceType.GROUP)
        for kind in kinds if hasattr(request, "resources") else kinds[:1]:
            for asked in with_keys(request, kind, target):
                try:
                    response = tenancy.ask("blue", asked, version)
                except EncodeError:
                    continue  # the client cannot send it
                if response is not None:
                    answered += 1
                    data = response.encode(version)
                    assert not any(secret in data for secret in secrets), target
                if hasattr(request, "resources"):
                    values_set = tenancy.configs_of_blue()
                    assert not [each for each in values_set if each.startswith("red.")], target
    assert answered or not list(leaves(kw.layout(cls, version), ""))
    assert tenancy.of_red() == before


def with_keys(request: Any, kind: int, target: str) -> Iterator[Any]:
    """Yield a request about resources of a kind, with all keys of configs if the attack is a value of one."""
    for each in getattr(request, "resources", ()):
        each.resource_type = kind
    if not target.endswith("resources.configs.value"):
        yield request
        return
    for key in CONFIG_ENTITIES[kind]:
        request.resources[0].resource_name = "orders"
        request.resources[0].configs[0].name = key
        yield request


@pytest.mark.parametrize("cls", NEWEST, ids=lambda cls: cls.__name__)
def test_no_field_reaches_another_tenant(tenancy: Tenancy, cls: Any) -> None:
    attack(tenancy, cls, NEWEST[cls])


@pytest.mark.search
@pytest.mark.parametrize("cls", NEWEST, ids=lambda cls: cls.__name__)
def test_no_field_of_older_versions_reaches_another_tenant(tenancy: Tenancy, cls: Any) -> None:
    first = max(cls.min_version, SERVED[cls.api_key][0])
    assert first <= NEWEST[cls]
    for version in range(first, NEWEST[cls]):
        attack(tenancy, cls, version)


# -- producer ids: numbers of the whole cluster, which a tenant can guess

# The epochs that a tenant can claim: those of red, and those that would fence it.
CLAIMS = (0, 1, 2, 0x7FFF)


def refusals(tenancy: Tenancy, epoch: int) -> dict[str, int]:
    """Let blue send everything with red's producer id; return the error codes."""
    with_t, ask = tenancy.ids("t", epoch), tenancy.ask
    own = ask("blue", kw.InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=60_000))
    assert own.producer_id != tenancy.producer.producer_id
    partitions = kw.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name="orders", partitions=[0])
    found = {
        "InitProducerId": ask(
            "blue", kw.InitProducerIdRequest(transaction_timeout_ms=60_000, **with_t)
        ).error_code,
        "AddOffsetsToTxn": ask(
            "blue", kw.AddOffsetsToTxnRequest(group_id="g", **with_t)
        ).error_code,
        "AddPartitionsToTxn": ask(
            "blue",
            kw.AddPartitionsToTxnRequest(
                **{f"v3_and_below_{name}": value for name, value in with_t.items()},
                v3_and_below_topics=[partitions],
            ),
            3,
        )
        .results_by_topic_v3_and_below[0]
        .results_by_partition[0]
        .partition_error_code,
        "Produce": tenancy.produce("blue", "t", epoch).error_code,
    }
    for committed in (False, True):
        request = kw.EndTxnRequest(committed=committed, **with_t)
        found[f"EndTxn {committed}"] = ask("blue", request).error_code
    return found


@pytest.mark.parametrize("epoch", CLAIMS)
def test_a_producer_id_of_another_tenant_is_refused(tenancy: Tenancy, epoch: int) -> None:
    before = tenancy.of_red()
    found = refusals(tenancy, epoch)
    assert 0 not in found.values()
    assert tenancy.of_red() == before


@pytest.mark.parametrize("version", range(6))
def test_offsets_with_the_producer_id_of_another_tenant(tenancy: Tenancy, version: int) -> None:
    """Tenants share the partitions of ``__consumer_offsets``, whose logs know producers by their ids alone."""
    before = tenancy.of_red()
    current = tenancy.producer.producer_epoch
    for epoch in CLAIMS:
        codes = {
            tenancy.commit_offset("blue", "t", epoch, 7, group=f"g{number}", version=version)
            for number in range(100)  # at least some are in the partition of red's group
        }
        if epoch != current:
            assert 0 not in codes
        # With red's epoch, while its transaction is open, offsets of blue's own group wait for red's transaction.
        assert codes <= {0, ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_EPOCH}
    assert tenancy.of_red() == before


def test_the_lists_name_no_producer_of_another_tenant(tenancy: Tenancy) -> None:
    number = tenancy.producer.producer_id
    listed = tenancy.ask("blue", kw.ListTransactionsRequest(producer_id_filters=[number]))
    assert listed.transaction_states == []
    described = tenancy.ask("blue", kw.DescribeTransactionsRequest(transactional_ids=[TRANSACTION]))
    assert described.transaction_states[0].error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    topic = kw.DescribeProducersRequest.TopicRequest(name=TOPIC, partition_indexes=[0])
    producers = tenancy.ask("blue", kw.DescribeProducersRequest(topics=[topic]))
    assert producers.topics[0].partitions[0].active_producers == []
    marker = kw.WriteTxnMarkersRequest.WritableTxnMarker(
        producer_id=number, producer_epoch=0x7FFF, topics=[]
    )
    assert tenancy.ask("blue", kw.WriteTxnMarkersRequest(markers=[marker]), 1) is None
    assert tenancy.ask("blue", kw.AllocateProducerIdsRequest(broker_id=0), 0) is None


def test_the_transaction_is_committed_after_all_attacks(tenancy: Tenancy) -> None:
    for epoch in CLAIMS:
        tenancy.produce("blue", None, epoch)  # in its own topic, where blue may claim to be anyone
    refusals(tenancy, 0x7FFF)
    request = kw.EndTxnRequest(committed=True, **tenancy.ids("t", tenancy.producer.producer_epoch))
    assert tenancy.ask("red", request).error_code == 0
    group = kw.OffsetFetchRequest.Group(group_id="g", topics=None)
    found = tenancy.ask("red", kw.OffsetFetchRequest(groups=[group], require_stable=True), 9)
    (topic,) = found.groups[0].topics
    assert (topic.name, topic.partitions[0].committed_offset) == ("orders", 1)
    assert [record.value for record in tenancy.broker.records(TOPIC)] == [b"v"]


# -- share groups: members and sessions have ids that another tenant can know


def accepted(offset: int) -> kw.ShareFetchRequest.AcknowledgementBatch:
    return kw.ShareFetchRequest.AcknowledgementBatch(
        first_offset=offset, last_offset=offset, acknowledge_types=[1]
    )


def test_records_of_another_tenants_share_group(tenancy: Tenancy) -> None:
    """Blue has a share group and a member of the same names."""
    before = tenancy.of_red()
    for group in ("s", SHARED):
        for topic in (TOPIC, "blue.orders"):
            found = tenancy.share_fetch("blue", MEMBER, group, topic=topic)
            assert not getattr(found, "acquired_records", None)
        leave = kw.ShareGroupHeartbeatRequest(group_id=group, member_id=MEMBER, member_epoch=-1)
        # The attacks above may have made members of blue's own groups of these names.
        assert tenancy.ask("blue", leave).error_code in (
            ErrorCode.GROUP_ID_NOT_FOUND,
            ErrorCode.UNKNOWN_MEMBER_ID,
        )
        acknowledge = kw.ShareAcknowledgeRequest
        part = acknowledge.AcknowledgePartition(
            acknowledgement_batches=[
                acknowledge.AcknowledgementBatch(
                    first_offset=0, last_offset=0, acknowledge_types=[1]
                )
            ]
        )
        own = acknowledge.AcknowledgeTopic(topic_id=tenancy.id_of(TOPIC), partitions=[part])
        request = acknowledge(group_id=group, member_id=MEMBER, share_session_epoch=1, topics=[own])
        (answered,) = tenancy.ask("blue", request).responses
        assert answered.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        described = tenancy.ask("blue", kw.ShareGroupDescribeRequest(group_ids=[group]))
        assert MEMBER not in [each.member_id for each in described.groups[0].members]
        asked = kw.DescribeShareGroupOffsetsRequest.Group(group_id=group, topics=None)
        positions = tenancy.ask("blue", kw.DescribeShareGroupOffsetsRequest(groups=[asked]))
        assert TOPIC not in str(positions)
    listed = tenancy.ask("blue", kw.ListGroupsRequest(types_filter=["share"]))
    assert "s" not in [each.group_id for each in listed.groups]
    assert tenancy.of_red() == before


def test_the_member_accepts_its_record_after_all_attacks(tenancy: Tenancy) -> None:
    (record,) = tenancy.shared()
    assert (record.state, record.member_id) == ("acquired", MEMBER)
    answer = tenancy.share_fetch("red", MEMBER, "s", accepted(record.offset))
    assert (answer.error_code, answer.acknowledge_error_code) == (0, 0)
    state = tenancy.broker.share_groups[SHARED].partitions[TOPIC, 0]
    assert state.start_offset > record.offset
