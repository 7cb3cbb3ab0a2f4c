"""A client for Wafka, a protocol that appends strings to partitions of topics.

```python
from krammar.client.wafka import WafkaClient

with WafkaClient("localhost", 9095) as client:
    offset = client.produce("greetings", ["hello", "world"])
    last = client.partition_count("greetings") - 1
    client.produce("greetings", ["to the last partition"], partition=last)
```
"""

from __future__ import annotations

import socket
from collections.abc import Sequence

import wafka_wire
from wafka_wire import ErrorCode, ProduceRequest, ProduceResponse

from krammar.client.errors import ClientError, DeadlineError, ProtocolError, TransportError
from krammar.util.closing import Closing
from krammar.util.sockets import why
from krammar.wire.connection import ClientConnection, ConnectionClosed, ResponseReceived
from krammar.wire.errors import WireError

_VERSION = ProduceRequest.max_version
_CHUNK = 64 * 1024


class WafkaError(ClientError):
    """The server has not stored the records.

    ``code`` is the reason; ``retriable`` says whether the same call may succeed if repeated.
    """

    def __init__(self, code: int, message: str | None) -> None:
        try:
            self.code = ErrorCode(code)
            name = self.code.name
        except ValueError:  # of a newer server
            self.code, name = ErrorCode.UNKNOWN_SERVER_ERROR, f"error {code}"
        super().__init__(name if message is None else f"{name}: {message}")
        self.retriable = self.code.retriable


class WafkaClient(Closing):
    """A connection to a server.

    Args:
        timeout_ms: the limit for connecting and for each wait for the server, in milliseconds.

    Raises:
        TransportError: the server cannot be reached.
    """

    def __init__(
        self, host: str, port: int, *, client_id: str | None = "krammar", timeout_ms: int = 15_000
    ) -> None:
        self.timeout_ms = timeout_ms
        self._address = f"{host}:{port}"
        self._wire = ClientConnection(wafka_wire, client_id=client_id)
        self._counts: dict[str, int] = {}
        self._turns: dict[str, int] = {}
        try:
            self._socket = socket.create_connection((host, port), timeout_ms / 1000)
        except (OSError, UnicodeError) as error:
            raise TransportError(self._address, why(error)) from error

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def partition_count(self, topic: str) -> int:
        """Ask the server how many partitions a topic has. A server may create the topic.

        Wafka's only request is Produce, so this sends one without records. Raises the same errors as ``produce``.
        """
        self._produce(topic, [], 0, -1)
        count = self._counts.get(topic, -1)
        if count < 1:
            self.close()
            raise ProtocolError(f"{self._address}: the response has no number of partitions")
        return count

    def next_partition(self, topic: str) -> int:
        """Return the topic's partitions round robin: 0, 1, …, the last one, then 0 again.

        The first call asks the server for the number of partitions, and raises the same errors as ``produce``.
        """
        count = self._counts.get(topic) or self.partition_count(topic)
        chosen = self._turns.get(topic, 0) % count
        self._turns[topic] = chosen + 1
        return chosen

    def produce(
        self, topic: str, records: Sequence[str], *, partition: int | None = None, acks: int = -1
    ) -> int:
        """Append strings to a partition, all or none.

        Args:
            partition: by default, calls use the topic's partitions round robin (``next_partition``).
            acks: 0 means that the server sends no response.

        Returns:
            The offset of the first record, or -1 with ``acks=0``.

        Raises:
            WafkaError: the server refuses the records.
            EncodeError: a string has more than 32,767 bytes.
            TransportError: the connection is broken.
            DeadlineError: the server has not responded in time.
            ProtocolError: the response is malformed. After this error and the two before, the connection is
                closed, and it is unknown whether the records were stored.
        """
        if partition is None:
            partition = self.next_partition(topic)
        return self._produce(topic, records, partition, acks)

    def _produce(self, topic: str, records: Sequence[str], partition: int, acks: int) -> int:
        data = ProduceRequest.PartitionData(index=partition, records=records)
        request = ProduceRequest(
            acks=acks,
            timeout_ms=self.timeout_ms,
            topic_data=[ProduceRequest.TopicData(name=topic, partition_data=[data])],
        )
        frame = self._wire.send_request(request, _VERSION, expect_response=acks != 0)
        try:
            self._socket.sendall(frame)
            response = self._receive() if acks else None
        except TimeoutError as error:
            self.close()
            raise DeadlineError(f"produce to {self._address}", self.timeout_ms) from error
        except OSError as error:
            self.close()
            raise TransportError(self._address, why(error)) from error
        except ClientError:
            self.close()
            raise
        if response is None:
            return -1
        if response.error_code:
            raise WafkaError(response.error_code, response.error_message)
        try:
            (answer,) = response.topics
            (stored,) = answer.partitions
        except ValueError:
            self.close()
            raise ProtocolError(
                f"{self._address}: the response does not have exactly one partition"
            ) from None
        self._counts[topic] = max(0, answer.partition_count)
        if stored.error_code:
            raise WafkaError(stored.error_code, stored.error_message)
        return int(stored.base_offset)

    def _receive(self) -> ProduceResponse:
        while True:
            try:
                event = self._wire.next_event()
            except WireError as error:
                raise ProtocolError(f"{self._address}: {error}") from error
            if isinstance(event, ResponseReceived):
                assert isinstance(event.response, ProduceResponse)
                return event.response
            if isinstance(event, ConnectionClosed):
                raise TransportError(self._address, "the server has closed the connection")
            self._wire.receive_data(self._socket.recv(_CHUNK))
