"""Clients of brokers: their settings, and what becomes of their errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from krammar.client import ClientError, Settings
from krammar.client.connection import address_text
from krammar.client.errors import SettingsError
from krammar.spark.errors import BrokerError, OptionError
from krammar.spark.options import CLIENT_PREFIX, Options

# Of max.partition.fetch.bytes, unless it is given: with the 1 MiB that it is for consumers elsewhere, reading
# takes twice the processor time.
FETCH_BYTES = 8 << 20


def settings_of(options: Options) -> Settings:
    """The client's settings, of ``kafka.*``. Raises OptionError."""
    try:
        return Settings.of({"max.partition.fetch.bytes": FETCH_BYTES, **options.client})
    except SettingsError as error:
        message = str(error).removeprefix(f"{error.name}: ")
        raise OptionError(CLIENT_PREFIX + error.name, message) from None


def brokers_text(settings: Settings) -> str:
    """For messages: ``brokers a:9092,b:9092``."""
    return f"brokers {','.join(map(address_text, settings.bootstrap_servers))}"


@contextmanager
def broker_errors(settings: Settings, doing: str) -> Iterator[None]:
    """Makes a BrokerError of what the client raises."""
    try:
        yield
    except ClientError as error:
        raise BrokerError(f"{doing}, {brokers_text(settings)}: {error}") from error
