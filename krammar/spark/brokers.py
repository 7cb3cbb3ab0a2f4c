"""The brokers' clients: their settings, the conversion of their errors, doubtful answers, and a pool of idle clients."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from krammar.client import Client, ClientError, Settings
from krammar.client.errors import SettingsError
from krammar.spark.errors import BrokerError, OptionError
from krammar.spark.option_table import CLIENT_PREFIX
from krammar.spark.options import Options
from krammar.util.sockets import address_text

# The default of max.partition.fetch.bytes. With Kafka's default of 1 MiB, reading needs twice the processor time.
FETCH_BYTES = 8 << 20
# Each task has its own client, which may start while a broker restarts.
_DEFAULTS = {"max.partition.fetch.bytes": FETCH_BYTES, "krammar.retry.bootstrap": True}

# How often a broker is asked while its answer is doubtful: one that has just become leader or controller may briefly
# know less than its predecessor.
ATTEMPTS = 6
# The limits of a pool: how many clients are idle, and for how long.
_MOST_IDLE = 4
_IDLE_SECONDS = 60.0

T = TypeVar("T")


def settings_of(options: Options) -> Settings:
    """Return the client's settings from the options ``kafka.*``.

    Raises:
        OptionError: a setting is unknown or invalid.
    """
    try:
        return Settings.of({**_DEFAULTS, **options.client})
    except SettingsError as error:
        raise OptionError(CLIENT_PREFIX + error.name, error.reason, error.value) from None


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


def recheck(client: Client, ask: Callable[[], T], is_doubtful: Callable[[T], bool]) -> T:
    """Call ``ask`` up to six times while its answer is doubtful, and return the last answer.

    The pauses in between begin with the client's ``retry.backoff.ms`` and double: 2.5 seconds by default.
    """
    backoff = client.cluster.backoff()
    answer = ask()
    for _ in range(ATTEMPTS - 1):
        if not is_doubtful(answer):
            break
        time.sleep(backoff.next())
        answer = ask()
    return answer


class ClientPool:
    """Idle clients by their settings, connected between tasks.

    Spark reuses its Python workers. A task that finds a client with its settings needs no connection, no login
    and no metadata: with SASL_SSL and SCRAM these take longer than reading a small micro-batch.

    A borrowed client belongs to one task. It is kept afterwards, unless the task failed or left requests
    in flight. Idle clients are closed after ``idle_seconds``, and the oldest ones if there are more than
    ``most``. Methods may be called from several threads.
    """

    def __init__(self, most: int = _MOST_IDLE, idle_seconds: float = _IDLE_SECONDS) -> None:
        self._most = most
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._idle: list[tuple[float, Client]] = []  # since when, by time.monotonic; oldest first
        self._closer: threading.Thread | None = None

    def __len__(self) -> int:
        """Return the number of idle clients."""
        return len(self._idle)

    @contextmanager
    def borrow(self, settings: Settings) -> Iterator[Client]:
        """Lend a client with these settings, connected already if one is idle."""
        client = self._take(settings) or Client(settings)
        try:
            yield client
        except BaseException:
            client.close()
            raise
        self._keep(client)

    def close(self) -> None:
        """Close all idle clients."""
        with self._lock:
            closing, self._idle = self._idle, []
        for _, client in closing:
            client.close()

    def reset_after_fork(self) -> None:
        """Close this process's copies of the connections, which belong to the parent process."""
        self._lock = threading.Lock()
        self._closer = None
        self.close()

    def _take(self, settings: Settings) -> Client | None:
        with self._lock:
            for index in reversed(range(len(self._idle))):
                if self._idle[index][1].settings == settings:
                    return self._idle.pop(index)[1]
        return None

    def _keep(self, client: Client) -> None:
        connections = client.cluster.connections
        if not connections or any(connection.in_flight for connection in connections):
            client.close()
            return
        with self._lock:
            self._idle.append((time.monotonic(), client))
            closing = self._idle[: -self._most]
            self._idle = self._idle[-self._most :]
            if self._closer is None:
                self._closer = threading.Thread(
                    target=self._close_idle, name="krammar-idle-clients", daemon=True
                )
                self._closer.start()
        for _, old in closing:
            old.close()

    def _close_idle(self) -> None:
        """Close clients that have been idle for too long, until none is left."""
        while True:
            with self._lock:
                if not self._idle:
                    self._closer = None
                    return
                left = self._idle[0][0] + self._idle_seconds - time.monotonic()
                expired = self._idle.pop(0)[1] if left <= 0 else None
            if expired is not None:
                expired.close()
            else:
                time.sleep(left)


CLIENTS = ClientPool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=CLIENTS.reset_after_fork)
