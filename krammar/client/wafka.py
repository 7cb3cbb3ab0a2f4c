"""A client for Wafka: strings into partitions of topics.

```python
from krammar.client.wafka import WafkaClient

with WafkaClient("localhost", 9095) as client:
    offset = client.produce("greetings", ["hello", "world"])
```
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Self

import wafka_wire
from wafka_wire import (
    ErrorCode,
    ProduceRequest,
    ProduceRequestTopicData,
    ProduceRequestTopicDataPartitionData,
    ProduceResponse,
)

from krammar.client.errors import ClientError, DeadlineError, ProtocolError, TransportError
from krammar.wire.connection import ClientConnection, ConnectionClosed, ResponseReceived
from krammar.wire.errors import WireError

_VERSION = ProduceRequest.max_version
_CHUNK = 64 * 1024


class WafkaError(ClientError):
    """The server has not stored the records; ``code`` says why, and ``retriable`` whether the same call
    may succeed when it is made again."""

    def __init__(self, code: int, message: str | None) -> None:
        try:
            self.code = ErrorCode(code)
            name = self.code.name
        except ValueError:  # of a newer server
            self.code, name = ErrorCode.UNKNOWN_SERVER_ERROR, f"error {code}"
        super().__init__(name if message is None else f"{name}: {message}")
        self.retriable = self.code.retriable


class WafkaClient:
    """A connection to a server. ``timeout_ms`` bounds, in milliseconds, connecting and each wait for the
    server. Raises TransportError where it cannot be reached."""

    def __init__(
        self, host: str, port: int, *, client_id: str | None = "krammar", timeout_ms: int = 15_000
    ) -> None:
        self.timeout_ms = timeout_ms
        self._address = f"{host}:{port}"
        self._wire = ClientConnection(wafka_wire, client_id=client_id)
        try:
            self._socket = socket.create_connection((host, port), timeout_ms / 1000)
        except OSError as error:
            raise TransportError(self._address, _why(error)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def produce(
        self, topic: str, records: Sequence[str], *, partition: int = 0, acks: int = -1
    ) -> int:
        """Append strings to a partition, all or none. Returns the offset of the first, or -1 with
        ``acks=0``, where the server does not answer.

        Raises WafkaError for what the server refuses, EncodeError for a string of more than 32,767
        bytes, TransportError, DeadlineError and ProtocolError. After the last three the connection is
        closed, and whether the records were stored is not known.
        """
        data = ProduceRequestTopicDataPartitionData(index=partition, records=records)
        request = ProduceRequest(
            acks=acks,
            timeout_ms=self.timeout_ms,
            topic_data=[ProduceRequestTopicData(name=topic, partition_data=[data])],
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
            raise TransportError(self._address, _why(error)) from error
        except ClientError:
            self.close()
            raise
        if response is None:
            return -1
        if response.error_code:
            raise WafkaError(response.error_code, response.error_message)
        try:
            ((stored,),) = [answer.partitions for answer in response.topics]
        except ValueError:
            self.close()
            raise ProtocolError(f"{self._address}: the answer is not of one partition") from None
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


def _why(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
