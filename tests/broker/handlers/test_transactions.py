"""Transactions by raw requests, in all versions. The expected results were observed with Kafka 4.4.0."""

from __future__ import annotations

import sys

import pytest
from kafka_wire import (
    DescribeProducersRequest,
    EndTxnRequest,
    ErrorCode,
    InitProducerIdRequest,
    ListTransactionsRequest,
)

from krammar.broker import Broker
from krammar.broker.transactions.completion import Completion
from krammar.broker.transactions.state import LAST_EPOCH, MAX_EPOCH
from krammar.broker.transactions.store import state_record
from krammar.util.turns import finish
from krammar.wire.batches import ControlRecordType, read_batches
from tests.broker.requests import batch, create_topic, fetch, produce_request
from tests.broker.support import RawClient
from tests.broker.transactions.support import (
    Producer,
    committed_offset,
    describe,
    ends,
    find_coordinators,
    listed,
    producers,
)

NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
OLD_EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
BUSY = ErrorCode.CONCURRENT_TRANSACTIONS
BAD_STATE = ErrorCode.INVALID_TXN_STATE
INVALID = ErrorCode.INVALID_REQUEST
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

T = ("t", 0)


@pytest.fixture(autouse=True)
def topic(client: RawClient) -> None:
    find_coordinators(client)
    create_topic(client, "t", 3)


def outcomes(client: RawClient, topic: str = "t") -> list[bytes]:
    """The values of data and the kinds of markers, in order."""
    partition = fetch(client, topic)
    found: list[bytes] = []
    for found_batch in read_batches(partition.records):
        if found_batch.is_control:
            controls = found_batch.control_records()
            kinds = [ControlRecordType(record.type) for record in controls]
            found += [kind.name.lower().encode() for kind in kinds]
        else:
            found += [record.value or b"" for record in found_batch]
    return found


# InitProducerId.


@pytest.mark.parametrize("version", range(6))
def test_idempotent_producers_get_ids_of_their_own(client: RawClient, version: int) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
    answers = [client.call(request, version) for _ in range(3)]
    assert [answer.error_code for answer in answers] == [0, 0, 0]
    assert [answer.producer_epoch for answer in answers] == [0, 0, 0]
    assert len({answer.producer_id for answer in answers}) == 3


@pytest.mark.parametrize("version", range(6))
def test_a_transactional_id_keeps_its_producer_id(client: RawClient, version: int) -> None:
    producer = Producer(client).begun(version=version)
    first = producer.id
    assert producer.epoch == 0
    assert producer.init(version=version) is NONE
    assert (producer.id, producer.epoch) == (first, 1)
    assert Producer(client, "other").begun(version=version).id != first


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("timeout", [0, -1, 900001])
def test_timeouts_have_bounds(client: RawClient, version: int, timeout: int) -> None:
    producer = Producer(client)
    code = producer.init(timeout=timeout, version=version)
    assert code is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert Producer(client, "").init(timeout=timeout, version=version) is INVALID
    assert producer.init(timeout=900000, version=version) is NONE


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_producer_goes_on_after_an_error(client: RawClient, version: int) -> None:
    fenced = FENCED if version >= 4 else OLD_EPOCH
    producer = Producer(client)
    for half in ((5, -1), (-1, 5)):
        assert producer.init(known=half, version=version) is INVALID
    assert producer.init(known=(999, 3), version=version) is NONE  # the id is not known any more
    producer_id = producer.id
    assert (producer_id, producer.epoch) == (producer_id, 0)
    for _ in range(2):  # the second time as if the answer was lost
        assert producer.init(known=(producer_id, 0), version=version) is NONE
        assert (producer.id, producer.epoch) == (producer_id, 1)
    for known in ((producer_id, 7), (producer_id + 1, 1)):
        assert producer.init(known=known, version=version) is fenced
    producer.begun()
    assert producer.init(known=(producer_id, 1), version=version) is fenced


def test_no_coordinator_without_its_topic() -> None:
    with Broker.start() as broker, RawClient(broker.port) as client:
        producer = Producer(client)
        assert producer.init() is ErrorCode.NOT_COORDINATOR
        assert producer.end() is ErrorCode.NOT_COORDINATOR
        assert producer.describe().error_code == ErrorCode.NOT_COORDINATOR
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=-1)
        assert client.call(request, 5).error_code == NONE


def test_the_topic_of_states(broker: Broker, client: RawClient) -> None:
    topic = broker.cluster.topics["__transaction_state"]
    assert topic.internal
    assert broker.cluster.configs[2, "__transaction_state"]["cleanup.policy"] == "compact"


def test_partitions_of_transactional_ids_are_kafkas() -> None:
    properties = {"transaction.state.log.num.partitions": "50"}
    with Broker.start(properties=properties) as broker:
        # Java: Utils.abs("...".hashCode()) % 50; the third hash is -2147483648.
        names = ["id", "my-transactional-id", "polygenelubricants", "größe", "𝄞"]
        place = broker.topics.coordinating_partition
        found = [broker.call(place, "__transaction_state", name) for name in names]
    assert found == [5, 46, 0, 7, 44]


# Adding partitions.


@pytest.mark.parametrize("version", range(6))
def test_partitions_are_added(client: RawClient, version: int) -> None:
    producer = Producer(client).begun()
    assert producer.state == "Empty"
    added = producer.add(("t", 0), ("t", 2), version=version)
    assert added == {("t", 0): NONE, ("t", 2): NONE}
    described = producer.describe()
    assert described.transaction_state == "Ongoing"
    assert [(topic.topic, topic.partitions) for topic in described.topics] == [("t", [0, 2])]
    assert described.transaction_start_time_ms > 0
    assert producer.add(("t", 2), version=version) == {("t", 2): NONE}


@pytest.mark.parametrize("version", range(6))
def test_all_partitions_are_added_or_none(client: RawClient, version: int) -> None:
    producer = Producer(client).begun()
    assert producer.add(T, ("t", 9), ("nope", 0), version=version) == {
        T: ErrorCode.OPERATION_NOT_ATTEMPTED,
        ("t", 9): UNKNOWN,
        ("nope", 0): UNKNOWN,
    }
    assert producer.state == "Empty"


@pytest.mark.parametrize("version", range(6))
def test_only_the_producer_adds_partitions(client: RawClient, version: int) -> None:
    producer = Producer(client).begun().begun()
    fenced = FENCED if version >= 2 else OLD_EPOCH
    for epoch in (producer.epoch - 1, producer.epoch + 1):
        assert producer.add(T, version=version, epoch=epoch) == {T: fenced}
    assert producer.add(T, version=version, producer_id=producer.id + 1) == {T: MAPPING}
    assert Producer(client, "unknown").add(T, version=version) == {T: MAPPING}
    assert Producer(client, "").add(T, version=version) == {T: INVALID}


@pytest.mark.parametrize("version", [4, 5])
def test_partitions_are_verified(client: RawClient, version: int) -> None:
    producer = Producer(client).begun()
    missing = ErrorCode.TRANSACTION_ABORTABLE
    assert producer.add(T, version=version, verify_only=True) == {T: missing}
    producer.add(T)
    verified = producer.add(T, ("t", 1), version=version, verify_only=True)
    assert verified == {T: NONE, ("t", 1): missing}


@pytest.mark.parametrize("version", range(5))
def test_offsets_are_added(client: RawClient, version: int) -> None:
    producer = Producer(client).begun().begun()
    assert producer.add_offsets("group", version=version) is NONE
    [topic] = producer.describe().topics
    assert (topic.topic, topic.partitions) == ("__consumer_offsets", [0])
    fenced = FENCED if version >= 2 else OLD_EPOCH
    assert producer.add_offsets("group", version=version, epoch=0) is fenced
    assert Producer(client, "unknown").add_offsets("group", version=version) is MAPPING
    assert Producer(client, "").add_offsets("group", version=version) is INVALID


# Writing.


@pytest.mark.parametrize("version", range(3, 14))
def test_partitions_written_to_are_in_the_transaction(
    broker: Broker, client: RawClient, version: int
) -> None:
    topic_id = broker.cluster.topics["t"].topic_id if version >= 13 else None
    producer = Producer(client).begun()

    def produce(producer: Producer, value: bytes, **identity: int) -> ErrorCode:
        return producer.produce(T, value, version=version, topic_id=topic_id, **identity)

    assert produce(producer, b"0", producer_id=producer.id + 1) is MAPPING
    assert produce(producer, b"0", epoch=1) is OLD_EPOCH
    assert produce(Producer(client, "unknown"), b"0", producer_id=5, epoch=0) is MAPPING
    if version < 12:
        refused = ErrorCode.TRANSACTION_ABORTABLE if version == 11 else BAD_STATE
        assert produce(producer, b"0") is refused
        producer.add(T)
    assert produce(producer, b"1") is NONE
    assert produce(producer, b"2") is NONE
    [topic] = producer.describe().topics
    assert (topic.topic, topic.partitions) == ("t", [0])
    assert producer.end() is NONE
    assert outcomes(client) == [b"1", b"2", b"commit"]


def test_a_request_with_batches_of_a_transaction_names_it(client: RawClient) -> None:
    producer = Producer(client).begun()
    records = batch(
        b"x",
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=0,
        is_transactional=True,
    )
    for version in (11, 12):
        response = client.call(produce_request("t", records), version)
        code = response.responses[0].partition_responses[0].error_code
        assert code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_without_verification_old_clients_write_where_they_like() -> None:
    properties = {"transaction.partition.verification.enable": "false"}
    with Broker.start(properties=properties) as broker, RawClient(broker.port) as client:
        find_coordinators(client)
        create_topic(client, "t")
        producer = Producer(client).begun()
        assert producer.produce(T, version=11) is NONE
        assert producer.state == "Empty"
        assert producer.produce(T, version=12) is NONE


# Ending.


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("commit", [True, False])
def test_transactions_end(client: RawClient, version: int, commit: bool) -> None:
    producer = Producer(client).begun()
    producer.add(T, ("t", 1))
    assert producer.produce(T, b"1", b"2", version=11) is NONE
    assert ends(client, "t") == (2, 0, [])
    first = producer.id
    assert producer.end(commit, version=version) is NONE
    assert (producer.id, producer.epoch) == (first, 1 if version >= 5 else 0)
    described = producer.describe()
    assert described.transaction_state == ("CompleteCommit" if commit else "CompleteAbort")
    assert described.topics == []
    assert ends(client, "t") == (3, 3, [] if commit else [(first, 0)])
    kind = b"commit" if commit else b"abort"
    assert outcomes(client) == [b"1", b"2", kind]
    [marker] = list(read_batches(fetch(client, "t", partition=1).records))
    assert (marker.producer_id, marker.producer_epoch) == (first, producer.epoch)
    [active] = producers(client, "t").active_producers
    assert (active.producer_epoch, active.current_txn_start_offset) == (producer.epoch, -1)
    # And the next one, in the same partition.
    assert producer.produce(T, b"3") is NONE
    assert ends(client, "t")[:2] == (4, 3)
    assert producer.end() is NONE
    assert outcomes(client) == [b"1", b"2", kind, b"3", b"commit"]


@pytest.mark.parametrize("version", range(5))
def test_end_can_be_repeated(client: RawClient, version: int) -> None:
    fenced = FENCED if version >= 2 else OLD_EPOCH
    producer = Producer(client).begun()
    for commit in (True, False):
        assert producer.end(commit, version=version) is BAD_STATE
    for commit in (True, False):
        producer.add(T)
        for epoch in (producer.epoch - 1, producer.epoch + 1):
            assert producer.end(commit, version=version, epoch=epoch) is fenced
        assert producer.end(commit, version=version) is NONE
        assert producer.end(commit, version=version) is NONE
        assert producer.end(not commit, version=version) is BAD_STATE
        assert producer.end(commit, version=version, producer_id=producer.id + 1) is MAPPING
    assert Producer(client, "unknown").end(version=version) is MAPPING
    assert Producer(client, "").end(version=version) is INVALID
    assert outcomes(client) == [b"commit", b"abort"]


def test_end_with_an_epoch_for_each_transaction_can_be_repeated(client: RawClient) -> None:
    producer = Producer(client).begun()
    assert producer.end(True) is BAD_STATE
    assert producer.end(False) is NONE  # nothing was written, or its answer was lost
    assert producer.epoch == 1
    for commit in (True, False):
        used = producer.epoch
        producer.produce(T)
        assert producer.end(commit, epoch=used - 1) is FENCED
        assert producer.end(commit, epoch=used + 1) is FENCED
        assert producer.end(commit) is NONE
        assert producer.epoch == used + 1
        assert producer.end(commit, epoch=used) is NONE
        assert producer.end(not commit, epoch=used) is BAD_STATE
        assert producer.end(commit, epoch=used - 1) is FENCED
        assert producer.epoch == used + 1
    assert outcomes(client) == [b"x", b"commit", b"x", b"abort"]


def test_an_answer_to_end_without_a_change_has_no_identity(client: RawClient) -> None:
    response = client.call(EndTxnRequest(transactional_id="unknown", committed=True), 5)
    assert (response.error_code, response.producer_id, response.producer_epoch) == (MAPPING, -1, -1)


def test_topics_deleted_meanwhile_do_not_hold_a_transaction(
    broker: Broker, client: RawClient
) -> None:
    create_topic(client, "short")
    producer = Producer(client).begun()
    assert producer.produce(("short", 0)) is NONE
    assert producer.produce(T) is NONE
    broker.call(lambda: finish(broker.topics.deleting(broker.cluster.topics["short"])))
    assert producer.end() is NONE
    assert producer.state == "CompleteCommit"
    assert outcomes(client) == [b"x", b"commit"]


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_of_many_partitions_ends_in_several_turns(
    client: RawClient, monkeypatch: pytest.MonkeyPatch, commit: bool
) -> None:
    monkeypatch.setattr(Completion, "marked_at_once", 1)
    producer = Producer(client).begun()
    for partition in range(3):
        assert producer.produce(("t", partition)) is NONE
    assert producer.end(commit) is NONE
    while producer.state.startswith("Prepare"):
        pass
    assert producer.state == ("CompleteCommit" if commit else "CompleteAbort")
    kind = ControlRecordType.COMMIT if commit else ControlRecordType.ABORT
    for partition in range(3):
        *_, marker = read_batches(fetch(client, "t", partition=partition).records)
        assert [record.type for record in marker.control_records()] == [kind]
    assert producer.produce(T) is NONE
    assert producer.end() is NONE


def test_transactions_of_several_producers(client: RawClient) -> None:
    one, two = Producer(client, "one").begun(), Producer(client, "two").begun()
    assert one.produce(T, b"1") is NONE
    assert two.produce(T, b"2") is NONE
    assert two.end() is NONE
    assert ends(client, "t") == (3, 0, [])
    assert one.end(False) is NONE
    assert ends(client, "t") == (4, 4, [(one.id, 0)])


# Fencing.


@pytest.mark.parametrize("version", [1, 2, 4, 5])
def test_a_second_producer_fences_the_first(client: RawClient, version: int) -> None:
    first = Producer(client).begun()
    first.add(T)
    assert first.produce(T, version=11) is NONE
    second = Producer(client)
    assert second.init() is BUSY
    assert second.state == "CompleteAbort"
    assert outcomes(client) == [b"x", b"abort"]
    assert second.init() is NONE
    assert (second.id, second.epoch) == (first.id, 2)
    fenced = FENCED if version >= 2 else OLD_EPOCH
    assert first.end(version=version) is fenced
    assert first.end(False, version=version) is fenced
    assert first.add(T, version=min(version, 3)) == {T: fenced}
    for produce in (11, 12):
        assert first.produce(T, version=produce, epoch=0) is OLD_EPOCH
    assert second.produce(T) is NONE


def test_a_producer_that_was_aborted_learns_it_and_goes_on(client: RawClient) -> None:
    producer = Producer(client).begun()
    assert producer.produce(T) is NONE
    assert producer.init(known=(producer.id, 0)) is BUSY
    assert producer.end(True) is BAD_STATE
    assert producer.end(False) is NONE
    assert producer.epoch == 1
    assert producer.init(known=(producer.id, 0)) is NONE
    assert producer.epoch == 1
    assert producer.init(known=(producer.id + 1, 0)) is FENCED


def test_a_fenced_producer_does_not_abort_a_transaction(client: RawClient) -> None:
    producer = Producer(client).begun()
    assert producer.produce(T) is NONE
    assert Producer(client).init(known=(producer.id + 100, 0)) is FENCED
    assert producer.state == "Ongoing"
    assert producer.end() is NONE


# Used-up epochs.


def at_last_epoch(broker: Broker, producer: Producer) -> int:
    """Put a transactional id to the last epoch that its producer id has; the producer id."""
    producer.begun()

    def advance() -> None:
        from dataclasses import replace

        store = broker.transactions.store
        transaction = store.get(producer.name)
        assert transaction is not None
        store.put(producer.name, replace(transaction, epoch=LAST_EPOCH))

    broker.call(advance)
    producer.epoch = LAST_EPOCH
    return producer.id


def test_a_transaction_with_the_last_epoch_ends_in_a_new_id(
    broker: Broker, client: RawClient
) -> None:
    producer = Producer(client)
    used = at_last_epoch(broker, producer)
    assert producer.produce(T) is NONE
    assert producer.end() is NONE
    assert producer.epoch == 0
    assert producer.id != used
    [active] = producers(client, "t").active_producers
    assert (active.producer_id, active.producer_epoch) == (used, MAX_EPOCH)
    new = producer.id
    assert producer.end(producer_id=used, epoch=LAST_EPOCH) is NONE
    assert (producer.id, producer.epoch) == (new, 0)
    assert producer.end(False, producer_id=used, epoch=LAST_EPOCH) is BAD_STATE
    assert producer.produce(T) is NONE
    assert producer.end() is NONE
    assert outcomes(client) == [b"x", b"commit", b"x", b"commit"]


def test_init_with_the_last_epoch_gives_a_new_id(broker: Broker, client: RawClient) -> None:
    producer = Producer(client)
    used = at_last_epoch(broker, producer)
    assert producer.init(known=(used, LAST_EPOCH)) is NONE
    assert producer.epoch == 0
    new = producer.id
    assert new != used
    assert producer.init(known=(used, LAST_EPOCH)) is NONE
    assert (producer.id, producer.epoch) == (new, 0)
    assert producer.init(known=(used, LAST_EPOCH)) is FENCED


def test_fencing_with_the_last_epoch_gives_a_new_id(broker: Broker, client: RawClient) -> None:
    producer = Producer(client)
    used = at_last_epoch(broker, producer)
    assert producer.produce(T) is NONE
    second = Producer(client)
    assert second.init() is BUSY
    assert second.describe().producer_epoch == 0
    assert producer.end(False) is NONE  # it may continue with the new id
    assert producer.epoch == 0
    assert second.init() is NONE
    assert second.epoch == 1
    assert second.id != used


# Offsets.


@pytest.mark.parametrize("version", range(7))
@pytest.mark.parametrize("commit", [True, False])
def test_offsets_take_effect_with_a_commit(
    broker: Broker, client: RawClient, version: int, commit: bool
) -> None:
    topic_id = broker.cluster.topics["t"].topic_id
    producer = Producer(client).begun()

    def store(offset: int, epoch: int | None = None) -> ErrorCode:
        return producer.commit_offset(
            "group", "t", offset, version=version, topic_id=topic_id, epoch=epoch
        )

    if version < 5:
        assert store(5) is (ErrorCode.TRANSACTION_ABORTABLE if version == 4 else BAD_STATE)
        assert producer.add_offsets("group") is NONE
    assert store(5) is NONE
    assert store(7) is NONE
    assert store(9, epoch=producer.epoch + 1) is OLD_EPOCH
    assert committed_offset(client, "group", "t") == -1
    [topic] = producer.describe().topics
    assert topic.topic == "__consumer_offsets"
    assert producer.end(commit) is NONE
    assert committed_offset(client, "group", "t") == (7 if commit else -1)


def test_offsets_of_unknown_transactions_are_refused(client: RawClient) -> None:
    for version in range(6):
        unknown = Producer(client, "unknown")
        assert unknown.commit_offset("group", "t", 5, version=version) is MAPPING
    producer = Producer(client).begun()
    assert producer.commit_offset("", "t", 5) is ErrorCode.INVALID_GROUP_ID


# Requests of tools.


def test_describe_transactions(client: RawClient) -> None:
    producer = Producer(client).begun(timeout=1234)
    known, unknown, empty = describe(client, "id", "unknown", "")
    assert (known.transaction_state, known.transaction_timeout_ms) == ("Empty", 1234)
    assert (known.transaction_start_time_ms, known.topics) == (-1, [])
    assert (known.producer_id, known.producer_epoch) == (producer.id, 0)
    assert unknown.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert empty.error_code == INVALID
    assert describe(client) == []


@pytest.fixture
def three(client: RawClient) -> dict[str, Producer]:
    found = {name: Producer(client, name).begun() for name in ("open", "fresh", "done")}
    for name in ("open", "done"):
        found[name].add(T)
    assert found["done"].end() is NONE
    return found


@pytest.mark.parametrize("version", range(3))
def test_list_transactions(client: RawClient, three: dict[str, Producer], version: int) -> None:
    everything = {"open": "Ongoing", "fresh": "Empty", "done": "CompleteCommit"}
    assert listed(client, version) == everything
    assert listed(client, version, state_filters=["Ongoing", "Empty"]).keys() == {"open", "fresh"}
    ids = [three["open"].id, three["done"].id]
    assert listed(client, version, producer_id_filters=ids).keys() == {"open", "done"}
    both = {"producer_id_filters": ids, "state_filters": ["Ongoing"]}
    assert listed(client, version, **both).keys() == {"open"}
    for state in ("Dead", "PrepareEpochFence", "ongoing"):
        assert listed(client, version, state_filters=[state]) == {}
    response = client.call(ListTransactionsRequest(state_filters=["Bogus", "Empty"]), version)
    assert response.unknown_state_filters == ["Bogus"]
    assert [state.transactional_id for state in response.transaction_states] == ["fresh"]


def test_list_transactions_by_age(client: RawClient, three: dict[str, Producer]) -> None:
    for version in (1, 2):
        assert listed(client, version, duration_filter=-1).keys() == three.keys()
        # Transactions that never began match every such filter.
        assert listed(client, version, duration_filter=10**9).keys() == {"fresh"}


def test_list_transactions_by_pattern(client: RawClient, three: dict[str, Producer]) -> None:
    def matching(pattern: str | None) -> set[str]:
        return set(listed(client, transactional_id_pattern=pattern))

    assert matching(None) == matching("") == matching(".*") == set(three)
    assert matching("o.*|f[a-z]+") == {"open", "fresh"}
    assert matching("pe") == set()
    request = ListTransactionsRequest(transactional_id_pattern="(")
    assert client.call(request, 2).error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_list_transactions_by_pattern_without_re2(
    client: RawClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)
    request = ListTransactionsRequest(transactional_id_pattern=".*")
    assert client.call(request, 2).error_code == ErrorCode.INVALID_REQUEST
    assert caplog.messages == [
        "ListTransactions is refused: the pattern filter needs re2: pip install 'krammar[re2]'"
    ]
    assert client.call(ListTransactionsRequest(), 2).error_code == ErrorCode.NONE


def test_describe_producers(client: RawClient) -> None:
    producer = Producer(client).begun()
    assert producer.produce(T, b"1", b"2") is NONE
    [active] = producers(client, "t").active_producers
    assert (active.producer_id, active.producer_epoch) == (producer.id, 0)
    assert (active.last_sequence, active.last_timestamp > 1_700_000_000_000) == (1, True)
    assert (active.coordinator_epoch, active.current_txn_start_offset) == (-1, 0)
    assert producer.end() is NONE
    [active] = producers(client, "t").active_producers
    assert (active.producer_epoch, active.last_sequence) == (1, -1)
    assert (active.coordinator_epoch, active.current_txn_start_offset) == (0, -1)
    assert producers(client, "t", 1).active_producers == []


def test_describe_producers_of_what_is_not_there(client: RawClient) -> None:
    request = DescribeProducersRequest(
        topics=[
            DescribeProducersRequest.TopicRequest(name="t", partition_indexes=[2, 9]),
            DescribeProducersRequest.TopicRequest(name="nope", partition_indexes=[0]),
        ]
    )
    known, unknown = client.call(request, 0).topics
    assert [part.error_code for part in known.partitions] == [NONE, UNKNOWN]
    [part] = unknown.partitions
    assert part.error_code == UNKNOWN
    assert part.error_message == "This server does not host this topic-partition."


# The log of states.


def test_each_change_is_in_the_log(broker: Broker, client: RawClient) -> None:
    producer = Producer(client).begun()
    assert producer.produce(T) is NONE
    assert producer.end() is NONE
    records = [
        record
        for found in read_batches(fetch(client, "__transaction_state").records)
        for record in found
    ]
    states = [int.from_bytes((record.value or b"")[16:17], "big") for record in records]
    assert states == [0, 1, 2, 4]  # Empty, Ongoing, PrepareCommit, CompleteCommit
    last = broker.transactions.describe("id")
    assert records[-1].key == state_record("id", last, 1).key
    assert records[-1].value == state_record("id", last, 1).value
