"""The errors of the broker, and their error codes in responses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from kafka_wire import ErrorCode

# Characters of an error message at most. Names of a request can have 32,767 bytes, as many as a
# string of a response, and thousands of results can repeat them.
LONGEST_MESSAGE = 2000


class BrokerError(Exception):
    """A broker cannot start: a port is in use, a folder belongs to another broker, a file is unreadable."""


class ApiError(Exception):
    """An error that a response reports.

    Attributes:
        code: the error code
        message: the text for responses that have one, shortened; None if the code is enough
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(code.name if message is None else f"{code.name}: {message}")
        self.code = code
        self.message = message if message is None else message[:LONGEST_MESSAGE]

    def put_into(self, response: Any) -> None:
        """Set ``error_code`` and ``error_message`` of a response, as far as it has these fields."""
        for name, value in (("error_code", self.code), ("error_message", self.message)):
            if hasattr(response, name):
                setattr(response, name, value)


class InvalidRecords(ApiError):
    """A batch has invalid records.

    Attributes:
        records: the index in the batch and the problem of each invalid record
    """

    def __init__(self, code: ErrorCode, message: str, records: list[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.records = records


class CloseConnection(Exception):
    """The connection must be closed because no response is possible, as for a failed Produce with acks=0."""


@contextmanager
def errors_in(response: Any) -> Iterator[None]:
    """Let a response report the ApiError that ends the block."""
    try:
        yield
    except ApiError as error:
        error.put_into(response)


# The error codes that clients get if a coordinator cannot write. The log raises no others of Kafka's list.
_WRITE_ERRORS = {
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


@contextmanager
def coordinator_errors() -> Iterator[None]:
    """Convert the errors of failed writes to the errors for clients of a coordinator."""
    try:
        yield
    except ApiError as error:
        raise ApiError(_WRITE_ERRORS.get(error.code, error.code), error.message) from error


def invalid_request(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)
