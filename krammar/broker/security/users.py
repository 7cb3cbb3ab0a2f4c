"""The users of a broker and their credentials.

The users of SCRAM are in the metadata log; AlterUserScramCredentials and ``krammar broker-user`` write them. The users
of PLAIN are in the settings.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from krammar.auth.scram import BY_NAME, MIN_ITERATIONS, SHA_512, Mechanism
from krammar.broker.config.definitions import ConfigError
from krammar.broker.errors import ApiError, BrokerError
from krammar.broker.security import scram
from krammar.broker.security.oauth import Validate, validate_unsecured
from krammar.util.extras import MissingExtra

if TYPE_CHECKING:
    from kafka_wire import UserScramCredentialRecord

    from krammar.auth.oauth import JwtSettings
    from krammar.broker.cluster import ClusterMetadata
    from krammar.broker.config import BrokerConfig, Listener
    from krammar.broker.security.settings import SaslSettings
    from krammar.broker.timers import Timers


log = logging.getLogger("krammar.broker")


class Credentials:
    """The users and settings for logins."""

    def __init__(self, config: BrokerConfig, cluster: ClusterMetadata, timers: Timers) -> None:
        """Read the settings of all SASL listeners, and their keys for tokens. Raises ConfigError."""
        self._cluster = cluster
        # For the salts of unknown users.
        self._secret = secrets.token_bytes(32)
        self._sasl: dict[str, SaslSettings] = {}
        self._validators: dict[str, Validate] = {}
        for listener in config.listeners:
            if listener.protocol.startswith("SASL"):
                from krammar.broker.security.settings import sasl_settings

                settings = self._sasl[listener.name] = sasl_settings(config, listener)
                if settings.jwt is not None:
                    self._validators[listener.name] = _validator(settings.jwt, timers)

    def sasl_settings(self, listener: Listener) -> SaslSettings:
        """Return the settings of a SASL listener."""
        return self._sasl[listener.name]

    def token_validator(self, listener: Listener) -> Validate:
        """Return the function that checks tokens on a SASL listener."""
        return self._validators.get(listener.name, validate_unsecured)

    def credential(self, mechanism: Mechanism, user: str) -> tuple[scram.Credential, bool]:
        """Return a user's SCRAM credential and True, or a decoy and False if the user has none."""
        known = self._cluster.scram
        record = known.get((mechanism.number, user))
        if record is not None:
            return credential_of(record), True
        # A number of iterations that no user has would reveal the decoy.
        iterations = min(
            (each.iterations for (number, _), each in known.items() if number == mechanism.number),
            default=MIN_ITERATIONS,
        )
        return scram.decoy(mechanism, self._secret, user, iterations), False


def _validator(settings: JwtSettings, timers: Timers) -> Validate:
    name = "sasl.oauthbearer.jwks.endpoint.url"
    try:
        from krammar.auth.jwt import KeysError
        from krammar.broker.security.jwt import SignedTokens
    except MissingExtra as error:
        raise BrokerError(str(error)) from None
    try:
        return SignedTokens(settings, timers).validate
    except KeysError as error:
        raise ConfigError(name, settings.url, str(error)) from None


def credential_of(record: UserScramCredentialRecord) -> scram.Credential:
    """Convert a record of the metadata log to a credential."""
    return scram.Credential(
        salt=record.salt,
        iterations=record.iterations,
        stored_key=record.stored_key,
        server_key=record.server_key,
    )


def record_of(
    name: str, mechanism: Mechanism, credential: scram.Credential
) -> UserScramCredentialRecord:
    """Convert a credential to a record of the metadata log."""
    from kafka_wire import UserScramCredentialRecord

    return UserScramCredentialRecord(
        name=name,
        mechanism=mechanism.number,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )


# Changes to the folder of a broker that is not running, for the command line.


class UserError(ValueError):
    """A user cannot be added or removed."""


class User(NamedTuple):
    """A stored SCRAM credential without its secrets."""

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
    """Add a user, or replace the user's password.

    Returns:
        Whether an old password was replaced.

    Raises:
        UserError: an argument is invalid.
        BrokerError: a broker is using the folder.
    """
    kind = _mechanism(mechanism)
    if not name:
        raise UserError("a user needs a name")
    if not password:
        raise UserError("a user needs a password")
    if not MIN_ITERATIONS <= iterations <= scram.MAX_ITERATIONS:
        raise UserError(
            f"{iterations} iterations are not possible: Kafka accepts {MIN_ITERATIONS} to "
            f"{scram.MAX_ITERATIONS}"
        )
    with _metadata(data_dir) as cluster:
        replaced = (kind.number, name) in cluster.scram
        cluster.append([record_of(name, kind, scram.new_credential(kind, password, iterations))])
    return replaced


def remove_user(data_dir: Path, name: str, mechanism: str | None = None) -> list[str]:
    """Remove a user's credential for a mechanism, or all of the user's credentials.

    Returns:
        The mechanisms of the removed credentials.

    Raises:
        UserError: the user or the folder does not exist.
        BrokerError: a broker is using the folder.
    """
    from kafka_wire import RemoveUserScramCredentialRecord

    _insist_on_folder(data_dir)
    kinds = list(scram.BY_NUMBER.values()) if mechanism is None else [_mechanism(mechanism)]
    with _metadata(data_dir) as cluster:
        found = [kind for kind in kinds if (kind.number, name) in cluster.scram]
        if not found:
            suffix = "" if mechanism is None else f" with {mechanism}"
            raise UserError(f"no user {name!r}{suffix} exists")
        cluster.append(
            [RemoveUserScramCredentialRecord(name=name, mechanism=kind.number) for kind in found]
        )
    return [kind.name for kind in found]


def list_users(data_dir: Path) -> list[User]:
    """Return all stored users, sorted by name.

    Raises:
        UserError: the folder does not exist.
        BrokerError: a broker is using the folder.
    """
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
            f"{name!r} is not a SCRAM mechanism; choose one of {', '.join(BY_NAME)}"
        ) from None


@contextmanager
def _metadata(data_dir: Path) -> Iterator[ClusterMetadata]:
    """Open the metadata of a folder that no broker is using.

    Creates the folder if it is missing, so that users can be added before the broker's first start.
    """
    from krammar.broker.cluster import ClusterMetadata
    from krammar.broker.config import BrokerConfig
    from krammar.broker.log.environment import system_ms
    from krammar.broker.log.files import lock
    from krammar.broker.meta_properties import read_meta_properties

    try:
        data_dir.mkdir(parents=True, exist_ok=True)
        fd = lock(data_dir)
    except BlockingIOError:
        raise BrokerError(
            f"a broker has {data_dir} open: stop it, or change users with a client "
            "(AlterUserScramCredentials)"
        ) from None
    except OSError as error:
        raise BrokerError(f"{data_dir}: {error.strerror}") from None
    try:
        known = read_meta_properties(data_dir)
        node_id = 1 if known.node_id is None else known.node_id
        config = BrokerConfig.defaults(**{"log.dirs": str(data_dir), "node.id": str(node_id)})
        cluster = ClusterMetadata(config, now_ms=system_ms, warn=log.warning)
        try:
            yield cluster
        except ApiError as error:
            raise BrokerError(f"{data_dir}: {error.code.name}: {error.message}") from None
        finally:
            cluster.close()
    finally:
        os.close(fd)
