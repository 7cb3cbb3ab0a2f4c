"""Listeners for Wafka: Produce v3 with strings as records, written to topics that Kafka clients read.

Each string becomes the value of a record with the arrival time and no key. The strings of a partition form one
record batch. The response to any other request is an error.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, ClassVar

import wafka_wire
from wafka_wire import ErrorCode, ProduceRequest, ProduceResponse

from krammar.broker.connection import Connection
from krammar.broker.errors import CloseConnection
from krammar.broker.handlers.wafka import WafkaHandlers
from krammar.broker.slices import Steps
from krammar.wire.connection import InvalidRequest, RequestReceived
from krammar.wire.framing import join_frame

VERSION = ProduceRequest.max_version


class WafkaConnection(Connection):
    """One Wafka client's connection."""

    protocol: ClassVar[ModuleType] = wafka_wire
    allow_trailing: ClassVar[bool] = False

    def _handle(self, event: RequestReceived | InvalidRequest) -> None:
        if isinstance(event, InvalidRequest):
            self._answer_invalid(event)
            return
        self.session.client_id = event.header.client_id
        self._serve(event)

    def _call_handler(self, event: RequestReceived, request: ProduceRequest) -> Any:
        return self._produce(request)

    def _produce(self, request: ProduceRequest) -> Steps[ProduceResponse | None]:
        response = yield from self.handlers.of(WafkaHandlers).produce(request)
        if request.acks:
            return response
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.error_code:
                    raise CloseConnection(
                        f"{topic.name}-{partition.index}: {partition.error_message}"
                    )
        if response.error_code:
            raise CloseConnection(str(response.error_message))
        return None

    def _answer_invalid(self, event: InvalidRequest) -> None:
        """Answer an invalid request with an error. Raises CloseConnection if no response is possible."""
        if event.correlation_id is None:
            raise CloseConnection(str(event.error))
        self.wire.skip_response(event)
        if (event.api_key, event.version) == (ProduceRequest.api_key, VERSION):
            code, message = ErrorCode.INVALID_REQUEST, str(event.error)
        else:
            code = ErrorCode.UNSUPPORTED_VERSION
            message = (
                f"api key {event.api_key}, version {event.version} is not served: "
                f"Wafka only has Produce (key {ProduceRequest.api_key}), version {VERSION}"
            )
        response = ProduceResponse(error_code=code, error_message=message)
        header = wafka_wire.ResponseHeader(correlation_id=event.correlation_id)
        self.transport.write(join_frame([header.encode(0), response.encode(VERSION)]))
