"""The errors of the data source."""

from __future__ import annotations


class SparkSourceError(Exception):
    """Base of all errors that the data source raises; Spark shows their text."""


class OptionError(SparkSourceError, ValueError):
    """An option is unknown, malformed, not supported, or contradicts another one.

    ``name`` is the option's name in its documented spelling.
    """

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"option {name!r}: {message}")
        self.name = name

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_option_error, (self.name, str(self)))


def _rebuild_option_error(name: str, text: str) -> OptionError:
    error = OptionError(name, "")
    error.args = (text,)
    return error


class SchemaError(SparkSourceError, ValueError):
    """The user's schema differs from the source's, or a column to be written has the wrong type."""


class MissingDataError(SparkSourceError):
    """A folder, a topic, a partition or a requested timestamp does not exist."""


class BrokerError(SparkSourceError):
    """The brokers cannot be reached, refuse the login, or answer with an error."""


class DataLossError(SparkSourceError):
    """Records that should exist cannot be read; ``failOnDataLoss=false`` skips them."""


class MalformedRecordError(SparkSourceError):
    """A record does not match its definition."""
