"""The engine: which rules match, how often they fire, and how they change messages."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from inspect import signature
from typing import Any
from uuid import UUID

import pytest
from kafka_wire import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ErrorCode,
    FetchRequest,
    FetchResponse,
    FindCoordinatorRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    MetadataRequest,
    MetadataResponse,
    OffsetCommitRequest,
    ProduceRequest,
    ProduceResponse,
)

from krammar.faults import FaultError, FaultNotFired, Rule
from krammar.faults.shape import error_places
from krammar.faults.steps import Disconnect, Hold, Send, Wait
from krammar.proxy.interface import Silence
from krammar.wire.batches import Record, encode_batch, read_headers
from tests.faults.support import PACKAGE, Talk, engine, exchange, filled
from tests.support.waiting import PATIENCE

ORDERS = UUID(int=77)


def produce(*partitions: tuple[str, int], records: Any = None) -> ProduceRequest:
    topics: dict[str, list[ProduceRequest.PartitionProduceData]] = {}
    for topic, partition in partitions:
        part = ProduceRequest.PartitionProduceData(index=partition, records=records)
        topics.setdefault(topic, []).append(part)
    return ProduceRequest(
        acks=-1,
        topic_data=[
            ProduceRequest.TopicProduceData(name=name, partition_data=parts)
            for name, parts in topics.items()
        ],
    )


def produced(*outcomes: tuple[str, int, int]) -> ProduceResponse:
    topics: dict[str, list[ProduceResponse.PartitionProduceResponse]] = {}
    for topic, partition, code in outcomes:
        part = ProduceResponse.PartitionProduceResponse(
            index=partition, error_code=code, base_offset=-1 if code else 0
        )
        topics.setdefault(topic, []).append(part)
    return ProduceResponse(
        responses=[
            ProduceResponse.TopicProduceResponse(name=name, partition_responses=parts)
            for name, parts in topics.items()
        ]
    )


# What a rule is about.


def test_an_answer_refuses_only_what_the_rule_is_about() -> None:
    faults, talk = engine()
    faults.on("Produce", topic="orders", partition=1).answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    one = exchange(produce(("orders", 0), ("orders", 1), ("other", 1)), 12)
    verdict = talk.request(one)
    assert verdict is not None and verdict.outcome is None
    assert verdict.request == produce(("orders", 0), ("other", 1))
    assert one.request == produce(("orders", 0), ("orders", 1), ("other", 1))
    delivery = talk.response(one, produced(("orders", 0, 0), ("other", 1, 0)))
    assert delivery is not None
    assert delivery.response == produced(("orders", 0, 0), ("orders", 1, 6), ("other", 1, 0))


def test_an_answer_to_all_of_a_request_needs_no_broker() -> None:
    faults, talk = engine()
    faults.on("Produce", topic="orders").answer("NOT_LEADER_OR_FOLLOWER")
    verdict = talk.request(exchange(produce(("orders", 0), ("orders", 2)), 9))
    assert verdict is not None and verdict.outcome is not None
    assert verdict.outcome == produced(("orders", 0, 6), ("orders", 2, 6))
    assert talk.request(exchange(produce(("other", 0)), 9)) is None


def test_an_answer_after_the_request_was_handled_changes_the_response() -> None:
    faults, talk = engine()
    faults.on("Produce", partition=2).answer(ErrorCode.REQUEST_TIMED_OUT, after=True)
    one = exchange(produce(("orders", 0), ("orders", 2)), 9)
    assert talk.request(one) is None
    delivery = talk.response(one, produced(("orders", 0, 0), ("orders", 2, 0)))
    assert delivery is not None and delivery.changed
    assert delivery.response == produced(("orders", 0, 0), ("orders", 2, 7))


def test_topics_are_known_by_their_ids() -> None:
    faults, talk = engine()
    rule = faults.on("Produce", topic="orders").drop()
    by_id = produce(("", 0))
    by_id.topic_data[0].topic_id = ORDERS
    assert talk.request(exchange(by_id, 13)) is None  # the id's name is not known yet
    topics = MetadataResponse(topics=[MetadataResponse.Topic(name="orders", topic_id=ORDERS)])
    talk.response(exchange(MetadataRequest(), 12), topics)
    assert talk.request(exchange(by_id, 13)) is not None
    assert rule.fired == 1
    known, told = engine(topic_names=lambda topic_id: "orders")
    known.on("Produce", where='topic_data[*].name == "orders"').drop()
    assert told.request(exchange(by_id, 13)) is not None


def test_metadata_is_answered_by_the_broker_and_then_refused() -> None:
    """A client that learns of no brokers could not continue."""
    faults, talk = engine()
    faults.on("Metadata", topic="orders", partition=1).answer("LEADER_NOT_AVAILABLE")
    one = exchange(MetadataRequest(topics=None), 12)
    assert talk.request(one) is None
    partitions = [MetadataResponse.Partition(partition_index=n) for n in range(2)]
    response = MetadataResponse(
        topics=[MetadataResponse.Topic(name="orders", partitions=partitions)]
    )
    delivery = talk.response(one, response)
    assert delivery is not None
    codes = [p.error_code for p in delivery.response.topics[0].partitions]
    assert codes == [0, ErrorCode.LEADER_NOT_AVAILABLE]


def test_groups_and_transactional_ids_are_found_wherever_they_are() -> None:
    faults, talk = engine()
    group = faults.on(group="billing").answer("NOT_COORDINATOR")
    transaction = faults.on(transactional_id="t-1").answer("COORDINATOR_NOT_AVAILABLE")
    verdict = talk.request(exchange(HeartbeatRequest(group_id="billing"), 4))
    assert verdict is not None
    assert verdict.outcome == HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)
    assert talk.request(exchange(HeartbeatRequest(group_id="other"), 4)) is None
    assert talk.request(exchange(FindCoordinatorRequest(coordinator_keys=["billing"]), 4))
    assert group.fired == 2
    wanted = FindCoordinatorRequest(coordinator_keys=["t-1", "t-2"], key_type=1)
    one = exchange(wanted, 4)
    verdict = talk.request(one)
    assert verdict is not None and verdict.outcome is None
    assert verdict.request.coordinator_keys == ["t-2"]
    assert transaction.fired == 1 and group.fired == 2


def test_clients_connections_nodes_and_principals() -> None:
    faults, talk = engine(sees=("principal",))
    request = HeartbeatRequest()
    rules = [
        faults.on("Heartbeat", client_id=["a", "b"]).drop(),
        faults.on("Heartbeat", connection=2).drop(),
        faults.on("Heartbeat", node=3).drop(),
        faults.on("Heartbeat", principal="User:alice").drop(),
    ]
    assert talk.request(exchange(request, 4)) is None
    for known in ({"client_id": "b"}, {"connection": 2}, {"node": 3}, {"principal": "alice"}):
        assert talk.request(exchange(request, 4, **known)) is not None
    assert [rule.fired for rule in rules] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("acks == -1", True),
        ("acks != -1", False),
        ("acks in [0, -1]", True),
        ("request.acks < 0", True),
        ("acks >= 0", False),
        ("timeout_ms <= 30000", True),
        ("timeout_ms > 30000", False),
        ('topic_data[*].name == "b"', True),
        ('topic_data[0].name == "b"', False),
        ("topic_data[*].partition_data[1].index == 9", True),
        ("topic_data[5].partition_data[*].index == 9", False),
        ("topic_data[*].partition_data[*].records == null", True),
    ],
)
def test_conditions(condition: str, holds: bool) -> None:
    faults, talk = engine()
    rule = faults.on("Produce", where=condition).drop()
    talk.request(exchange(produce(("a", 0), ("a", 9), ("b", 1)), 12))
    assert rule.fired == holds


def test_conditions_on_enums_null_and_the_response() -> None:
    faults, talk = engine()
    fetch = faults.on("Fetch", versions="4-", where="isolation_level == READ_COMMITTED").drop()
    transactional = faults.on("Produce", versions="3-", where="transactional_id != null").drop()
    failed = faults.on("Heartbeat", where="error_code == REBALANCE_IN_PROGRESS").drop("after")
    talk.request(exchange(FetchRequest(isolation_level=0), 4))
    talk.request(exchange(produce(("a", 0)), 3))
    beat = exchange(HeartbeatRequest(), 4)
    talk.response(beat, HeartbeatResponse())
    assert (fetch.fired, transactional.fired, failed.fired) == (0, 0, 0)
    talk.request(exchange(FetchRequest(isolation_level=1), 4))
    request = produce(("a", 0))
    request.transactional_id = "t"
    talk.request(exchange(request, 3))
    talk.response(beat, HeartbeatResponse(error_code=27))
    assert (fetch.fired, transactional.fired, failed.fired) == (1, 1, 1)


def test_fetch_sessions_are_ended_for_rules_about_topics() -> None:
    """A request of a session names only what has changed (KIP-227)."""
    faults, talk = engine()
    rule = faults.on("Fetch", topic="orders").answer("OFFSET_OUT_OF_RANGE")
    verdict = talk.request(exchange(FetchRequest(session_id=5, session_epoch=3), 12))
    assert verdict is not None
    assert verdict.outcome == FetchResponse(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert rule.fired == 0
    other = FetchRequest.FetchTopic(
        topic="b", partitions=[FetchRequest.FetchPartition(partition=0)]
    )
    one = exchange(FetchRequest(session_epoch=0, topics=[other]), 12)
    assert talk.request(one) is None
    delivery = talk.response(one, FetchResponse(session_id=9))
    assert delivery is not None and delivery.response.session_id == 0


# Observing.


def test_observing_changes_nothing() -> None:
    faults, talk = engine()
    rule = faults.on("Produce", topic="orders").observe()
    other = faults.on("Produce", topic="audit").observe()
    request = produce(("orders", 0))
    known = exchange(request, 9)
    occasion = talk.request(known)
    assert occasion is not None and occasion.request is request
    response = produced(("orders", 0, 0))
    seen = talk.response(known, response)
    assert seen is not None and not seen.changed and seen.response is response
    assert seen.delivery.steps(b"frame") == [Send(b"frame")]
    (event,) = faults.history
    assert (event.action, event.request, event.response) == ("observed", request, response)
    rule.expect(times=1)
    other.expect(times=0)


def test_observing_by_what_only_the_response_has() -> None:
    faults, talk = engine()
    rule = faults.on("Heartbeat", where="response.error_code == 27").observe()
    for code in (0, 27):
        known = exchange(HeartbeatRequest(group_id="g"), 4)
        talk.request(known)
        talk.response(known, HeartbeatResponse(error_code=code))
    rule.expect(times=1)


def test_observing_leaves_fetch_sessions_alone() -> None:
    faults, talk = engine()
    rule = faults.on("Fetch", topic="orders").observe()
    known = exchange(FetchRequest(session_id=5, session_epoch=3), 12)
    assert talk.request(known) is None
    topic = FetchResponse.FetchableTopicResponse(
        topic="orders", partitions=[FetchResponse.PartitionData(partition_index=0)]
    )
    response = FetchResponse(session_id=5, responses=[topic])
    talk.response(known, response)
    assert response.session_id == 5
    rule.expect(times=1)


# How often.


def beats(talk: Any, number: int) -> list[bool]:
    return [talk.request(exchange(HeartbeatRequest(), 4)) is not None for _ in range(number)]


def test_how_often_a_rule_fires() -> None:
    faults, talk = engine()
    rule = faults.on("Heartbeat").drop()
    for limit, fires in (
        (rule.times(2), [True, True, False, False]),
        (faults.on("Heartbeat").once().drop(), [True, False, False, False]),
        (faults.on("Heartbeat").nth(3).drop(), [False, False, True, False]),
        (faults.on("Heartbeat").every(2).drop(), [False, True, False, True]),
        (faults.on("Heartbeat").every(2).times(1).drop(), [False, True, False, False]),
    ):
        faults.rules = (limit,)
        assert beats(talk, 4) == fires
        assert (limit.matched, limit.fired) == (4, sum(fires))


def test_probability_is_the_same_for_the_same_seed() -> None:
    def fires(seed: int) -> list[bool]:
        faults, talk = engine()
        faults.on("Heartbeat").with_probability(0.3, seed=seed).drop()
        return beats(talk, 200)

    assert fires(1) == fires(1)
    assert fires(1) != fires(2)
    assert 30 < sum(fires(1)) < 90


def test_moments_and_other_rules() -> None:
    times = [100.0]
    faults, talk = engine(clock=lambda: times[-1])
    rule = faults.on("Heartbeat").between(5, 7.5).drop()
    seen = []
    for time in (104.9, 105.0, 107.4, 107.5):
        times.append(time)
        seen += beats(talk, 1)
    assert seen == [False, True, True, False]
    then = datetime(2020, 1, 1, tzinfo=UTC)
    past = faults.on("JoinGroup").between(then, then.replace(year=2021)).drop()
    present = faults.on("JoinGroup").between(then, then.replace(year=9999)).drop()
    talk.request(exchange(JoinGroupRequest(), 9))
    assert (past.fired, present.fired) == (0, 1)
    faults.clear()
    first = faults.on("Heartbeat").drop().nth(2)
    second = faults.on("JoinGroup").after(first).drop()
    talk.request(exchange(JoinGroupRequest(), 9))
    beats(talk, 2)
    talk.request(exchange(JoinGroupRequest(), 9))
    assert (rule.fired, first.fired, second.fired) == (2, 1, 1)


def test_a_rule_without_an_action_does_nothing() -> None:
    faults, talk = engine()
    rule = faults.on("Heartbeat")
    assert beats(talk, 1) == [False]
    assert rule.matched == 0
    faults.remove(rule.drop())
    assert beats(talk, 1) == [False]


# What.


def test_the_steps_of_a_delivery() -> None:
    faults, talk = engine()
    beat = exchange(HeartbeatRequest(), 4)
    frame = (20).to_bytes(4, "big") + bytes(range(20))

    def steps(*rules: Any) -> list[Any]:
        faults.rules = rules
        delivery = talk.response(beat, HeartbeatResponse())
        assert delivery is not None
        return delivery.delivery.steps(frame)

    def on() -> Any:
        return faults.on("Heartbeat")

    assert steps(on().delay(250)) == [Wait(0.25), Send(frame)]
    assert steps(on().delay(250).drop("after")) == [Wait(0.25), Disconnect()]
    assert steps(on().drop("middle")) == [Send(frame[:12]), Disconnect()]
    assert steps(on().drop("middle", at=5)) == [Send(frame[:5]), Disconnect()]
    assert steps(on().drop("middle", at=500)) == [Send(frame[:23]), Disconnect()]
    assert steps(on().trickle(10, every_ms=3)) == [
        Send(frame[:10]),
        Wait(0.003),
        Send(frame[10:20]),
        Wait(0.003),
        Send(frame[20:]),
    ]
    assert steps(on().truncate(6)) == [Send((14).to_bytes(4, "big") + frame[4:18])]
    assert steps(on().correlation_id(2)) == [Send(frame[:4] + b"\x00\x01\x02\x05" + frame[8:])]
    (flipped,) = steps(on().flip_bits(3, seed=4))
    changed = int.from_bytes(flipped.data, "big") ^ int.from_bytes(frame, "big")
    assert changed.bit_count() == 3 and flipped.data[:8] == frame[:8]
    assert [flipped] == steps(on().flip_bits(3, seed=4))
    assert steps(on().reorder(ms=500)) == [Hold(0.5)]
    faults.rules = ()
    after = talk.response(beat, HeartbeatResponse())
    assert after is not None
    assert after.delivery.steps(b"next") == [Send(b"next"), Send(frame)]
    assert talk.response(beat, HeartbeatResponse()) is None


def test_fields_are_changed_wherever_the_path_leads() -> None:
    faults, talk = engine()
    faults.on("Produce").change("acks", 1).change(
        "request.topic_data[*].partition_data[*].index", 7
    )
    one = exchange(produce(("a", 0), ("b", 1)), 9)
    verdict = talk.request(one)
    assert verdict is not None and verdict.request.acks == 1
    assert verdict.request.topic_data == produce(("a", 7), ("b", 7)).topic_data
    assert one.request == produce(("a", 0), ("b", 1))
    faults.on("Metadata", versions="7-").change("topics[0].partitions[*].leader_epoch", 9)
    partitions = [MetadataResponse.Partition(leader_epoch=n) for n in range(2)]
    response = MetadataResponse(topics=[MetadataResponse.Topic(partitions=partitions)] * 1)
    delivery = talk.response(exchange(MetadataRequest(), 7), response)
    assert delivery is not None
    assert [p.leader_epoch for p in delivery.response.topics[0].partitions] == [9, 9]
    # Nothing to change: the rule does not fire.
    assert talk.response(exchange(MetadataRequest(), 7), MetadataResponse()) is None


def test_throttle_time_and_versions_on_offer() -> None:
    faults, talk = engine()
    faults.on("Heartbeat", versions="1-").throttle(1500)
    delivery = talk.response(exchange(HeartbeatRequest(), 4), HeartbeatResponse())
    assert delivery is not None and delivery.response.throttle_time_ms == 1500
    faults.on("ApiVersions").offer({"Produce": "3-7", "Fetch": None})
    entries = [ApiVersionsResponse.ApiVersion(api_key=n, max_version=12) for n in range(3)]
    offer = talk.response(exchange(ApiVersionsRequest(), 3), ApiVersionsResponse(api_keys=entries))
    assert offer is not None
    kept = [(e.api_key, e.min_version, e.max_version) for e in offer.response.api_keys]
    assert kept == [(0, 3, 7), (2, 0, 12)]


@pytest.mark.parametrize("kind", ["crc", "count", "codec"])
def test_batches_are_corrupt_in_the_way_that_was_asked_for(kind: str) -> None:
    batch = encode_batch([Record(value=b"a"), Record(value=b"b")])
    faults, talk = engine()
    rule = faults.on("Fetch", topic="orders").corrupt(kind)
    parts = [FetchResponse.PartitionData(records=batch * 2)]
    response = FetchResponse(
        responses=[
            FetchResponse.FetchableTopicResponse(topic="other", partitions=parts),
            FetchResponse.FetchableTopicResponse(
                topic="orders", partitions=[FetchResponse.PartitionData(records=batch * 2)]
            ),
        ]
    )
    delivery = talk.response(exchange(FetchRequest(), 4), response)
    assert delivery is not None
    other, orders = delivery.response.responses
    assert other.partitions[0].records == batch * 2
    records = orders.partitions[0].records
    assert records[: len(batch)] == batch
    good, bad = list(read_headers(records))
    assert (bad.crc != good.crc) and (bad.records_count == 3) == (kind == "count")
    assert (bad.attributes & 7 == 7) == (kind == "codec")
    # The request's side: Produce. A response without batches does not count as corrupted.
    empty = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic="orders")])
    assert talk.response(exchange(FetchRequest(), 4), empty) is None
    assert rule.fired == 1
    faults.on("Produce").corrupt(kind)
    verdict = talk.request(exchange(produce(("a", 0), records=memoryview(batch)), 9))
    assert verdict is not None
    assert verdict.request.topic_data[0].partition_data[0].records == records[len(batch) :]


def test_a_black_hole_swallows_what_follows() -> None:
    """The chain of filters swallows the requests that follow."""
    faults, talk = engine()
    faults.on("Heartbeat").black_hole().once()
    verdict = talk.request(exchange(HeartbeatRequest(), 4))
    assert verdict is not None and isinstance(verdict.outcome, Silence)
    assert Talk(faults).request(exchange(HeartbeatRequest(), 4)) is None


@pytest.mark.parametrize("key", [key for key, response in PACKAGE.responses.items() if response])
def test_every_message_with_an_error_code_can_be_answered(key: int) -> None:
    """A request that names something of everything is refused, in every version."""
    info, answer = PACKAGE.requests[key], PACKAGE.responses[key]
    assert answer and info.min_version <= info.max_version
    for version in range(info.min_version, info.max_version + 1):
        faults, talk = engine()
        api = info.api_name
        places = error_places(faults.schema.shape(PACKAGE.get(answer), version))
        rule = faults.on(api, versions=version)
        if not places:
            with pytest.raises(FaultError, match="has no error code"):
                rule.answer("UNKNOWN_SERVER_ERROR")
            continue
        for place in places:
            faults.clear()
            faults.on(api, versions=version).answer("UNKNOWN_SERVER_ERROR", at=str(place))
            cls = PACKAGE.get(info.name)
            one = exchange(filled(cls, PACKAGE.layout(cls, version)), version)
            verdict = talk.request(one)
            if verdict is not None and verdict.outcome is not None:
                message = verdict.outcome
            else:
                response = PACKAGE.get(answer)
                message = filled(response, PACKAGE.layout(response, version))
                delivery = talk.response(one, message)
                assert delivery is not None, (api, version, str(place))
                message = delivery.response
            again = type(message).decode(message.encode(version), version)
            assert -1 in _codes(again, place), (api, version, str(place))


def _codes(message: Any, place: Any) -> list[int]:
    holders = [message]
    for branch in place.branches:
        holders = [e for h in holders for e in getattr(h, branch.name) or []]
    return [getattr(holder, place.attribute) for holder in holders]


def test_where_an_error_code_belongs() -> None:
    faults, talk = engine()
    commit = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequest.Topic(
                name="a", partitions=[OffsetCommitRequest.Partition(partition_index=3)]
            )
        ],
    )
    faults.on("OffsetCommit").answer("REBALANCE_IN_PROGRESS")
    verdict = talk.request(exchange(commit, 8))
    assert verdict is not None
    assert verdict.outcome.topics[0].partitions[0].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert verdict.outcome.topics[0].partitions[0].partition_index == 3
    topic = FetchRequest.FetchTopic(
        topic="a", partitions=[FetchRequest.FetchPartition(partition=0)]
    )
    for code, top in (("FETCH_SESSION_ID_NOT_FOUND", 70), ("OFFSET_OUT_OF_RANGE", 0)):
        faults.clear()
        faults.on("Fetch", versions="7-").answer(code)
        verdict = talk.request(exchange(FetchRequest(topics=[topic]), 11))
        assert verdict is not None and verdict.outcome.error_code == top


# Verify.


def test_history_and_expectations() -> None:
    faults, talk = engine()
    rule = faults.on("Heartbeat", name="no beat").drop().times(1)
    with pytest.raises(FaultNotFired, match='"no beat" did not fire at all: it matched 0 times'):
        faults.expect()
    beats(talk, 2)
    faults.expect()
    faults.expect(rule.expect(times=1))
    with pytest.raises(FaultNotFired, match="did not fire 2 times: it matched 2 times and fired 1"):
        rule.expect(times=2)
    (event,) = faults.history
    assert event.rule is rule and event.api == "Heartbeat" and event.frame == b"frame"
    assert event.action == "dropped the connection before the request was handled"
    assert (event.version, event.correlation_id, event.client_id) == (4, 7, "test")
    with pytest.raises(FaultNotFired, match="did not fire 2 times in 0 s"):
        rule.wait(times=2, timeout=0)


def test_a_fault_that_did_not_fire_says_what_came_instead() -> None:
    faults, talk = engine()
    faults.on("Heartbeat", group="other", client_id=["test", "x"]).delay(1).drop("after")
    beats(talk, 2)
    with pytest.raises(FaultNotFired) as raised:
        faults.expect()
    assert str(raised.value) == (
        'the fault "fault 1" did not fire at all: it matched 0 times and fired 0 times. It is about '
        "Heartbeat client_id='test', 'x' group='other' and does: delay_ms, drop; what came: Heartbeat "
        "group='' (2 times)"
    )
    faults.clear()
    faults.on(where="throttle_time_ms == 1")
    with pytest.raises(FaultNotFired) as raised:
        faults.expect()
    assert str(raised.value).endswith(
        "It is about every API where throttle_time_ms == 1 and has no action, such as drop(); what "
        "came: nothing"
    )


def test_another_thread_waits_for_a_rule() -> None:
    faults, talk = engine()
    rule = faults.on("Heartbeat").drop()
    waiting = threading.Thread(target=rule.wait, kwargs={"times": 3})
    waiting.start()
    beats(talk, 3)
    waiting.join(timeout=PATIENCE)
    assert not waiting.is_alive()


# Mistakes.


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda f: f.on("Prodce"), 'the API "Prodce" does not exist (did you mean "Produce"?)'),
        (
            lambda f: f.on("Produce").answer("NOT_LEADER"),
            'ErrorCode: "NOT_LEADER" does not exist (did you mean "NOT_LEADER_OR_FOLLOWER"?)',
        ),
        (
            lambda f: f.on("Produce", where='topic_data[*].nme == "a"'),
            'ProduceRequest.TopicProduceData: the field "nme" does not exist (did you mean "name"?)',
        ),
        (lambda f: f.on("Heartbeat", topic="a"), "HeartbeatRequest v0 names no topic"),
        (
            lambda f: f.on("OffsetFetch").answer("NOT_COORDINATOR", at="error_code"),
            'OffsetFetchResponse v0 has no error code at "error_code" (write versions = "2-7")',
        ),
        (
            lambda f: f.on("Produce").throttle(5),
            'ProduceResponse v0 has no throttle_time_ms (write versions = "1-13")',
        ),
        (
            lambda f: f.on("Produce", versions="1-").throttle(2**31),
            "2147483648 does not fit throttle_time_ms: 2147483648 is outside of -2147483648 to 2147483647",
        ),
        (
            lambda f: f.on("Fetch", where="topics.partitions[*].partition == 3"),
            '"topics" in the path "topics.partitions[*].partition" is an array (write "topics[*]" for '
            'every element, or "topics[0]" for the first)',
        ),
        (
            lambda f: f.on("Produce", where="acks[*] == 1"),
            '"acks" in the path "acks[*]" is not an array (write "acks" without an index)',
        ),
        (
            lambda f: f.on("Produce", where="acks.x == 1"),
            '"acks" in the path "acks.x" has no fields',
        ),
        (
            lambda f: f.on("Produce", where="acks == all"),
            '"all" is not a value of acks (write a string in double quotes: "all")',
        ),
        (
            lambda f: f.on("Produce", where="acks = 1"),
            '"acks = 1" is not a condition (write a path, an operator (== != < <= > >= in) and a value: '
            '"acks == -1")',
        ),
        (
            lambda f: f.on("Produce", where="acks in 1"),
            '"in" needs a list, not 1 (for example: error_code in [3, 6])',
        ),
        (
            lambda f: f.on("Produce", where="acks == {1"),
            "{1 is not a value (write a number, true, false, null, a string in double quotes, a list, or "
            "the name of an enum's member)",
        ),
        (
            lambda f: f.on("Produce", where="a-b == 1"),
            '"a-b" in the path "a-b" is not a field (write a path such as '
            '"topics[*].partitions[0].leader_id")',
        ),
        (
            lambda f: f.on("Fetch", where="isolation_level == READ_COMMITED"),
            'IsolationLevel: "READ_COMMITED" does not exist (did you mean "READ_COMMITTED"?)',
        ),
        (
            lambda f: f.on("Fetch", where="isolation_level == READ_COMMITTED"),
            'FetchRequest v0 has no isolation_level (write versions = "4-18")',
        ),
        (
            lambda f: f.on("Produce").advance_clock(5),
            "only krammar's broker has a clock to set (use krammar broker --faults)",
        ),
        (
            lambda f: f.on("Produce", principal="User:a"),
            "only krammar's broker knows the principal of a client (select by client_id, or use krammar "
            "broker --faults)",
        ),
        (
            lambda f: f.on("Heartbeat", where="response.error_code == 27", name="r").drop(),
            'the rule "r" looks at the response, so it cannot act on the request (use an action on the '
            "response, or a condition on the request)",
        ),
        (
            lambda f: f.on("Fetch").offer({"Produce": "3-4"}),
            'Fetch does not offer versions (write api = "ApiVersions")',
        ),
        (
            lambda f: f.on("ApiVersions").offer({"Produc": "3-4"}),
            'the API "Produc" does not exist (did you mean "Produce"?)',
        ),
        (
            lambda f: f.on("Produce", versions="20-"),
            "Produce has no version 20 or newer (it has the versions 0 to 13)",
        ),
        (
            lambda f: f.on("Produce", versions="new"),
            '"new" is not a range of versions (write 7, "3-7" or "3-")',
        ),
        (
            lambda f: f.on("Produce").drop("midle"),
            'drop cannot be "midle" (did you mean "middle"?)',
        ),
        (lambda f: f.on("Heartbeat").corrupt(), "Heartbeat v0 has no record batches"),
        (
            lambda f: f.on("Fetch").corrupt("crcc"),
            'corrupt cannot be "crcc" (did you mean "crc"?)',
        ),
        (
            lambda f: f.on("Metadata").change("brokers[*].prt", 5),
            'MetadataResponse.Broker: the field "prt" does not exist (did you mean "port"?)',
        ),
        (
            lambda f: f.on("Metadata").change("brokers[*].port", "a"),
            "\"a\" does not fit brokers[*].port: needs an integer, not str 'a'",
        ),
        (lambda f: f.on("Fetch").times(0), "times must be a whole number from 1, not 0"),
        (
            lambda f: f.on("Fetch").with_probability(2),
            "probability must be from 0 to 1, not 2",
        ),
        (lambda f: f.on("Fetch").between(3, 2), "2 is not after 3"),
        (
            lambda f: f.on("Fetch").between(3, "x"),
            "3 and x are not two moments (write two numbers of seconds, or two dates with times)",
        ),
        (lambda f: f.on("Fetch").delay(-1), "delay_ms must be at least 0, not -1"),
        (
            lambda f: f.on("Fetch").delay(1, of="reply"),
            'of cannot be "reply" (write request or response)',
        ),
        (lambda f: f.on("Fetch").trickle(0, every_ms=1), "bytes must be at least 1, not 0"),
        (lambda f: f.on("Fetch").truncate(0), "truncate must be at least 1, not 0"),
        (lambda f: f.on("Fetch").flip_bits(0), "flip_bits must be at least 1, not 0"),
        (
            lambda f: f.on("Fetch").correlation_id(0),
            "correlation_id must not be 0: the response would have the right one",
        ),
        (
            lambda f: f.on("Fetch").drop("middle", at=float("inf")),
            "at must be a number of bytes, or a share below 1",
        ),
        (
            lambda f: f.on("Produce").answer(70000),
            "70000 is not an error code: it needs 16 bits",
        ),
        (
            lambda f: f.on("ApiVersions").offer({"Produce": "40000"}),
            '"40000" is not a range of versions (write 7, "3-7" or "3-")',
        ),
        (
            lambda f: f.on("Produce").change("response.responses", [{"name": "orders"}]),
            "response.responses contains structs, which cannot be replaced (change their fields, one by one)",
        ),
        (lambda f: f.on("Fetch", topic=5), "5 is not a string"),
        (lambda f: f.on("Fetch", partition="x"), "'x' is not a whole number"),
    ],
)
def test_a_rule_that_cannot_apply_is_an_error(make: Any, message: str) -> None:
    faults, talk = engine()
    with pytest.raises(FaultError) as error:
        make(faults)
    assert str(error.value) == message
    assert talk.request(exchange(produce(("a", 0)), 9)) is None  # nothing half-made acts


def test_the_fields_of_an_action_are_the_arguments_of_its_method() -> None:
    assert str(signature(Rule.flip_bits)) == "(self, /, count: int = 1, *, seed: int = 0) -> 'Rule'"
    assert (Rule.flip_bits.__doc__ or "").startswith("Flip bits of the response")
    faults, _ = engine()
    with pytest.raises(FaultError, match="ms needs a number"):
        faults.on("Fetch").delay("5")  # type: ignore[arg-type]
    with pytest.raises(FaultError, match="versions needs a table"):
        faults.on("ApiVersions").offer("3-7")  # type: ignore[arg-type]
