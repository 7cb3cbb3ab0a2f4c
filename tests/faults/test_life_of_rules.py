"""The end of rules, the remains of refused rules, and the events in the history."""

from __future__ import annotations

from typing import Any

import pytest
from kafka_wire import (
    ErrorCode,
    FetchRequest,
    FetchResponse,
    FindCoordinatorRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    OffsetFetchRequest,
    ProduceRequest,
    ProduceResponse,
)

from krammar.faults import FaultError
from tests.faults.support import Talk, engine, exchange


def fetch(*topics: str, session_id: int = 0) -> FetchRequest:
    part = FetchRequest.FetchPartition(partition=0, fetch_offset=5)
    return FetchRequest(
        session_id=session_id,
        topics=[FetchRequest.FetchTopic(topic=each, partitions=[part]) for each in topics],
    )


def keeps_sessions(talk: Talk) -> bool:
    """Whether an incremental fetch passes, and a response may open a session."""
    verdict = talk.request(exchange(fetch(session_id=3), 11))
    if verdict is not None and verdict.outcome is not None:
        assert verdict.outcome.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        return False
    known = exchange(fetch("orders"), 11)
    talk.request(known)
    response = FetchResponse(session_id=7)
    talk.response(known, response)
    return response.session_id == 7


@pytest.mark.parametrize("limit", ["times", "once", "nth"])
def test_a_rule_that_cannot_fire_any_more_leaves_fetch_sessions_alone(limit: str) -> None:
    faults, talk = engine()
    rule = faults.on("Fetch", topic="orders")
    {"times": lambda: rule.times(2), "once": rule.once, "nth": lambda: rule.nth(2)}[limit]()
    rule.answer("OFFSET_OUT_OF_RANGE")
    assert not keeps_sessions(talk)
    while rule.fired < (2 if limit == "times" else 1):
        talk.request(exchange(fetch("orders"), 11))
    assert keeps_sessions(talk)


def test_a_rule_whose_time_has_passed_leaves_fetch_sessions_alone() -> None:
    now = [100.0]
    faults, talk = engine(clock=lambda: now[0])
    faults.on("Fetch", topic="orders").between(1, 2).answer("OFFSET_OUT_OF_RANGE")
    assert not keeps_sessions(talk)
    now[0] = 102.0
    assert keeps_sessions(talk)


def test_conditions_on_elements_see_every_fetch() -> None:
    faults, talk = engine()
    rule = faults.on("Fetch", where="topics[*].partitions[*].fetch_offset == 5")
    rule.answer("OFFSET_OUT_OF_RANGE")
    assert not keeps_sessions(talk)
    talk.request(exchange(fetch("orders"), 11))
    assert rule.fired == 1
    faults, talk = engine()
    faults.on("Fetch", where="max_wait_ms == 0").delay(1)
    assert keeps_sessions(talk)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda rule: rule.throttle(5),
        lambda rule: rule.delay(5).times(0),
        lambda rule: rule.delay(5).nth(0),
        lambda rule: rule.drop().between(2, 1),
        lambda rule: rule.drop().every("x"),
        lambda rule: rule.drop().with_probability(2),
    ],
)
def test_a_rule_that_is_refused_does_not_stay(wrong: Any) -> None:
    faults, _ = engine()
    with pytest.raises(FaultError):
        wrong(faults.on("Produce"))
    assert faults.rules == ()
    faults.expect()


def test_the_history_has_the_answer() -> None:
    faults, talk = engine()
    faults.on("Heartbeat").answer("NOT_COORDINATOR")
    known = exchange(HeartbeatRequest(), 4)
    verdict = talk.request(known)
    assert verdict is not None
    (event,) = faults.history
    assert event.response == HeartbeatResponse(error_code=ErrorCode.NOT_COORDINATOR)


def produce(*topics: str) -> ProduceRequest:
    part = ProduceRequest.PartitionProduceData(index=0, records=b"")
    return ProduceRequest(
        acks=1,
        topic_data=[ProduceRequest.TopicProduceData(name=t, partition_data=[part]) for t in topics],
    )


def test_the_history_has_the_response_of_a_part_that_was_refused() -> None:
    faults, talk = engine()
    faults.on("Produce", topic="orders").answer("NOT_LEADER_OR_FOLLOWER")
    known = exchange(produce("orders", "other"), 9)
    talk.request(known)
    talk.response(known, ProduceResponse(responses=[]))
    (event,) = faults.history
    assert [each.name for each in event.response.responses] == ["orders"]


def answered(request: Any, version: int, code: str) -> Any:
    faults, talk = engine()
    faults.on(type(request)).answer(code)
    verdict = talk.request(exchange(request, version))
    assert verdict is not None
    return verdict.outcome


def test_made_up_responses_have_no_offsets_and_no_nodes() -> None:
    response = answered(produce("orders"), 9, "NOT_LEADER_OR_FOLLOWER")
    assert response.responses[0].partition_responses[0].base_offset == -1
    (topic,) = answered(fetch("orders"), 11, "NOT_LEADER_OR_FOLLOWER").responses
    assert topic.partitions[0].high_watermark == -1
    found = answered(FindCoordinatorRequest(key="g"), 2, "COORDINATOR_NOT_AVAILABLE")
    assert (found.node_id, found.host, found.port) == (-1, "", -1)
    asked = OffsetFetchRequest(
        group_id="g",
        topics=[OffsetFetchRequest.Topic(name="t", partition_indexes=[0])],
    )
    (topic,) = answered(asked, 5, "UNSTABLE_OFFSET_COMMIT").topics
    assert topic.partitions[0].committed_offset == -1


def test_wait_names_what_its_number_means() -> None:
    faults, _ = engine()
    rule = faults.on("Fetch").delay(1)
    with pytest.raises(TypeError, match=r"write wait\(times=5\) or wait\(timeout=5\)"):
        rule.wait(5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda rule: rule.nth(2).times(3), "nth(2) fires once, so it cannot fire 3 times"),
        (lambda rule: rule.times(3).nth(2), "nth(2) fires once, so it cannot fire 3 times"),
        (lambda rule: rule.nth(3).every(2), "nth(3) and every(2) select different matches"),
        (lambda rule: rule.every(2).nth(3), "nth(3) and every(2) select different matches"),
    ],
)
def test_limits_that_contradict_each_other(make: Any, message: str) -> None:
    faults, _ = engine()
    with pytest.raises(FaultError) as error:
        make(faults.on("Fetch"))
    assert str(error.value) == f"{message} (leave one of them out)"
    faults.on("Fetch").nth(4).every(2).once()


def test_topics_by_pattern() -> None:
    faults, talk = engine()
    rule = faults.on("Produce", topic=["ord*", "x?"]).answer("NOT_LEADER_OR_FOLLOWER")
    for topic, fires in (("orders", 1), ("border", 0), ("x1", 1), ("x12", 0), ("ord", 1)):
        before = rule.fired
        talk.request(exchange(produce(topic), 9))
        assert rule.fired - before == fires, topic
