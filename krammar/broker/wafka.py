"""Listeners for Wafka: Produce v3 with strings as records, written to topics that Kafka clients read.

Each string becomes the value of a record with the arrival time and no key. The strings of a partition form one
record batch. The response to any other request is an error.
"""

from __future__ import annotations

from types import ModuleType
from typing import ClassVar

import wafka_wire
from wafka_wire import (
    ErrorCode,
    ProduceRequest,
    ProduceResponse,
)

from krammar.broker.connection import Connection
from krammar.wire.connection import InvalidRequest, RequestReceived
from krammar.wire.framing import join_frame

VERSION = ProduceRequest.max_version


class WafkaConnection(Connection):
    """One Wafka client's connection."""

    protocol: ClassVar[ModuleType] = wafka_wire
    allow_trailing: ClassVar[bool] = False

    def _handle(self, event: RequestReceived | InvalidRequest) -> bool:
        if isinstance(event, InvalidRequest):
            return self._answer_invalid(event)
        self.session.client_id = event.header.client_id
        try:
            response = self.handlers.wafka.produce(event.request)
        except Exception as error:
            self._failed(event, error)
            return False
        if event.request.acks == 0:
            self.wire.skip_response(event)
            for topic in response.topics:
                for partition in topic.partitions:
                    if partition.error_code:
                        self._refuse(f"{topic.name}-{partition.index}: {partition.error_message}")
                        return False
            if response.error_code:
                self._refuse(str(response.error_message))
            return not response.error_code
        return self._answer(event, response)

    def _answer_invalid(self, event: InvalidRequest) -> bool:
        """Answer an invalid request with an error, or close the connection if no response is possible."""
        if event.correlation_id is None:
            self._refuse(str(event.error))
            return False
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
        return True
