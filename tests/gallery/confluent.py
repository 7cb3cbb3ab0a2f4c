"""confluent-kafka (librdkafka) with short time-outs, for the tests of its bugs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import Consumer, Message, Producer

from tests.support.waiting import PATIENCE

# Clients look for new leaders and coordinators soon, and send each record at once.
_SOON = {
    "retry.backoff.ms": 50,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 50,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "log_level": 0,
    "error_cb": lambda error: None,
}


def producer(servers: str, **settings: Any) -> Producer:
    """A producer that is idempotent; settings with underscores for dots."""
    more = {name.replace("_", "."): value for name, value in settings.items()}
    basic = {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 0}
    return Producer({**basic, **_SOON, **more})


@contextlib.contextmanager
def consumer(servers: str, **settings: Any) -> Iterator[Consumer]:
    """A consumer of group ``g`` that begins at the earliest record and commits only if the test commits."""
    more = {name.replace("_", "."): value for name, value in settings.items()}
    basic = {
        "bootstrap.servers": servers,
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 100,
        "fetch.error.backoff.ms": 20,
        "coordinator.query.interval.ms": 200,
    }
    made = Consumer({**basic, **_SOON, **more})
    try:
        yield made
    finally:
        made.close()


class Sent:
    """The outcomes of a producer's records, in the order of its reports."""

    def __init__(self) -> None:
        self.stored: list[bytes] = []
        self.failed: dict[bytes, str] = {}

    def __call__(self, error: Any, message: Message) -> None:
        value = message.value() or b""
        if error is None:
            self.stored.append(value)
        else:
            self.failed[value] = error.name()


def read(consumer: Consumer, count: int) -> list[bytes]:
    """Poll until ``count`` records have come, or for ``PATIENCE`` seconds. Returns their values."""
    values: list[bytes] = []
    until = time.monotonic() + PATIENCE
    while len(values) < count and time.monotonic() < until:
        message = consumer.poll(0.1)
        if message is not None and not message.error():
            values.append(message.value() or b"")
    return values


def poll_until(poll: Callable[[float], object], done: Callable[[], bool]) -> bool:
    """Poll until something is done, or for ``PATIENCE`` seconds. Returns whether it is done."""
    until = time.monotonic() + PATIENCE
    while not done() and time.monotonic() < until:
        poll(0.05)
    return done()
