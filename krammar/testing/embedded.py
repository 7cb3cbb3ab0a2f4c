"""What a broker and a cluster in a test have in common: settings, users, certificates and topics."""

from __future__ import annotations

import tempfile
from abc import abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from krammar.auth.scram import BY_NAME
from krammar.auth.scram_server import new_credential
from krammar.broker import Broker, ConfigError
from krammar.broker.config import BrokerConfig
from krammar.broker.security.users import record_of
from krammar.testing.certificates import TlsFiles, make_certificates
from krammar.testing.clients import ClientSettings
from krammar.testing.observed import Observed
from krammar.testing.options import Options, plain_logins, read_options
from krammar.util.closing import Closing
from krammar.util.diagnostics import did_you_mean

if TYPE_CHECKING:
    from krammar.faults import Faults

B = TypeVar("B", bound=Broker)


class Embedded(Observed, Closing, Generic[B]):
    """One or several nodes in this process. ``close`` or the end of ``with`` stops them.

    ``users``  the passwords of the users, by name; empty without ``sasl``
    ``tls``    the certificates for clients; None without ``tls=True``
    """

    def __init__(self, options: Options) -> None:
        super().__init__()
        self._options = options
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._settings = {**_login_settings(options), **options.settings}
        self.users = dict(options.users)
        self.tls: TlsFiles | None = None
        self._broker: B | None = None

    @abstractmethod
    def _launch(self, properties: dict[str, Any]) -> B:
        """Start the nodes with Kafka's settings."""

    def _begin(self) -> Self:
        """Make the certificates, and start the nodes on free ports."""
        try:
            if self._options.tls:
                self._folder = tempfile.TemporaryDirectory(prefix="krammar-tls-")
                self.tls, settings = make_certificates(Path(self._folder.name))
                self._settings = {**settings, **self._settings}
            self._start(port=0)
        except BaseException:
            self.close()
            raise
        return self

    def _start(self, port: int) -> None:
        options = self._options
        listener = {"listeners": f"{options.protocol}://127.0.0.1:{port}"}
        self._broker = broker = self._launch({**listener, **self._settings})
        self._observe(broker)
        if options.mechanism in BY_NAME:
            mechanism = BY_NAME[options.mechanism]
            broker.call(
                broker.cluster.append,
                [
                    record_of(name, mechanism, new_credential(mechanism, password))
                    for name, password in self.users.items()
                ],
            )
        for topic, partitions in options.topics.items():
            self.create_topic(topic, partitions)

    def close(self) -> None:
        """Stop all nodes and delete their files. A second call does nothing."""
        if self._broker is not None:
            self._broker.close()
            self._broker = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def __repr__(self) -> str:
        where = "stopped" if self._broker is None else self._broker.bootstrap_servers
        return f"<{type(self).__name__} {where}>"

    # The nodes.

    @property
    def broker(self) -> B:
        """The broker or cluster of ``krammar.broker``. Raises RuntimeError if it was stopped."""
        if self._broker is None:
            raise RuntimeError(
                "the broker was stopped; ask it before the end of the test or `with`"
            )
        return self._broker

    def _one(self) -> Broker:
        return self.broker

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of each node, for the setting of clients."""
        return self.broker.bootstrap_servers

    @property
    def config(self) -> BrokerConfig:
        """The settings of the first node."""
        return self.broker.config

    @property
    def faults(self) -> Faults:
        """The rules of faults, which apply to all clients; see docs/faults.md."""
        return self.broker.faults

    # Clients and topics.

    @property
    def clients(self) -> ClientSettings:
        """The settings of clients, logged in as the first user."""
        return self.clients_as(next(iter(self.users), None))

    def clients_as(self, user: str | None) -> ClientSettings:
        """Return the settings of clients that log in as a user. Raises ValueError for an unknown one."""
        if user is not None and user not in self.users:
            hint = did_you_mean(user, self.users) or f"the users are {', '.join(self.users)}"
            raise ValueError(
                f"user {user!r} does not exist; {hint if self.users else 'sasl is off'}"
            )
        return ClientSettings(
            self.bootstrap_servers,
            self._options.protocol,
            self._options.mechanism,
            user,
            None if user is None else self.users[user],
            self.tls,
            self.config.ssl_client_auth != "none",
        )

    def advance_clock(self, ms: int, *, node: int | None = None, members: bool = False) -> None:
        """Set the clock of the broker ahead, by milliseconds, or that of one node only.

        ``members=True`` includes the sessions of group members, whose heartbeats come in real time. Raises ValueError.
        """
        self.broker.advance_clock(ms, node=node, members=members)

    def create_topic(self, name: str, partitions: int | None = None) -> str:
        """Create a topic, and return its name.

        Args:
            name: the name
            partitions: their number; by default ``num.partitions``

        Raises:
            ConfigError: name or number are invalid, or the topic exists.
        """
        read_options(topics={name: partitions})
        broker = self.broker

        def create() -> None:
            if name in broker.cluster.topics:
                raise ConfigError("topics", name, "exists already")
            broker.topics.create(name, partitions or broker.config.num_partitions)

        broker.call(create)
        return name


def _login_settings(options: Options) -> dict[str, Any]:
    if options.mechanism is None:
        return {}
    login = {"sasl.enabled.mechanisms": options.mechanism}
    if options.mechanism == "PLAIN":
        login["sasl.jaas.config"] = plain_logins(options.users)
    return login
