"""What goes wrong inside the broker and what it is called on the wire."""

from __future__ import annotations

from kafka_wire import ErrorCode


class BrokerError(Exception):
    """A broker cannot start or go on: a port is taken, a folder is another's, a file cannot be read."""


class ApiError(Exception):
    """What a response says with an error code.

    ``code`` is the error's number, ``message`` the text for those responses that carry one (None
    where the code says everything).
    """

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        super().__init__(code.name if message is None else f"{code.name}: {message}")
        self.code = code
        self.message = message


class CloseConnection(Exception):
    """There is no way to answer but to close the connection, such as for a failed Produce with acks 0."""
