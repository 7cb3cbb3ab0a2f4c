"""The errors of the data source."""

from __future__ import annotations

from krammar.util.settings import SettingError


class SparkSourceError(Exception):
    """Base of all errors that the data source raises; Spark shows their text."""


class OptionError(SettingError, SparkSourceError):
    """An option is unknown, malformed, not supported, or contradicts another one.

    ``name`` is the option's name in its documented spelling.
    """

    between = ": "

    @property
    def label(self) -> str:
        return f"option {self.name!r}"


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
