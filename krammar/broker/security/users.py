"""The users of a broker and their credentials.

The users of SCRAM are in the metadata log; AlterUserScramCredentials and ``krammar broker-user`` write them. The users
of PLAIN are in the settings.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from krammar.auth.scram import MIN_ITERATIONS, Mechanism
from krammar.broker.config.definitions import ConfigError
from krammar.broker.errors import BrokerError
from krammar.broker.security import scram
from krammar.broker.security.exchanges import Validate, validate_unsecured
from krammar.util.extras import MissingExtra

if TYPE_CHECKING:
    from kafka_wire import UserScramCredentialRecord

    from krammar.auth.oauth import JwtSettings
    from krammar.broker.cluster import ClusterMetadata
    from krammar.broker.config import BrokerConfig
    from krammar.broker.security.settings import SaslSettings
    from krammar.broker.timers import Timers


class Credentials:
    """The users and settings for logins.

    ``sasl``        the settings of the SASL listeners, by name
    ``validators``  what checks tokens on these listeners
    """

    def __init__(self, config: BrokerConfig, cluster: ClusterMetadata, timers: Timers) -> None:
        """Read the settings of all SASL listeners, and their keys for tokens. Raises ConfigError."""
        self._cluster = cluster
        # For the salts of unknown users.
        self._secret = secrets.token_bytes(32)
        self.sasl: dict[str, SaslSettings] = {}
        self.validators: dict[str, Validate] = {}
        for listener in config.listeners:
            if listener.sasl:
                from krammar.broker.security.settings import sasl_settings

                settings = self.sasl[listener.name] = sasl_settings(config, listener)
                self.validators[listener.name] = (
                    validate_unsecured if settings.jwt is None else _validator(settings.jwt, timers)
                )

    def credential(self, mechanism: Mechanism, user: str) -> tuple[scram.Stored, bool]:
        """Return a user's SCRAM credential and True, or a decoy and False if the user has none."""
        known = self._cluster.scram
        record = known.get((mechanism.number, user))
        if record is not None:
            return record, True
        # A number of iterations that no user has would reveal the decoy.
        iterations = min(
            (each.iterations for (number, _), each in known.items() if number == mechanism.number),
            default=MIN_ITERATIONS,
        )
        return scram.decoy(mechanism, self._secret, user, iterations), False


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
