"""A filter that decodes the largest messages, so that the proxy's own work is attacked."""

from __future__ import annotations

from typing import Any

from kafka_wire import (
    FetchRequest,
    MetadataRequest,
    MetadataResponse,
    OffsetCommitRequest,
    ProduceRequest,
)

from krammar.proxy import Exchange, Filter, on


class Reads(Filter):
    """Reads messages, and changes nothing."""

    @on(FetchRequest, MetadataRequest, MetadataResponse, OffsetCommitRequest, ProduceRequest)
    def read(self, message: Any, exchange: Exchange) -> None:
        """Let the proxy decode a message and encode it again."""
