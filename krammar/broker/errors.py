"""The errors of the broker, and their error codes in responses."""

from __future__ import annotations

from kafka_wire import ErrorCode


class BrokerError(Exception):
    """A broker cannot start: a port is in use, a folder belongs to another broker, a file is unreadable."""


class ApiError(Exception):
    """An error that a response reports.

    ``code``     the error code
    ``message``  the text for responses that have one; None if the code is enough
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(code.name if message is None else f"{code.name}: {message}")
        self.code = code
        self.message = message


class InvalidRecords(ApiError):
    """A batch has invalid records.

    ``records``  the index in the batch and the problem of each invalid record
    """

    def __init__(self, code: ErrorCode, message: str, records: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.records = records


class CloseConnection(Exception):
    """The connection must be closed because no response is possible, as for a failed Produce with acks=0."""
