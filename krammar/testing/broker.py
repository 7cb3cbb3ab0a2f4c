"""A broker for one test or several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

from krammar.broker import Broker, ConfigError
from krammar.broker.process import BrokerProcess
from krammar.proxy.interface import Filter
from krammar.testing.embedded import Embedded
from krammar.testing.options import read_options


class KafkaBroker(Embedded[Broker]):
    """A running broker on loopback, with what tests need. Use ``start``."""

    _kind, _process_kind = Broker, BrokerProcess

    @classmethod
    def start(
        cls,
        settings: Mapping[str, Any] | None = None,
        /,
        *,
        topics: Any = None,
        records: Mapping[str, Iterable[Any]] | None = None,
        sasl: str | None = None,
        users: Any = None,
        acls: Iterable[Mapping[str, Any]] | None = None,
        tls: bool = False,
        filters: Iterable[Filter] = (),
        process: bool = False,
        kafka_like_delays: bool | int = False,
        kafka_version: str | None = None,
        client_metrics: bool | Mapping[str, Any] = False,
        **more: Any,
    ) -> Self:
        """Start a broker on a free port; ``close`` or the end of ``with`` stops it.

        Args:
            settings: Kafka's settings, such as ``{"num.partitions": 3}``
            topics: topics to create: partitions by name, such as ``{"orders": 4}``, or names
            records: records of topics, as in ``produce``, by topic
            sasl: ``"plain"``, ``"scram"`` (SCRAM-SHA-512), ``"scram-sha-256"`` or
            ``"scram-sha-512"``
            users: passwords by name, or names, which get random passwords; by default ``alice``
            acls: who may do what, such as ``[{"allow": "alice", "operation": "read", "topic": "orders"}]``; by default
                everybody may do everything
            tls: whether the listener has TLS, with new certificates (needs ``krammar[testing]``)
            filters: filters of ``krammar.proxy``, from the client to the broker
            process: whether the broker runs in a process of its own
            kafka_like_delays: whether clients see new and deleted topics, coordinators and the end of transactions
            100 ms later, as they do in Kafka; or so many milliseconds later
            kafka_version: the release whose APIs, versions of requests, features and settings are served: ``"2.8"``,
            ``"3.9"``, or ``"4.0"`` to ``"4.3"``
            client_metrics: which metrics clients push (KIP-714): True for all of them every 100 ms, or the settings of
            a subscription, such as ``{"metrics": ["org.apache.kafka.producer."], "match": {"client_id": "app-.*"}}``
            more: Kafka's settings with underscores for dots, such as ``num_partitions=3``

        Raises:
            ConfigError: a keyword or a setting is unknown or invalid.
            BrokerError: the broker cannot start.
            MissingExtra: ``tls`` needs trustme, which is not installed.
        """
        if "nodes" in more:
            raise ConfigError("nodes", None, "a broker has one; use KafkaCluster (kafka_cluster)")
        return cls(
            read_options(
                settings,
                topics=topics,
                records=records,
                sasl=sasl,
                users=users,
                acls=acls,
                tls=tls,
                filters=filters,
                process=process,
                kafka_like_delays=kafka_like_delays,
                kafka_version=kafka_version,
                client_metrics=client_metrics,
                **more,
            )
        )._begin()

    def reset(self) -> None:
        """Restart the broker at the same address without records, groups, transactions and rules of faults.

        Clients are disconnected. Topics, users, passwords and certificates of ``start`` are
        restored. It takes a few milliseconds.

        Raises:
            ForkedError: this process was forked from the broker's.
        """
        self._process.check()
        self._start({**self._settings, "listeners": self.broker.bound_listeners})

    @property
    def host(self) -> str:
        """The address of the listener."""
        return self.broker.host

    @property
    def port(self) -> int:
        """The port of the listener."""
        return self.broker.port
