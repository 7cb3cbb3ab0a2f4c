"""Parses ``sasl.jaas.config``, the syntax for logins of Java's clients."""

from __future__ import annotations

from typing import NamedTuple

from krammar.auth.jaas import PLAIN_MODULE, parse_login_module
from krammar.auth.oauth import MECHANISM as OAUTHBEARER

_MODULES = {
    PLAIN_MODULE: "PLAIN",
    "org.apache.kafka.common.security.scram.ScramLoginModule": "SCRAM",
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": OAUTHBEARER,
}
_EXTENSION = "extension_"
_OAUTH = {
    "clientId": "sasl.oauthbearer.client.credentials.client.id",
    "clientSecret": "sasl.oauthbearer.client.credentials.client.secret",
    "scope": "sasl.oauthbearer.scope",
    "ssl.truststore.location": "https.ca.location",
}


class Login(NamedTuple):
    """A login; ``mechanism`` is PLAIN, SCRAM or OAUTHBEARER.

    ``settings`` are the client settings with the same meaning, by Kafka's names.
    """

    mechanism: str
    settings: dict[str, str]

    def __repr__(self) -> str:
        return f"Login({self.mechanism}, {sorted(self.settings)})"


def parse_jaas(text: str) -> Login:
    """Parse ``module required name="value" …;``.

    Raises:
        ValueError: the text is malformed or not supported. The message does not contain secrets.
    """
    module = parse_login_module(text)
    # Some hosted Spark runtimes prefix the names of Kafka's classes.
    mechanism = _MODULES.get(module.name[max(0, module.name.find("org.apache.")) :])
    if mechanism is None:
        raise ValueError(
            f"{module.name} is not supported; use PlainLoginModule, ScramLoginModule or "
            "OAuthBearerLoginModule"
        )
    if mechanism == OAUTHBEARER:
        return Login(mechanism, _oauth(module.options))
    if module.options.get("tokenauth", "false").lower() == "true":
        raise ValueError("delegation tokens are not supported")
    for name in ("username", "password"):
        if name not in module.options:
            raise ValueError(f"has no {name}")
    return Login(mechanism, {f"sasl.{n}": module.options[n] for n in ("username", "password")})


def _oauth(options: dict[str, str]) -> dict[str, str]:
    settings = {}
    extensions = []
    for name, value in options.items():
        if name.startswith("unsecured"):
            raise ValueError(
                f"{name} is not supported: krammar creates no unsecured tokens; "
                "krammar.oauthbearer.token.provider names a function that does"
            )
        if name.startswith(_EXTENSION):
            extensions.append(f"{name.removeprefix(_EXTENSION)}={value}")
        elif name in _OAUTH:
            settings[_OAUTH[name]] = value
        elif name != "ssl.truststore.type":
            raise ValueError(f"{name} is not supported")
    if extensions:
        settings["sasl.oauthbearer.extensions"] = ",".join(extensions)
    return settings
