"""Writes orders to a topic with confluent-kafka."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import chain
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from examples.pipeline.events import Event, Tally, closing_order
from examples.pipeline.report import Report

TOPIC = "orders"
PARTITIONS = 4

# Discards librdkafka's log, which would mix with the demo's output.
QUIET = logging.getLogger("demo.librdkafka")
QUIET.addHandler(logging.NullHandler())
QUIET.propagate = False


def create_topic(bootstrap: str) -> None:
    """Create the topic without retention, because the broker would delete orders of a day in the past."""
    admin = AdminClient({"bootstrap.servers": bootstrap}, logger=QUIET)
    topic = NewTopic(TOPIC, PARTITIONS, config={"retention.ms": "-1", "segment.bytes": "4194304"})
    for created in admin.create_topics([topic]).values():
        created.result(20)


def produce(bootstrap: str, events: Iterable[Event], report: Report) -> Tally:
    """Write the events, keyed by customer, and the order that ends the day.

    Returns:
        The sums of the written orders.

    Raises:
        KafkaException: an order was not acknowledged.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "compression.type": "zstd",
            "linger.ms": 20,
        },
        logger=QUIET,
    )
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Any) -> None:
        if error is not None:
            failures.append(error)

    tally = Tally()
    for number, event in enumerate(chain(events, [closing_order()]), 1):
        tally.add(event)
        order = event.order
        # If the queue is full, poll processes acknowledgements.
        while True:
            try:
                producer.produce(
                    TOPIC,
                    key=f"customer-{order.customer}",
                    value=order.encode(),
                    headers={"channel": event.channel},
                    timestamp=event.time_ms,
                    on_delivery=delivered,
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
        if number % 50_000 == 0:
            report.say(f"{number:,} orders")
    left = producer.flush(60)
    if failures:
        raise KafkaException(failures[0])
    if left:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"{left} orders not acknowledged"))
    return tally
