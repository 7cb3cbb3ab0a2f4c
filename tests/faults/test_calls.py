"""Functions as actions, values that are computed, and lists of answers."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import pytest
from kafka_wire import (
    ErrorCode,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
)

from krammar.faults import FaultError
from krammar.testing import KafkaBroker
from tests.broker.support import RawClient
from tests.faults.support import Talk, engine, exchange
from tests.faults.test_broker import codes, produce
from tests.faults.test_file import read


def beat(talk: Talk) -> int:
    """Return the code that a heartbeat gets; 0 if it passes."""
    verdict = talk.request(exchange(HeartbeatRequest(group_id="g", member_id="m"), 4))
    if verdict is None or verdict.outcome is None:
        return 0
    return int(verdict.outcome.error_code)


def test_a_list_has_an_answer_for_each_match() -> None:
    faults, talk = engine()
    rule = faults.on("Heartbeat").answer([27, None, "NOT_COORDINATOR"])
    assert [beat(talk) for _ in range(5)] == [27, 0, 16, 0, 0]
    rule.expect(times=3)
    assert [event.action for event in faults.history] == [
        "answered REBALANCE_IN_PROGRESS",
        "let the request pass",
        "answered NOT_COORDINATOR",
    ]
    faults.clear()
    faults.on("Heartbeat").times(5).answer([27, None])
    assert [beat(talk) for _ in range(7)] == [27, 0, 27, 0, 27, 0, 0]


def test_a_list_of_a_file(tmp_path: Path) -> None:
    faults = read(
        tmp_path,
        """
        [[fault]]
        api = "Heartbeat"
        answer = ["REBALANCE_IN_PROGRESS", false, 16]
        """,
    )
    talk = Talk(faults)
    assert [beat(talk) for _ in range(4)] == [27, 0, 16, 0]


def test_a_list_of_answers_after_the_request_was_handled() -> None:
    faults, talk = engine()
    faults.on("Metadata").answer([ErrorCode.LEADER_NOT_AVAILABLE, None])
    found = []
    for _ in range(2):
        known = exchange(MetadataRequest(), 9)
        assert talk.request(known) is None
        topic = MetadataResponse.Topic(name="orders")
        response = MetadataResponse(topics=[topic])
        talk.response(known, response)
        found.append(topic.error_code)
    assert found == [5, 0]


def test_a_function_decides_with_state() -> None:
    faults, talk = engine()
    numbers = count(1)

    def every_third(request: HeartbeatRequest, exchange: Any) -> str | None:
        assert (exchange.client_id, request.group_id) == ("test", "g")
        return "REBALANCE_IN_PROGRESS" if next(numbers) % 3 == 0 else None

    rule = faults.on("Heartbeat").call(every_third)
    assert [beat(talk) for _ in range(6)] == [0, 0, 27, 0, 0, 27]
    assert rule.fired == 6 and faults.history[0].action == "called every_third"


def test_a_function_changes_answers_and_responds() -> None:
    faults, talk = engine()

    def rename(request: HeartbeatRequest, exchange: Any) -> None:
        request.group_id += "-2"

    def respond(request: HeartbeatRequest, exchange: Any) -> HeartbeatResponse:
        return HeartbeatResponse(throttle_time_ms=len(request.group_id))

    def count_up(response: HeartbeatResponse, exchange: Any) -> None:
        response.throttle_time_ms += exchange.version

    faults.on("Heartbeat").call(rename).times(1)
    known = exchange(HeartbeatRequest(group_id="g"), 4)
    verdict = talk.request(known)
    assert verdict is not None
    assert verdict.request.group_id == "g-2" and verdict.received.group_id == "g"
    faults.clear()
    faults.on("Heartbeat").call(respond)
    faults.on("Heartbeat").call(count_up, of="response")
    known = exchange(HeartbeatRequest(group_id="abc"), 4)
    verdict = talk.request(known)
    assert verdict is not None
    assert verdict.response == HeartbeatResponse(throttle_time_ms=3 + 4)


def test_a_function_refuses_a_part_in_a_broker() -> None:
    def largest(request: ProduceRequest, exchange: Any) -> ErrorCode | None:
        return ErrorCode.MESSAGE_TOO_LARGE if exchange.connection.number else None

    with KafkaBroker.start(topics={"orders": 2}) as broker, RawClient(broker.port) as client:
        broker.faults.on("Produce", topic="orders", partition=1).call(largest)
        assert codes(client.call(produce(0, 1), 9)) == {0: 0, 1: 10}


def test_a_function_that_fails_closes_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    def fail(request: Any, exchange: Any) -> None:
        raise ZeroDivisionError("oh")

    def wrong(request: Any, exchange: Any) -> Any:
        return MetadataRequest()

    with KafkaBroker.start() as broker:
        for function, text in (
            (fail, "raised ZeroDivisionError: oh"),
            (wrong, "the function of call returned MetadataRequest for Heartbeat (return None"),
        ):
            caplog.clear()
            broker.faults.clear()
            broker.faults.on("Heartbeat").call(function)
            with RawClient(broker.port) as client, pytest.raises(ConnectionError):
                client.call(HeartbeatRequest(group_id="g"), 4)
            assert text in caplog.records[-1].getMessage()


def test_values_are_computed_from_the_request() -> None:
    faults, talk = engine()
    faults.on("Heartbeat", versions="1-").change(
        "response.throttle_time_ms", lambda request: request.generation_id * 2
    )
    known = exchange(HeartbeatRequest(generation_id=21), 4)
    talk.request(known)
    delivery = talk.response(known, HeartbeatResponse())
    assert delivery is not None and delivery.response.throttle_time_ms == 42


def test_what_is_refused() -> None:
    faults, _ = engine()
    for make, message in (
        (lambda rule: rule.call("x"), "call needs a function, not x"),
        (lambda rule: rule.answer([]), "answer needs at least one code"),
        (lambda rule: rule.answer([1, "NOT_LEADER"]), 'ErrorCode: "NOT_LEADER" does not exist'),
        (lambda rule: rule.answer({3}), "code needs a whole number or a string or an array"),
    ):
        with pytest.raises(FaultError) as error:
            make(faults.on("Heartbeat"))  # type: ignore[no-untyped-call]
        assert str(error.value).startswith(message)
