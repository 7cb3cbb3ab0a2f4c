"""A broker or a cluster in a test: settings, users, certificates, topics, and what tests ask about it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, TypeVar

from krammar.auth.scram import BY_NAME
from krammar.broker import Broker, ConfigError
from krammar.broker.config import BrokerConfig
from krammar.broker.process import BrokerProcess
from krammar.testing.certificates import TlsFiles, make_certificates
from krammar.testing.client_metrics import ClientMetricsPush
from krammar.testing.clients import ClientSettings
from krammar.testing.groups import Group
from krammar.testing.options import SUBSCRIPTION, Options, plain_logins, read_options
from krammar.testing.probe import BrokerProbe, Probe, append_seeds, remote_probe
from krammar.testing.records import Record, seeds
from krammar.testing.share_groups import ShareGroup
from krammar.testing.waits import (
    is_committed,
    wait_for_consumer,
    wait_for_lag,
    wait_for_records,
    wait_until,
)
from krammar.util.closing import Closing
from krammar.util.diagnostics import did_you_mean
from krammar.util.forks import OwnProcess
from krammar.util.temporary import TemporaryFolder

if TYPE_CHECKING:
    from krammar.faults import Faults

B = TypeVar("B", bound=Broker)
T = TypeVar("T")

# What the subprocess of a broker runs.
_MAIN = "krammar.testing.process_main"


class Embedded(Closing, Generic[B]):
    """One or several nodes, in this process or in one of their own. ``close`` or the end of ``with`` stops them.

    The answers to questions come from the state of the broker: no client is involved, so rules of
    faults do not apply to them.

    Attributes:
        users: the passwords of the users, by name; empty without ``sasl``
        tls: the certificates for clients; None without ``tls=True``
    """

    # The class of nodes in this process, and that of nodes in another one.
    _kind: ClassVar[type[Broker]]
    _process_kind: ClassVar[type[BrokerProcess]]

    def __init__(self, options: Options) -> None:
        self._options = options
        self._process = OwnProcess("the broker")
        self._folder: TemporaryFolder | None = None
        self._settings = {**_login_settings(options), **options.settings}
        self.users = dict(options.users)
        self.tls: TlsFiles | None = None
        self._broker: B | None = None
        self._probe: Probe | None = None

    def _options_of_start(self) -> dict[str, Any]:
        """Return further arguments of ``Broker.start``."""
        return {}

    def _begin(self) -> Self:
        """Make the certificates, and start the nodes on free ports."""
        try:
            if self._options.tls:
                self._folder = TemporaryFolder("krammar-tls-")
                self.tls, settings = make_certificates(self._folder.path)
                self._settings = {**settings, **self._settings}
            self._start({"listeners": f"{self._options.protocol}://127.0.0.1:0", **self._settings})
        except BaseException:
            self.close()
            raise
        return self

    def _start(self, properties: dict[str, Any]) -> None:
        options = self._options
        arguments = {"properties": properties, **self._options_of_start()}
        found: Any = self._broker
        if options.process:
            if found is None:
                found = self._process_kind(arguments, main=_MAIN)
            else:
                found.replace(arguments)
            self._probe = remote_probe(partial(found.call_target, "probe"))
        else:
            if found is not None:
                found.close()
            found = self._kind.start(filters=options.filters, **arguments)
            self._probe = BrokerProbe(found)
        self._broker = found
        if options.mechanism in BY_NAME:
            self._ask.add_users(options.mechanism, self.users)
        if options.acls:
            self._ask.add_acls([tuple(acl) for acl in options.acls])
        if options.client_metrics is not None:
            self._ask.subscribe(SUBSCRIPTION, options.client_metrics)
        for topic, partitions in options.topics.items():
            self.create_topic(topic, partitions)
        for topic, records in options.records.items():
            self._ask.append(records, topic)

    def restart(self) -> None:
        """Stop all nodes, and start them again on the same ports with their records, groups and transactions.

        Clients are disconnected. The clock, the rules of faults and what ``produced_by`` returns stay too. All nodes run
        afterwards.

        Raises:
            BrokerError: a node cannot start again, because another program uses its port, for example.
            ForkedError: this process was forked from the broker's.
        """
        self.broker.restart()

    def close(self) -> None:
        """Stop all nodes and delete their files. A second call does nothing.

        Nor does a call in a process that was forked from the broker's.
        """
        if not self._process.is_this:
            return
        if self._broker is not None:
            self._broker.close()
            self._broker = None
        if self._folder is not None:
            self._folder.remove()
            self._folder = None

    def __repr__(self) -> str:
        where = "stopped" if self._broker is None else self._broker.bootstrap_servers
        return f"<{type(self).__name__} {where}>"

    # The nodes.

    @property
    def broker(self) -> B:
        """The broker or cluster of ``krammar.broker``; with ``process=True``, its ``BrokerProcess``.

        Raises RuntimeError if it was stopped.
        """
        if self._broker is None:
            raise RuntimeError(
                "the broker was stopped; ask it before the end of the test or `with`"
            )
        return self._broker

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of each node, for the setting of clients."""
        return self.broker.bootstrap_servers

    def bootstrap_servers_of(self, listener: str) -> str:
        """Return ``host:port`` of each node for clients of a listener, which can be in a container beside the test.

        Args:
            listener: a name of the setting ``listeners``, such as ``DOCKER``

        Raises:
            ValueError: there is no such listener.
        """
        return self.broker.bootstrap_servers_of(listener)

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
        """Return the settings of clients that log in as a user.

        Raises ValueError for an unknown user, unless any password is right.
        """
        password = None if user is None else self.users.get(user)
        if user is not None and password is None and self.config.plain_any_password:
            password = user
        if user is not None and password is None:
            hint = did_you_mean(user, self.users) or f"the users are {', '.join(self.users)}"
            raise ValueError(
                f"user {user!r} does not exist; {hint if self.users else 'sasl is off'}"
            )
        return ClientSettings(
            self.bootstrap_servers,
            self._options.protocol,
            self._options.mechanism,
            user,
            password,
            self.tls,
            self.config.ssl_client_auth != "none",
        )

    def allow(self, user: str, operation: str | Iterable[str] = "all", **resource: Any) -> None:
        """Let a user do operations on a resource from now on. The broker was started with ``acls``, which can be empty.

        Args:
            user: a name, a principal such as ``User:alice``, or ``*``
            operation: such as ``read``, or several
            resource: ``topic``, ``group`` or ``transactional_id`` with a name, or ``cluster=True``, as in ``acls``

        Raises:
            ConfigError: an argument is invalid, or the broker has no ACLs.
        """
        self._add_acl({"allow": user, "operation": operation, **resource})

    def deny(self, user: str, operation: str | Iterable[str] = "all", **resource: Any) -> None:
        """Refuse a user operations on a resource from now on, whatever else is allowed; see ``allow``."""
        self._add_acl({"deny": user, "operation": operation, **resource})

    def _add_acl(self, rule: dict[str, Any]) -> None:
        options = read_options(acls=[rule])
        if self._options.acls is None:
            raise ConfigError("acls", None, "are off; start the broker with acls=[]")
        self._ask.add_acls([tuple(acl) for acl in options.acls or ()])

    def set_quotas(
        self,
        *,
        user: str | None = None,
        client_id: str | None = None,
        ip: str | None = None,
        **values: float | None,
    ) -> None:
        """Limit what clients may use from now on, as AlterClientQuotas does.

        Args:
            user, client_id, ip: whom; a user and a client id can be combined, and ``*`` is the default for
                all without a quota of their own
            values: such as ``producer_byte_rate=1000``; None removes a quota

        Raises:
            ConfigError: Kafka refuses such a quota.
        """
        entity = {"user": user, "client-id": client_id, "ip": ip}
        named = {kind: name for kind, name in entity.items() if name is not None}
        self._ask.set_quotas(
            {kind: None if name == "*" else name for kind, name in named.items()}, values
        )

    def advance_clock(self, ms: int, *, node: int | None = None, members: bool = False) -> None:
        """Set the clock of the broker ahead, by milliseconds, or that of one node only.

        ``members=True`` includes the sessions of group members, whose heartbeats come in real time.
        Raises ValueError.
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
        self._ask.create_topic(name, partitions)
        return name

    def produce(
        self,
        topic: str,
        records: Iterable[Any],
        *,
        transaction: Literal["committed", "aborted", "open"] | None = None,
        transactional_id: str | None = None,
    ) -> list[Record]:
        """Store records without a client, so that rules of faults do not apply, and return them as stored.

        A topic that does not exist is created with ``num.partitions`` partitions.

        Args:
            topic: the topic's name
            records: values such as ``b"one"``; pairs of key and value; or mappings with ``key``, ``value``, ``headers``,
                ``partition`` and ``timestamp``, in milliseconds since 1970. Text is encoded in UTF-8; None is null,
                and a key with it a tombstone.
            transaction: how the transaction of these records ends; ``"open"`` leaves it open, until a client initializes
                a producer with the same transactional id, or it times out after a minute; None for no transaction
            transactional_id: by default a new one

        Raises:
            ConfigError: the topic's name is invalid.
            TypeError: a record has another form.
            ValueError: the topic has no such partition, a record is too large, or ``transaction`` is none of the three.
        """
        read_options(topics={topic: None})
        return append_seeds(self._ask, seeds(records), topic, transaction, transactional_id)

    def compact_now(self, topic: str) -> None:
        """Compact all partitions of a topic at once, which has to have ``cleanup.policy=compact``.

        The active segments are rolled before, so that all records take part: neither their time nor
        ``min.cleanable.dirty.ratio`` matters. Tombstones stay for ``delete.retention.ms`` after the first time;
        ``advance_clock`` and another call remove them. Records younger than ``min.compaction.lag.ms`` and records of
        open transactions stay.

        Raises ValueError if the topic does not exist, or is not compacted.
        """
        self._ask.compact(topic)

    # Questions of tests.

    @property
    def _ask(self) -> Probe:
        if self._broker is None or self._probe is None:
            raise RuntimeError(
                "the broker was stopped; ask it before the end of the test or `with`"
            )
        return self._probe

    def records(
        self, topic: str, *, partition: int | None = None, isolation_level: str = "read_committed"
    ) -> list[Record]:
        """Return the records of a topic, by partition and offset; none if it does not exist.

        Args:
            topic: the topic's name
            partition: only this partition
            isolation_level: as for consumers, but by default ``read_committed``: records of open
                and aborted transactions are left out. ``read_uncommitted`` includes them.
        """
        return self._ask.records(topic, partition, is_committed(isolation_level))

    def produced_by(self, client_id: str) -> list[Record]:
        """Return the records that a client has produced, in the order of arrival.

        Records of open and aborted transactions are included, deleted records and topics are not.

        Args:
            client_id: the client's ``client.id``
        """
        return self._ask.produced_by(client_id)

    @property
    def groups(self) -> dict[str, Group]:
        """The groups, by id, with members and committed offsets."""
        return self._ask.groups()

    @property
    def share_groups(self) -> dict[str, ShareGroup]:
        """The share groups, by id, with the states of their records."""
        return self._ask.share_groups()

    @property
    def client_metrics(self) -> list[ClientMetricsPush]:
        """What clients have pushed of their metrics, the oldest first; the last 16 MiB.

        The broker was started with ``client_metrics``. Clients push soon after they have connected,
        again and again, and when they close.
        """
        return self._ask.client_metrics()

    @property
    def topics(self) -> dict[str, int]:
        """The number of partitions of each topic, by name, without internal topics."""
        return self._ask.topics()

    def requests(self, *, since_ns: int = 0) -> list[str]:
        """Return the last hundred requests of clients, one line each, as ``krammar tap`` prints them.

        A line has the time, the connection, API and version, sizes of request and response, the time until the response,
        what both are about with error codes, and what rules of faults have done.

        Args:
            since_ns: leave out requests before this time, in nanoseconds since 1970
        """
        return self._ask.requests(since_ns)

    def wait_until(self, condition: Callable[[], T], *, timeout: float = 10.0) -> T:
        """Wait until a function returns something true, and return that.

        The calling thread waits. In asyncio code, where clients need the event loop, call it with
        ``await asyncio.to_thread(broker.wait_until, condition)``.

        Args:
            condition: is called again and again, such as ``lambda: "billing" in broker.groups``
            timeout: in seconds

        Raises:
            NotInTime: the condition is still false.
        """
        return wait_until(condition, timeout)

    def wait_for_records(
        self,
        topic: str,
        count: int,
        *,
        partition: int | None = None,
        isolation_level: str = "read_committed",
        timeout: float = 10.0,
    ) -> list[Record]:
        """Wait until a topic has at least ``count`` records, and return all of them.

        The arguments and the order are as in ``records``; about asyncio, see ``wait_until``.

        Raises:
            NotInTime: there are fewer after ``timeout`` seconds.
        """
        committed = is_committed(isolation_level)
        return wait_for_records(self._ask, topic, count, partition, committed, timeout)

    def wait_for_consumer(self, group: str, *, timeout: float = 10.0) -> Group:
        """Wait until the members of a group read: it is stable, and each partition was fetched since then.

        A record that is produced afterwards reaches a consumer with ``auto.offset.reset=latest`` too.
        About asyncio, see ``wait_until``.

        Args:
            group: the group's id
            timeout: in seconds

        Raises:
            NotInTime: the group does not read all its partitions; the message says why.
        """
        return wait_for_consumer(self._ask, group, timeout)

    def wait_for_lag(self, group: str, most: int = 0, *, timeout: float = 10.0) -> Group:
        """Wait until a group has committed offsets, and all records but ``most`` of these partitions.

        Args:
            group: the group's id
            most: the largest lag, summed over all partitions
            timeout: in seconds

        Raises:
            NotInTime: the lag is greater, or the group has committed nothing.
        """
        return wait_for_lag(self._ask, group, most, timeout)


def _login_settings(options: Options) -> dict[str, Any]:
    if options.mechanism is None:
        return {}
    login = {"sasl.enabled.mechanisms": options.mechanism}
    if options.mechanism == "PLAIN":
        login["sasl.jaas.config"] = plain_logins(options.users)
    return login
