"""The settings of the brokers' clients, and the conversion of their errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from krammar.client import ClientError, Settings
from krammar.client.errors import SettingsError
from krammar.spark.errors import BrokerError, OptionError
from krammar.spark.option_table import CLIENT_PREFIX
from krammar.spark.options import Options
from krammar.util.sockets import address_text

# The default of max.partition.fetch.bytes. With Kafka's default of 1 MiB, reading needs twice the processor time.
FETCH_BYTES = 8 << 20
# Each task has its own client, which may start while a broker restarts.
_DEFAULTS = {"max.partition.fetch.bytes": FETCH_BYTES, "krammar.retry.bootstrap": True}


def settings_of(options: Options) -> Settings:
    """Return the client's settings from the options ``kafka.*``.

    Raises:
        OptionError: a setting is unknown or invalid.
    """
    try:
        return Settings.of({**_DEFAULTS, **options.client})
    except SettingsError as error:
        message = str(error).removeprefix(f"{error.name}: ")
        raise OptionError(CLIENT_PREFIX + error.name, message) from None


def brokers_text(settings: Settings) -> str:
    """Return the brokers as messages show them: ``brokers a:9092,b:9092``."""
    return f"brokers {','.join(map(address_text, settings.bootstrap_servers))}"


@contextmanager
def broker_errors(settings: Settings, doing: str) -> Iterator[None]:
    """Convert errors of the client to BrokerError.

    Args:
        doing: describes the operation, for the message.
    """
    try:
        yield
    except ClientError as error:
        raise BrokerError(f"{doing}, {brokers_text(settings)}: {error}") from None
