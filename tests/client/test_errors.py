"""Errors: one class for each of Kafka's codes."""

from __future__ import annotations

import pickle

import pytest
from kafka_wire import ErrorCode

from krammar.client import errors
from krammar.client.deadline import Backoff, Deadline
from krammar.client.errors import (
    AdvertisedAddressError,
    AuthenticationError,
    ClientError,
    CorruptBatchError,
    DeadlineError,
    KafkaError,
    OffsetOutOfRange,
    SettingsError,
    TransportError,
    TruncatedError,
    UnreachableError,
    class_of,
    kafka_error,
)


@pytest.mark.parametrize("code", [code for code in ErrorCode if code])
def test_each_code_has_a_class_that_names_it(code: ErrorCode) -> None:
    error = kafka_error(code, "orders-3")
    assert type(error) is class_of(code) is not KafkaError
    assert getattr(errors, type(error).__name__) is type(error)
    assert (error.code, error.name, error.retriable) == (code, code.name, code.retriable)
    meaning = code.meaning.removesuffix(".")
    assert meaning
    assert str(error) == f"orders-3: {code.name} ({int(code)}): {meaning}"


def test_a_code_that_is_not_known_keeps_its_number() -> None:
    error = kafka_error(999, "x")
    assert (type(error), error.code, error.name) == (KafkaError, 999, "UNKNOWN_CODE_999")
    assert not error.retriable
    assert str(error) == "x: UNKNOWN_CODE_999 (999)"


@pytest.mark.parametrize(
    "error",
    [
        kafka_error(ErrorCode.NOT_COORDINATOR, "g"),
        kafka_error(999),
        OffsetOutOfRange(topic="t", partition=1, offset=5, log_start_offset=7, end_offset=9),
        TruncatedError("t", 0, 9, 5),
        CorruptBatchError("t", 0, 9, None, "crc"),
        SettingsError("acks", "no"),
        UnreachableError({"a:1": "refused"}),
        AdvertisedAddressError("a:1", {"b:1": "refused"}),
        TransportError("a:1", "cut"),
        AuthenticationError("a:1", "no"),
        DeadlineError("x", 5.0),
    ],
)
def test_errors_cross_processes(error: ClientError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert copy.__dict__ == error.__dict__
    assert copy.retriable == error.retriable


def test_pauses_grow_up_to_a_limit() -> None:
    backoff = Backoff(100, 1000)
    for nominal in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
        assert nominal * 0.8 <= backoff.next() <= nominal * 1.2


def test_what_cannot_be_helped_is_not_tried_again() -> None:
    error = kafka_error(ErrorCode.INVALID_PARTITIONS)
    with pytest.raises(class_of(ErrorCode.INVALID_PARTITIONS)):
        Backoff(0, 0).delay(Deadline(1000, "x"), error)


def test_retries_are_counted() -> None:
    backoff, deadline = Backoff(0, 0, retries=2), Deadline(60_000, "x")
    error = kafka_error(ErrorCode.NOT_COORDINATOR)
    backoff.delay(deadline, error)
    backoff.delay(deadline, error)
    with pytest.raises(class_of(ErrorCode.NOT_COORDINATOR)):
        backoff.delay(deadline, error)


def test_a_missing_topic_is_asked_for_again_after_other_errors() -> None:
    backoff, deadline = Backoff(0, 0), Deadline(60_000, "x")
    for _ in range(9):
        backoff.delay(deadline, kafka_error(ErrorCode.NOT_COORDINATOR))
    missing = kafka_error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "t")
    for _ in range(4):
        backoff.delay(deadline, missing)
    with pytest.raises(class_of(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)):
        backoff.delay(deadline, missing)


def test_the_deadline_names_the_last_error() -> None:
    error = kafka_error(ErrorCode.NOT_COORDINATOR, "group g")
    with pytest.raises(DeadlineError, match=r"committing: .*NOT_COORDINATOR") as caught:
        Backoff(100, 100).delay(Deadline(10, "committing"), error)
    assert caught.value.last is error
    assert isinstance(caught.value, TimeoutError)
