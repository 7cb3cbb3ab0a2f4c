"""Three Kafka clients with the same few methods.

A method returns the results for a program: the values that it reads, and the names of errors. Settings are
the clients' own defaults unless a situation says otherwise.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import queue
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiokafka
import confluent_kafka
import kafka
from aiokafka.errors import KafkaError as AioKafkaError
from kafka.errors import KafkaError as PythonError

from tests.support.waiting import PATIENCE

TOPIC = "orders"
# Seconds after which a consumer in a process of its own counts as stuck; others take one or two.
APART = 15.0
# A consumer that raises so many errors one after the other never reads on.
ERRORS = 3


@dataclass(slots=True)
class Read:
    """What a consumer got: values in order, and names of errors."""

    values: list[bytes] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Options:
    """What situations set. Times are in milliseconds, None is the client's default."""

    idempotent: bool | None = None
    request_ms: int | None = None
    delivery_ms: int | None = None
    user: str | None = None
    read_committed: bool = False


class Client:
    """A client; ``name`` is also its client id."""

    name: str

    def produce(self, servers: str, values: Sequence[bytes], options: Options) -> list[str]:
        """Send values one after the other. Returns an error's name, or "", for each."""
        raise NotImplementedError

    def transaction(self, servers: str, values: Sequence[bytes]) -> str:
        """Send values in a transaction and commit it. Returns the name of commit's error, or ""."""
        raise NotImplementedError

    def consume(self, servers: str, number: int, options: Options) -> Read:
        """Read from the beginning until so many values or an error and a value have come."""
        raise NotImplementedError

    def commit(self, servers: str) -> str:
        """Read one value and commit its offset. Returns the name of an error, or ""."""
        raise NotImplementedError


class Confluent(Client):
    name = "confluent-kafka"

    def _settings(self, servers: str, options: Options, **more: Any) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "bootstrap.servers": servers,
            "client.id": self.name,
            "log_level": 0,
            "error_cb": lambda error: None,
        }
        if options.user is not None:
            settings |= {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanisms": "PLAIN",
                "sasl.username": options.user,
                "sasl.password": "secret",
            }
        return settings | more

    def _producer(self, servers: str, options: Options, **more: Any) -> confluent_kafka.Producer:
        if options.idempotent is not None:
            more["enable.idempotence"] = options.idempotent
        if options.request_ms is not None:
            more |= {
                "request.timeout.ms": options.request_ms,
                "socket.timeout.ms": options.request_ms,
            }
        if options.delivery_ms is not None:
            more["delivery.timeout.ms"] = options.delivery_ms
        return confluent_kafka.Producer(self._settings(servers, options, **more))

    def produce(self, servers: str, values: Sequence[bytes], options: Options) -> list[str]:
        producer = self._producer(servers, options)
        outcomes: list[str] = []

        def delivered(error: confluent_kafka.KafkaError | None, message: object) -> None:
            outcomes.append("" if error is None else error.name())

        for value in values:
            producer.produce(TOPIC, value, on_delivery=delivered)
            producer.flush(PATIENCE)
        return outcomes

    def transaction(self, servers: str, values: Sequence[bytes]) -> str:
        more = {"transactional.id": "t", "transaction.timeout.ms": 60_000}
        producer = self._producer(servers, Options(), **more)
        producer.init_transactions(PATIENCE)
        producer.begin_transaction()
        for value in values:
            producer.produce(TOPIC, value)
        producer.flush(PATIENCE)
        try:
            producer.commit_transaction(PATIENCE)
        except confluent_kafka.KafkaException as error:
            return str(error.args[0].name())
        return ""

    def _consumer(self, servers: str, options: Options) -> confluent_kafka.Consumer:
        more: dict[str, Any] = {
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            # Its own default is read_committed.
            "isolation.level": "read_committed" if options.read_committed else "read_uncommitted",
        }
        consumer = confluent_kafka.Consumer(self._settings(servers, options, **more))
        consumer.subscribe([TOPIC])
        return consumer

    def consume(self, servers: str, number: int, options: Options) -> Read:
        consumer = self._consumer(servers, options)
        read = Read()
        while len(read.values) < number and len(read.errors) < ERRORS:
            message = consumer.poll(PATIENCE)
            if message is None:
                break
            if (error := message.error()) is not None:
                read.errors.append(error.name())
            else:
                read.values.append(message.value() or b"")
        consumer.close()
        return read

    def commit(self, servers: str) -> str:
        consumer = self._consumer(servers, Options())
        message = None
        while message is None:
            message = consumer.poll(PATIENCE)
        try:
            consumer.commit(message, asynchronous=False)
        except confluent_kafka.KafkaException as error:
            return str(error.args[0].name())
        finally:
            consumer.close()
        return ""


class AioKafka(Client):
    name = "aiokafka"

    def _settings(self, servers: str, options: Options) -> dict[str, Any]:
        settings: dict[str, Any] = {"bootstrap_servers": servers, "client_id": self.name}
        if options.user is not None:
            settings |= {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "PLAIN",
                "sasl_plain_username": options.user,
                "sasl_plain_password": "secret",
            }
        return settings

    def _run(self, client: Any, use: Callable[[Any], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            made = client()
            await made.start()
            try:
                return await use(made)
            finally:
                await made.stop()

        return asyncio.run(run())

    def _producer(self, servers: str, options: Options, **more: Any) -> Any:
        if options.idempotent is not None:
            more["enable_idempotence"] = options.idempotent
        if options.delivery_ms or options.request_ms:  # one setting for both
            more["request_timeout_ms"] = options.delivery_ms or options.request_ms
        return lambda: aiokafka.AIOKafkaProducer(**self._settings(servers, options), **more)

    def produce(self, servers: str, values: Sequence[bytes], options: Options) -> list[str]:
        async def send(producer: aiokafka.AIOKafkaProducer) -> list[str]:
            outcomes = []
            for value in values:
                try:
                    await asyncio.wait_for(producer.send_and_wait(TOPIC, value), PATIENCE)
                    outcomes.append("")
                except AioKafkaError as error:
                    outcomes.append(type(error).__name__)
            return outcomes

        outcomes: list[str] = self._run(self._producer(servers, options), send)
        return outcomes

    def transaction(self, servers: str, values: Sequence[bytes]) -> str:
        async def run(producer: aiokafka.AIOKafkaProducer) -> str:
            await producer.begin_transaction()
            for value in values:
                await producer.send_and_wait(TOPIC, value)
            try:
                await asyncio.wait_for(producer.commit_transaction(), PATIENCE)
            except AioKafkaError as error:
                return type(error).__name__
            return ""

        more = {"transactional_id": "t", "transaction_timeout_ms": 60_000}
        outcome: str = self._run(self._producer(servers, Options(), **more), run)
        return outcome

    def _consumer(self, servers: str, options: Options) -> Any:
        return lambda: aiokafka.AIOKafkaConsumer(
            TOPIC,
            **self._settings(servers, options),
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed" if options.read_committed else "read_uncommitted",
        )

    def consume(self, servers: str, number: int, options: Options) -> Read:
        async def read(consumer: aiokafka.AIOKafkaConsumer) -> Read:
            read = Read()
            while len(read.values) < number and len(read.errors) < ERRORS:
                try:
                    message = await asyncio.wait_for(consumer.getone(), PATIENCE)
                    read.values.append(message.value or b"")
                except AioKafkaError as error:
                    read.errors.append(type(error).__name__)
            return read

        result: Read = self._run(self._consumer(servers, options), read)
        return result

    def commit(self, servers: str) -> str:
        async def commit(consumer: aiokafka.AIOKafkaConsumer) -> str:
            await asyncio.wait_for(consumer.getone(), PATIENCE)
            try:
                await asyncio.wait_for(consumer.commit(), PATIENCE)
            except AioKafkaError as error:
                return type(error).__name__
            return ""

        outcome: str = self._run(self._consumer(servers, Options()), commit)
        return outcome


class KafkaPython(Client):
    name = "kafka-python"

    def _settings(self, servers: str, options: Options) -> dict[str, Any]:
        settings: dict[str, Any] = {"bootstrap_servers": servers, "client_id": self.name}
        if options.user is not None:
            settings |= {
                "security_protocol": "SASL_PLAINTEXT",
                "sasl_mechanism": "PLAIN",
                "sasl_plain_username": options.user,
                "sasl_plain_password": "secret",
            }
        return settings

    def _producer(self, servers: str, options: Options, **more: Any) -> kafka.KafkaProducer:
        if options.idempotent is not None:
            more["enable_idempotence"] = options.idempotent
        if options.request_ms is not None:
            more["request_timeout_ms"] = options.request_ms
        if options.delivery_ms is not None:
            more["delivery_timeout_ms"] = options.delivery_ms
        return kafka.KafkaProducer(**self._settings(servers, options), **more)

    def produce(self, servers: str, values: Sequence[bytes], options: Options) -> list[str]:
        producer = self._producer(servers, options)
        outcomes = []
        for value in values:
            try:
                producer.send(TOPIC, value).get(timeout=PATIENCE)
                outcomes.append("")
            except PythonError as error:
                outcomes.append(type(error).__name__)
        producer.close(timeout=1)
        return outcomes

    def transaction(self, servers: str, values: Sequence[bytes]) -> str:
        more = {"transactional_id": "t", "transaction_timeout_ms": 60_000}
        producer = self._producer(servers, Options(), **more)
        producer.init_transactions()
        producer.begin_transaction()
        for value in values:
            producer.send(TOPIC, value).get(timeout=PATIENCE)
        try:
            producer.commit_transaction()
        except PythonError as error:
            return type(error).__name__
        finally:
            producer.close(timeout=1)
        return ""

    def _consumer(self, servers: str, options: Options) -> kafka.KafkaConsumer:
        return kafka.KafkaConsumer(
            TOPIC,
            **self._settings(servers, options),
            group_id="g",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed" if options.read_committed else "read_uncommitted",
        )

    def consume(self, servers: str, number: int, options: Options) -> Read:
        consumer = self._consumer(servers, options)
        read = Read()
        while len(read.values) < number and len(read.errors) < ERRORS:
            try:
                if not (polled := consumer.poll(timeout_ms=int(PATIENCE * 1000))):
                    break
                read.values += [m.value for messages in polled.values() for m in messages]
            except PythonError as error:
                read.errors.append(type(error).__name__)
        consumer.close()
        return read

    def commit(self, servers: str) -> str:
        consumer = self._consumer(servers, Options())
        while not consumer.poll(timeout_ms=int(PATIENCE * 1000)):
            pass
        try:
            consumer.commit(timeout_ms=int(PATIENCE * 1000))
        except PythonError as error:
            return type(error).__name__
        finally:
            consumer.close()
        return ""


CLIENTS = (Confluent(), AioKafka(), KafkaPython())


def consume_apart(client: Client, servers: str, number: int, options: Options) -> Read | None:
    """``consume`` in a process of its own. Returns None if it does not end.

    kafka-python 3.0.12 never returns from ``poll`` after a corrupt batch, and a thread cannot be ended.
    """
    context = multiprocessing.get_context("spawn")
    result: multiprocessing.Queue[Read] = context.Queue()
    process = context.Process(
        target=_consume, args=(CLIENTS.index(client), servers, number, options, result)
    )
    process.start()
    try:
        return result.get(timeout=APART)
    except queue.Empty:
        return None
    finally:
        process.kill()
        process.join()


def _consume(
    index: int, servers: str, number: int, options: Options, result: multiprocessing.Queue[Read]
) -> None:
    result.put(CLIENTS[index].consume(servers, number, options))
