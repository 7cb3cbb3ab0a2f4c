"""The users of a broker and their credentials.

The users of SCRAM are in the metadata log; AlterUserScramCredentials and ``krammar broker-user``
write them. The users of PLAIN are in the settings.
"""

from __future__ import annotations

import contextlib
import secrets
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from krammar.auth import scram_server
from krammar.auth.exchanges import Validate, validate_unsecured
from krammar.auth.scram import BY_NAME, MIN_ITERATIONS, Mechanism
from krammar.broker.config.definitions import ConfigError
from krammar.broker.errors import BrokerError
from krammar.util.durable import write_atomically
from krammar.util.extras import MissingExtra
from krammar.util.regular_files import read_small

if TYPE_CHECKING:
    from kafka_wire import UserScramCredentialRecord

    from krammar.auth.oauth import JwtSettings
    from krammar.broker.cluster import ClusterMetadata
    from krammar.broker.config import BrokerConfig
    from krammar.broker.security.settings import SaslSettings
    from krammar.broker.timers import Timers

# The file in the metadata log's folder with the key of the decoys, and the size of the key in
# bytes.
DECOY_KEY = "krammar-decoys.key"
KEY_SIZE = 32
# Decoys look like the most common credentials.
MOST_KINDS = 16


class Credentials:
    """The users and settings for logins.

    Attributes:
        sasl: the settings of the SASL listeners, by name
        validators: what checks tokens on these listeners
    """

    def __init__(self, config: BrokerConfig, cluster: ClusterMetadata, timers: Timers) -> None:
        """Read the settings of all SASL listeners, and their keys. Raises ConfigError and BrokerError."""
        self._cluster = cluster
        self._secret = b""
        # What users' credentials look like, as of an offset of the metadata log.
        self._kinds: dict[int, list[tuple[int, int]]] = {}
        self._seen = -1
        self.sasl: dict[str, SaslSettings] = {}
        self.validators: dict[str, Validate] = {}
        for listener in config.listeners:
            if listener.sasl:
                from krammar.broker.security.settings import sasl_settings

                settings = self.sasl[listener.name] = sasl_settings(config, listener)
                if not self._secret and not BY_NAME.keys().isdisjoint(settings.mechanisms):
                    self._secret = read_decoy_key(config.metadata_log_dir)
                self.validators[listener.name] = (
                    validate_unsecured if settings.jwt is None else _validator(settings.jwt, timers)
                )

    def credential(self, mechanism: Mechanism, user: str) -> tuple[scram_server.Stored, bool]:
        """Return a user's SCRAM credential and True, or a decoy and False if the user has none."""
        # The same work is done for all users, so the time does not reveal who exists.
        fake = scram_server.decoy(mechanism, self._secret, user, self._kinds_of(mechanism))
        record = self._cluster.scram.get((mechanism.number, user))
        return (fake, False) if record is None else (record, True)

    def _kinds_of(self, mechanism: Mechanism) -> list[tuple[int, int]]:
        """Return the size of the salt and the number of iterations of the users' credentials."""
        seen = self._cluster.last_offset
        if seen != self._seen:
            self._seen = seen
            found: dict[int, Counter[tuple[int, int]]] = {}
            for (number, _), each in self._cluster.scram.items():
                found.setdefault(number, Counter())[len(each.salt), each.iterations] += 1
            self._kinds = {
                number: sorted(kind for kind, _ in counts.most_common(MOST_KINDS))
                for number, counts in found.items()
            }
        return self._kinds.get(mechanism.number, [(scram_server.SALT_SIZE, MIN_ITERATIONS)])


def read_decoy_key(folder: Path) -> bytes:
    """Return the key of the decoys, which is created if there is none. All nodes of a folder share it.

    Raises BrokerError if the file cannot be read or written.
    """
    path = folder / DECOY_KEY
    try:
        with contextlib.suppress(FileNotFoundError):
            key = read_small(path, KEY_SIZE)
            if len(key) == KEY_SIZE:
                return key
        key = secrets.token_bytes(KEY_SIZE)
        write_atomically(path, key, mode=0o600)  # readable for the owner only, from the start
    except OSError as error:
        raise BrokerError(f"{path}: {error.strerror}") from None
    return key


def _validator(settings: JwtSettings, timers: Timers) -> Validate:
    try:
        from krammar.auth.jwt import KeysError
        from krammar.broker.security.jwt import SignedTokens
    except MissingExtra as error:
        raise BrokerError(str(error)) from None
    try:
        return SignedTokens(settings, timers).validate
    except KeysError as error:
        name = "sasl.oauthbearer.jwks.endpoint.url"
        raise ConfigError(name, settings.url, str(error)) from None


def record_of(
    name: str, mechanism: Mechanism, credential: scram_server.Credential
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
