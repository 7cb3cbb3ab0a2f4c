"""What the data source raises for what a user has asked for or has in the files."""

from __future__ import annotations


class SparkSourceError(Exception):
    """Base of all that the data source raises on purpose; Spark shows its text."""


class OptionError(SparkSourceError, ValueError):
    """An option that is unknown, malformed, not supported, or contradicts another one.

    ``name`` is the option's, as it is written in the documentation.
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
    """A schema that the user gave and that is not the source's."""


class MissingDataError(SparkSourceError):
    """A folder, a topic or an offset that is not there."""


class BrokerError(SparkSourceError):
    """Brokers that cannot be reached, refuse the login, or answer with an error."""


class DataLossError(SparkSourceError):
    """Records that should be there cannot be read; ``failOnDataLoss=false`` leaves them out."""


class MalformedRecordError(SparkSourceError):
    """A record that does not follow its definition, in mode FAILFAST."""
