"""The users of a broker: who can log in, and with what.

SCRAM's are in the metadata log, where AlterUserScramCredentials and ``krammar broker-user`` write them;
PLAIN's are in the settings.
"""

from __future__ import annotations

import fcntl
import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from krammar.auth.scram import BY_NAME, MIN_ITERATIONS, SHA_512, Mechanism
from krammar.broker.errors import ApiError, BrokerError
from krammar.broker.security import scram

if TYPE_CHECKING:
    from kafka_wire import UserScramCredentialRecord

    from krammar.broker.broker import Broker
    from krammar.broker.cluster import ClusterMetadata
    from krammar.broker.config import Listener
    from krammar.broker.security.settings import SaslSettings


log = logging.getLogger("krammar.broker")


class Credentials:
    """What logins are checked against; ``broker.users``. Making it reads the settings of the SASL
    listeners and raises ConfigError for those that cannot be used."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        # For the salts of users who do not exist.
        self._secret = secrets.token_bytes(32)
        self._sasl: dict[str, SaslSettings] = {}
        for listener in broker.config.listeners:
            if listener.protocol.startswith("SASL"):
                from krammar.broker.security.settings import sasl_settings

                self._sasl[listener.name] = sasl_settings(broker.config, listener)

    def sasl_settings(self, listener: Listener) -> SaslSettings:
        """The settings of a SASL listener."""
        return self._sasl[listener.name]

    def credential(self, mechanism: Mechanism, user: str) -> tuple[scram.Credential, bool]:
        """A user's SCRAM credential and True, or a decoy and False for a user who has none."""
        known = self._broker.cluster.scram
        record = known.get((mechanism.number, user))
        if record is not None:
            return credential_of(record), True
        # As many rounds as the others have: a number of its own would give the decoy away.
        iterations = min(
            (each.iterations for (number, _), each in known.items() if number == mechanism.number),
            default=MIN_ITERATIONS,
        )
        return scram.decoy(mechanism, self._secret, user, iterations), False


def credential_of(record: UserScramCredentialRecord) -> scram.Credential:
    """The credential in a record of the metadata log."""
    return scram.Credential(
        salt=record.salt,
        iterations=record.iterations,
        stored_key=record.stored_key,
        server_key=record.server_key,
    )


def record_of(
    name: str, mechanism: Mechanism, credential: scram.Credential
) -> UserScramCredentialRecord:
    """The record of the metadata log for a credential."""
    from kafka_wire import UserScramCredentialRecord

    return UserScramCredentialRecord(
        name=name,
        mechanism=mechanism.number,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )


# What the command line does to the folder of a broker that does not run.


class UserError(ValueError):
    """A user that cannot be made or removed as asked."""


class User(NamedTuple):
    """A SCRAM credential on file, without what is secret about it."""

    name: str
    mechanism: str
    iterations: int


def add_user(
    data_dir: Path,
    name: str,
    password: str,
    mechanism: str = SHA_512.name,
    iterations: int = MIN_ITERATIONS,
) -> bool:
    """Give a user a password, in the place of an old one; whether there was an old one.

    Raises UserError, and BrokerError where a broker holds the folder.
    """
    kind = _mechanism(mechanism)
    if not name:
        raise UserError("a user needs a name")
    if not password:
        raise UserError("a user needs a password")
    if not MIN_ITERATIONS <= iterations <= scram.MAX_ITERATIONS:
        raise UserError(
            f"{iterations} iterations: Kafka takes {MIN_ITERATIONS} to {scram.MAX_ITERATIONS}"
        )
    with _metadata(data_dir) as cluster:
        replaced = (kind.number, name) in cluster.scram
        cluster.append([record_of(name, kind, scram.new_credential(kind, password, iterations))])
    return replaced


def remove_user(data_dir: Path, name: str, mechanism: str | None = None) -> list[str]:
    """Remove a user's credential, or all of them; the mechanisms that were removed.

    Raises UserError where there is none, and BrokerError where a broker holds the folder.
    """
    from kafka_wire import RemoveUserScramCredentialRecord

    _insist_on_folder(data_dir)
    kinds = list(scram.BY_NUMBER.values()) if mechanism is None else [_mechanism(mechanism)]
    with _metadata(data_dir) as cluster:
        found = [kind for kind in kinds if (kind.number, name) in cluster.scram]
        if not found:
            suffix = "" if mechanism is None else f" with {mechanism}"
            raise UserError(f"there is no user {name!r}{suffix}")
        cluster.append(
            [RemoveUserScramCredentialRecord(name=name, mechanism=kind.number) for kind in found]
        )
    return [kind.name for kind in found]


def list_users(data_dir: Path) -> list[User]:
    """The users on file, by name. Raises UserError where there is no folder, and BrokerError where a
    broker holds it."""
    _insist_on_folder(data_dir)
    with _metadata(data_dir) as cluster:
        return sorted(
            User(name, scram.BY_NUMBER[number].name, record.iterations)
            for (number, name), record in cluster.scram.items()
            if number in scram.BY_NUMBER
        )


def _insist_on_folder(data_dir: Path) -> None:
    if not (data_dir / "meta.properties").exists():
        raise UserError(f"{data_dir} is not the folder of a broker: it has no meta.properties")


def _mechanism(name: str) -> Mechanism:
    try:
        return BY_NAME[name]
    except KeyError:
        raise UserError(
            f"{name!r} is not a SCRAM mechanism; there are {', '.join(BY_NAME)}"
        ) from None


@contextmanager
def _metadata(data_dir: Path) -> Iterator[ClusterMetadata]:
    """The metadata of a folder that no broker holds; made where it is missing, so that users can be
    there before the broker's first start."""
    from krammar.broker.cluster import ClusterMetadata
    from krammar.broker.config import BrokerConfig
    from krammar.broker.meta_properties import read_meta_properties

    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        lock = os.open(data_dir / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise BrokerError(f"{data_dir}: {error.strerror}") from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise BrokerError(
                f"a broker has {data_dir} open: stop it, or use a client's "
                "AlterUserScramCredentials while it runs"
            ) from None
        known = read_meta_properties(data_dir)
        node_id = 1 if known is None or known.node_id is None else known.node_id
        config = BrokerConfig.defaults(**{"log.dirs": str(data_dir), "node.id": str(node_id)})
        cluster = ClusterMetadata.open(data_dir, config, now_ms=_now_ms, warn=log.warning)
        try:
            yield cluster
        except ApiError as error:
            raise BrokerError(f"{data_dir}: {error}") from None
        finally:
            cluster.close()
    finally:
        os.close(lock)


def _now_ms() -> int:
    import time

    return time.time_ns() // 1_000_000
